//! The screen as a function of objects, keys and time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use caldera_crds::volcano::scheduling::Queue;
use caldera_runtime::watch::Event;
use futures::FutureExt as _;
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::{Value, json};

use super::{
    Changing, await_answers,
    draw::{Notes, draw_screen},
    format_buffer,
    state::{Act, Sort, TopState},
};
use crate::{
    expected_start::{ExpectedStart, Forecast},
    job::change::JobChange,
    latest_forecast::TimedForecast,
    view::{BindingFacts, Change, GroupFacts, JobKey, QueueObject, Seen, WorkloadFacts, read_member},
};

fn workload(namespace: &str, name: &str, queue: &str) -> Value {
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": queue}, "metadata": {
        "namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

fn binding(namespace: &str, name: &str, clusters: Value) -> Value {
    let gate = if clusters == json!([]) { "closed" } else { "open" };
    let metadata = json!({"namespace": namespace, "annotations": {"caldera.dev/gate": gate}});
    json!({"metadata": metadata, "spec": {"clusters": clusters, "resource": {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": namespace, "name": name}}})
}

fn group(namespace: &str, name: &str, phase: &str, reason: &str, message: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "ownerReferences": [
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name}]},
        "spec": {"minMember": 4},
        "status": {"phase": phase, "running": 4, "conditions": [{"reason": reason, "message": message}]},
    })
}

fn queue(name: &str, used: &str) -> Queue {
    serde_json::from_value(json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
        "spec": {"capability": {"cpu": "20"}, "deserved": {"cpu": "8"}},
        "status": {"state": "Open", "allocated": {"cpu": used, "memory": "12800Mi"}},
    }))
    .unwrap()
}

fn cluster(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {
        "conditions": [{"type": "Ready", "status": "True"}], "nodeSummary": {"readyNum": 2, "totalNum": 2},
        "resourceSummary": {"allocatable": {"cpu": "32", "memory": "64Gi"}, "allocated": {"cpu": "16", "memory": "8Gi"}},
    }})
}

/// Two members; in queue `research` one job runs and two wait, in `training` one runs.
fn fleet() -> Seen {
    let mut seen = Seen::default();
    let queues = [queue("research", "12"), queue("training", "2")];
    seen.observe(Change::Queues(Event::Reset(queues.iter().map(QueueObject::read).collect())));
    let member = |name: &str| (name.to_owned(), read_member(&cluster(name)));
    seen.observe(Change::Clusters(Event::Reset(vec![member("m1"), member("m2")])));
    let waits = |place: u32| format!("waits in queue research, position {place} of 2: needs cpu 12, used 12 of 20");
    let changes = Change::of_lists(
        &[
            workload("ns", "split", "research"),
            workload("ns", "a-second", "research"),
            workload("ns", "z-first", "research"),
            workload("other", "train", "training"),
        ],
        &[
            binding("ns", "split", json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}])),
            binding("ns", "a-second", json!([])),
            binding("ns", "z-first", json!([])),
            binding("other", "train", json!([{"name": "m2", "replicas": 4}])),
        ],
        &[
            group("ns", "split", "Running", "Placed", "placed on m1, m2"),
            group("ns", "a-second", "Pending", "WaitingForQuota", &waits(2)),
            group("ns", "z-first", "Pending", "WaitingForQuota", &waits(1)),
            group("other", "train", "Running", "Placed", "placed on m2"),
        ],
    );
    changes.into_iter().for_each(|change| seen.observe(change));
    seen
}

fn notes() -> Notes {
    Notes { now: "2026-01-01T00:01:00Z".parse().unwrap(), has_keys: true, ..Notes::default() }
}

fn screen(width: u16, height: u16, state: &TopState, seen: &Seen, notes: &Notes) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let shown = state.build_shown(seen);
    terminal.draw(|frame| draw_screen(frame.area(), frame.buffer_mut(), state, &shown, notes)).unwrap();
    format_buffer(terminal.backend().buffer())
}

fn press(state: &mut TopState, seen: &Seen, keys: &[KeyCode]) -> Act {
    let act = keys.iter().map(|key| state.handle_key(KeyEvent::from(*key), &state.clone().build_shown(seen)));
    act.last().unwrap_or(Act::Stay)
}

fn line<'a>(screen: &'a str, word: &str) -> &'a str {
    screen.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in\n{screen}"))
}

