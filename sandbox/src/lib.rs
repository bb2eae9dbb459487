//! Stand-ins for Karmada and for a member's Volcano, and the fleet that wires them to embedded API servers.
//!
//! For trying out, teaching and tests; production is a real Karmada. Every stand-in is a client of the Kubernetes API
//! and nothing else, so each can also be pointed at a real API server.
#![forbid(unsafe_code)]

pub mod fleet;
pub mod karmada;
pub mod member;
mod used_verbs;
