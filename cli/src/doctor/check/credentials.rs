//! Credentials that end: with them all that goes by them ends at once.
//!
//! Rule: who holds a Lease tells there when those of its kubeconfig end; it stays there when they have ended. The
//! webhook holds none, and its kubeconfig has to be named. What lives for a short time is renewed by a machine, and
//! told in the last part of its time alone ([`Lifetime::is_ending`]).

use caldera_runtime::client::credentials::Lifetime;

use super::super::{
    facts::{Facts, KubeconfigFacts},
    finding::{Check, Finding},
};
use crate::{output::format_duration, roles::NAMESPACE};

const CHECK: Check = Check::Components;
/// Days in which somebody has time to renew them.
const MANY_DAYS: i64 = 30;

pub(super) fn check_credentials(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for lease in facts.leases.iter().flatten() {
        let component = lease.name.trim_start_matches("caldera-");
        let whose = format!("credentials of the {component}, as Lease {}/{} tells,", lease.namespace, lease.name);
        // Who renews its Lease after that has others, and does not tell of them: an older version.
        let reported =
            lease.credentials.filter(|lifetime| lease.renewed.is_none_or(|renewed| renewed <= lifetime.ends));
        let reported = reported.and_then(|lifetime| report_end(facts, &whose, lifetime));
        findings.extend(reported.map(|reported| reported.fixed_by(build_token_command(&lease.name))));
    }
    for kubeconfig in &facts.kubeconfigs {
        findings.extend(check_kubeconfig(facts, kubeconfig));
    }
    findings
}

fn check_kubeconfig(facts: &Facts, KubeconfigFacts { file, credentials }: &KubeconfigFacts) -> Option<Finding> {
    match (file, credentials) {
        (Some(file), Ok(Some(lifetime))) => {
            let account = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".kubeconfig");
            let reported = report_end(facts, &format!("credentials in {file}"), *lifetime)?;
            // A person's own may lie there too.
            let is_ours = account.starts_with("caldera-");
            Some(if is_ours { reported.fixed_by(build_token_command(account)) } else { CHECK.note(reported.what) })
        }
        // Of who looks nothing else depends.
        (None, Ok(Some(lifetime))) => {
            report_end(facts, "your own credentials", *lifetime).map(|reported| CHECK.note(reported.what))
        }
        (Some(file), Err(why)) => Some(CHECK.hidden(&format!("when the credentials in {file} end"), why)),
        (_, Ok(None)) | (None, Err(_)) => None,
    }
}

fn report_end(facts: &Facts, whose: &str, lifetime: Lifetime) -> Option<Finding> {
    if !lifetime.is_ending(MANY_DAYS * 86_400, facts.now) {
        return None;
    }
    let left = lifetime.ends.as_second() - facts.now.as_second();
    Some(if left <= 0 {
        CHECK.error(format!("{whose} ended {} ago: it does nothing any more", format_duration(-left)))
    } else {
        CHECK.warning(format!("{whose} end in {}: a new token goes into the kubeconfig before", format_duration(left)))
    })
}

/// Makes what goes into its kubeconfig.
fn build_token_command(account: &str) -> String {
    format!("kubectl -n {NAMESPACE} create token {account} --duration 8760h")
}
