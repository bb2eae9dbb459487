//! What queues and their tenants used lately, kept for the next controller and for those who ask why.
//!
//! Rule: written every five minutes by default where that counts (`--order fair-history`), and never over what was not
//! read. It says of when it is, as nobody is known to have used anything since. Every tenant may read what queues used.
//! What tenants used names users, so it is in a ConfigMap of its own: who may not read that sees shares of what tenants
//! have now.

use std::collections::BTreeMap;

use caldera_core::{
    gang::QueueName,
    queue::{Engine, FairHistory},
    resources::Resources,
    tenant::Tenant,
    time::EpochSeconds,
};
use caldera_runtime::write::Write;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::config_map::build_config_map_write;

/// The ConfigMap of queues.
pub const QUEUES: &str = "caldera-queue-history";
/// The ConfigMap of their tenants.
pub const TENANTS: &str = "caldera-tenant-history";
const KEY: &str = "history.json";
/// Bytes of one at most: an object may have 1 MiB.
const MOST_BYTES: usize = 700_000;

/// Means of when.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept<T> {
    at: EpochSeconds,
    mean_used: BTreeMap<QueueName, T>,
}

/// The writes that keep it. Where it is too much, the queues that come first by name are in it, and the tenants that
/// used most.
pub(crate) fn keep_fair_history(engine: &Engine, namespace: &str) -> [Write; 2] {
    let mut left = MOST_BYTES;
    let holds = |queue: &QueueName, tenant: &Tenant, mean: &Resources| {
        // With the queue's name, as if each were the first of its queue.
        let bytes = count_bytes(&json!({ (queue.as_str()): {(tenant.to_string()): mean} }));
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let FairHistory { at, mut queues, tenants } = engine.fair_history(holds);
    let mut left = MOST_BYTES;
    queues.retain(|queue, mean| {
        let rest = left.checked_sub(count_bytes(&json!({ (queue.as_str()): mean })));
        left = rest.unwrap_or(left);
        rest.is_some() && !mean.is_empty()
    });
    [
        build_write(namespace, QUEUES, &Kept { at, mean_used: queues }),
        build_write(namespace, TENANTS, &Kept { at, mean_used: tenants }),
    ]
}

/// As a text within a text.
fn count_bytes(value: &Value) -> usize {
    json!(value.to_string()).to_string().len()
}

fn build_write<T: Serialize>(namespace: &str, name: &'static str, kept: &Kept<T>) -> Write {
    build_config_map_write(namespace, name, json!({ (KEY): json!(kept).to_string() }), name)
}

/// Reads what queues used.
///
/// # Errors
/// If it does not parse.
pub fn read_queue_history(object: &Value) -> Result<FairHistory, String> {
    let Kept { at, mean_used } = read_kept(object)?;
    Ok(FairHistory { at, queues: mean_used, ..FairHistory::default() })
}

/// Reads what tenants used.
///
/// # Errors
/// If it does not parse.
pub fn read_tenant_history(object: &Value) -> Result<FairHistory, String> {
    let Kept { at, mean_used } = read_kept(object)?;
    Ok(FairHistory { at, tenants: mean_used, ..FairHistory::default() })
}

fn read_kept<T: DeserializeOwned + Default>(object: &Value) -> Result<Kept<T>, String> {
    let Some(text) = object["data"][KEY].as_str() else { return Ok(Kept::default()) };
    serde_json::from_str(text).map_err(|error| format!("its {KEY}: {error}"))
}

/// What earlier controllers kept.
#[derive(Debug, Default)]
pub(crate) enum EarlierHistory {
    /// It is not read yet: nothing may be written over it.
    #[default]
    Unread,
    /// It does not count, as the order is another.
    Read(Vec<FairHistory>),
    /// The engine goes on from it.
    Counted,
}

impl EarlierHistory {
    /// It was read.
    pub(crate) fn observe(&mut self, read: Vec<FairHistory>) {
        if matches!(self, Self::Unread) {
            *self = Self::Read(read);
        }
    }

    /// Has an engine go on from it, once what was used counts there.
    pub(crate) fn count_in(&mut self, engine: &mut Engine) {
        if let Self::Read(read) = self
            && engine.history_half_life().is_some()
        {
            read.iter().for_each(|history| engine.add_fair_history(history));
            *self = Self::Counted;
        }
    }

    /// Whether it may be written anew.
    pub(crate) const fn is_counted(&self) -> bool {
        matches!(self, Self::Counted)
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        quantity::Quantity,
        queue::{FleetResources, OrderPolicy, QueueSpec, TenantOrder},
    };
    use caldera_runtime::write::Body;

    use super::*;

    fn cpu(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    fn begin(now: i64) -> Engine {
        let mut engine = Engine::default();
        engine.set_history_half_life(100);
        engine.set_order_policy(OrderPolicy::FairHistory);
        let deserved = [("cpu".into(), Quantity::from_units(10))].into_iter().collect();
        let tenant_order = Some(TenantOrder::Users);
        engine.set_queue(QueueSpec { deserved, tenant_order, ..QueueSpec::unlimited("q") });
        engine.set_fleet(FleetResources { ready: cpu(16), whole: Some(cpu(16)), ready_clusters: 1 });
        engine.set_now(EpochSeconds::new(now));
        engine.resolve_quota();
        engine
    }

    fn told(engine: &Engine) -> FairHistory {
        engine.fair_history(|_, _, _| true)
    }

    /// As it is read when this engine keeps it.
    fn kept_of(engine: &Engine) -> Vec<FairHistory> {
        let objects = keep_fair_history(engine, "ns").map(|write| {
            let Body::Apply { object, .. } = write.body else { panic!("it is applied") };
            assert!(object.to_string().len() < 1_000_000);
            object
        });
        assert!(!objects[0].to_string().contains("user"), "every tenant may read that");
        vec![read_queue_history(&objects[0]).unwrap(), read_tenant_history(&objects[1]).unwrap()]
    }

    #[test]
    fn the_next_controller_goes_on_from_what_was_kept_less_what_passed_since() {
        let used = FairHistory {
            at: EpochSeconds::new(1000),
            queues: [("q".into(), cpu(8))].into(),
            tenants: [("q".into(), [(Tenant::User("ada".into()), cpu(8))].into())].into(),
        };
        let mut first = begin(1000);
        first.add_fair_history(&used);
        assert_eq!(told(&first), used);
        let mut earlier = EarlierHistory::default();
        let mut second = begin(1100);
        earlier.count_in(&mut second);
        assert!(!earlier.is_counted(), "nothing is written over what is not read");
        earlier.observe(kept_of(&first));
        earlier.count_in(&mut second);
        assert!(earlier.is_counted());
        assert_eq!((told(&second).queues["q"].clone(), told(&second).tenants["q"].len()), (cpu(4), 1));
        earlier.observe(kept_of(&first));
        earlier.count_in(&mut second);
        assert_eq!(told(&second).queues["q"], cpu(4), "once");
    }

    #[test]
    fn what_was_kept_counts_from_when_the_order_is_by_it() {
        let mut first = begin(1000);
        first.add_fair_history(&FairHistory {
            at: EpochSeconds::new(1000),
            queues: [("q".into(), cpu(8))].into(),
            ..FairHistory::default()
        });
        let mut second = begin(1000);
        second.set_order_policy(OrderPolicy::Share);
        let mut earlier = EarlierHistory::default();
        earlier.observe(kept_of(&first));
        earlier.count_in(&mut second);
        assert!(!earlier.is_counted());
        second.set_now(EpochSeconds::new(1200));
        second.set_order_policy(OrderPolicy::FairHistory);
        second.resolve_quota();
        earlier.count_in(&mut second);
        assert_eq!(told(&second).queues["q"], cpu(2));
    }

    #[test]
    fn of_more_tenants_than_an_object_holds_those_who_used_most_are_kept() {
        let mut engine = begin(1000);
        let user = |at: i64| Tenant::User(format!("\"{at:05}{}", "é".repeat(100)).into());
        let means = (1..9_000).map(|at| (user(at), [("cpu", Quantity::from_milli(at + 1))].into_iter().collect()));
        engine.add_fair_history(&FairHistory {
            at: EpochSeconds::new(1000),
            tenants: [("q".into(), means.collect())].into(),
            ..FairHistory::default()
        });
        let kept = kept_of(&engine).pop().unwrap();
        let (kept, all) = (&kept.tenants["q"], &told(&engine).tenants["q"]);
        assert!(kept.len() > 2_000 && kept.len() < all.len(), "{}", kept.len());
        assert!(all.iter().rev().take(kept.len()).all(|(tenant, mean)| kept.get(tenant) == Some(mean)));
    }

    #[test]
    fn a_history_that_can_not_be_read_is_told_so_and_none_is_empty() {
        let broken = json!({"data": {KEY: "["}});
        assert!(read_tenant_history(&broken).unwrap_err().contains(KEY));
        assert!(read_queue_history(&broken).is_err());
        assert_eq!(read_queue_history(&json!({})), Ok(FairHistory::default()));
    }
}
