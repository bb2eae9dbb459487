//! What validating and mutating policies have in common: which writes they and their bindings name, their parameters,
//! their conditions and variables (`apiserver/pkg/admission/plugin/policy/{generic,matching}`).

use std::sync::Arc;

use serde_json::Value;

use super::authorizer::Asker;
use super::condition::{Condition, Verdict, decide_conditions};
use super::config::{items_of, text_of};
use super::expression::{BUDGET, CONDITIONS_BUDGET, Expression, Names, OUT_OF_BUDGET, Run, Trouble, Values, Wanted};
use super::review::{self, Form};
use super::webhook::{Rule, Subject};
use super::{Attributes, in_form, index, subject_of};
use crate::registry_form::view_value;
use crate::resource::Resource;
use crate::selector::LabelSelector;
use crate::server::ApiServer;
use crate::store::Key;

/// What every policy has.
#[derive(Debug)]
pub struct Head {
    pub name: String,
    pub fail_open: bool,
    constraints: Matching,
    /// `apiVersion` and `kind`.
    param_kind: Option<(String, String)>,
    conditions: Vec<Condition>,
    variables: Vec<(String, Expression)>,
}

impl Head {
    /// The head of a policy, and the names that the rest of it may use.
    pub fn read(object: &Value) -> (Head, Names) {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let kind = spec.get("paramKind").filter(|k| k.is_object());
        let param_kind = kind.map(|k| (text_of(k, "apiVersion").to_owned(), text_of(k, "kind").to_owned()));
        let params = param_kind.is_some();
        let Compiled { variables, names } = compile_variables(spec, params);
        let head = Head {
            name: crate::meta::object_name(object).to_owned(),
            fail_open: text_of(spec, "failurePolicy") == "Ignore",
            constraints: Matching::read(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            conditions: items_of(spec, "matchConditions").iter().map(|c| Condition::read(c, params)).collect(),
            variables,
            param_kind,
        };
        (head, names)
    }

    /// Computes the variables that these expressions read, and what those read.
    fn define_variables<'h>(&'h self, mut read: Vec<&'h Expression>, run: &mut Run<'_>) -> Result<(), Trouble> {
        let mut needed = vec![false; self.variables.len()];
        for (i, (name, expression)) in self.variables.iter().enumerate().rev() {
            let full = format!("variables.{name}");
            if let Some(needed) = needed.get_mut(i).filter(|_| read.iter().any(|e| e.uses(&full))) {
                *needed = true;
                read.push(expression);
            }
        }
        for ((name, expression), _) in self.variables.iter().zip(needed).filter(|(_, needed)| *needed) {
            run.define(name, expression)?;
        }
        Ok(())
    }
}

/// What has a head: a policy of either kind.
pub trait HasHead {
    fn head(&self) -> &Head;
}

/// The policies of one kind that a binding puts in force, by name, with those bindings.
pub type InForce<P> = Vec<(Arc<P>, Vec<Arc<Binding>>)>;

/// A policy that concerns a write, through a binding and with one of its parameters.
pub struct Invocation<'p, 'a, P> {
    pub policy: &'p P,
    pub binding: &'p Binding,
    pub form: Form<'a>,
    pub params: Option<Value>,
}

/// A policy whose configuration fails, or a binding's.
pub struct Misconfigured<'p, P> {
    pub policy: &'p P,
    pub binding: Option<&'p Binding>,
    pub why: String,
}

/// The policies that concern this write, in order. One that fails open and is not well configured does not.
pub fn find_invocations<'p, 'a, P: HasHead>(
    server: &ApiServer,
    policies: &'p InForce<P>,
    attributes: &Attributes<'a>,
    object: Option<&Value>,
    others: &'a [Arc<Resource>],
) -> Vec<Result<Invocation<'p, 'a, P>, Misconfigured<'p, P>>> {
    let mut found = Vec::new();
    for (policy, bindings) in policies.iter().filter(|_| !is_exempt(attributes)) {
        let head = policy.head();
        let Some(form) = head.constraints.form_for(server, attributes, object, others) else { continue };
        let mut misconfigured = |binding, why: String| {
            if !head.fail_open {
                found.push(Err(Misconfigured { policy: &**policy, binding, why }));
            }
        };
        let kind = match param_resource(server, head) {
            Ok(kind) => kind,
            Err(why) => {
                misconfigured(None, format!("failed to configure policy: {why}"));
                continue;
            }
        };
        for binding in bindings {
            let fits = |m: &Matching| m.form_for(server, attributes, object, others).is_some();
            if !binding.matching.as_ref().is_none_or(fits) {
                continue;
            }
            match collect_params(server, kind.as_deref(), binding, attributes) {
                Ok(all) => found
                    .extend(all.into_iter().map(|params| Ok(Invocation { policy: &**policy, binding, form, params }))),
                Err(why) if !head.fail_open => {
                    let why = format!("failed to configure binding: {why}");
                    found.push(Err(Misconfigured { policy: &**policy, binding: Some(&**binding), why }));
                }
                Err(_) => {}
            }
        }
    }
    found
}

