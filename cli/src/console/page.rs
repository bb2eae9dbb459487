//! The pages, as functions of what is seen, who asks, and the time.
//!
//! Rule: of jobs that he may not see, position, state, priority, pods and age are told, and nothing that their owners
//! chose: no name, namespace, class or sentence.

use caldera_core::quantity::Quantity;
use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;

use super::{
    fleet_pages::{render_day, render_fleet_changes, render_map},
    html::Html,
    query::{PageQuery, VisibleNames, list_visible_names, render_job_link, render_time},
};
use crate::{
    latest_forecast::StartNote,
    output::{CAPABILITY_LEGEND, format_duration},
    view::{JobKey, JobView, QueueLine, State, compute_fraction, count_jobs, format_amount, list_steps, sum_members},
};

/// Rows of a table at most.
const ROWS: usize = 200;
/// What changed in this time.
const RECENT_SECONDS: i64 = 3_600;

/// Which page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    Fleet,
    Queue(String),
    Jobs,
    Job(JobKey),
    Map,
    Changes,
}

impl Page {
    /// The page at a path.
    #[must_use]
    pub fn find(path: &str) -> Option<Self> {
        let segments: Vec<String> = path.split('/').skip(1).map(super::html::decode_percent).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            [""] => Some(Self::Fleet),
            ["queues", name] => Some(Self::Queue((*name).to_owned())),
            ["jobs"] => Some(Self::Jobs),
            ["jobs", namespace, kind, name] => {
                let kind = WorkloadKind::parse_alias(kind)?;
                Some(Self::Job(JobKey { namespace: (*namespace).to_owned(), name: (*name).to_owned(), kind }))
            }
            ["map"] => Some(Self::Map),
            ["changes"] => Some(Self::Changes),
            _ => None,
        }
    }

    /// Its heading.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Self::Fleet => "Fleet and queues".to_owned(),
            Self::Queue(name) => format!("Queue {name}"),
            Self::Jobs => "Jobs".to_owned(),
            Self::Job(key) => format!("Job {}/{}", key.namespace, key.command_name()),
            Self::Map => "Where gangs are".to_owned(),
            Self::Changes => "What changed in the last hour".to_owned(),
        }
    }

    /// Whether it tells expected starts, or where pods are.
    #[must_use]
    pub const fn wants_forecast(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Job(_) | Self::Map)
    }

    /// Its content; none if there is no such thing, or he may not know that there is.
    #[must_use]
    pub fn render(&self, asked: PageQuery<'_>) -> Option<Html> {
        match self {
            Self::Fleet => Some(render_fleet(asked)),
            Self::Queue(name) => render_queue(asked, name),
            Self::Jobs => Some(render_jobs(asked)),
            Self::Job(key) => render_job(asked, key),
            Self::Map => Some(render_map(asked)),
            Self::Changes => Some(render_changes(asked)),
        }
    }
}

fn describe_amount(resource: &str, used: Quantity, all: Option<Quantity>) -> String {
    match all {
        Some(all) => format!("{} of {}", format_amount(resource, used), format_amount(resource, all)),
        None => format_amount(resource, used),
    }
}

fn render_fleet(asked: PageQuery<'_>) -> Html {
    let mut html = Html::new();
    let lines = asked.seen.queues();
    let names = list_visible_names(asked, &lines);
    let (counts, gangs) = count_jobs(asked.seen.jobs());
    if let Some(why) = asked.seen.pause_reason() {
        html.paragraph(format!("All releases are paused: {why}"));
    }
    html.raw("<ul class=\"facts\">");
    let facts = [("waiting", counts.waiting), ("starting", counts.starting), ("running", counts.running)];
    for (word, count) in facts {
        html.raw("<li><strong>").text(count).raw("</strong> ").text(word).raw("</li>");
    }
    html.raw("</ul>\n");
    let fleet = sum_members(asked.seen.members());
    let rows = fleet.iter().map(|amount| {
        let mut bar = Html::new();
        let resource = amount.resource.as_str();
        bar.bar(compute_fraction(amount.used, amount.all), None).text(describe_amount(
            resource,
            amount.used,
            Some(amount.all),
        ));
        vec![Html::of(resource), bar]
    });
    html.heading("Fleet").table("What all members have together", &["Resource", "In use"], rows);
    html.heading("Queues").add(&render_queues(
        "Queues, each with those below it; the second colour of a bar is borrowed",
        &lines,
        &names,
    ));
    let rows = asked.seen.members().map(|member| {
        let name = names.name_member(&member.name);
        let (gangs, pods) = gangs.get(member.name.as_str()).copied().unwrap_or_default();
        let mut state = Html::new();
        state.state(member.state);
        let mut row = vec![Html::of(name), state, Html::of(&member.nodes), Html::of(gangs), Html::of(pods)];
        let mut amounts = Html::new();
        for (resource, (used, all)) in fleet.iter().filter_map(|it| Some((&it.resource, member.amount(&it.resource)?)))
        {
            amounts.raw("<div class=\"amount\">").bar(compute_fraction(used, all), None).text(resource).raw(" ");
            amounts.text(describe_amount(resource, used, Some(all))).raw("</div>");
        }
        row.push(amounts);
        row
    });
    html.heading("Members");
    let header = ["Member", "State", "Nodes ready", "Gangs", "Pods", "In use"];
    html.table("Members, with the gangs that are there", &header, rows);
    html.add(&render_day(asked));
    html
}

