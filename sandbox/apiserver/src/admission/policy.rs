//! ValidatingAdmissionPolicies and their bindings: which concern a write, and what they say of it
//! (`apiserver/pkg/admission/plugin/policy/validating`).
//!
//! Policies are asked in the order of their names, where the real server has none. Audit annotations go nowhere.

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::Attributes;
use super::condition::Verdict;
use super::config::{items_of, text_of};
use super::expression::{Expression, Names, OUT_OF_BUDGET, Run, Trouble, Wanted};
use super::matching::{Binding, HasHead, Head, InForce, Invocation, Scene, find_invocations, forbidden_name};
use crate::error::{Cause, Status};
use crate::resource::Resource;
use crate::server::ApiServer;

/// Longest message that a `messageExpression` may make.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A policy with everything compiled.
#[derive(Debug)]
pub struct Policy {
    head: Head,
    validations: Vec<Validation>,
}

impl HasHead for Policy {
    fn head(&self) -> &Head {
        &self.head
    }
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    computed: Option<Expression>,
    reason: String,
}

impl Policy {
    pub fn read(object: &Value) -> Policy {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let (head, names) = Head::read(object);
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
        Policy { head, validations: items_of(spec, "validations").iter().map(read_validation).collect() }
    }

    /// Everything that it evaluates beside its conditions and variables.
    fn expressions(&self) -> Vec<&Expression> {
        self.validations.iter().flat_map(|v| std::iter::once(&v.expression).chain(&v.computed)).collect()
    }
}

/// One refusal on its way: of the policy itself, or through a binding.
struct Denial {
    reason: String,
    message: String,
}

/// Runs the policies over a write; the first denial is told.
pub fn run_policies(
    server: &ApiServer,
    policies: &InForce<Policy>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    others: &[std::sync::Arc<Resource>],
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut denied = None;
    for found in find_invocations(server, policies, attributes, object, others) {
        let invocation = match found {
            Ok(invocation) => invocation,
            // A configuration that fails denies whatever the binding's actions are.
            Err(bad) => {
                let denial = Denial { reason: "Invalid".into(), message: bad.why };
                denied = denied.or_else(|| Some(denial_status(bad.policy, bad.binding, attributes, object, &denial)));
                continue;
            }
        };
        let Invocation { policy, binding, .. } = invocation;
        for denial in &judge_write(server, &invocation, attributes, object) {
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => {
                        let status = || denial_status(policy, Some(binding), attributes, object, denial);
                        denied = denied.or_else(|| Some(status()));
                    }
                    "Warn" => {
                        let text = format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.head.name, binding.name, denial.message
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
    denied.map_or(Ok(()), Err)
}

/// What one policy with one parameter finds wrong.
fn judge_write(
    server: &ApiServer,
    invocation: &Invocation<'_, '_, Policy>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Vec<Denial> {
    let policy = invocation.policy;
    let trouble = |text: String| {
        if policy.head.fail_open { Vec::new() } else { vec![Denial { reason: "Invalid".into(), message: text }] }
    };
    let scene = Scene::new(server, attributes, object, &invocation.form, invocation.params.as_ref());
    match scene.decide(&policy.head) {
        Verdict::Call => {}
        Verdict::Skip => return Vec::new(),
        Verdict::Error(why) => return trouble(why),
    }
    let mut run = match scene.start(&policy.head, policy.expressions()) {
        Ok(run) => run,
        Err(why) => return trouble(why),
    };
    let mut denials = Vec::new();
    for validation in &policy.validations {
        match validation.expression.evaluate(&mut run) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let message = failure_message(validation, &mut run);
                denials.push(Denial { reason: validation.reason.clone(), message });
            }
            Err(Trouble::OutOfBudget) => return trouble(OUT_OF_BUDGET.into()),
            Err(Trouble::Failed(why)) => denials.extend(trouble(why)),
        }
    }
    denials
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

fn denial_status(
    policy: &Policy,
    binding: Option<&Binding>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    denial: &Denial,
) -> Status {
    let blamed = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message =
        format!("ValidatingAdmissionPolicy '{}'{blamed} denied request: {}", policy.head.name, denial.message);
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
