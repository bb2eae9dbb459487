//! MutatingAdmissionPolicies in force: what they make of an object
//! (`apiserver/pkg/admission/plugin/policy/mutating/{dispatcher.go,patch}`).

use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use serde_json::{Map, Value, json};

use super::condition::Verdict;
use super::config::{items_of, text_of};
use super::expression::{Expression, Names, OUT_OF_BUDGET, Trouble, Wanted};
use super::made::{read_object, read_value};
use super::matching::{Binding, HasHead, Head, InForce, Invocation, Scene, find_invocations, forbidden_name};
use super::review::Form;
use super::{Attributes, Reinvocation, Round, Tidy, convert, in_form};
use crate::error::{Cause, Status};
use crate::resource::Resource;
use crate::server::ApiServer;

/// A policy with everything compiled.
#[derive(Debug)]
pub struct MutatingPolicy {
    head: Head,
    mutations: Vec<Mutation>,
    reinvoke_if_needed: bool,
}

#[derive(Debug)]
enum Mutation {
    /// Makes an object that is laid over the one that is written.
    Apply(Expression),
    /// Makes the operations of a JSON patch.
    Patch(Expression),
}

impl Mutation {
    fn read(value: &Value, names: &Names) -> Mutation {
        let source = |key: &str| value.get(key).map_or("", |part| text_of(part, "expression"));
        match text_of(value, "patchType") {
            "JSONPatch" => Self::Patch(Expression::compile(source("jsonPatch"), names, Wanted::Patches)),
            _ => Self::Apply(Expression::compile(source("applyConfiguration"), names, Wanted::Object)),
        }
    }

    fn expression(&self) -> &Expression {
        match self {
            Self::Apply(expression) | Self::Patch(expression) => expression,
        }
    }
}

impl HasHead for MutatingPolicy {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl MutatingPolicy {
    pub fn read(object: &Value) -> MutatingPolicy {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let (head, names) = Head::read(object);
        let names = Names { patches: true, ..names };
        MutatingPolicy {
            head,
            mutations: items_of(spec, "mutations").iter().map(|m| Mutation::read(m, &names)).collect(),
            reinvoke_if_needed: text_of(spec, "reinvocationPolicy") == "IfNeeded",
        }
    }
}

/// Why a mutation did not come about.
enum Failure {
    /// The failure policy decides.
    Policy(String),
    Refused(Status),
}

/// The policy, the binding and the parameter of an invocation.
type InvocationKey = (String, String, Option<String>);

/// The run of the mutating policies over one write.
pub struct Mutator<'r> {
    server: &'r ApiServer,
    policies: &'r InForce<MutatingPolicy>,
    attributes: &'r Attributes<'r>,
    others: &'r [Arc<Resource>],
    tidy: &'r Tidy<'r>,
    reinvocation: Reinvocation<InvocationKey>,
    /// What the last round left.
    last: Option<Value>,
}

impl<'r> Mutator<'r> {
    pub fn new(
        server: &'r ApiServer,
        policies: &'r InForce<MutatingPolicy>,
        attributes: &'r Attributes<'r>,
        others: &'r [Arc<Resource>],
        tidy: &'r Tidy<'r>,
    ) -> Self {
        Self { server, policies, attributes, others, tidy, reinvocation: Reinvocation::default(), last: None }
    }

