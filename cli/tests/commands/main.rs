//! The commands of `caldera` as their users meet them: each starts the program, against a sandbox or a server of its
//! own. One program of tests, as each would link all of Caldera once more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod adoption;
mod browser;
mod certificates;
mod command_line;
mod console;
mod doctor;
mod explain;
mod install;
mod killed;
mod manifests;
mod operate;
mod operator;
mod outcome;
mod prometheus;
mod sandbox;
mod screens;
mod server;
mod simulate;
mod story;
mod supervised;
mod terminal;
mod top;
mod topology;
mod turns;
mod uninstall;
