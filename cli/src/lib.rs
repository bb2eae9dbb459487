//! The command line as a library, so that end-to-end scenarios start components exactly as the binary does.
#![forbid(unsafe_code)]

mod admin;
pub mod args;
pub mod change;
#[cfg(test)]
mod chart;
pub mod cluster;
pub mod command;
pub mod completion;
pub mod components;
pub mod console;
pub mod console_starts;
pub mod cron_job;
pub mod demo;
pub mod deploy;
pub mod doctor;
pub mod events;
pub mod expected_start;
#[cfg(test)]
mod helm;
pub mod history;
pub mod install;
pub mod job;
pub mod json_path;
#[cfg(test)]
mod krew;
#[cfg(test)]
mod kustomize;
pub mod latest_forecast;
pub mod live;
pub mod manifests;
#[cfg(test)]
mod monitoring;
pub mod objects;
pub mod output;
mod pem_files;
mod pods;
mod probe;
pub mod queue;
pub mod repeat;
mod reservation;
pub mod roles;
pub mod sandbox;
pub mod server;
pub mod shadow;
pub mod simulate;
pub mod stack;
pub mod style;
pub mod top;
pub mod topology;
pub mod uninstall;
pub mod upgrade;
pub mod usage;
pub mod view;
pub mod watch;
pub mod webhook_identity;
pub mod why;