#[test]
fn the_screen_tells_fleet_queues_members_and_jobs() {
    let seen = fleet();
    let text = screen(160, 40, &TopState::default(), &seen, &notes());
    assert!(text.contains("clusters 2/2 ready  jobs 2 waiting, 0 starting, 2 running"), "{text}");
    assert!(text.contains("cpu █████░░░░░ 32/64") && text.contains("16Gi/128Gi"), "{text}");
    let research = line(&text, "  research");
    assert!(research.contains("Open") && research.contains("12/20"), "{research}");
    // Eight of the twelve are deserved, four borrowed.
    let bar = research.matches('█').count() + research.matches('▓').count() + research.matches('░').count();
    assert_eq!((bar, research.matches('▓').count()), (24, 4), "{research}");
    assert!(research.contains(" 8 ") && research.contains(" 4 "), "{research}");
    let m2 = line(&text, "m2 ");
    assert!(m2.contains("Ready") && m2.contains(" 2 ") && m2.contains(" 5 ") && m2.contains("16/32"), "{m2}");
    let first = line(&text, "ns/z-first");
    assert!(first.contains("research") && first.contains("Waiting") && first.contains("1/2"), "{first}");
    assert!(first.contains("1m") && first.contains("needs cpu 12"), "{first}");
    assert!(line(&text, "ns/split").contains("m1:3 m2:1"), "{text}");
    assert!(text.trim_end().ends_with("? keys"), "{text}");
}

/// Only the first one's start is known.
fn starts() -> TimedForecast {
    let start =
        |ahead: Option<i64>, basis: &str| ExpectedStart { at: None, ahead, sure: true, basis: basis.to_owned() };
    let of = |name: &str, start| {
        let kind = caldera_crds::workload::WorkloadKind::VolcanoJob;
        (JobKey { namespace: "ns".to_owned(), name: name.to_owned(), kind }.workload(), start)
    };
    let starts = [
        of("z-first", start(Some(360), "if the 2 jobs before it end as they say")),
        of("a-second", start(None, "member m3 can not be read")),
    ];
    TimedForecast {
        at: "2026-01-01T00:00:00Z".parse().unwrap(),
        answer: Ok(Forecast::of_starts(starts.into())),
        places: Default::default(),
    }
}

/// The words of each row of a picture, as `.ci/screens` draws it.
fn read_rows(svg: &str) -> Vec<String> {
    let rows = svg.split("<text ").skip(1).filter_map(|row| row.split_once('>')?.1.split("</text>").next());
    let plain = |row: &str| row.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
    rows.map(plain).collect::<Vec<String>>()
}

#[test]
fn the_picture_in_the_docs_has_the_columns_that_are_drawn() {
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images/top.svg");
    let rows = read_rows(&std::fs::read_to_string(picture).unwrap());
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| words(row)).collect();
    let text = screen(100, 32, &TopState::default(), &fleet(), &notes());
    for title in ["QUEUE ", "CLUSTER ", "JOB "] {
        // Which resources come last is the fleet's, and whether there is room for a reason.
        let drawn: Vec<String> =
            words(line(&text, title)).into_iter().take_while(|word| word != "CPU" && word != "REASON").collect();
        assert!(rows.iter().any(|row| row.starts_with(&drawn)), "{drawn:?} is not in {rows:#?}");
    }
}

#[test]
fn a_job_that_waits_has_its_expected_start_or_says_why_that_is_not_known() {
    let (seen, notes) = (fleet(), Notes { starts: Some(Arc::new(starts())), ..notes() });
    let mut state = TopState::default();
    let text = screen(160, 40, &state, &seen, &notes);
    // It was worked out a minute ago.
    assert!(line(&text, "ns/z-first").contains("about 5m"), "{text}");
    assert!(line(&text, "JOBS 4").contains("start of the selected: about 5m (if the 2 jobs before"), "{text}");
    assert!(!line(&text, "ns/a-second").contains("about") && !line(&text, "ns/split").contains("about"), "{text}");
    press(&mut state, &seen, &[KeyCode::Down]);
    let text = screen(160, 40, &state, &seen, &notes);
    assert!(line(&text, "JOBS 4").contains("start of the selected: not known (member m3 can not be read)"), "{text}");
    press(&mut state, &seen, &[KeyCode::End]);
    assert!(!screen(160, 40, &state, &seen, &notes).contains("start of the selected"), "what runs has none");
    let refused = TimedForecast { answer: Err("no".to_owned()), ..starts() };
    let notes = Notes { starts: Some(Arc::new(refused)), ..notes };
    let text = screen(160, 40, &TopState::default(), &seen, &notes);
    assert!(line(&text, "JOBS 4").contains("not known (it could not be worked out: no)"), "{text}");
}

