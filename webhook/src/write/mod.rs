//! What the webhook answers with, and the configurations by which its callers find it.

pub mod configurations;
pub mod customization;
mod match_conditions;
pub mod review;
