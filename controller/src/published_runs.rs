//! How long the last jobs of each queue ran, for who asks when his job will start.
//!
//! Rule: every tenant may read them, so they are numbers by the names of queues, without those of jobs and users, and
//! without an order that tells whose they are: sorted, and none where too few ended to expect anything of others. They
//! are made of the history of ended jobs, so a controller that begins anew has them again. Written with the history,
//! every five minutes at most.

use caldera_core::past_runs::PastRuns;
use caldera_runtime::write::Write;
use serde_json::{Value, json};

use crate::config_map::build_config_map_write;

/// The ConfigMap's name.
pub const NAME: &str = "caldera-past-runs";
const KEY: &str = "runs.json";

/// The write that publishes them.
pub(crate) fn publish_runs(past: &PastRuns, namespace: &str) -> Write {
    build_config_map_write(namespace, NAME, json!({ (KEY): json!(past.anonymize_runs()).to_string() }), NAME)
}

/// Reads them.
///
/// # Errors
/// What is wrong with the ConfigMap.
pub fn read_runs(object: &Value) -> Result<PastRuns, String> {
    let text = object["data"][KEY].as_str().unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| format!("its {KEY}: {error}"))
}