#[test]
fn that_an_admin_paused_all_releases_stands_in_the_title() {
    let mut seen = fleet();
    let mut default = serde_json::to_value(queue("default", "0")).unwrap();
    default["metadata"]["annotations"] = json!({"caldera.dev/paused": "upgrade at noon"});
    let read = |queue: Value| QueueObject::read(&serde_json::from_value(queue).unwrap());
    seen.observe(Change::Queues(Event::Applied(read(default.clone()))));
    let text = screen(160, 40, &TopState::default(), &seen, &notes());
    assert!(text.lines().next().unwrap().contains("RELEASES ARE PAUSED (upgrade at noon)"), "{text}");
    default["metadata"]["annotations"] = json!({});
    seen.observe(Change::Queues(Event::Applied(read(default))));
    assert!(!screen(160, 40, &TopState::default(), &seen, &notes()).contains("PAUSED"));
}

#[test]
fn who_waits_is_first_and_in_the_order_of_the_line() {
    let text = screen(100, 40, &TopState::default(), &fleet(), &notes());
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word} in\n{text}"));
    assert!(at("ns/z-first") < at("ns/a-second") && at("ns/a-second") < at("ns/split"), "{text}");
}

#[test]
fn a_narrow_or_low_terminal_shows_what_fits() {
    let seen = fleet();
    for (width, height) in [(80, 24), (60, 12), (40, 8), (20, 5), (3, 2), (1, 1)] {
        let text = screen(width, height, &TopState::default(), &seen, &notes());
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}x{height}\n{text}");
    }
    let low = screen(80, 12, &TopState::default(), &seen, &notes());
    assert!(low.contains("JOBS 4") && !low.contains("QUEUES"), "{low}");
    let mut state = TopState::default();
    press(&mut state, &seen, &[KeyCode::Tab]);
    let low = screen(80, 12, &state, &seen, &notes());
    assert!(low.contains("> QUEUES 3") && !low.contains("JOBS 4"), "{low}");
}

#[test]
fn keys_sort_filter_and_lead_from_a_queue_to_its_jobs() {
    let (seen, mut state) = (fleet(), TopState::default());
    let names = |state: &TopState| {
        state.build_shown(&seen).jobs.iter().map(|job| job.key.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&state), "z-first a-second split train");
    press(&mut state, &seen, &[KeyCode::Char('s'); 4]);
    assert_eq!((state.sort, names(&state).as_str()), (Sort::Name, "a-second split z-first train"));
    press(&mut state, &seen, &[KeyCode::Char('r')]);
    assert_eq!(names(&state), "train z-first split a-second");
    press(&mut state, &seen, &"/TRAIN".chars().map(KeyCode::Char).collect::<Vec<_>>());
    assert_eq!(names(&state), "train");
    press(&mut state, &seen, &[KeyCode::Enter, KeyCode::Esc]);
    // Root, research, training.
    press(&mut state, &seen, &[KeyCode::Char('1'), KeyCode::Down, KeyCode::Enter]);
    assert_eq!((state.queue.as_deref(), names(&state).as_str()), (Some("research"), "z-first split a-second"));
    press(&mut state, &seen, &[KeyCode::Esc, KeyCode::Char('2'), KeyCode::End, KeyCode::Enter]);
    assert_eq!((state.cluster.as_deref(), names(&state).as_str()), (Some("m2"), "train split"));
}

#[test]
fn enter_on_a_job_asks_why_and_shows_the_answer_unless_it_comes_too_late() {
    let (seen, mut state) = (fleet(), TopState::default());
    let Act::Ask(job) = press(&mut state, &seen, &[KeyCode::Down, KeyCode::Enter]) else { panic!("it does not ask") };
    assert_eq!(job.name, "a-second");
    assert!(screen(80, 24, &state, &seen, &notes()).contains("why ns/a-second"));
    state.show_answer(&job, "Job ns/a-second WAITS");
    assert!(screen(80, 24, &state, &seen, &notes()).contains("Job ns/a-second WAITS"));
    press(&mut state, &seen, &[KeyCode::Esc]);
    state.show_answer(&job, "late");
    assert!(!screen(80, 24, &state, &seen, &notes()).contains("late"));
}

