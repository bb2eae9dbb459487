//! Karmada's own admission webhooks, and the defaults of its aggregated API server.

pub mod mutate;
pub mod policies;
pub mod quota;
pub mod run;
pub mod validate;
