//! What this version registers, as `caldera manifests` prints it for this installation.
//!
//! Rule: whom `--trusted-writer` named the policies say themselves, and all else must follow from it. Policies on who
//! may use queues are wanted, all of them, where one of them is there.

use caldera_crds::{queue_access::build_queue_access_policies, trusted::TrustedWriters};
use caldera_webhook::{Endpoint, build_configurations_for};
use serde_json::Value;

use super::OURS;
use crate::{
    doctor::facts::Facts,
    manifests::list_admission_policies,
    objects::{name_of, read_list_at, read_text_at},
};

/// Configurations of mutating and validating webhooks and of the interpreter, of a webhook that is somewhere.
pub(super) fn build_printed_configurations(facts: &Facts) -> [Value; 3] {
    let endpoint = Endpoint::Url("https://host".to_owned());
    let all = build_configurations_for(&endpoint, "", &read_trusted_writers(facts));
    <[Value; 3]>::try_from(all).unwrap_or_default()
}

/// Admission policies and their bindings.
pub(super) fn list_printed_policies(facts: &Facts) -> Vec<Value> {
    let of_queues = build_queue_access_policies();
    let is_of_queues = |policy: &Value| of_queues.iter().any(|one| name_of(one) == name_of(policy));
    list_admission_policies(&read_trusted_writers(facts), facts.policies.iter().flatten().any(is_of_queues))
}

/// Whom the policies trust; without any that says it, whom they trust by default.
fn read_trusted_writers(facts: &Facts) -> TrustedWriters {
    let ours = facts.policies.iter().flatten().filter(|policy| name_of(policy).ends_with(OURS));
    let mut conditions = ours.flat_map(|policy| read_list_at(policy, "/spec/matchConditions"));
    let writers = conditions
        .find_map(|condition| TrustedWriters::parse_untrusted_expression(read_text_at(condition, "/expression")));
    writers.unwrap_or_default()
}
