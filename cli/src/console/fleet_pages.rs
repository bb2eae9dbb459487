//! Parts of pages that are of the whole fleet: gangs on the map of members and their network domains, the last day, and
//! what became of queues and members.
//!
//! Rule: a picture stands beside a table that says the same. Of members that he may not list, numbers are told; of
//! their domains, nothing. Jobs are gone through once, however many members there are, since what is seen is locked.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::WorkloadRef, text::count_noun};

use super::{
    html::Html,
    query::{PageQuery, VisibleNames, list_visible_names, render_job_link, render_time},
    record::{Sample, Shares, Subject},
};
use crate::{
    latest_forecast::TimedForecast,
    live::DomainPlaces,
    output::format_duration,
    view::{JobView, Member},
};

/// Jobs of a cell at most.
const MOST_JOBS: usize = 12;
const DAY_SECONDS: i64 = 86_400;
/// Of a chart: a unit is three minutes.
const CHART_WIDTH: f64 = 480.0;
const CHART_HEIGHT: f64 = 60.0;
/// Resources that have a chart.
const MOST_CHARTS: usize = 3;

/// Members, the domains in each, and the gangs there.
pub fn render_map(asked: PageQuery<'_>) -> Html {
    let names = list_visible_names(asked, &asked.seen.queues());
    let mut html = Html::new();
    let Some(forecast) = asked.forecast else {
        html.paragraph("Nodes and network domains are being read: the page comes anew.");
        return html;
    };
    let age = format_duration((asked.now.as_second() - forecast.at.as_second()).max(0));
    html.paragraph(format!("Nodes and pods as they were read {age} ago. A gang is where its pods are on nodes."));
    let jobs: BTreeMap<WorkloadRef, JobView<'_>> =
        asked.seen.jobs().filter(|job| !job.clusters().is_empty()).map(|job| (job.key.workload(), job)).collect();
    let planned = index_by_member(jobs.iter().filter(|(_, job)| !job.state.is_over()));
    let rows =
        asked.seen.members().flat_map(|member| list_map_rows(asked, forecast, member, (&names, &planned), &jobs));
    let header = ["Member", "Network domain", "Nodes", "Without a workload", "Gangs and their pods"];
    html.table("Members, the network domains in them, and who is there", &header, rows.collect::<Vec<_>>());
    html
}

/// Pods by workload, for a member or one of its domains.
type Gangs<'a> = BTreeMap<&'a WorkloadRef, u64>;

/// Of each member who is to be there, with how many pods, as bindings say it.
fn index_by_member<'a>(jobs: impl Iterator<Item = (&'a WorkloadRef, &'a JobView<'a>)>) -> BTreeMap<&'a str, Gangs<'a>> {
    let mut planned: BTreeMap<&str, Gangs<'_>> = BTreeMap::new();
    for (workload, job) in jobs {
        for (cluster, pods) in job.clusters() {
            planned.entry(cluster).or_default().entry(workload).or_insert(*pods);
        }
    }
    planned
}

