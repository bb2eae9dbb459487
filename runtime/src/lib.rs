//! I/O plumbing of all components: clients, watches, writes, leader election, the members' inventories, events, a
//! bounded HTTP server, TLS, health and metrics, logs and traces, and shutdown.
//!
//! Components decide in pure code and touch the world through three things here: [`watch::Follower`] turns the objects
//! of a kind into events on a channel, [`write::Writer`] carries out what was decided, [`clock::Clock`] tells the time.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod access;
pub mod bounded;
pub mod client;
pub mod clock;
pub mod debug_state;
pub mod event;
pub mod lease;
mod list_pages;
pub mod members;
pub mod metric;
pub mod object;
pub mod otlp;
pub mod probe;
pub mod serve;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod write;
pub mod write_metrics;
