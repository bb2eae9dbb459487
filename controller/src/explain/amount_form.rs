//! How amounts are written in answers that programs read: exact, and as people write them.

use std::collections::BTreeMap;

use caldera_core::{admission::Admission, quantity::Quantity, resources::Resources};
use serde::{Serialize as _, Serializer, ser::Error as _};

pub(super) fn write_amount<S: Serializer>(amount: &Quantity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&amount.decimal())
}

pub(super) fn write_known_amount<S: Serializer>(amount: &Option<Quantity>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.decimal().to_string()).serialize(serializer)
}

pub(super) fn write_amounts<S: Serializer>(amounts: &Resources, serializer: S) -> Result<S::Ok, S::Error> {
    list_decimals(amounts).serialize(serializer)
}

/// What was granted, as its record says, but for the form of its amounts.
pub(super) fn write_admission<S: Serializer>(record: &Option<Admission>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(record) = record else { return serializer.serialize_none() };
    let mut value = serde_json::to_value(record).map_err(S::Error::custom)?;
    value["charged"] = serde_json::to_value(list_decimals(&record.charged)).map_err(S::Error::custom)?;
    value.serialize(serializer)
}

fn list_decimals(amounts: &Resources) -> BTreeMap<&str, String> {
    amounts.iter().map(|(name, amount)| (name.as_str(), amount.decimal().to_string())).collect()
}
