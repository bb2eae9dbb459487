//! Which collector gets the spans.
//!
//! Rule (OpenTelemetry, exporters' configuration): a flag goes before `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, and that
//! before `OTEL_EXPORTER_OTLP_ENDPOINT`, which is for all signals, so that `/v1/traces` goes behind its path. A
//! variable that is empty is none. Variables may be meant for others: who takes one that is no address says so and
//! goes on.

use super::export::PATH;

/// For traces alone.
const TRACES_VARIABLE: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// For all signals.
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorEndpoint {
    /// As it was told, with the path of traces where that is not told.
    pub url: String,
    /// The variable that told it; `None` of a flag.
    pub variable: Option<&'static str>,
}

/// Chooses it from a flag and what the environment says.
pub fn choose_endpoint(
    flag: Option<&str>,
    read_variable: impl Fn(&str) -> Option<String>,
) -> Option<CollectorEndpoint> {
    if let Some(url) = flag {
        return Some(CollectorEndpoint { url: url.to_owned(), variable: None });
    }
    let read = |name| read_variable(name).map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
    let of = |variable, url| Some(CollectorEndpoint { url, variable: Some(variable) });
    if let Some(url) = read(TRACES_VARIABLE) {
        return of(TRACES_VARIABLE, url);
    }
    of(VARIABLE, read(VARIABLE)?.trim_end_matches('/').to_owned() + PATH)
}
