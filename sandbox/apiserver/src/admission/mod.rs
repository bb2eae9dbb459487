//! Admission webhooks: which are asked, in which order, and what becomes of their answers
//! (`apiserver/pkg/admission/plugin/webhook/{generic,mutating,validating}`). Policies are asked before the webhooks.

mod answer;
mod authorizer;
mod call;
mod condition;
mod config;
mod expression;
mod index;
mod made;
mod matching;
mod mutation;
mod mutation_config;
mod policy;
mod policy_config;
mod review;
mod url;
mod webhook;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

pub use config::{client_errors, requirement_errors, selector_errors, validate_configuration};
pub use index::Index;
pub use mutation_config::{validate_mutating_binding, validate_mutating_policy};
pub use policy_config::{validate_binding, validate_policy};

use crate::auth::User;
use crate::error::Status;
use crate::resource::Resource;
use crate::server::ApiServer;
use authorizer::Asker;
use condition::Verdict;
use expression::{CONDITIONS_BUDGET, Run, Values};
use mutation::Mutator;

use review::{Answer, Form, Patch};
use webhook::{Subject, Webhook};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write on its way in. Objects are in the version of `resource`.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    pub operation: Operation,
    pub resource: &'a Arc<Resource>,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The kind of the body when a subresource has its own: (group, version, kind).
    pub subresource_kind: Option<(&'a str, &'a str, &'a str)>,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty on a create with generateName.
    pub name: &'a str,
    pub old_object: Option<&'a Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, with kind and apiVersion.
    pub options: &'a Value,
    pub dry_run: bool,
    pub user: &'a User,
}

/// Decodes an object that a webhook patched.
pub type Tidy<'t> = dyn Fn(&mut Value) -> Result<(), Status> + Send + Sync + 't;

/// Why a call did not lead to a verdict on the write.
enum Failure {
    /// The webhook could not be asked: its failure policy decides.
    Call(String),
    Refused(Status),
}

/// Whether any webhook's or policy's rules name this write: lets the common case skip everything else.
pub fn any_concerned(server: &ApiServer, attributes: &Attributes<'_>) -> bool {
    let index = &server.state().admission;
    let (validating, mutating) = (index.validating_policies(server), index.mutating_policies(server));
    if !validating.is_empty() || !mutating.is_empty() {
        let others = equivalent_resources(server, attributes);
        if matching::any_concerned(&validating, attributes, &others)
            || matching::any_concerned(&mutating, attributes, &others)
        {
            return true;
        }
    }
    let webhooks = server.state().admission.webhooks(server);
    if (webhooks.mutating.is_empty() && webhooks.validating.is_empty()) || is_exempt(attributes) {
        return false;
    }
    let forms = equivalent_resources(server, attributes);
    let named = |list: &[Arc<Webhook>]| list.iter().any(|w| form_for(w, attributes, &forms).is_some());
    named(&webhooks.mutating) || named(&webhooks.validating)
}

/// Whether there are mutating webhooks or policies at all.
pub fn has_mutating(server: &ApiServer) -> bool {
    let index = &server.state().admission;
    !index.webhooks(server).mutating.is_empty() || !index.mutating_policies(server).is_empty()
}

