//! What the admin chose, published for those who ask why: `caldera why` and `caldera queue` decide by the same rules.
//!
//! Written once, when the controller begins to decide, by server-side apply to a ConfigMap of its own. Readers that can not
//! read it say so and take the defaults.

use std::{collections::BTreeSet, time::Duration};

use caldera_core::queue::{
    OrderPolicy,
    preemption::{EvictionRate, PreemptionPolicy},
};
use caldera_runtime::{
    watch::api_resource,
    write::{self, Body, Failure, Write},
};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{index::Index, run::Config};

/// The ConfigMap's name.
pub const NAME: &str = "caldera-controller";
/// Namespaces that readers look in, in this order.
pub const NAMESPACES: [&str; 2] = ["caldera-system", "default"];
/// Its key.
const KEY: &str = "settings.json";
/// Between two tries.
const AGAIN: Duration = Duration::from_secs(10);

/// Settings as they are published. What is absent is as it is by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Who goes first.
    pub order: OrderPolicy,
    /// Seconds that a job is blocked before it gets a reservation; 0 makes none.
    pub reservation_after: i64,
    /// Seconds that a job waits before others are evicted for it.
    pub preempt_after: i64,
    /// Queues reclaim what they deserve.
    pub reclaim: bool,
    /// Which jobs may preempt which, as `--preempt` takes it; nobody preempts where it is empty.
    pub preempt: Vec<String>,
    /// Jobs that do not say whether they are preemptable may be preempted too.
    pub preempt_unset: bool,
    /// Evictions in a minute at most.
    pub evictions_per_minute: u32,
    /// Namespaces whose jobs are never evicted.
    pub protected_namespaces: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(&Config::default())
    }
}

impl Settings {
    /// What a controller is set up with.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let PreemptionPolicy { reclaim, preempt, unset, protected, bounds } = &config.preemption;
        Self {
            order: config.order,
            reservation_after: config.reservation_after.unwrap_or(0),
            preempt_after: bounds.patience,
            reclaim: *reclaim,
            preempt: preempt.iter().map(ToString::to_string).collect(),
            preempt_unset: unset.preempt,
            evictions_per_minute: bounds.rate.evictions,
            protected_namespaces: protected.iter().map(ToString::to_string).collect(),
        }
    }

    /// An index decides by these from now on.
    pub fn apply(&self, index: &mut Index) {
        index.engine.set_order_policy(self.order);
        index.engine.set_reservation_after(Some(self.reservation_after).filter(|seconds| *seconds > 0));
        let mut policy = PreemptionPolicy { reclaim: self.reclaim, ..PreemptionPolicy::default() };
        // What a newer controller may say is no rule that this one could decide by.
        policy.preempt = self.preempt.iter().filter_map(|rule| rule.parse().ok()).collect();
        policy.unset.preempt = self.preempt_unset;
        policy.bounds.patience = self.preempt_after;
        policy.bounds.rate = EvictionRate { evictions: self.evictions_per_minute, seconds: 60 };
        policy.protected = self.protected_namespaces.iter().map(|name| name.as_str().into()).collect();
        index.claims.policy = policy;
    }

    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(object: &Value) -> Result<Self, String> {
        let text = object["data"][KEY].as_str().ok_or_else(|| format!("it has no {KEY}"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY} does not parse: {error}"))
    }

    fn write(&self, namespace: &str) -> Write {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "caldera"}},
            "data": {KEY: json!(self).to_string()},
        });
        Write {
            resource: api_resource("", "v1", "ConfigMap", "configmaps"),
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            subresource: None,
            body: Body::Apply { object, manager: NAME },
        }
    }
}

/// Writes them, again and again until the server takes them, or refuses them.
pub(crate) async fn publish(client: Client, settings: Settings, namespace: String, stop: CancellationToken) {
    let write = settings.write(&namespace);
    loop {
        match write::execute_write(&client, &write).await {
            Ok(_) => return,
            Err(failure @ Failure::Refused { .. } | failure @ Failure::Gone(_)) => {
                tracing::warn!(namespace, %failure, "settings not published: `caldera why` takes the defaults");
                return;
            }
            Err(failure) => tracing::debug!(namespace, %failure, "settings not published yet"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_a_reader_decides_by() {
        let mut config = Config { order: OrderPolicy::Strict, reservation_after: None, ..Config::default() };
        config.preemption.reclaim = false;
        config.preemption.preempt = vec!["by.least=10,of.queue=batch,scope=any-queue".parse().unwrap()];
        config.preemption.unset.preempt = true;
        config.preemption.bounds.patience = 7;
        config.preemption.bounds.rate.evictions = 3;
        config.preemption.protected.insert("ops".into());
        for config in [config, Config::default()] {
            let write = Settings::of(&config).write("ns");
            let Body::Apply { object, .. } = &write.body else { panic!("it is applied") };
            let read = Settings::read(object).unwrap();
            assert_eq!(read, Settings::of(&config));
            let mut index = Index::default();
            read.apply(&mut index);
            assert_eq!(index.engine.order_policy(), config.order);
            assert_eq!(index.claims.policy, config.preemption);
        }
    }

    #[test]
    fn what_an_older_controller_does_not_say_is_as_it_is_by_default() {
        let of = |text: &str| Settings::read(&json!({"data": {KEY: text}}));
        assert_eq!(of("{}"), Ok(Settings::default()));
        assert_eq!(
            of(r#"{"order": "fifo", "new": 1}"#),
            Ok(Settings { order: OrderPolicy::Fifo, ..Settings::default() })
        );
        assert!(of("[").unwrap_err().contains("does not parse"));
        assert_eq!(Settings::read(&json!({})), Err("it has no settings.json".to_owned()));
    }
}