#[test]
fn a_hold_is_proposed_by_name_and_done_by_y_alone() {
    let (seen, mut state) = (fleet(), TopState::default());
    assert_eq!(press(&mut state, &seen, &[KeyCode::Down, KeyCode::Char('H')]), Act::Stay);
    let text = screen(80, 24, &state, &seen, &notes());
    assert!(text.contains("hold ns/a-second (Waiting)?") && text.contains("y does it"), "{text}");
    for other in [KeyCode::Enter, KeyCode::Char('n'), KeyCode::Esc, KeyCode::Char('H')] {
        assert_eq!(press(&mut state, &seen, &[other]), Act::Stay);
        assert_eq!(state.popup, None, "{other:?}");
        assert_eq!(press(&mut state, &seen, &[KeyCode::Char('y')]), Act::Stay, "nothing is proposed any more");
        press(&mut state, &seen, &[KeyCode::Char('H')]);
    }
    let Act::Change(job, JobChange::Hold) = press(&mut state, &seen, &[KeyCode::Char('y')]) else { panic!("no") };
    assert_eq!(job.name, "a-second");
    state.show_answer(&job, "vcjob/a-second held");
    assert!(screen(80, 24, &state, &seen, &notes()).contains("vcjob/a-second held"));
    // It is done once.
    assert_eq!(press(&mut state, &seen, &[KeyCode::Char('y'), KeyCode::Esc]), Act::Stay);
    press(&mut state, &seen, &[KeyCode::Char('R')]);
    assert!(matches!(press(&mut state, &seen, &[KeyCode::Char('y')]), Act::Change(_, JobChange::Release)));
    // A queue is neither held nor released.
    press(&mut state, &seen, &[KeyCode::Esc, KeyCode::Char('1'), KeyCode::Char('H')]);
    assert_eq!(state.popup, None);
}

#[test]
fn a_late_answer_does_not_stand_where_key_y_still_does_something() {
    let (mut state, seen) = (TopState::default(), fleet());
    let Act::Ask(job) = press(&mut state, &seen, &[KeyCode::Enter]) else { panic!() };
    press(&mut state, &seen, &[KeyCode::Esc, KeyCode::Char('H')]);
    let question = state.popup.clone().unwrap();
    state.show_answer(&job, "Job WAITS");
    assert_eq!(state.popup, Some(question));
    assert_eq!(press(&mut state, &seen, &[KeyCode::Char('y')]), Act::Change(job.clone(), JobChange::Hold));
    state.show_answer(&job, "held");
    assert_eq!(state.popup.unwrap().lines, ["held"]);
}

/// Who quits at once has not taken it back.
#[tokio::test(start_paused = true)]
async fn a_change_that_was_confirmed_ends_before_the_screen_does_or_five_seconds_later() {
    let (mut state, seen) = (TopState::default(), fleet());
    let Act::Ask(job) = press(&mut state, &seen, &[KeyCode::Enter]) else { panic!() };
    let answers_after = |seconds: u64| {
        let job = job.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            (job, format!("held after {seconds} s"))
        }
        .boxed_local()
    };
    let changing: Changing<'_> = [4, 60].map(answers_after).into_iter().collect();
    let began = tokio::time::Instant::now();
    assert_eq!(await_answers(changing).await, ["held after 4 s", "no answer to 1 change yet"]);
    assert_eq!(began.elapsed().as_secs(), 5);
    assert!(await_answers(Changing::new()).await.is_empty());
}

#[test]
fn queues_are_told_by_the_devices_that_they_have_after_the_resources_of_the_fleet() {
    let (mut seen, mut state) = (fleet(), TopState::default());
    let mut queue = queue("research", "12");
    queue.status = serde_json::from_value(json!({"allocated": {"deviceclass/gpu.io": "3"}})).unwrap();
    seen.observe(Change::Queues(Event::Applied(QueueObject::read(&queue))));
    press(&mut state, &seen, &[KeyCode::Char('m'), KeyCode::Char('m')]);
    let text = screen(120, 40, &state, &seen, &notes());
    assert!(text.contains("by deviceclass/gpu.io"), "{text}");
    let line = text.lines().find(|line| line.trim_start().starts_with("research")).unwrap();
    assert!(line.contains(" 3 "), "{line}");
    press(&mut state, &seen, &[KeyCode::Char('m')]);
    assert_eq!(state.build_shown(&seen).resource, "cpu");
}

#[test]
fn the_selected_job_stays_selected_where_others_come() {
    let (mut seen, mut state) = (fleet(), TopState::default());
    press(&mut state, &seen, &[KeyCode::Down]);
    let selected = |state: &TopState, seen: &Seen| {
        let shown = state.build_shown(seen);
        shown.jobs[shown.selected[2]].key.name.clone()
    };
    assert_eq!(selected(&state, &seen), "a-second");
    let changes = Change::of_lists(&[workload("a", "new", "a")], &[], &[]);
    changes.into_iter().take(1).for_each(|change| seen.observe(change));
    seen.observe(Change::Bindings(Event::Applied(BindingFacts::read(&binding("a", "new", json!([]))).unwrap())));
    assert_eq!(selected(&state, &seen), "a-second");
}