/// Runs the mutating policies, then the mutating webhooks over `object` (`None` on a delete), collecting their
/// warnings. Who wants to sees the object again when somebody else changed it (`admission/reinvocation.go`).
///
/// After each patch the caller's `tidy` decodes the object again: it prunes and defaults, or says why it cannot.
pub async fn run_mutating(
    server: &ApiServer,
    attributes: &Attributes<'_>,
    mut object: Option<&mut Value>,
    tidy: &Tidy<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let webhooks = server.state().admission.webhooks(server);
    let policies = server.state().admission.mutating_policies(server);
    if (webhooks.mutating.is_empty() && policies.is_empty()) || is_exempt(attributes) {
        return Ok(());
    }
    let forms = equivalent_resources(server, attributes);
    let mut mutator = Mutator::new(server, &policies, attributes, &forms, tidy);
    let mut reinvocation = Reinvocation::default();
    let mut seen = None;
    for round in [Round::First, Round::Again] {
        let changed = mutator.run(round, object.as_deref_mut())?;
        reinvocation.needed |= changed;
        if round == Round::Again && seen.as_ref() != object.as_deref() {
            reinvocation.require();
        }
        for webhook in &webhooks.mutating {
            if round == Round::Again && !reinvocation.due.contains(webhook.uid.as_str()) {
                continue;
            }
            let Some(form) = is_concerned(server, webhook, attributes, object.as_deref(), &forms)? else { continue };
            match mutate_once(server, webhook, attributes, &form, object.as_deref_mut(), tidy, warnings).await {
                Ok(changed) => {
                    if changed {
                        reinvocation.require();
                    }
                }
                Err(Failure::Call(_)) if webhook.fail_open => {}
                Err(failure) => return Err(refusal_of(webhook, failure)),
            }
            if webhook.reinvoke_if_needed {
                reinvocation.invoked.insert(webhook.uid.as_str());
            }
        }
        if !reinvocation.needed {
            break;
        }
        seen = object.as_deref().cloned();
    }
    Ok(())
}

/// Runs the validating policies, then the validating webhooks, these all at once.
pub async fn run_validating(
    server: &ApiServer,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let forms = equivalent_resources(server, attributes);
    let policies = server.state().admission.validating_policies(server);
    policy::run_policies(server, &policies, attributes, object, &forms, warnings)?;
    let webhooks = server.state().admission.webhooks(server);
    if webhooks.validating.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let mut calls = Vec::new();
    for webhook in &webhooks.validating {
        if let Some(form) = is_concerned(server, webhook, attributes, object, &forms)? {
            calls.push(validate_once(server, webhook, attributes, form, object));
        }
    }
    let mut refused = None;
    let mut answers = futures::future::join_all(calls).await;
    // Who answers first is heard first; of those that answer at once, whoever is named first.
    answers.sort_by_key(|(_, after, _)| *after);
    for (webhook, _, answer) in answers {
        match answer {
            Ok(answer) => {
                warnings.extend(answer.warnings);
                if !answer.allowed {
                    refused = refused.or_else(|| Some(review::denial_status(&webhook.name, &answer.status)));
                }
            }
            Err(Failure::Call(_)) if webhook.fail_open => {}
            Err(failure) => refused = refused.or_else(|| Some(refusal_of(webhook, failure))),
        }
    }
    refused.map_or(Ok(()), Err)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    First,
    Again,
}

/// Who sees the object a second time: those with `IfNeeded` that ran before the last change by another one. `K` tells
/// them apart.
struct Reinvocation<K> {
    invoked: BTreeSet<K>,
    due: BTreeSet<K>,
    needed: bool,
}

impl<K: Ord> Default for Reinvocation<K> {
    fn default() -> Self {
        Self { invoked: BTreeSet::new(), due: BTreeSet::new(), needed: false }
    }
}

impl<K: Ord> Reinvocation<K> {
    fn require(&mut self) {
        self.due.append(&mut self.invoked);
        self.needed = true;
    }
}

/// Configurations of admission itself never pass through webhooks, or a bad one could not be mended.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.resource.group == "admissionregistration.k8s.io"
        && matches!(
            attributes.resource.plural.as_str(),
            "mutatingwebhookconfigurations"
                | "validatingwebhookconfigurations"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
        )
}

/// The other forms of the kind, which rules may name instead.
fn equivalent_resources(server: &ApiServer, attributes: &Attributes<'_>) -> Vec<Arc<Resource>> {
    let registry = server.registry();
    let Some(custom) = &attributes.resource.custom else {
        // Events are served by two groups, autoscalers in two versions (`kubeapiserver.NewStorageFactoryConfig`).
        let own = attributes.resource;
        let other = |r: &&Arc<Resource>| {
            r.custom.is_none() && r.storage == own.storage && (&r.group, &r.version) != (&own.group, &own.version)
        };
        return registry.iter().filter(other).cloned().collect();
    };
    let same = |r: &&Arc<Resource>| {
        r.version != attributes.resource.version && r.custom.as_ref().is_some_and(|c| c.crd_name == custom.crd_name)
    };
    registry.iter().filter(same).cloned().collect()
}

