//! Decodes one amount of a published part.

use caldera_core::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource;

use super::Malformed;

/// An amount that is not negative.
pub(super) fn decode_amount(name: &str, amount: &resource::Quantity) -> Result<Quantity, Malformed> {
    let parsed = amount.0.parse().ok().filter(|amount: &Quantity| !amount.is_negative());
    parsed.ok_or_else(|| Malformed::Amount(amount.0.clone(), name.to_owned()))
}
