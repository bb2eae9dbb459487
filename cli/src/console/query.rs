//! What all pages are made of, and what may be told by name.

use std::collections::BTreeSet;

use caldera_runtime::clock::format_time;
use jiff::Timestamp;

use super::{access::Access, html::Html, record::Record};
use crate::{
    events,
    latest_forecast::TimedForecast,
    output::format_duration,
    view::{JobView, QueueLine, Seen},
};

/// What a page is made of.
#[derive(Debug, Clone, Copy)]
pub struct PageQuery<'a> {
    pub seen: &'a Seen,
    pub access: &'a Access,
    pub now: Timestamp,
    /// Of a job's page: what was said of it, or why that can not be seen.
    pub events: Result<&'a [events::EventRow], &'a str>,
    /// What a list is filtered by.
    pub filter: &'a str,
    /// When jobs that wait are expected to start, and where pods are, once that is known.
    pub forecast: Option<&'a TimedForecast>,
    /// What the console saw since it runs.
    pub record: &'a Record,
}

/// What may be told by name.
pub struct VisibleNames {
    pub queues: BTreeSet<String>,
    pub clusters: BTreeSet<String>,
}

impl VisibleNames {
    pub fn name_member<'a>(&self, name: &'a str) -> &'a str {
        if self.clusters.contains(name) { name } else { "another member" }
    }
}

/// All, or those in which he has jobs, and the queues above them.
pub fn list_visible_names(asked: PageQuery<'_>, lines: &[QueueLine]) -> VisibleNames {
    let own = || asked.seen.jobs().filter(|job| asked.access.may_see(job));
    let used: BTreeSet<&str> = own().map(|job| job.queue()).collect();
    let mut queues = BTreeSet::new();
    let mut above: Vec<&str> = Vec::new();
    for line in lines {
        above.truncate(line.depth);
        above.push(&line.name);
        if asked.access.queues || used.contains(line.name.as_str()) {
            queues.extend(above.iter().map(|name| (*name).to_owned()));
        }
    }
    let members = asked.seen.members().filter(|_| asked.access.clusters).map(|member| member.name.clone());
    let clusters = own().flat_map(|job| job.clusters()).map(|(name, _)| name.clone()).chain(members).collect();
    VisibleNames { queues, clusters }
}

/// A link to what he may see.
pub fn render_job_link(asked: PageQuery<'_>, job: &JobView<'_>) -> Html {
    let mut html = Html::new();
    if asked.access.may_see(job) {
        let key = job.key;
        let label = format!("{}/{}", key.namespace, key.command_name());
        html.link(&["jobs", &key.namespace, key.kind.aliases()[0], &key.name], label);
    } else {
        html.raw("<span class=\"other\">another job</span>");
    }
    html
}

pub fn render_time(at: Timestamp, now: Timestamp) -> Html {
    let mut html = Html::new();
    let (text, age) = (format_time(at), format_duration(now.as_second() - at.as_second()));
    html.raw("<time datetime=\"")
        .text(&text)
        .raw("\">")
        .text(&text)
        .raw("</time> <small>")
        .text(age)
        .raw(" ago</small>");
    html
}
