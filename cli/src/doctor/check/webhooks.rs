//! Webhook configurations: registered as this version prints them, once, with one CA bundle, after Karmada's, and the
//! webhook behind them answers the API server.
//!
//! Rule: kube-apiserver calls mutating configurations in the order of their names. What the API server itself made of
//! two objects, created with `dryRun=All`, is worth more than what the configurations say.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use caldera_crds::{
    job_admission::fill_defaults,
    names::caldera::{GATE, GATE_CLOSED},
};
use caldera_runtime::tls::read_validities;
use serde_json::Value;

use super::{
    CHECK_WEBHOOKS as CHECK, OURS,
    fix_commands::{build_apply_command, build_registration_command, build_rotate_command},
    kinds::lacks_declared_kind,
    printed::build_printed_configurations,
    take_visible,
};
use crate::{
    doctor::{
        facts::{Facts, ProbeFailure},
        finding::{Check, Finding, join_first_names},
    },
    objects::{annotation_of, name_of, read_list_at, read_text_at},
    output::format_duration,
};

/// Days for which callers are to trust the webhook yet: as long as somebody may be away.
const FEW_DAYS: i64 = 14;

pub(super) fn check_webhooks(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let [mutating, validating, interpreter] = build_printed_configurations(facts);
    let mut registered = true;
    for (seen, wanted) in [(&facts.mutating, &mutating), (&facts.validating, &validating)] {
        let kind = read_text_at(wanted, "/kind");
        let Ok(all) = seen else {
            take_visible(seen, CHECK, kind, &mut findings);
            continue;
        };
        let before = findings.len();
        match all.iter().find(|one| name_of(one) == name_of(wanted)) {
            Some(found) => findings.extend(compare_hooks(facts, CHECK, wanted, found)),
            None => findings.push(build_missing_finding(facts, CHECK, wanted)),
        }
        registered &= findings.len() == before;
        findings.extend(list_duplicates(all, wanted));
    }
    findings.extend(check_order(facts));
    findings.extend(check_bundles(facts, &[mutating, validating, interpreter]));
    if registered {
        findings.extend(check_binding_probe(facts));
        findings.extend(check_job_probe(facts));
    }
    findings
}

pub(super) fn build_missing_finding(facts: &Facts, check: Check, wanted: &Value) -> Finding {
    let (kind, name) = (read_text_at(wanted, "/kind"), name_of(wanted));
    let harm = if check == Check::Interpreter {
        "Karmada knows neither replicas nor status of Volcano Jobs"
    } else if kind.starts_with('M') {
        "no job is gated, and each copy is the whole job"
    } else {
        "jobs and queues are not checked"
    };
    check.error(format!("there is no {kind} {name}: {harm}")).fixed_by(build_apply_command(facts))
}

pub(super) fn compare_hooks(facts: &Facts, check: Check, wanted: &Value, found: &Value) -> Vec<Finding> {
    if lacks_declared_kind(facts, wanted, found) {
        return Vec::new();
    }
    let fix = build_registration_command(facts);
    let hooks = read_list_at(found, "/webhooks");
    let (mut lacking, mut other) = (Vec::new(), Vec::new());
    for hook in read_list_at(wanted, "/webhooks") {
        let name = read_text_at(hook, "/name");
        match hooks.iter().find(|one| read_text_at(one, "/name") == name) {
            None => lacking.push(name),
            Some(there) => {
                let fields = hook.as_object().into_iter().flatten();
                let differ = fields.filter(|(key, value)| *key != "clientConfig" && there.get(*key) != Some(value));
                other.extend(differ.map(|(key, _)| format!("{key} of {name}")));
            }
        }
    }
    let config = format!("{} {}", read_text_at(wanted, "/kind"), name_of(wanted));
    let mut findings = Vec::new();
    if !lacking.is_empty() {
        findings.push(check.error(format!("{config} lacks {}", join_first_names(lacking))).fixed_by(&fix));
    }
    if !other.is_empty() {
        let what = format!(
            "{config} is not as this version prints it: {}",
            join_first_names(other.iter().map(String::as_str))
        );
        findings.push(check.warning(what).fixed_by(&fix));
    }
    findings
}