/// What rules are held against, in one form of the write.
fn subject_of<'a>(attributes: &Attributes<'a>, form: &Form<'a>) -> Subject<'a> {
    let is_namespace = attributes.resource.group.is_empty() && attributes.resource.plural == "namespaces";
    Subject {
        operation: attributes.operation,
        group: form.group,
        version: form.version,
        resource: form.plural,
        subresource: attributes.subresource,
        namespaced: !is_namespace && !attributes.namespace.is_empty(),
    }
}

/// The form in which the webhook's rules name the write, if they do.
fn form_for<'a>(webhook: &Webhook, attributes: &Attributes<'a>, others: &'a [Arc<Resource>]) -> Option<Form<'a>> {
    let asked = review::requested_form(attributes);
    let subject = |form: &Form<'a>| subject_of(attributes, form);
    if webhook.rules.iter().any(|r| r.matches(&subject(&asked))) {
        return Some(asked);
    }
    if !webhook.equivalent {
        return None;
    }
    webhook.rules.iter().find_map(|rule| {
        others
            .iter()
            .map(|r| Form { group: &r.group, version: &r.version, plural: &r.plural, kind: &r.kind })
            .find(|form| rule.matches(&subject(form)))
    })
}

/// Whether this webhook is to be asked, and in which form.
fn is_concerned<'a>(
    server: &ApiServer,
    webhook: &Webhook,
    attributes: &Attributes<'a>,
    object: Option<&Value>,
    others: &'a [Arc<Resource>],
) -> Result<Option<Form<'a>>, Status> {
    let Some(form) = form_for(webhook, attributes, others) else { return Ok(None) };
    if !index::in_namespace(server, &webhook.namespace_selector, attributes, object)
        || !selects_object(webhook, attributes, object)
    {
        return Ok(None);
    }
    if webhook.conditions.is_empty() {
        return Ok(Some(form));
    }
    let request = review::condition_request(attributes, &review::requested_form(attributes));
    let asker = Asker { server: server.clone(), user: attributes.user.clone() };
    let values = Values {
        object,
        old_object: attributes.old_object,
        request: &request,
        namespace: None,
        params: None,
        asker: Some(&asker),
    };
    match condition::decide_conditions(&webhook.conditions, &mut Run::new(values, CONDITIONS_BUDGET)) {
        Verdict::Call => Ok(Some(form)),
        Verdict::Skip => Ok(None),
        Verdict::Error(_) if webhook.fail_open => Ok(None),
        Verdict::Error(why) => {
            let resource = attributes.resource;
            Err(Status::forbidden(&resource.group, &resource.plural, attributes.name, &why))
        }
    }
}

/// The new or the old object has the labels: a webhook learns of an object that leaves its selection.
fn selects_object(webhook: &Webhook, attributes: &Attributes<'_>, object: Option<&Value>) -> bool {
    let selector = &webhook.object_selector;
    selector.is_empty()
        || object.is_some_and(|o| selector.matches(o))
        || attributes.old_object.is_some_and(|o| selector.matches(o))
}

fn refusal_of(webhook: &Webhook, failure: Failure) -> Status {
    match failure {
        Failure::Call(why) => {
            Status::internal(format!("failed calling webhook {}: {why}", crate::error::go_quote(&webhook.name)))
        }
        Failure::Refused(status) => status,
    }
}

/// The object as the webhook wants it.
fn in_form(object: &Value, attributes: &Attributes<'_>, form: &Form<'_>) -> Option<Value> {
    if attributes.subresource_kind.is_some() || *form == review::requested_form(attributes) {
        return None;
    }
    Some(convert(object.clone(), attributes, &form.api_version()))
}

