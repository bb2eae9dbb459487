//! Logs: human-readable on a terminal, JSON elsewhere; `CALDERA_LOG` (or `RUST_LOG`) chooses what is shown.

use std::io::IsTerminal;

use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// How logs look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One line of text a record.
    Text,
    /// One JSON object a record.
    Json,
}

/// Starts logging to standard error. `default_filter` is used where the environment says nothing.
/// Calling it a second time changes nothing.
pub fn start_logging(default_filter: &str, format: Format) {
    let filter: Targets = std::env::var("CALDERA_LOG")
        .or_else(|_| std::env::var("RUST_LOG"))
        .ok()
        .and_then(|text| text.parse().ok())
        .or_else(|| default_filter.parse().ok())
        .unwrap_or_default();
    let terminal = std::io::stderr().is_terminal();
    let json = format == Format::Json || (format == Format::Auto && !terminal);
    let registry = tracing_subscriber::registry().with(filter);
    let _ = if json {
        registry.with(tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(tracing_subscriber::fmt::layer().with_ansi(terminal).with_writer(std::io::stderr)).try_init()
    };
}