/// Whether any policy's constraints may name this write.
pub fn any_concerned<P: HasHead>(policies: &InForce<P>, attributes: &Attributes<'_>, others: &[Arc<Resource>]) -> bool {
    let named = |m: &Matching| m.rules.is_empty() || m.first_match(&m.rules, attributes, others).is_some();
    !is_exempt(attributes) && policies.iter().any(|(policy, _)| named(&policy.head().constraints))
}

/// What the expressions of a policy see of a write.
pub struct Scene<'a> {
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    converted: [Option<Value>; 2],
    request: Value,
    namespace: Option<Value>,
    params: Option<&'a Value>,
    asker: Asker,
}

impl<'a> Scene<'a> {
    pub fn new(
        server: &ApiServer,
        attributes: &Attributes<'a>,
        object: Option<&'a Value>,
        form: &Form<'_>,
        params: Option<&'a Value>,
    ) -> Self {
        let converted = |object: Option<&Value>| object.and_then(|o| in_form(o, attributes, form));
        let is_namespace = attributes.resource.group.is_empty() && attributes.resource.plural == "namespaces";
        Self {
            object,
            old_object: attributes.old_object,
            converted: [converted(object), converted(attributes.old_object)],
            request: review::condition_request(attributes, form),
            namespace: (!is_namespace).then(|| namespace_object(server, attributes.namespace)).flatten(),
            params,
            asker: Asker { server: server.clone(), user: attributes.user.clone() },
        }
    }

    fn values(&self) -> Values<'_> {
        let [object, old_object] = &self.converted;
        Values {
            object: object.as_ref().or(self.object),
            old_object: old_object.as_ref().or(self.old_object),
            request: &self.request,
            namespace: self.namespace.as_ref(),
            params: self.params,
            asker: Some(&self.asker),
        }
    }

    pub fn decide(&self, head: &Head) -> Verdict {
        let values = Values { namespace: None, ..self.values() };
        decide_conditions(&head.conditions, &mut Run::new(values, CONDITIONS_BUDGET))
    }

    /// A run with the variables that these expressions read; an error when they are too dear.
    pub fn start<'h>(&self, head: &'h Head, read: Vec<&'h Expression>) -> Result<Run<'_>, String> {
        let mut run = Run::new(self.values(), BUDGET);
        head.define_variables(read, &mut run).map_err(|_| OUT_OF_BUDGET.to_owned())?;
        Ok(run)
    }
}

/// A binding: a policy is in force where one says so.
#[derive(Debug)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    matching: Option<Matching>,
    params: Option<ParamRef>,
    /// Only of a validating policy's binding.
    pub actions: Vec<String>,
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
    let mut names = Names { params, authorizer: true, patches: false, variables: (!list.is_empty()).then(Vec::new) };
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

/// Policies never judge policies, or a bad one could not be mended.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let resource = attributes.resource;
    resource.group == "admissionregistration.k8s.io"
        && (resource.plural.ends_with("admissionpolicies") || resource.plural.ends_with("admissionpolicybindings"))
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
fn param_resource(server: &ApiServer, head: &Head) -> Result<Option<Arc<Resource>>, String> {
    let Some((api_version, kind)) = &head.param_kind else { return Ok(None) };
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

/// The name in a refusal when the object has none yet (`extractResourceName`).
pub fn forbidden_name(attributes: &Attributes<'_>, object: Option<&Value>) -> String {
    let of = |key: &str| object.map(|o| crate::meta::metadata_text(o, key)).unwrap_or_default();
    let known = [attributes.name, of("name"), of("generateName")].into_iter().find(|n| !n.is_empty());
    known.unwrap_or("Unknown").to_owned()
}
