//! What `docs/metrics.md` says of each metric and alert.

use std::fmt::Write as _;

use caldera_runtime::metric::Kind;

use super::{alerts::list_alerts, list_metrics};

pub(super) fn render_page() -> String {
    let mut text = String::new();
    for (component, metrics) in list_metrics() {
        let _ = writeln!(text, "\n### {component}\n\n| series | kind | labels | means |\n|---|---|---|---|");
        for metric in metrics {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", metric.series_name(), labels.join(", "), metric.help);
        }
    }
    text.push_str("\n## Alerts\n");
    for alert in list_alerts() {
        let _ = writeln!(
            text,
            "\n### {}\n\n{}, after {}: {}.\n\n```promql\n{}\n```\n\n{}",
            alert.name,
            alert.severity,
            alert.lasts,
            alert.summary.replace("{{ $labels.", "").replace(" }}", ""),
            wrap_words(&alert.expression),
            wrap_words(alert.runbook)
        );
    }
    text
}

/// The words of a paragraph or an expression, in lines that fit the page.
fn wrap_words(paragraph: &str) -> String {
    let (mut text, mut length) = (String::new(), 0);
    for word in paragraph.split(' ') {
        let gap = match length {
            0 => "",
            _ if length + 1 + word.chars().count() > 120 => "\n",
            _ => " ",
        };
        length = if gap == "\n" { 0 } else { length + gap.len() } + word.chars().count();
        text.push_str(gap);
        text.push_str(word);
    }
    text
}
