//! ValidatingAdmissionPolicies and their bindings: which concern a write, and what they say of it
//! (`apiserver/pkg/admission/plugin/policy/{generic,matching,validating}`).
//!
//! Policies are asked in the order of their names, where the real server has none. Audit annotations go nowhere.

use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::authorizer::Asker;
use super::condition::{Condition, Verdict, decide_conditions};
use super::config::{items_of, text_of};
use super::expression::{BUDGET, CONDITIONS_BUDGET, Expression, Names, Run, Trouble, Values, Wanted};
use super::review::{self, Form};
use super::webhook::{Rule, Subject};
use super::{Attributes, in_form, index, subject_of};
use crate::error::{Cause, Status};
use crate::registry_form::view_value;
use crate::resource::Resource;
use crate::selector::LabelSelector;
use crate::server::ApiServer;
use crate::store::Key;

/// Longest message that a `messageExpression` may make.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A policy with everything compiled.
#[derive(Debug)]
pub struct Policy {
    pub name: String,
    fail_open: bool,
    constraints: Matching,
    /// `apiVersion` and `kind`.
    param_kind: Option<(String, String)>,
    conditions: Vec<Condition>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    computed: Option<Expression>,
    reason: String,
}

/// A binding: a policy is in force where one says so.
#[derive(Debug)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    matching: Option<Matching>,
    params: Option<ParamRef>,
    actions: Vec<String>,
}

#[derive(Debug)]
struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<LabelSelector>,
    deny_missing: bool,
}

/// `MatchResources`.
#[derive(Debug)]
struct Matching {
    rules: Vec<(Rule, Vec<String>)>,
    excluded: Vec<(Rule, Vec<String>)>,
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Matching {
    fn read(value: &Value) -> Matching {
        let selector = |key: &str| value.get(key).and_then(LabelSelector::from_value).unwrap_or_default();
        let rules =
            |key: &str| items_of(value, key).iter().map(|r| (Rule::read(r), texts_of(r, "resourceNames"))).collect();
        Matching {
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            equivalent: text_of(value, "matchPolicy") == "Equivalent",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The form in which the write is named here, if it is.
    fn form_for<'a>(
        &self,
        server: &ApiServer,
        attributes: &Attributes<'a>,
        object: Option<&Value>,
        others: &'a [Arc<Resource>],
    ) -> Option<Form<'a>> {
        let selected = self.objects.is_empty()
            || object.is_some_and(|o| self.objects.matches(o))
            || attributes.old_object.is_some_and(|o| self.objects.matches(o));
        if !index::in_namespace(server, &self.namespaces, attributes, object) || !selected {
            return None;
        }
        if self.first_match(&self.excluded, attributes, others).is_some() {
            return None;
        }
        if self.rules.is_empty() {
            Some(review::requested_form(attributes))
        } else {
            self.first_match(&self.rules, attributes, others)
        }
    }

    fn first_match<'a>(
        &self,
        rules: &[(Rule, Vec<String>)],
        attributes: &Attributes<'a>,
        others: &'a [Arc<Resource>],
    ) -> Option<Form<'a>> {
        let named = |names: &[String]| names.is_empty() || names.iter().any(|n| n == attributes.name);
        let hit = |form: &Form<'a>| {
            let subject: Subject<'_> = subject_of(attributes, form);
            rules.iter().any(|(rule, names)| rule.matches(&subject) && named(names))
        };
        let asked = review::requested_form(attributes);
        if hit(&asked) {
            return Some(asked);
        }
        let others = others.iter().filter(|_| self.equivalent);
        others.map(|r| Form { group: &r.group, version: &r.version, plural: &r.plural, kind: &r.kind }).find(hit)
    }
}

