//! Logs: human-readable on a terminal, JSON elsewhere; `CALDERA_LOG` (or `RUST_LOG`) chooses what is shown. Beside them
//! spans for a collector of traces, whatever is logged.

use std::io::IsTerminal;

use tracing_subscriber::{
    Layer,
    filter::{Targets, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::otlp::OtlpLayer;

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
    start_logging_and_tracing(default_filter, format, None);
}

/// The same, with a collector that gets our spans.
pub fn start_logging_and_tracing(default_filter: &str, format: Format, otlp: Option<OtlpLayer>) {
    let filter: Targets = std::env::var("CALDERA_LOG")
        .or_else(|_| std::env::var("RUST_LOG"))
        .ok()
        .and_then(|text| text.parse().ok())
        .or_else(|| default_filter.parse().ok())
        .unwrap_or_default();
    let terminal = std::io::stderr().is_terminal();
    let json = format == Format::Json || (format == Format::Auto && !terminal);
    let is_ours = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("caldera"));
    let registry = tracing_subscriber::registry().with(otlp.map(|layer| layer.with_filter(is_ours)));
    let stderr = std::io::stderr;
    let _ = if json {
        registry.with(tracing_subscriber::fmt::layer().json().with_writer(stderr).with_filter(filter)).try_init()
    } else {
        let layer = tracing_subscriber::fmt::layer().with_ansi(terminal).with_writer(stderr);
        registry.with(layer.with_filter(filter)).try_init()
    };
}
