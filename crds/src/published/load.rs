//! Encodes and decodes what a member's nodes really use.
//!
//! Rule: one that does not parse is none. An inventory is right without it.

use caldera_core::{
    inventory::{MEASURED, MemberLoad},
    resources::Resources,
    time::EpochSeconds,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource;

use super::{Load, amount::decode_amount};
use crate::wire::ResourceList;

impl Load {
    /// As it is written; `None` for a time that no calendar has.
    #[must_use]
    pub fn from_member_load(load: &MemberLoad) -> Option<Self> {
        let list = |amounts: &Resources| {
            MEASURED.map(|name| (name.to_owned(), resource::Quantity(amounts.get(name).to_string()))).into()
        };
        let read_at = Timestamp::from_second(load.read_at.as_seconds()).ok()?.to_string();
        Some(Self { read_at, used: list(&load.used), capacity: list(&load.capacity) })
    }

    /// As it was read; `None` where it does not parse, or says more than there is.
    #[must_use]
    pub fn to_member_load(&self) -> Option<MemberLoad> {
        let read = |list: &ResourceList| -> Option<Resources> {
            MEASURED.iter().map(|name| Some((*name, decode_amount(name, list.get(*name)?).ok()?))).collect()
        };
        let (used, capacity) = (read(&self.used)?, read(&self.capacity)?);
        let read_at: Timestamp = self.read_at.parse().ok()?;
        let load = MemberLoad { used, capacity, read_at: EpochSeconds::from(read_at) };
        MEASURED.iter().all(|name| load.used.get(name) <= load.capacity.get(name)).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    #[test]
    fn a_load_comes_back_and_a_wild_one_is_none() {
        let of = |cpu: i64, memory: i64| -> Resources {
            [("cpu", Quantity::from_milli(cpu)), ("memory", Quantity::from_units(memory))].into_iter().collect()
        };
        let load = MemberLoad { used: of(2_500, 0), capacity: of(8_000, 1 << 30), read_at: EpochSeconds::new(1_000) };
        let written = Load::from_member_load(&load).unwrap();
        assert_eq!((written.read_at.as_str(), written.used["memory"].0.as_str()), ("1970-01-01T00:16:40Z", "0"));
        assert_eq!(written.to_member_load(), Some(load));
        for wild in ["-1", "NaN", "1e30", "9"] {
            let mut written = written.clone();
            written.used.insert("cpu".to_owned(), resource::Quantity(wild.to_owned()));
            assert_eq!(written.to_member_load(), None, "{wild}");
        }
        assert_eq!(Load { read_at: "now".to_owned(), ..written.clone() }.to_member_load(), None);
        assert_eq!(Load { used: ResourceList::new(), ..written }.to_member_load(), None);
    }
}