    /// One round; whether another is due, because a policy ran.
    pub fn run(&mut self, round: Round, mut object: Option<&mut Value>) -> Result<bool, Status> {
        if self.policies.is_empty() {
            return Ok(false);
        }
        if round == Round::Again && self.last.as_ref() != object.as_deref() {
            self.reinvocation.require();
        }
        let (server, policies, attributes) = (self.server, self.policies, self.attributes);
        let mut errors = Vec::new();
        let mut invocations = Vec::new();
        for found in find_invocations(server, policies, attributes, object.as_deref(), self.others) {
            match found {
                Ok(invocation) => invocations.push(invocation),
                Err(bad) => errors.push((denial_text(bad.policy, bad.binding, &bad.why), "")),
            }
        }
        let mut ran = false;
        for invocation in &invocations {
            let failed = self.invoke(round, invocation, object.as_deref_mut(), &mut ran)?;
            let told = failed.iter().map(|why| denial_text(invocation.policy, Some(invocation.binding), why));
            errors.extend(told.map(|text| (text, "Invalid")));
        }
        if ran {
            self.reinvocation.require();
        }
        self.last = object.as_deref().cloned();
        match errors.is_empty() {
            true => Ok(ran),
            false => Err(denial_status(attributes, object.as_deref(), errors)),
        }
    }

    /// One policy with one parameter: its mutations one after another. What fails, unless the policy fails open.
    fn invoke(
        &mut self,
        round: Round,
        invocation: &Invocation<'_, '_, MutatingPolicy>,
        object: Option<&mut Value>,
        ran: &mut bool,
    ) -> Result<Vec<String>, Status> {
        let policy = invocation.policy;
        let open = |why: String| if policy.head.fail_open { Vec::new() } else { vec![why] };
        let scene = self.scene(invocation, object.as_deref());
        match scene.decide(&policy.head) {
            Verdict::Call => {}
            Verdict::Skip => return Ok(Vec::new()),
            Verdict::Error(why) => return Ok(open(why)),
        }
        let parameter = invocation
            .params
            .as_ref()
            .map(|p| format!("{}/{}", crate::meta::metadata_text(p, "namespace"), crate::meta::object_name(p)));
        let key = (policy.head.name.clone(), invocation.binding.name.clone(), parameter);
        if round == Round::Again && !self.reinvocation.due.contains(&key) {
            return Ok(Vec::new());
        }
        let mut failed = Vec::new();
        if let Some(object) = object {
            let before = object.clone();
            for mutation in &policy.mutations {
                match self.mutate(invocation, mutation, object) {
                    Ok(next) => {
                        *ran = true;
                        *object = next;
                    }
                    Err(Failure::Policy(why)) => failed.extend(open(why)),
                    Err(Failure::Refused(status)) => return Err(status),
                }
            }
            if *object != before {
                self.reinvocation.require();
            }
        }
        if policy.reinvoke_if_needed {
            self.reinvocation.invoked.insert(key);
        }
        Ok(failed)
    }

