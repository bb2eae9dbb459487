//! Whether karmada-controller-manager carries out what is admitted: it writes bindings and Works, and must be trusted.

use super::super::{
    facts::{Facts, KarmadaAccount},
    finding::{Check, Finding, join_first_names},
};

const CHECK: Check = Check::Rights;

pub(super) fn check_karmada_account(facts: &Facts) -> Vec<Finding> {
    let access = match &facts.karmada {
        Ok(access) => access,
        Err(why) => return vec![CHECK.hidden("what karmada-controller-manager may do", why)],
    };
    // Whom nobody named may be somebody else: then it is no fault.
    let is_assumed = access.account == KarmadaAccount::default();
    let report = |what: String| match is_assumed {
        true => CHECK.warning(format!("{what}. If it has another account, name it by --karmada-user")),
        false => CHECK.error(what),
    };
    let user = &access.account.user;
    let mut findings = Vec::new();
    if let Some(first) = access.denied.first() {
        let (verb, resource) = first.split_once(' ').unwrap_or((first, ""));
        let denied = join_first_names(access.denied.iter().map(String::as_str));
        findings.push(
            report(format!("karmada-controller-manager, as {user}, may not {denied}: no job gets to a member"))
                .fixed_by(format!("kubectl auth can-i {verb} {resource} --as {user}")),
        );
    }
    if let Some((resource, message)) = access.refused.first() {
        let what = format!(
            "Caldera refuses what karmada-controller-manager writes as {user}: it is no trusted writer, and no job gets \
             to a member. Of {resource} it was told: {message}"
        );
        let fix = format!(
            "add user:{user} to --trusted-writer of the webhook, and apply what `caldera manifests --only webhooks` \
             prints with the same"
        );
        findings.push(report(what).fixed_by(fix));
    }
    findings
}