fn render_queues(caption: &str, lines: &[QueueLine], names: &VisibleNames) -> Html {
    let rows = lines.iter().take(ROWS * 5).map(|line| {
        let mut name = Html::new();
        let level = ["l0", "l1", "l2", "l3", "l4"][line.depth.min(4)];
        name.raw("<span class=\"").raw(level).raw("\">");
        if names.queues.contains(&line.name) {
            name.link(&["queues", &line.name], &line.name);
        } else {
            name.raw("<span class=\"other\">another queue</span>");
        }
        name.raw("</span>");
        let mut state = Html::new();
        state.state(&line.state);
        let is_named = names.queues.contains(&line.name);
        for fault in line.faults.iter().filter(|_| is_named) {
            state.raw("<div class=\"fault\">").text(fault).raw("</div>");
        }
        let mut cells = vec![name, state];
        // On a narrow screen what is last is out of sight.
        cells.extend([line.waiting, line.starting, line.running].map(Html::of));
        cells.extend(render_amounts(line));
        cells
    });
    let header =
        ["Queue", "State", "Waiting", "Starting", "Running", "Used, of its capability", "Deserved", "Borrowed"];
    let mut html = Html::new();
    html.table(caption, &header, rows);
    html.paragraph(CAPABILITY_LEGEND.trim_end());
    html
}

/// Used, deserved and borrowed.
fn render_amounts(line: &QueueLine) -> [Html; 3] {
    let [mut used, mut deserved, mut borrowed] = [Html::new(), Html::new(), Html::new()];
    let is_reported = |amount: &&crate::view::Amount| {
        !amount.used.is_zero() || !amount.deserved.is_zero() || amount.capability.is_some()
    };
    for amount in line.amounts.iter().filter(is_reported).filter(|amount| amount.resource != "pods") {
        let name = amount.resource.as_str();
        used.raw("<div class=\"amount\">");
        if let Some(full) = amount.capability.or(Some(amount.deserved).filter(|deserved| !deserved.is_zero())) {
            let mark = (amount.deserved < full).then(|| compute_fraction(amount.deserved, full));
            used.bar(compute_fraction(amount.used, full), mark);
        }
        used.text(name).raw(" ").text(describe_amount(name, amount.used, amount.capability)).raw("</div>");
        for (cell, quantity) in [(&mut deserved, amount.deserved), (&mut borrowed, amount.borrowed)] {
            if !quantity.is_zero() {
                cell.raw("<div class=\"amount\">").text(name).raw(" ");
                cell.text(format_amount(name, quantity)).raw("</div>");
            }
        }
    }
    [used, deserved, borrowed]
}