fn list_map_rows(
    asked: PageQuery<'_>,
    forecast: &TimedForecast,
    member: &Member,
    (names, planned): (&VisibleNames, &BTreeMap<&str, Gangs<'_>>),
    jobs: &BTreeMap<WorkloadRef, JobView<'_>>,
) -> Vec<Vec<Html>> {
    let name = || Html::of(names.name_member(&member.name));
    let is_named = names.clusters.contains(&member.name);
    let places = forecast.places.get(&member.name);
    let unknown = places.is_none_or(|places| places.unknown.is_some());
    if unknown || !is_named {
        let why = places.and_then(|places| places.unknown.as_deref()).filter(|_| is_named).unwrap_or_default();
        let mut said = Html::new();
        said.raw("<span class=\"other\">not known</span> ").text(if unknown { why } else { "" });
        let none = Gangs::new();
        let here = planned.get(member.name.as_str()).unwrap_or(&none);
        return vec![vec![name(), said, Html::of(&member.nodes), Html::new(), render_gangs(asked, here, jobs)]];
    }
    let domains = places.map(|places| places.domains.as_slice()).unwrap_or_default();
    let row = |domain: &DomainPlaces| {
        let here = domain.pods.iter().map(|(workload, pods)| (workload, *pods)).collect();
        vec![
            name(),
            Html::of(if domain.path.is_empty() { "none".to_owned() } else { domain.path.join(" / ") }),
            Html::of(domain.nodes),
            Html::of(domain.unused_nodes),
            render_gangs(asked, &here, jobs),
        ]
    };
    domains.iter().map(row).collect()
}

/// Jobs with their pods; those that he may not see together, as numbers.
fn render_gangs(asked: PageQuery<'_>, here: &Gangs<'_>, jobs: &BTreeMap<WorkloadRef, JobView<'_>>) -> Html {
    let mut html = Html::new();
    let (mut others, mut other_pods, mut shown) = (0_usize, 0_u64, 0_usize);
    for (workload, pods) in here {
        match jobs.get(*workload).filter(|job| asked.access.may_see(job)) {
            Some(job) if shown < MOST_JOBS => {
                shown += 1;
                html.raw("<div class=\"gang\">").add(&render_job_link(asked, job)).raw(" <strong>").text(pods);
                html.raw("</strong></div>");
            }
            _ => (others, other_pods) = (others + 1, other_pods + pods),
        }
    }
    if others > 0 {
        let more = if shown > 0 { "more" } else { "of others" };
        html.raw("<div class=\"other\">")
            .text(format!("{others} {more}, {}", count_noun(other_pods, "pod")))
            .raw("</div>");
    }
    html
}

/// What was used in the last day, and how fragmented the rest was: charts, and the same by hour.
pub fn render_day(asked: PageQuery<'_>) -> Html {
    let mut html = Html::new();
    html.heading("The last day");
    let Some(since) = asked.record.since else {
        html.paragraph("Nothing was measured yet.");
        return html;
    };
    let start = asked.now.as_second() - DAY_SECONDS;
    html.raw("<p>").text("Measured each minute since ").add(&render_time(since, asked.now));
    html.text(
        ", when this console started, if that is less than a day ago. Fragmented is the share of what is free that is \
         not in the member with the most of it: a gang that must be whole in one cluster can not have it.",
    );
    html.raw("</p>\n");
    let samples: Vec<&Sample> = asked.record.samples.iter().filter(|one| one.at.as_second() >= start).collect();
    let fleet = crate::view::sum_members(asked.seen.members());
    let resources: Vec<&str> = fleet.iter().map(|amount| amount.resource.as_str()).take(MOST_CHARTS).collect();
    html.raw("<div class=\"charts\">");
    for resource in &resources {
        html.add(&render_chart(resource, &samples, start));
    }
    html.raw("</div>\n");
    let hours: BTreeSet<i64> = samples.iter().map(|sample| sample.at.as_second().div_euclid(3_600)).collect();
    let rows = hours.into_iter().rev().map(|hour| {
        let of_hour: Vec<&&Sample> =
            samples.iter().filter(|one| one.at.as_second().div_euclid(3_600) == hour).collect();
        let at = jiff::Timestamp::from_second(hour * 3_600).unwrap_or(asked.now);
        let mut cells = vec![Html::of(at.strftime("%Y-%m-%d %H:00Z"))];
        cells.push(Html::of(resources.iter().map(|name| describe_mean(name, &of_hour)).collect::<Vec<_>>().join("; ")));
        cells
    });
    html.raw("<details><summary>The same by hour</summary>");
    html.table("Means of each hour, the newest first", &["Hour", "Used, and fragmented of what was free"], rows);
    html.raw("</details>\n");
    html
}

fn describe_mean(resource: &str, samples: &[&&Sample]) -> String {
    let of = |part: fn(&Shares) -> f64| {
        let all: Vec<f64> = samples.iter().filter_map(|one| one.shares.get(resource)).map(part).collect();
        100.0 * all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    format!("{resource} {:.0}%, {:.0}%", of(|one| one.used), of(|one| one.fragmented))
}

/// Two lines from a day ago to now.
fn render_chart(resource: &str, samples: &[&Sample], start: i64) -> Html {
    let mut html = Html::new();
    let points = |part: fn(&Shares) -> f64| {
        let point = |sample: &&&Sample| {
            let x = (sample.at.as_second() - start) as f64 / DAY_SECONDS as f64 * CHART_WIDTH;
            let share = sample.shares.get(resource).map(part)?;
            Some(format!("{x:.1},{:.1}", CHART_HEIGHT * (1.0 - share)))
        };
        samples.iter().filter_map(|sample| point(&sample)).collect::<Vec<_>>()
    };
    let latest = samples.last().and_then(|sample| sample.shares.get(resource)).copied().unwrap_or_default();
    let said = format!(
        "{resource}: now {:.0}% used, {:.0}% of the rest fragmented",
        latest.used * 100.0,
        latest.fragmented * 100.0
    );
    html.raw("<figure><figcaption>").text(&said).raw("</figcaption>");
    html.raw("<svg class=\"chart\" viewBox=\"0 0 480 60\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    html.text(format!("{said}; by hour below")).raw("\"><rect class=\"all\" width=\"480\" height=\"60\"/>");
    let used = points(|one| one.used);
    if let (Some(first), Some(last)) = (used.first(), used.last()) {
        let x = |point: &str| point.split(',').next().unwrap_or_default().to_owned();
        html.raw("<polygon class=\"used\" points=\"").text(format!("{},60 ", x(first))).text(used.join(" "));
        html.text(format!(" {},60", x(last))).raw("\"/>");
    }
    html.raw("<polyline class=\"fragmented\" points=\"").text(points(|one| one.fragmented).join(" ")).raw("\"/></svg>");
    html.raw("<div class=\"axis\" aria-hidden=\"true\"><span>a day ago</span><span>now</span></div></figure>\n");
    html
}

/// What became of queues and members that he may know by name.
pub fn render_fleet_changes(asked: PageQuery<'_>, from: i64) -> Html {
    let names = list_visible_names(asked, &asked.seen.queues());
    let mut html = Html::new();
    let seen = asked.record.changes.iter().rev().filter(|change| change.at.as_second() >= from);
    let rows = seen.filter_map(|change| {
        let mut name = Html::new();
        let kind = match &change.subject {
            Subject::Queue(queue) if names.queues.contains(queue) => {
                name.link(&["queues", queue], queue);
                "queue"
            }
            // What is gone can be in no list of names.
            Subject::Queue(queue) if asked.access.queues => {
                name.text(queue);
                "queue"
            }
            Subject::Member(member) if names.clusters.contains(member) || asked.access.clusters => {
                name.text(member);
                "member"
            }
            _ => return None,
        };
        name.raw(" <small>").text(kind).raw("</small>");
        let when = render_time(change.at, asked.now);
        Some(vec![when, name, Html::of(change.what), Html::of(&change.words)])
    });
    html.heading("Queues and members");
    if let Some(since) = asked.record.since.filter(|since| since.as_second() > from) {
        html.raw("<p>").text("Seen since ").add(&render_time(since, asked.now)).text(", when this console started.");
        html.raw("</p>\n");
    }
    let rows: Vec<_> = rows.collect();
    html.table("Changes of queues and members, the newest first", &["When", "Which", "What", "In words"], rows);
    html
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::{Change, Seen};

    #[test]
    fn who_is_to_be_in_each_member_is_found_in_one_pass_over_the_jobs() {
        let about = |name: &str| json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name});
        let workload = |name: &str| {
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "metadata": {"namespace": "ns", "name": name}, "spec": {"queue": "q", "tasks": []}})
        };
        let binding = |name: &str, clusters: serde_json::Value| {
            json!({"metadata": {"namespace": "ns", "name": format!("{name}-job")},
                "spec": {"resource": about(name), "clusters": clusters}})
        };
        let split = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 3}]);
        let bindings = [binding("a", split), binding("b", json!([{"name": "m2", "replicas": 1}]))];
        let mut seen = Seen::default();
        let changes = Change::of_lists(&[workload("a"), workload("b")], &bindings, &[]);
        changes.into_iter().for_each(|change| seen.observe(change));
        let jobs: BTreeMap<WorkloadRef, JobView<'_>> = seen.jobs().map(|job| (job.key.workload(), job)).collect();
        let planned = index_by_member(jobs.iter());
        let reported: Vec<(&str, Vec<u64>)> =
            planned.iter().map(|(member, gangs)| (*member, gangs.values().copied().collect())).collect();
        assert_eq!(reported, [("m1", vec![2]), ("m2", vec![3, 1])]);
    }
}