/// Another version of a custom kind differs in `apiVersion` alone.
fn convert(object: Value, attributes: &Attributes<'_>, api_version: &str) -> Value {
    let mut converted = crate::registry_form::convert_builtin(attributes.resource, object, api_version);
    set_api_version(&mut converted, api_version);
    converted
}

fn set_api_version(object: &mut Value, api_version: &str) {
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".into(), api_version.into());
    }
}

async fn ask_webhook(
    server: &ApiServer,
    webhook: &Webhook,
    attributes: &Attributes<'_>,
    form: &Form<'_>,
    object: Option<&Value>,
    mutating: bool,
) -> Result<Answer, Failure> {
    if attributes.dry_run && webhook.side_effects_on_dry_run {
        let text = format!("admission webhook {} does not support dry run", crate::error::go_quote(&webhook.name));
        return Err(Failure::Refused(Status::bad_request(text)));
    }
    let uid = server.new_id().to_string();
    let converted = object.and_then(|o| in_form(o, attributes, form));
    let converted_old = attributes.old_object.and_then(|o| in_form(o, attributes, form));
    let sent = converted.as_ref().or(object);
    let sent_old = converted_old.as_ref().or(attributes.old_object);
    let body = review::encode_review(attributes, form, &uid, (sent, sent_old), webhook.review_version);
    let callers = &server.state().admission.callers;
    let answer = call::call_webhook(server, callers, webhook, body).await.map_err(Failure::Call)?;
    review::read_review(&answer, &uid, mutating, webhook.review_version).map_err(Failure::Call)
}

async fn validate_once<'w>(
    server: &ApiServer,
    webhook: &'w Webhook,
    attributes: &Attributes<'_>,
    form: Form<'_>,
    object: Option<&Value>,
) -> (&'w Webhook, i128, Result<Answer, Failure>) {
    const AT_ONCE_MILLIS: i128 = 50;
    let asked = server.now();
    let answer = ask_webhook(server, webhook, attributes, &form, object, false).await;
    (webhook, server.now().duration_since(asked).as_millis() / AT_ONCE_MILLIS, answer)
}

/// Asks one mutating webhook and applies its patch; whether the object changed.
async fn mutate_once(
    server: &ApiServer,
    webhook: &Webhook,
    attributes: &Attributes<'_>,
    form: &Form<'_>,
    object: Option<&mut Value>,
    tidy: &Tidy<'_>,
    warnings: &mut Vec<String>,
) -> Result<bool, Failure> {
    let answer = ask_webhook(server, webhook, attributes, form, object.as_deref(), true).await?;
    warnings.extend(answer.warnings);
    if !answer.allowed {
        return Err(Failure::Refused(review::denial_status(&webhook.name, &answer.status)));
    }
    let internal = |text: String| Failure::Refused(Status::internal(text));
    let (bytes, unsupported) = match answer.patch {
        None => return Ok(false),
        Some(Patch::Json(bytes)) => (bytes, None),
        Some(Patch::Other { kind, bytes }) => (bytes, Some(kind)),
    };
    let operations = answer::decode_patch(&bytes)
        .map_err(|why| Failure::Call(format!("received undecodable patch in webhook response: {why}")))?;
    if operations.is_empty() {
        return Ok(false);
    }
    let patch = Value::Array(operations);
    let Some(object) = object else {
        let name = crate::error::go_quote(&webhook.name);
        let text = format!(
            "admission webhook {name} attempted to modify the object, which is not supported for this operation"
        );
        return Err(internal(text));
    };
    if let Some(kind) = unsupported {
        return Err(Failure::Call(format!("unsupported patch type {}", crate::error::go_quote(&kind))));
    }
    let converted = in_form(object, attributes, form);
    let mut patched = crate::patch::json_patch(converted.as_ref().unwrap_or(object), &patch)
        .map_err(|error| internal(error.to_string()))?;
    if converted.is_some() {
        patched = convert(patched, attributes, &attributes.resource.api_version());
    }
    tidy(&mut patched).map_err(Failure::Refused)?;
    let changed = patched != *object;
    *object = patched;
    Ok(changed)
}
