//! Facts in, findings out: pure functions.

mod bindings;
mod ca_file;
mod components;
mod credentials;
mod definitions;
mod fix_commands;
mod interpreter;
mod karmada;
mod kinds;
mod members;
mod policies;
mod printed;
mod propagation;
#[cfg(test)]
mod tests;
pub mod versions;
mod webhooks;

pub use self::fix_commands::CA_FILE;
use super::{
    facts::Facts,
    finding::{Check, Finding},
};
use crate::objects::Visible;

const CHECK_WEBHOOKS: Check = Check::Webhooks;
/// Names of our hooks and policies end so.
const OURS: &str = ".caldera.dev";

/// Everything that is wrong, by check, the worst first.
pub fn find_faults(facts: &Facts) -> Vec<Finding> {
    let mut all = definitions::check_definitions(facts);
    all.extend(kinds::check_declared_kinds(facts));
    all.extend(definitions::check_rights(facts));
    all.extend(karmada::check_karmada_account(facts));
    all.extend(webhooks::check_webhooks(facts));
    all.extend(policies::check_policies(facts));
    all.extend(kinds::check_registrations(facts));
    all.extend(interpreter::check_interpreter(facts));
    all.extend(components::check_components(facts));
    all.extend(credentials::check_credentials(facts));
    all.extend(versions::check_versions(facts));
    all.extend(components::check_clocks(facts));
    all.extend(members::check_members(facts));
    all.extend(members::check_queues(facts));
    all.extend(propagation::check_propagation(facts));
    all.extend(bindings::check_records(facts));
    all.extend(bindings::check_garbage(facts));
    all.extend(ca_file::check_ca_file(facts, &all));
    all.sort_by_key(|finding| (finding.check, std::cmp::Reverse(finding.severity)));
    all
}

/// What was seen; where it was not, a note says so and there is nothing.
fn take_visible<'a, T>(seen: &'a Visible<Vec<T>>, check: Check, what: &str, findings: &mut Vec<Finding>) -> &'a [T] {
    match seen {
        Ok(all) => all,
        Err(why) => {
            findings.push(check.hidden(what, why));
            &[]
        }
    }
}
