//! Who explains Volcano Jobs to Karmada: our webhook alone, which is reached, or ours for Pull members in its place.
//!
//! Rule: Karmada (`pkg/resourceinterpreter/interpreter.go`) asks a ResourceInterpreterCustomization before any webhook.
//! Another's of Volcano Jobs is an error, and so is one that writes the status of queues. Ours says what the webhook
//! says if it is of this version; an older one is a warning. Agents of Pull members ask from where they are, and tell
//! of it on the Works of their member where they fail.

use caldera_core::text::count_noun;
use caldera_webhook::{MEMBER_CUSTOMIZATION, build_member_customization};
use serde_json::Value;

use super::{
    components::age,
    printed::build_printed_configurations,
    take_visible,
    webhooks::{build_missing_finding, compare_hooks},
};
use crate::{
    doctor::{
        facts::{CheckedBinding, Facts, InterpreterFailure},
        finding::{Check, Finding, join_first_names},
    },
    objects::{name_of, read_list_at, read_text_at},
};

const CHECK: Check = Check::Interpreter;
/// A failure that is as old was mended since, or its object is gone.
const RECENT: i64 = 300;
/// Prints what lets agents do without the webhook.
const APPLY_CUSTOMIZATION: &str = "caldera manifests --only pull-members | kubectl apply --server-side -f -";

pub(super) fn check_interpreter(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let [_, _, wanted] = build_printed_configurations(facts);
    match &facts.interpreters {
        Err(_) => drop(take_visible(&facts.interpreters, CHECK, read_text_at(&wanted, "/kind"), &mut findings)),
        Ok(all) => {
            match all.iter().find(|one| name_of(one) == name_of(&wanted)) {
                Some(found) => findings.extend(compare_hooks(facts, CHECK, &wanted, found)),
                None => findings.push(build_missing_finding(facts, CHECK, &wanted)),
            }
            for other in all.iter().filter(|one| name_of(one) != name_of(&wanted)) {
                let mut rules = read_list_at(other, "/webhooks").iter().flat_map(|hook| read_list_at(hook, "/rules"));
                let has = |rule: &Value, field: &str, word: &str| {
                    read_list_at(rule, field).iter().any(|one| one == word || one == "*")
                };
                if rules.any(|rule| has(rule, "/apiGroups", "batch.volcano.sh") && has(rule, "/kinds", "Job")) {
                    let name = name_of(other);
                    let what = format!("{} {name} explains Volcano Jobs too", read_text_at(&wanted, "/kind"));
                    let fix = format!("kubectl delete resourceinterpreterwebhookconfiguration {name}");
                    findings.push(CHECK.error(what).fixed_by(fix));
                }
            }
        }
    }
    findings.extend(check_calls(facts));
    findings.extend(check_customizations(facts));
    findings
}

/// Whether karmada-controller-manager and agents reach the interpreter, by what they say of it, and the first by what
/// it knows of jobs. Where neither says anything it is not known, and that is told.
fn check_calls(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let failures = take_visible(&facts.interpreter_failures, CHECK, "events", &mut findings);
    let recent = failures.iter().filter(|one| age(facts.now, one.last) <= RECENT);
    let (by_agents, by_manager): (Vec<_>, Vec<_>) = recent.partition(|one| find_pull_member(facts, one).is_some());
    let registration = "kubectl get resourceinterpreterwebhookconfiguration caldera -o yaml";
    findings.extend(report_failures(facts, "karmada-controller-manager", &by_manager, registration));
    let member = by_agents.first().and_then(|last| find_pull_member(facts, last)).unwrap_or_default();
    let agent = format!("the karmada-agent of {member}");
    findings.extend(report_failures(facts, &agent, &by_agents, APPLY_CUSTOMIZATION));
    let is_job = |binding: &&CheckedBinding| {
        let job = &binding.workload;
        (job.group.as_str(), job.kind.as_str()) == ("batch.volcano.sh", "Job")
    };
    let is_unread = |binding: &&CheckedBinding| {
        is_job(binding)
            && !binding.deleting
            && !binding.components
            && binding.replicas == 0
            && age(facts.now, binding.created) > facts.grace
    };
    let unread: Vec<&str> =
        facts.bindings.iter().flatten().filter(is_unread).map(|binding| binding.key.as_str()).collect();
    if !unread.is_empty() {
        let what = format!(
            "Karmada knows no pods of {} Volcano Jobs: it did not ask the interpreter about {}",
            unread.len(),
            join_first_names(unread)
        );
        findings.push(CHECK.warning(what).fixed_by("kubectl get resourceinterpreterwebhookconfigurations"));
    }
    // That nothing failed is no evidence where nobody asked: pods that Karmada counted are. Components may be counted
    // by Karmada's own interpreter.
    let was_asked = |binding: &CheckedBinding| is_job(&binding) && binding.replicas > 0;
    if findings.is_empty() && facts.bindings.as_ref().is_ok_and(|all| !all.iter().any(was_asked)) {
        let what = "not asked yet: there is no Volcano Job whose pods karmada-controller-manager counted by our \
                    interpreter, so that nobody knows whether it reaches it. Submit one, and look again";
        findings.push(CHECK.note(what));
    }
    findings
}