#[test]
fn q_and_control_c_end_it_and_a_filter_may_have_a_q() {
    let (seen, mut state) = (fleet(), TopState::default());
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.handle_key(control_c, &state.clone().build_shown(&seen)), Act::Quit);
    assert_eq!(press(&mut state, &seen, &[KeyCode::Char('q')]), Act::Quit);
    assert_eq!(press(&mut state, &seen, &[KeyCode::Char('/'), KeyCode::Char('q')]), Act::Stay);
    assert_eq!(state.filter, "q");
    assert_eq!(state.handle_key(control_c, &state.clone().build_shown(&seen)), Act::Quit);
}

#[test]
fn without_colour_no_cell_has_one_and_what_a_terminal_would_obey_is_shown() {
    let mut seen = fleet();
    let evil = group("ns", "split", "Running", "\u{1b}]0;x\u{7}", "\u{1b}[2J\u{202e}evil");
    seen.observe(Change::Groups(Event::Applied(GroupFacts::read(&evil).unwrap())));
    let colours = |is_coloured: bool| {
        let (state, notes) = (TopState::default(), Notes { is_coloured, ..notes() });
        let mut terminal = Terminal::new(TestBackend::new(160, 40)).unwrap();
        let shown = state.build_shown(&seen);
        terminal.draw(|frame| draw_screen(frame.area(), frame.buffer_mut(), &state, &shown, &notes)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        (buffer.content.iter().filter(|cell| cell.fg != ratatui::style::Color::Reset).count(), format_buffer(&buffer))
    };
    let (plain, text) = colours(false);
    assert_eq!(plain, 0);
    assert!(text.contains("\\u{1b}[2J\\u{202e}evil") && !text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text}");
    assert!(colours(true).0 > 0);
}

#[test]
fn what_can_not_be_seen_is_said() {
    let notes = Notes { lacks: vec!["queues.scheduling.volcano.sh (refused)".to_owned()], lists_to_come: 3, ..notes() };
    let text = screen(100, 24, &TopState::default(), &Seen::default(), &notes);
    assert!(text.contains("not seen: queues.scheduling.volcano.sh (refused)"), "{text}");
    assert!(text.contains("reading (3 lists to come)"), "{text}");
}

/// The bounds are those of a build for tests on a busy machine: what was measured is in `docs/benchmarks.md`.
#[test]
fn a_hundred_thousand_bindings_are_taken_in_and_drawn_without_lag() {
    const JOBS: usize = 100_000;
    let names: Vec<String> = (0..JOBS).map(|at| format!("job-{at:06}")).collect();
    let of = |name: &String| binding("ns", name, if name.ends_with('7') { json!([{"name": "m1"}]) } else { json!([]) });
    let bindings: Vec<Value> = names.iter().map(of).collect();
    let waits = |at: usize| format!("waits in queue q, position {} of {JOBS}: needs cpu 12", JOBS - at);
    let groups: Vec<Value> =
        names.iter().enumerate().map(|(at, name)| group("ns", name, "Pending", "R", &waits(at))).collect();
    let (mut seen, state) = (fleet(), TopState::default());
    let began = Instant::now();
    let read: Vec<_> = bindings.iter().filter_map(BindingFacts::read).collect();
    let groups: Vec<_> = groups.iter().filter_map(GroupFacts::read).collect();
    let workloads = names.iter().filter_map(|name| WorkloadFacts::read(&workload("ns", name, "research")));
    let kind = caldera_crds::workload::WorkloadKind::VolcanoJob;
    seen.observe(Change::Workloads(kind, Event::Reset(workloads.collect())));
    seen.observe(Change::Bindings(Event::Reset(read)));
    seen.observe(Change::Groups(Event::Reset(groups)));
    let taken_in = began.elapsed();
    let began = Instant::now();
    let text = screen(160, 50, &state, &seen, &notes());
    let drawn = began.elapsed();
    let began = Instant::now();
    let changed = binding("ns", "job-000001", json!([{"name": "m2"}]));
    seen.observe(Change::Bindings(Event::Applied(BindingFacts::read(&changed).unwrap())));
    let one = began.elapsed();
    println!("{JOBS} jobs: taken in in {taken_in:?}, drawn in {drawn:?}, one change in {one:?}");
    assert!(text.contains(&format!("JOBS {JOBS}")) && text.contains(&format!("1/{JOBS}")), "{text}");
    // Seconds, tens and hundredths on an idle machine: what is bound here is what would be quadratic.
    let bounds = [(taken_in, 180), (drawn, 60), (one, 5)];
    assert!(bounds.iter().all(|(took, most)| took.as_secs() < *most), "{bounds:?}");
}
