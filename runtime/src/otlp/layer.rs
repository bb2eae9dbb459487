//! What of tracing's spans becomes a span for the collector.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::mpsc;
use tracing::{
    Id, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{
    AttributeValue, ERROR, FinishedSpan, MOST_OF_VALUE, TraceId, WORKLOAD, dropped::count_dropped, parse_trace_id,
};

/// Attributes of a span at most.
const MOST_ATTRIBUTES: usize = 24;

/// Hands spans that end to the exporter.
#[derive(Debug, Clone)]
pub struct OtlpLayer {
    spans: mpsc::Sender<FinishedSpan>,
    ids: Arc<SpanIds>,
}

/// Ids that no other process has but by chance.
#[derive(Debug, Default)]
struct SpanIds {
    seed: RandomState,
    last: AtomicU64,
}

impl SpanIds {
    fn draw(&self) -> u64 {
        // No id is 0.
        self.seed.hash_one(self.last.fetch_add(1, Ordering::Relaxed)).max(1)
    }
}

/// A span that goes on.
#[derive(Debug)]
struct OpenSpan {
    trace: Option<TraceId>,
    id: u64,
    /// Of the span around it, if that is of the same trace.
    parent: Option<(TraceId, u64)>,
    began: u64,
    fields: Fields,
}

#[derive(Debug, Default)]
struct Fields {
    workload: Option<TraceId>,
    attributes: Vec<(&'static str, AttributeValue)>,
    error: Option<String>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: AttributeValue) {
        let name = field.name();
        if let Some((_, known)) = self.attributes.iter_mut().find(|(known, _)| *known == name) {
            *known = value;
        } else if self.attributes.len() < MOST_ATTRIBUTES {
            self.attributes.push((name, value));
        }
    }

    fn set_text(&mut self, field: &Field, text: &str) {
        match field.name() {
            WORKLOAD => self.workload = parse_trace_id(text),
            ERROR => self.error = Some(text.chars().take(MOST_OF_VALUE).collect()),
            _ => {}
        }
        self.set(field, AttributeValue::from_text(text));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, AttributeValue::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, AttributeValue::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, AttributeValue::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, AttributeValue::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set_text(field, &format!("{value:?}"));
    }
}

impl OtlpLayer {
    pub(super) fn new(spans: mpsc::Sender<FinishedSpan>) -> Self {
        Self { spans, ids: Arc::default() }
    }
}

fn read_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OtlpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let around = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            let open = extensions.get::<OpenSpan>()?;
            Some((open.trace?, open.id))
        });
        let trace = fields.workload.or(around.map(|(trace, _)| trace));
        let open = OpenSpan { trace, id: self.ids.draw(), parent: around, began: read_clock(), fields };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(open) = extensions.get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
            open.trace = open.fields.workload.or(open.trace);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        let Some(trace) = open.trace else { return };
        let metadata = span.metadata();
        let finished = FinishedSpan {
            trace,
            id: open.id,
            parent: open.parent.filter(|(of, _)| *of == trace).map(|(_, parent)| parent),
            name: metadata.name(),
            scope: metadata.target(),
            began: open.began,
            ended: read_clock().max(open.began),
            attributes: open.fields.attributes,
            error: open.fields.error,
        };
        if self.spans.try_send(finished).is_err() {
            count_dropped(1);
        }
    }
}
