//! What the admin chose, published for those who ask why: `caldera why` and `caldera queue` decide by the same rules.
//!
//! An admin changes them while the controller runs by another ConfigMap ([`choose_settings`]).
//!
//! It is written when the controller starts and when they change, by server-side apply to a ConfigMap of its own. A
//! reader that can not read it says so and takes the defaults.

mod chosen;

use std::collections::BTreeSet;

use caldera_core::{
    load_aware::LoadPolicy,
    queue::{
        OrderPolicy,
        preemption::{EvictionRate, PreemptionPolicy},
    },
};
use caldera_runtime::write::Write;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use caldera_crds::action::SETTINGS as CHOSEN;

pub use self::chosen::choose_settings;
use crate::{config::Config, config_map::build_config_map_write, decide::Controller};

/// The ConfigMap's name.
pub const NAME: &str = "caldera-controller";
/// Namespaces that readers look in, in this order.
pub const NAMESPACES: [&str; 2] = ["caldera-system", "default"];
/// Its key.
const KEY: &str = "settings.json";

/// Settings as they are published. What is absent is as it is by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Who goes first.
    pub order: OrderPolicy,
    /// Seconds after which what a queue used counts half, where that counts.
    pub history_half_life: i64,
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
    /// Which jobs leave clusters that are really hot.
    pub load: LoadPolicy,
    /// karmada-scheduler places what is admitted.
    pub stock_scheduler: bool,
    /// Seconds that a part has to start once it is placed.
    pub pods_ready_timeout: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_config(&Config::default())
    }
}

impl Settings {
    /// What a controller is set up with.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let PreemptionPolicy { reclaim, preempt, unset, protected, bounds } = &config.preemption;
        Self {
            order: config.order,
            history_half_life: config.history_half_life,
            reservation_after: config.reservation_after.unwrap_or(0),
            preempt_after: bounds.patience,
            reclaim: *reclaim,
            preempt: preempt.iter().map(ToString::to_string).collect(),
            preempt_unset: unset.preempt,
            evictions_per_minute: bounds.rate.evictions,
            protected_namespaces: protected.iter().map(ToString::to_string).collect(),
            load: config.load.clone(),
            stock_scheduler: config.stock_scheduler,
            pods_ready_timeout: config.pods_ready_timeout.as_secs(),
        }
    }

    /// Has a controller decide by these from now on. Whether karmada-scheduler places counts for the workloads that it
    /// sees after this.
    pub fn apply_to(&self, controller: &mut Controller) {
        controller.jobs.engine.set_history_half_life(self.history_half_life);
        controller.jobs.engine.set_order_policy(self.order);
        controller.earlier_history.count_in(&mut controller.jobs.engine);
        controller.jobs.engine.set_reservation_after(Some(self.reservation_after).filter(|seconds| *seconds > 0));
        controller.preemption.schedule.policy = self.build_preemption_policy();
        controller.load_aware.set_policy(self.load.clone());
        controller.objects.admits_whole_gangs = self.stock_scheduler;
        controller.capacity.ignore_upcoming_nodes(self.stock_scheduler);
        controller.deadlines.start.set_timeout(SignedDuration::from_secs(self.pods_ready_timeout));
    }

    /// Who is evicted for whom.
    #[must_use]
    pub fn build_preemption_policy(&self) -> PreemptionPolicy {
        let mut policy = PreemptionPolicy { reclaim: self.reclaim, ..PreemptionPolicy::default() };
        // What a newer controller may say is no rule that this one could decide by.
        policy.preempt = self.preempt.iter().filter_map(|rule| rule.parse().ok()).collect();
        policy.unset.preempt = self.preempt_unset;
        policy.bounds.patience = self.preempt_after;
        policy.bounds.rate = EvictionRate { evictions: self.evictions_per_minute, seconds: 60 };
        policy.protected = self.protected_namespaces.iter().map(|name| name.as_str().into()).collect();
        policy
    }

    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_config_map(object: &Value) -> Result<Self, String> {
        let text = object["data"][KEY].as_str().ok_or_else(|| format!("it has no {KEY}"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY} does not parse: {error}"))
    }

    pub(crate) fn to_write(&self, namespace: &str) -> Write {
        build_config_map_write(namespace, NAME, json!({KEY: json!(self).to_string()}), NAME)
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::write::Body;

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
        config.pods_ready_timeout = SignedDuration::from_secs(9);
        config.load.enabled = true;
        config.load.thresholds.memory = None;
        config.load.target_thresholds.memory = None;
        config.load.excluded_namespaces.insert("ops".into());
        for config in [config, Config::default()] {
            let write = Settings::from_config(&config).to_write("ns");
            let Body::Apply { object, .. } = &write.body else { panic!("it is applied") };
            let read = Settings::read_config_map(object).unwrap();
            assert_eq!(read, Settings::from_config(&config));
            let mut controller = Controller::default();
            read.apply_to(&mut controller);
            assert_eq!(controller.jobs.engine.order_policy(), config.order);
            assert_eq!(controller.preemption.schedule.policy, config.preemption);
            assert_eq!(controller.deadlines.start.timeout(), config.pods_ready_timeout);
        }
    }

    #[test]
    fn what_an_older_controller_does_not_say_is_as_it_is_by_default() {
        let of = |text: &str| Settings::read_config_map(&json!({"data": {KEY: text}}));
        assert_eq!(of("{}"), Ok(Settings::default()));
        assert_eq!(
            of(r#"{"order": "fifo", "new": 1}"#),
            Ok(Settings { order: OrderPolicy::Fifo, ..Settings::default() })
        );
        assert!(of("[").unwrap_err().contains("does not parse"));
        assert_eq!(Settings::read_config_map(&json!({})), Err("it has no settings.json".to_owned()));
    }
}