/// The Pull member of whose Work it tells: its agent called.
fn find_pull_member<'a>(facts: &'a Facts, failure: &InterpreterFailure) -> Option<&'a str> {
    let (namespace, _) = failure.about.strip_prefix("Work karmada-es-")?.split_once('/')?;
    let mut pull = facts.members.iter().flatten().filter(|member| member.is_pull);
    pull.find(|member| member.name == namespace).map(|member| member.name.as_str())
}

/// The last of these first.
fn report_failures(facts: &Facts, who: &str, failures: &[&InterpreterFailure], fix: &str) -> Option<Finding> {
    let last = failures.first()?;
    let what = format!(
        "{who} can not call the interpreter, by {} of the last {} min; the last, of {}: {}",
        count_noun(failures.len(), "event"),
        RECENT / 60,
        last.about,
        last.message
    );
    // It tries again, and after an outage may have no more to say.
    let is_now = age(facts.now, last.last) <= facts.grace;
    let finding = if is_now { CHECK.error(what) } else { CHECK.warning(what) };
    Some(finding.fixed_by(fix))
}

fn check_customizations(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = take_visible(&facts.customizations, CHECK, "ResourceInterpreterCustomizations", &mut findings);
    for custom in all {
        let of = |field: &str| read_text_at(custom, field);
        let name = name_of(custom);
        let fix = format!("kubectl delete resourceinterpretercustomization {name}");
        let is_of_jobs = of("/spec/target/apiVersion").starts_with("batch.volcano.sh/");
        let is_of_queues = of("/spec/target/apiVersion").starts_with("scheduling.volcano.sh/");
        if name == MEMBER_CUSTOMIZATION {
            findings.extend(compare_ours(custom));
        } else if is_of_jobs && of("/spec/target/kind") == "Job" {
            let scripts = custom.pointer("/spec/customizations").and_then(Value::as_object);
            let names = join_first_names(scripts.into_iter().flatten().map(|(name, _)| name.as_str()));
            let what = format!(
                "ResourceInterpreterCustomization {name} outranks our interpreter for Volcano Jobs ({names}): Karmada asks \
                 it first"
            );
            findings.push(CHECK.error(what).fixed_by(fix));
        } else if is_of_queues && of("/spec/target/kind") == "Queue" {
            // What a queue is, and whether it is open, the controller says.
            let what = format!(
                "ResourceInterpreterCustomization {name} writes the status of queues: one that is closed is Open again"
            );
            let writes_status = custom.pointer("/spec/customizations/statusAggregation").is_some();
            findings.extend(writes_status.then(|| CHECK.error(what).fixed_by(fix)));
        }
    }
    if facts.customizations.is_ok() && !all.iter().any(|custom| name_of(custom) == MEMBER_CUSTOMIZATION) {
        findings.extend(note_pull_members(facts));
    }
    findings
}

/// What differs from what this version prints.
fn compare_ours(found: &Value) -> Option<Finding> {
    let wanted = build_member_customization();
    if found.get("spec") == wanted.get("spec") {
        return None;
    }
    let script_of = |custom: &Value, name: &str| custom.pointer(&format!("/spec/customizations/{name}")).cloned();
    let names = ["retention", "statusReflection", "healthInterpretation"];
    let other: Vec<&str> =
        names.into_iter().filter(|name| script_of(found, name) != script_of(&wanted, name)).collect();
    let other = if other.is_empty() { "it says more than that".to_owned() } else { join_first_names(other) };
    let what = format!(
        "ResourceInterpreterCustomization {MEMBER_CUSTOMIZATION} is not as this version prints it: {other}. Karmada asks it \
         before our interpreter"
    );
    Some(CHECK.warning(what).fixed_by(APPLY_CUSTOMIZATION))
}

/// Only where it fails an agent says whether it reaches the webhook.
fn note_pull_members(facts: &Facts) -> Option<Finding> {
    let pull = facts.members.iter().flatten().filter(|member| member.is_pull);
    let pull: Vec<&str> = pull.map(|member| member.name.as_str()).collect();
    let what = format!(
        "agents of members in mode Pull ask our interpreter from there: {}. With ResourceInterpreterCustomization \
         {MEMBER_CUSTOMIZATION} they need no way to it",
        join_first_names(pull.iter().copied())
    );
    (!pull.is_empty()).then(|| CHECK.note(what).fixed_by(APPLY_CUSTOMIZATION))
}