fn render_queue(asked: PageQuery<'_>, name: &str) -> Option<Html> {
    let lines = asked.seen.queues();
    let names = list_visible_names(asked, &lines);
    let line = lines.iter().find(|line| line.name == name && names.queues.contains(name))?;
    let mut html = Html::new();
    let alone = QueueLine { depth: 0, ..line.clone() };
    html.add(&render_queues("What it has, with all queues below it", &[alone], &names));
    let mut jobs: Vec<JobView<'_>> =
        asked.seen.jobs().filter(|job| job.queue() == name && job.state.is_gate_closed()).collect();
    jobs.sort_by_key(|job| (job.position().map_or(usize::MAX, |position| position.place), job.key.clone()));
    html.heading("Who waits");
    add_cut_notice(&mut html, jobs.len());
    // The same for all of them, or told of each on its own page. It may name members.
    let bases = jobs.iter().map(|job| note_start(asked, job)).filter(|note| note.brief.is_empty());
    if let Some(why) = bases.map(|note| note.basis).find(|basis| !basis.is_empty() && asked.access.clusters) {
        html.paragraph(format!("Where no start is expected, it is not known: {why}."));
    }
    let rows = jobs.iter().take(ROWS).map(|job| {
        let place = job.position().map_or_else(|| "not in line".to_owned(), |position| position.place.to_string());
        let mut cells = vec![Html::of(place), render_job_link(asked, job)];
        cells.extend(render_job_cells(asked, job));
        cells.extend([Html::of(describe_expected(asked, job)), render_reason(asked, job)]);
        cells
    });
    let header = ["Position", "Job", "State", "Priority", "Pods", "Age", "Expected start", "Why"];
    html.table("The line, the first first", &header, rows);
    let there =
        asked.seen.jobs().filter(|job| job.queue() == name && !job.clusters().is_empty() && !job.state.is_over());
    html.heading("Who has clusters").add(&render_job_table("Jobs that are placed", asked, there.collect(), &names));
    Some(html)
}

fn add_cut_notice(html: &mut Html, length: usize) {
    if length > ROWS {
        html.paragraph(format!("The first {ROWS} of {length}."));
    }
}

/// State, priority, pods and age.
fn render_job_cells(asked: PageQuery<'_>, job: &JobView<'_>) -> [Html; 4] {
    let mut state = Html::new();
    state.state(job.state.word());
    [
        state,
        Html::of(job.priority()),
        Html::of(job.describe_pods()),
        Html::of(format_duration(job.age_seconds(asked.now))),
    ]
}

fn note_start(asked: PageQuery<'_>, job: &JobView<'_>) -> StartNote {
    asked.forecast.map(|forecast| forecast.describe_start(job, asked.now)).unwrap_or_default()
}

/// `in about 5m`: a number, which may be told of a job that he may not see.
fn describe_expected(asked: PageQuery<'_>, job: &JobView<'_>) -> String {
    let note = note_start(asked, job);
    match (note.brief.as_str(), asked.forecast) {
        ("", Some(_)) => "not known".to_owned(),
        ("", None) => "not worked out yet".to_owned(),
        (brief, _) => brief.to_owned(),
    }
}

fn render_reason(asked: PageQuery<'_>, job: &JobView<'_>) -> Html {
    let mut html = Html::new();
    if asked.access.may_see(job) {
        html.raw("<strong>").text(job.reason()).raw("</strong> ").text(job.message());
    }
    html
}

fn render_job_table(caption: &str, asked: PageQuery<'_>, mut jobs: Vec<JobView<'_>>, names: &VisibleNames) -> Html {
    let mut html = Html::new();
    add_cut_notice(&mut html, jobs.len());
    jobs.sort_by_key(|job| (!asked.access.may_see(job), job.state, job.key.clone()));
    let rows = jobs.iter().take(ROWS).map(|job| {
        let mut clusters = Html::new();
        for (name, pods) in job.clusters() {
            let name = names.name_member(name);
            clusters.raw("<div>").text(format!("{name}: {pods}")).raw("</div>");
        }
        let mut cells = vec![render_job_link(asked, job)];
        cells.extend(render_job_cells(asked, job));
        cells.extend([clusters, render_reason(asked, job)]);
        cells
    });
    html.table(caption, &["Job", "State", "Priority", "Pods", "Age", "Pods by member", "Why"], rows);
    html
}