fn list_duplicates(all: &[Value], ours: &Value) -> Vec<Finding> {
    let has_ours = |config: &&Value| {
        name_of(config) != name_of(ours)
            && read_list_at(config, "/webhooks").iter().any(|hook| read_text_at(hook, "/name").ends_with(OURS))
    };
    let kind = read_text_at(ours, "/kind");
    let duplicate = |config: &Value| {
        CHECK.error(format!("{kind} {} registers our webhook a second time", name_of(config))).fixed_by(format!(
            "kubectl delete {} {}",
            kind.to_lowercase(),
            name_of(config)
        ))
    };
    all.iter().filter(has_ours).map(duplicate).collect()
}

fn check_order(facts: &Facts) -> Vec<Finding> {
    let Ok(all) = &facts.mutating else { return Vec::new() };
    let mut findings = Vec::new();
    for config in all {
        let about = |group: &str, resources: &[&str]| {
            let rules = read_list_at(config, "/webhooks").iter().flat_map(|hook| read_list_at(hook, "/rules"));
            let has = |rule: &Value, field: &str, word: &str| {
                read_list_at(rule, field).iter().any(|one| one == word || one == "*" || one == "*/*")
            };
            rules.into_iter().any(|rule| {
                has(rule, "/apiGroups", group) && resources.iter().any(|name| has(rule, "/resources", name))
            })
        };
        let name = name_of(config);
        if name > "queue.caldera.dev" && about("work.karmada.io", &["resourcebindings", "works"]) {
            let what = format!(
                "MutatingWebhookConfiguration {name} is called after ours and may change bindings or Works that ours has \
                 seen; a name before queue.caldera.dev is called first"
            );
            findings
                .push(CHECK.warning(what).fixed_by(format!("kubectl get mutatingwebhookconfiguration {name} -o yaml")));
        }
        if name.starts_with("volcano-admission") && about("batch.volcano.sh", &["jobs"]) {
            let what = format!(
                "MutatingWebhookConfiguration {name}: Volcano's own admission judges jobs on the host, where no Volcano \
                 runs; if it does not answer, no job can be created"
            );
            findings.push(CHECK.warning(what).fixed_by(format!("kubectl delete mutatingwebhookconfiguration {name}")));
        }
    }
    findings
}

/// Our three configurations name one webhook: one CA bundle, one that can be read, and one that serves on.
fn check_bundles(facts: &Facts, wanted: &[Value; 3]) -> Vec<Finding> {
    let mut bundles: Vec<(String, &str)> = Vec::new();
    for (seen, wanted) in [&facts.mutating, &facts.validating, &facts.interpreters].into_iter().zip(wanted) {
        let ours = seen.iter().flatten().find(|config| name_of(config) == name_of(wanted));
        for hook in ours.into_iter().flat_map(|config| read_list_at(config, "/webhooks")) {
            bundles.push((
                format!("{} {}", read_text_at(wanted, "/kind"), name_of(wanted)),
                read_text_at(hook, "/clientConfig/caBundle"),
            ));
        }
    }
    let Some((_, first)) = bundles.first() else { return Vec::new() };
    let mut findings = Vec::new();
    if let Some((config, _)) = bundles.iter().find(|(_, bundle)| bundle != first) {
        let what = format!("our configurations trust different CA bundles ({config} another one than the first)");
        findings.push(CHECK.error(what).fixed_by(build_apply_command(facts)));
    }
    let read = |bundle: &str| {
        let pem = STANDARD.decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        let roots = caldera_runtime::tls::parse_roots(&pem).ok()?;
        (!roots.is_empty()).then_some(pem)
    };
    let mut reported = BTreeSet::new();
    for (config, bundle) in bundles.iter().filter(|(_, bundle)| !bundle.is_empty() && reported.insert(*bundle)) {
        match read(bundle) {
            None => findings.push(
                CHECK
                    .error(format!("the CA bundle of {config} has no certificate in PEM"))
                    .fixed_by(build_apply_command(facts)),
            ),
            Some(pem) => findings.extend(check_expiry(facts, config, &pem)),
        }
    }
    findings
}

