//! The command line as a library, so that end-to-end scenarios start components exactly as the binary does.
#![forbid(unsafe_code)]

pub mod args;
pub mod cluster;
pub mod command;
pub mod components;
pub mod demo;
pub mod deploy;
pub mod doctor;
pub mod job;
pub mod live;
pub mod manifests;
pub mod objects;
pub mod output;
pub mod queue;
pub mod roles;
pub mod sandbox;
pub mod simulate;
pub mod stack;
pub mod style;
pub mod uninstall;
pub mod webhook_identity;
pub mod why;
