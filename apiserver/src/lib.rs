//! An embedded Kubernetes API server: one process, in memory, faithful in what clients see.
//!
//! `store` is pure and synchronous; every write passes through its one `commit`. `write` and `delete` turn a request into
//! a commit (admission, defaults, validation, field ownership), `read` and `watch` answer from the store, `http` routes.
#![forbid(unsafe_code)]

pub mod admission;
pub mod auth;
mod builtin;
pub mod clock;
mod discovery;
pub mod error;
pub mod fields;
mod http;
mod namespace;
pub mod patch;
pub mod resource;
pub mod schema;
mod server;
pub mod store;
mod table;

pub use clock::{Clock, SystemClock, TokioClock};
pub use server::{ApiServer, Options};