/// Whether the last certificate of a bundle ends soon: while one is replaced, two are in it.
fn check_expiry(facts: &Facts, config: &str, pem: &str) -> Option<Finding> {
    let ends = read_validities(pem).ok()?.into_iter().map(|validity| validity.ends).max()?;
    let left = ends.as_second() - facts.now.as_second();
    // A webhook that registers itself replaces its own in time, if it can.
    let fix = if facts.registers { build_rotate_command(facts) } else { build_apply_command(facts) };
    if left <= 0 {
        let ago = format_duration(-left);
        let what = format!("the CA bundle of {config} expired {ago} ago: no caller trusts the webhook any more");
        return Some(CHECK.error(what).fixed_by(&fix));
    }
    (left <= FEW_DAYS * 86_400).then(|| {
        let what = format!(
            "the CA bundle of {config} expires in {}: then no caller trusts the webhook any more; the new CA goes beside \
             the old one first",
            format_duration(left)
        );
        CHECK.warning(what).fixed_by(&fix)
    })
}

fn check_binding_probe(facts: &Facts) -> Option<Finding> {
    match &facts.binding_probe {
        Ok(made) => {
            let is_gated = annotation_of(made, GATE) == Some(GATE_CLOSED)
                && made.pointer("/spec/suspension/scheduling") == Some(&Value::Bool(true));
            let what = "a new ResourceBinding of a Volcano Job comes back without a gate: jobs start without quota";
            (!is_gated).then(|| CHECK.error(what).fixed_by(build_apply_command(facts)))
        }
        Err(failure) => judge_refusal(facts, "a ResourceBinding", failure),
    }
}

fn check_job_probe(facts: &Facts) -> Option<Finding> {
    match &facts.job_probe {
        Ok(made) => {
            let is_filled = fill_defaults(&mut made.clone()).is_empty();
            let what = "a new Volcano Job comes back without Volcano's defaults: members change it after us";
            (!is_filled).then(|| CHECK.error(what).fixed_by(build_apply_command(facts)))
        }
        Err(failure) => judge_refusal(facts, "a Volcano Job", failure),
    }
}

/// Why a probe was refused, by the API server's words.
fn judge_refusal(facts: &Facts, what: &str, failure: &ProbeFailure) -> Option<Finding> {
    let ProbeFailure { code, message } = failure;
    if !message.contains("failed calling webhook") {
        // A webhook of ours that refuses has answered; other refusals say nothing about it.
        let is_answer = message.contains("denied the request") && message.contains(OURS);
        return (!is_answer)
            .then(|| CHECK.hidden(&format!("creating {what} without storing it"), &format!("{message} ({code})")));
    }
    let finding = CHECK.error(format!("the API server can not call a webhook for {what}: {message}"));
    if !message.contains(OURS) {
        return Some(finding);
    }
    Some(if is_trust_failure(failure) {
        finding.fixed_by(build_apply_command(facts))
    } else {
        finding.fixed_by("caldera webhook --kubeconfig karmada.kubeconfig --tls-cert tls.crt --tls-key tls.key")
    })
}

/// Whether the API server could not call a webhook for want of trust in its certificate.
pub(super) fn is_trust_failure(failure: &ProbeFailure) -> bool {
    ["x509", "certificate", "tls:", "UnknownIssuer"].iter().any(|word| failure.message.contains(word))
}