    fn scene<'s>(&'s self, invocation: &'s Invocation<'_, '_, MutatingPolicy>, object: Option<&'s Value>) -> Scene<'s> {
        Scene::new(self.server, self.attributes, object, &invocation.form, invocation.params.as_ref())
    }

    /// The object after one mutation.
    fn mutate(
        &self,
        invocation: &Invocation<'_, '_, MutatingPolicy>,
        mutation: &Mutation,
        object: &Value,
    ) -> Result<Value, Failure> {
        let head = &invocation.policy.head;
        let expression = mutation.expression();
        let made = {
            let scene = self.scene(invocation, Some(object));
            let mut run = scene.start(head, vec![expression]).map_err(Failure::Policy)?;
            expression.evaluate(&mut run).map_err(|trouble| {
                Failure::Policy(match trouble {
                    Trouble::OutOfBudget => OUT_OF_BUDGET.to_owned(),
                    Trouble::Failed(why) => why,
                })
            })?
        };
        let converted = in_form(object, self.attributes, &invocation.form);
        let live = converted.as_ref().unwrap_or(object);
        let mut next = match mutation {
            Mutation::Apply(_) => self.lay_over(live, &made, &invocation.form)?,
            Mutation::Patch(_) => self.patch(live, &made)?,
        };
        if converted.is_some() {
            next = convert(next, self.attributes, &self.attributes.resource.api_version());
        }
        (self.tidy)(&mut next).map_err(Failure::Refused)?;
        Ok(next)
    }

    fn lay_over(&self, live: &Value, made: &CelValue, form: &Form<'_>) -> Result<Value, Failure> {
        let mut over = read_object(made).map_err(Failure::Policy)?;
        for member in ["apiVersion", "kind"] {
            over[member] = live.get(member).cloned().unwrap_or_default();
        }
        let registry = self.server.registry();
        let (group, version, kind) = self.attributes.subresource_kind.unwrap_or((form.group, form.version, form.kind));
        let Some(resource) = registry.by_kind(group, version, kind) else {
            let text = format!(
                "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay between when \
                 CustomResourceDefinitions are created and when they are available."
            );
            return Err(Failure::Refused(Status::new(503, "ServiceUnavailable", text)));
        };
        crate::fields::lay_over(live, &over, &resource.schema)
            .map_err(|why| Failure::Policy(format!("error applying patch: {why}")))
    }

    fn patch(&self, live: &Value, made: &CelValue) -> Result<Value, Failure> {
        let CelValue::List(list) = made else {
            let why = "type mismatch: JSONPatchType.expression should evaluate to array";
            return Err(Failure::Policy(why.to_owned()));
        };
        let operations: Result<Vec<Value>, String> = list.iter().map(read_operation).collect();
        let operations = Value::Array(operations.map_err(Failure::Policy)?);
        let patched = match crate::patch::json_patch(live, &operations) {
            Ok(patched) => patched,
            // A test that fails is no failure of the policy.
            Err(why) if why.to_string().ends_with("test failed") => return Ok(live.clone()),
            Err(why) => return Err(Failure::Policy(format!("JSON Patch: {why}"))),
        };
        match self.unknown_fields(&patched) {
            unknown if unknown.is_empty() => Ok(patched),
            unknown => {
                let shown: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
                let text = format!("strict decoding error: {}", shown.join(", "));
                Err(Failure::Refused(Status::internal(text)))
            }
        }
    }

    /// The fields that a built-in kind has not. One that cannot be decoded is told of elsewhere.
    fn unknown_fields(&self, patched: &Value) -> Vec<String> {
        let resource = self.attributes.resource;
        if resource.is_custom() || resource.schema.decode_error(patched).is_some() {
            return Vec::new();
        }
        let mut decoded = patched.clone();
        resource.schema.prune(&mut decoded)
    }
}

/// An operation of a JSON patch as the library takes it.
fn read_operation(made: &CelValue) -> Result<Value, String> {
    let value = read_value(made)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut operation = Map::new();
    operation.insert("op".to_owned(), json!(text("op")));
    operation.insert("path".to_owned(), json!(text("path")));
    if !text("from").is_empty() {
        operation.insert("from".to_owned(), json!(text("from")));
    }
    operation.extend(value.get("value").map(|value| ("value".to_owned(), value.clone())));
    Ok(Value::Object(operation))
}

fn denial_text(policy: &MutatingPolicy, binding: Option<&Binding>, why: &str) -> String {
    let name = &policy.head.name;
    match binding {
        Some(binding) => format!("policy '{name}' with binding '{}' denied request: {why}", binding.name),
        None => format!("policy {} denied request: {why}", crate::error::go_quote(name)),
    }
}

/// The first refusal gives the text and the reason; all of them are causes.
fn denial_status(attributes: &Attributes<'_>, object: Option<&Value>, errors: Vec<(String, &str)>) -> Status {
    let resource = attributes.resource;
    let mut status = Status::forbidden(&resource.group, &resource.plural, &forbidden_name(attributes, object), "");
    if let Some((text, reason)) = errors.first() {
        status.message.clone_from(text);
        if !reason.is_empty() {
            status.reason = (*reason).to_owned();
        }
    }
    let cause = |(message, _)| Cause { reason: String::new(), message, field: String::new() };
    status.with_causes(errors.into_iter().map(cause).collect())
}