fn render_jobs(asked: PageQuery<'_>) -> Html {
    let mut html = Html::new();
    html.raw("<form method=\"get\" action=\"/jobs\" role=\"search\"><label for=\"q\">Name, namespace, queue or state</label> ");
    html.raw("<input id=\"q\" name=\"q\" value=\"").text(asked.filter).raw("\"> <button>Filter</button></form>\n");
    if asked.access.is_cut {
        html.raw("<form method=\"get\" action=\"/jobs\"><label for=\"ns\">Your rights were not asked about in all namespaces: name yours</label> ");
        html.raw("<input id=\"ns\" name=\"namespace\"> <button>Show</button></form>\n");
    }
    let filter = asked.filter.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&filter);
    let jobs = asked.seen.jobs().filter(|job| asked.access.may_see(job)).filter(|job| {
        filter.is_empty() || has(&job.key.name) || has(&job.key.namespace) || has(job.queue()) || has(job.state.word())
    });
    let names = list_visible_names(asked, &asked.seen.queues());
    html.add(&render_job_table("Jobs that you may list", asked, jobs.collect(), &names));
    html
}

fn render_job(asked: PageQuery<'_>, key: &JobKey) -> Option<Html> {
    let job = asked.seen.job(key).filter(|job| asked.access.may_see(job))?;
    let mut html = Html::new();
    html.raw("<p class=\"verdict\">").state(job.state.word()).raw(" <strong>").text(job.reason()).raw("</strong> ");
    html.text(job.message()).raw("</p>\n<dl>");
    let position = job.position().map(|position| format!(", {position}")).unwrap_or_default();
    let queue = format!("{}{position}", job.queue());
    let mut facts = vec![
        ("Queue", queue),
        ("Priority", job.priority().to_string()),
        ("Pods that run, of those needed", job.describe_pods()),
    ];
    if job.state.is_gate_closed() {
        let basis = Some(note_start(asked, &job).basis).filter(|basis| !basis.is_empty() && asked.access.clusters);
        let basis = basis.map(|basis| format!(" ({basis})")).unwrap_or_default();
        facts.push(("Expected start", describe_expected(asked, &job) + &basis));
    }
    for (name, value) in facts {
        html.raw("<dt>").text(name).raw("</dt><dd>").text(value).raw("</dd>");
    }
    html.raw("</dl>\n");
    let shares = job.clusters().iter().map(|(name, pods)| vec![Html::of(name), Html::of(pods)]);
    html.heading("Where it is").table("Pods by member", &["Member", "Pods"], shares);
    let mut steps: Vec<(Timestamp, Html, Html)> =
        list_steps(&job).into_iter().map(|step| (step.at, Html::of(step.what), Html::of(step.words))).collect();
    html.heading("Timeline");
    match asked.events {
        Ok(rows) => steps.extend(
            rows.iter()
                .filter(|row| row.is_on_job(key))
                .filter_map(|row| Some((row.at()?, Html::of(row.reason()), Html::of(row.words())))),
        ),
        Err(why) => drop(html.paragraph(format!("Events are not shown: {why}."))),
    }
    steps.sort_by_key(|(at, ..)| *at);
    let rows = steps.into_iter().map(|(at, what, words)| vec![render_time(at, asked.now), what, words]);
    html.table("What happened, the oldest first", &["When", "What", "In words"], rows);
    Some(html)
}

fn render_changes(asked: PageQuery<'_>) -> Html {
    let own = asked.seen.jobs().filter(|job| asked.access.may_see(job));
    let mut steps: Vec<(JobView<'_>, crate::view::Step)> = own
        .flat_map(|job| list_steps(&job).into_iter().map(move |step| (job, step)))
        .filter(|(_, step)| asked.now.as_second() - step.at.as_second() <= RECENT_SECONDS)
        .collect();
    steps.sort_by(|(a, x), (b, y)| y.at.cmp(&x.at).then_with(|| a.key.cmp(b.key)));
    let mut html = Html::new();
    if let Some(why) = asked.seen.pause_reason() {
        html.paragraph(format!("All releases are paused: {why}"));
    }
    add_cut_notice(&mut html, steps.len());
    let ended = asked.seen.jobs().filter(|job| job.state == State::Failed && asked.access.may_see(job)).count();
    html.paragraph(format!("Jobs of yours that failed and are still there: {ended}."));
    let rows = steps.iter().take(ROWS).map(|(job, step)| {
        vec![render_time(step.at, asked.now), render_job_link(asked, job), Html::of(step.what), Html::of(&step.words)]
    });
    html.heading("Jobs").table("Changes of jobs, the newest first", &["When", "Job", "What", "In words"], rows);
    html.add(&render_fleet_changes(asked, asked.now.as_second() - RECENT_SECONDS));
    html
}