fn texts_of(value: &Value, key: &str) -> Vec<String> {
    items_of(value, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The expressions of a policy in the order in which they are compiled: variables see the ones before them.
pub struct Compiled {
    pub variables: Vec<(String, Expression)>,
    pub names: Names,
}

pub fn compile_variables(spec: &Value, params: bool) -> Compiled {
    let list = items_of(spec, "variables");
    let mut names = Names { params, authorizer: true, variables: (!list.is_empty()).then(Vec::new) };
    let mut variables = Vec::new();
    for variable in list {
        let (name, text) = (text_of(variable, "name").to_owned(), text_of(variable, "expression"));
        let expression = Expression::compile(text, &names, Wanted::Anything);
        // What says nothing is not compiled, and nobody knows it.
        if let Some(known) = names.variables.as_mut().filter(|_| !text.trim().is_empty()) {
            known.push((name.clone(), expression.output));
        }
        variables.push((name, expression));
    }
    Compiled { variables, names }
}

impl Policy {
    pub fn read(object: &Value) -> Policy {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let kind = spec.get("paramKind").filter(|k| k.is_object());
        let param_kind = kind.map(|k| (text_of(k, "apiVersion").to_owned(), text_of(k, "kind").to_owned()));
        let params = param_kind.is_some();
        let Compiled { variables, names } = compile_variables(spec, params);
        let without_authorizer = Names { authorizer: false, ..names.clone() };
        let read_validation = |value: &Value| {
            let reason = Some(text_of(value, "reason")).filter(|r| !r.is_empty()).unwrap_or("Invalid");
            let computed = Some(text_of(value, "messageExpression")).filter(|m| !m.trim().is_empty());
            Validation {
                expression: Expression::compile(text_of(value, "expression"), &names, Wanted::Bool),
                message: text_of(value, "message").trim().to_owned(),
                computed: computed.map(|m| Expression::compile(m, &without_authorizer, Wanted::Text)),
                reason: reason.to_owned(),
            }
        };
        Policy {
            name: crate::meta::object_name(object).to_owned(),
            fail_open: text_of(spec, "failurePolicy") == "Ignore",
            constraints: Matching::read(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            conditions: items_of(spec, "matchConditions").iter().map(|c| Condition::read(c, params)).collect(),
            validations: items_of(spec, "validations").iter().map(read_validation).collect(),
            variables,
            param_kind,
        }
    }
}

impl Binding {
    pub fn read(object: &Value) -> Binding {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Binding {
            name: crate::meta::object_name(object).to_owned(),
            policy: text_of(spec, "policyName").to_owned(),
            matching: spec.get("matchResources").filter(|m| m.is_object()).map(Matching::read),
            params: spec.get("paramRef").filter(|p| p.is_object()).map(|p| ParamRef {
                name: text_of(p, "name").to_owned(),
                namespace: text_of(p, "namespace").to_owned(),
                selector: p.get("selector").and_then(LabelSelector::from_value),
                deny_missing: text_of(p, "parameterNotFoundAction") == "Deny",
            }),
            actions: texts_of(spec, "validationActions"),
        }
    }
}

/// One refusal on its way: of the policy itself, or through a binding.
struct Denial {
    reason: String,
    message: String,
}

/// Whether any policy's constraints may name this write.
pub fn any_concerned(
    policies: &[(Arc<Policy>, Vec<Arc<Binding>>)],
    attributes: &Attributes<'_>,
    others: &[Arc<Resource>],
) -> bool {
    let named = |m: &Matching| m.rules.is_empty() || m.first_match(&m.rules, attributes, others).is_some();
    !is_exempt(attributes) && policies.iter().any(|(policy, _)| named(&policy.constraints))
}

/// Policies never judge policies, or a bad one could not be mended.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let resource = attributes.resource;
    resource.group == "admissionregistration.k8s.io"
        && (resource.plural.ends_with("admissionpolicies") || resource.plural.ends_with("admissionpolicybindings"))
}

/// Runs the policies over a write; the first denial is told.
pub fn run_policies(
    server: &ApiServer,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    others: &[Arc<Resource>],
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let policies = server.state().admission.policies(server);
    if policies.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let mut denied = None;
    for (policy, bindings) in policies.iter() {
        let Some(form) = policy.constraints.form_for(server, attributes, object, others) else { continue };
        let params_of = match param_resource(server, policy) {
            Ok(resource) => resource,
            Err(_) if policy.fail_open => continue,
            Err(why) => {
                let denial = Denial { reason: "Invalid".into(), message: format!("failed to configure policy: {why}") };
                denied = denied.or_else(|| Some(denial_status(policy, None, attributes, object, &denial)));
                continue;
            }
        };
        for binding in bindings {
            let fits = |m: &Matching| m.form_for(server, attributes, object, others).is_some();
            if !binding.matching.as_ref().is_none_or(fits) {
                continue;
            }
            let denials = match collect_params(server, params_of.as_deref(), binding, attributes) {
                Ok(params) => {
                    let judge = |p: &Option<Value>| judge_write(server, policy, attributes, object, &form, p.as_ref());
                    params.iter().flat_map(judge).collect::<Vec<_>>()
                }
                // A configuration that fails denies whatever the binding's actions are.
                Err(_) if policy.fail_open => continue,
                Err(why) => {
                    let message = format!("failed to configure binding: {why}");
                    let denial = Denial { reason: "Invalid".into(), message };
                    denied = denied.or_else(|| Some(denial_status(policy, Some(binding), attributes, object, &denial)));
                    continue;
                }
            };
            for denial in &denials {
                for action in &binding.actions {
                    match action.as_str() {
                        "Deny" => {
                            let status = || denial_status(policy, Some(binding), attributes, object, denial);
                            denied = denied.or_else(|| Some(status()));
                        }
                        "Warn" => {
                            let text = format!(
                                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                                policy.name, binding.name, denial.message
                            );
                            if !warnings.contains(&text) {
                                warnings.push(text);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    denied.map_or(Ok(()), Err)
}

/// What one policy with one parameter finds wrong.
fn judge_write(
    server: &ApiServer,
    policy: &Policy,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    form: &Form<'_>,
    params: Option<&Value>,
) -> Vec<Denial> {
    let trouble = |text: String| {
        if policy.fail_open { Vec::new() } else { vec![Denial { reason: "Invalid".into(), message: text }] }
    };
    let converted = object.and_then(|o| in_form(o, attributes, form));
    let converted_old = attributes.old_object.and_then(|o| in_form(o, attributes, form));
    let request = review::condition_request(attributes, form);
    let asker = Asker { server: server.clone(), user: attributes.user.clone() };
    let is_namespace = attributes.resource.group.is_empty() && attributes.resource.plural == "namespaces";
    let namespace = (!is_namespace).then(|| namespace_object(server, attributes.namespace)).flatten();
    let values = Values {
        object: converted.as_ref().or(object),
        old_object: converted_old.as_ref().or(attributes.old_object),
        request: &request,
        namespace: namespace.as_ref(),
        params,
        asker: Some(&asker),
    };
    let before = Values { namespace: None, ..values };
    match decide_conditions(&policy.conditions, &mut Run::new(before, CONDITIONS_BUDGET)) {
        Verdict::Call => {}
        Verdict::Skip => return Vec::new(),
        Verdict::Error(why) => return trouble(why),
    }
    let mut run = Run::new(values, BUDGET);
    if define_variables(policy, &mut run).is_err() {
        return trouble(super::expression::OUT_OF_BUDGET.into());
    }
    let mut denials = Vec::new();
    for validation in &policy.validations {
        match validation.expression.evaluate(&mut run) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let message = failure_message(validation, &mut run);
                denials.push(Denial { reason: validation.reason.clone(), message });
            }
            Err(Trouble::OutOfBudget) => return trouble(super::expression::OUT_OF_BUDGET.into()),
            Err(Trouble::Failed(why)) => denials.extend(trouble(why)),
        }
    }
    denials
}

/// Computes the variables that an expression of the policy reads, and what those read.
fn define_variables(policy: &Policy, run: &mut Run<'_>) -> Result<(), Trouble> {
    let mut read: Vec<&Expression> = Vec::new();
    for validation in &policy.validations {
        read.push(&validation.expression);
        read.extend(&validation.computed);
    }
    let mut needed = vec![false; policy.variables.len()];
    for (i, (name, expression)) in policy.variables.iter().enumerate().rev() {
        let full = format!("variables.{name}");
        if let Some(needed) = needed.get_mut(i).filter(|_| read.iter().any(|e| e.uses(&full))) {
            *needed = true;
            read.push(expression);
        }
    }
    for ((name, expression), _) in policy.variables.iter().zip(needed).filter(|(_, needed)| *needed) {
        run.define(name, expression)?;
    }
    Ok(())
}

fn failure_message(validation: &Validation, run: &mut Run<'_>) -> String {
    let computed = validation.computed.as_ref().and_then(|m| match m.evaluate(run) {
        Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
        _ => None,
    });
    let usable = |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    if let Some(text) = computed.filter(usable) {
        return text;
    }
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.source.trim()),
        message => message.to_owned(),
    }
}

/// A Namespace without what expressions do not see of it.
fn namespace_object(server: &ApiServer, namespace: &str) -> Option<Value> {
    let object = server.store().get("namespaces", &Key::new("", namespace)).filter(|_| !namespace.is_empty())?;
    let mut value = object.value.clone();
    for member in ["kind", "apiVersion"] {
        value.as_object_mut()?.remove(member);
    }
    for member in ["managedFields", "ownerReferences"] {
        value.get_mut("metadata")?.as_object_mut()?.remove(member);
    }
    Some(value)
}

/// What a policy's parameters are, if it has any (`ensureParamsForPolicyLocked`).
fn param_resource(server: &ApiServer, policy: &Policy) -> Result<Option<Arc<Resource>>, String> {
    let Some((api_version, kind)) = &policy.param_kind else { return Ok(None) };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = server.registry().by_kind(group, version, kind).cloned();
    let why = || format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'");
    found.ok_or_else(why).map(Some)
}

/// The parameters of a binding; one `None` where it has none (`CollectParams`).
fn collect_params(
    server: &ApiServer,
    resource: Option<&Resource>,
    binding: &Binding,
    attributes: &Attributes<'_>,
) -> Result<Vec<Option<Value>>, String> {
    let (Some(resource), Some(wanted)) = (resource, &binding.params) else { return Ok(vec![None]) };
    let namespace = match (resource.namespaced, wanted.namespace.as_str()) {
        (false, "") => "",
        (false, _) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (true, "") if attributes.namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "") => attributes.namespace,
        (true, given) => given,
    };
    let found: Vec<_> = if wanted.name.is_empty() {
        let all = server.store().list(&resource.storage, Some(namespace).filter(|_| resource.namespaced));
        let selected = |v: &Value| wanted.selector.as_ref().is_none_or(|s| s.matches(v));
        all.into_iter().filter(|o| selected(&o.value)).collect()
    } else {
        server.store().get(&resource.storage, &Key::new(namespace, &wanted.name)).into_iter().collect()
    };
    if found.is_empty() && wanted.deny_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found.iter().map(|object| Some(view_value(resource, object))).collect())
}

fn denial_status(
    policy: &Policy,
    binding: Option<&Binding>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    denial: &Denial,
) -> Status {
    let blamed = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{}'{blamed} denied request: {}", policy.name, denial.message);
    let resource = attributes.resource;
    let name = forbidden_name(attributes, object);
    let mut status = Status::forbidden(&resource.group, &resource.plural, &name, &message);
    status.reason.clone_from(&denial.reason);
    status.code = match denial.reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.with_causes(vec![Cause { reason: String::new(), message, field: String::new() }])
}

/// The name in a refusal when the object has none yet (`extractResourceName`).
fn forbidden_name(attributes: &Attributes<'_>, object: Option<&Value>) -> String {
    let of = |key: &str| object.map(|o| crate::meta::metadata_text(o, key)).unwrap_or_default();
    let known = [attributes.name, of("name"), of("generateName")].into_iter().find(|n| !n.is_empty());
    known.unwrap_or("Unknown").to_owned()
}
