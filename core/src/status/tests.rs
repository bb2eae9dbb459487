use proptest::prelude::*;

use super::*;

fn members(
    entries: impl IntoIterator<Item = (&'static str, Option<JobStatus>)>,
) -> BTreeMap<ClusterName, MemberStatus> {
    entries
        .into_iter()
        .map(|(name, status)| (ClusterName::from(name), MemberStatus { status, share_minimum: None }))
        .collect()
}

/// A status from JSON, as members report it.
fn status(json: &str) -> Option<JobStatus> {
    Some(serde_json::from_str(json).unwrap())
}

fn phase(phase: &str, running: u32, succeeded: u32) -> Option<JobStatus> {
    status(&format!(
        r#"{{"state":{{"phase":"{phase}","lastTransitionTime":"2026-01-01T00:00:09Z"}},"running":{running},"succeeded":{succeeded}}}"#
    ))
}

const TEN: Template = Template { min_available: 10, min_success: None, restarts: 0, restarts_failed_copies: None };

fn merged(entries: impl IntoIterator<Item = (&'static str, Option<JobStatus>)>) -> JobStatus {
    merge_statuses(TEN, &JobStatus::default(), &members(entries))
}

fn merged_phase(entries: impl IntoIterator<Item = (&'static str, Option<JobStatus>)>) -> Phase {
    merged(entries).state.phase.unwrap()
}

#[test]
fn restarts_of_the_whole_job_and_of_a_copy_made_anew_add_up() {
    let member = |retry_count| {
        let state = JobState { phase: Some(Phase::Running), ..JobState::default() };
        let status = JobStatus { state, retry_count, ..JobStatus::default() };
        MemberStatus { status: Some(status), share_minimum: None }
    };
    let count = |restarts, previous, members: &[u32]| {
        let members = members.iter().enumerate().map(|(at, count)| (format!("m{at}").as_str().into(), member(*count)));
        let previous = JobStatus { retry_count: previous, ..JobStatus::default() };
        merge_statuses(Template { restarts, ..TEN }, &previous, &members.collect()).retry_count
    };
    assert_eq!(count(0, 0, &[0, 1]), 1);
    assert_eq!(count(1, 1, &[]), 1, "its copies are gone");
    assert_eq!(count(1, 1, &[0, 1]), 2);
    assert_eq!(count(0, 3, &[1]), 3, "it never goes back");
}

#[test]
fn a_job_that_its_user_suspended_stays_aborted_until_a_cluster_has_it() {
    let said = |reason: &str| {
        let json = format!(r#"{{"state":{{"phase":"Aborted","reason":"{reason}","message":"m"}}}}"#);
        status(&json).unwrap()
    };
    let next = |previous: &JobStatus, entries: Vec<(&'static str, Option<JobStatus>)>| {
        merge_statuses(TEN, previous, &members(entries)).state
    };
    let suspended = said(Reason::SUSPENDED_BY_USER);
    assert_eq!(next(&suspended, vec![]), suspended.state);
    assert_eq!(next(&suspended, vec![("a", phase("Running", 10, 0))]).phase, Some(Phase::Running));
    // Its own policies aborted it, and its copies are made anew.
    assert_eq!(next(&said(""), vec![]).phase, Some(Phase::Pending));
}

#[test]
fn a_failed_copy_restarts_the_job_where_its_policies_restart_it_at_a_failed_pod() {
    let template = Template { restarts_failed_copies: Some(3), ..TEN };
    for (other, said) in [("Running", 8), ("Completed", 0), ("Failed", 0)] {
        let copies = members([("a", phase("Failed", 0, 0)), ("b", phase(other, said, 0))]);
        let merged = |template| merge_statuses(template, &JobStatus::default(), &copies).state.phase;
        assert_eq!((merged(template), merged(TEN)), (Some(Phase::Restarting), Some(Phase::Failed)), "{other}");
        assert_eq!(merged(Template { restarts: 3, ..template }), Some(Phase::Failed), "it did so often enough");
    }
}

/// volcano.md A.2 29: one cluster's Completed must not hide another that runs.
#[test]
fn the_last_cluster_does_not_win() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let got = merged([(first, phase("Completed", 0, 6)), (second, phase("Running", 4, 0))]);
        assert_eq!(got.state.phase, Some(Phase::Running));
        assert_eq!((got.running, got.succeeded, got.min_available), (4, 6, 10));
    }
}

/// volcano.md A.2 28: every counter is reflected, not only `running`.
#[test]
fn every_counter_is_summed() {
    let one = status(
        r#"{"state":{"phase":"Running"},"minAvailable":6,"pending":1,"running":2,"succeeded":3,"failed":4,
            "terminating":5,"unknown":6,"version":2,"retryCount":1,"runningDuration":"90s",
            "taskStatusCount":{"w":{"phase":{"Running":2,"Pending":1}}},"controlledResources":{"plugin-svc":"svc"}}"#,
    );
    let two = status(
        r#"{"state":{"phase":"Running"},"minAvailable":4,"pending":10,"running":20,"succeeded":30,"failed":40,
            "terminating":50,"unknown":60,"version":1,"retryCount":3,"runningDuration":"1m1s",
            "taskStatusCount":{"w":{"phase":{"Running":5}},"m":{"phase":{"Running":1}}},
            "controlledResources":{"volume-pvc-x":"x"}}"#,
    );
    let got = serde_json::to_string(&merged([("a", one), ("b", two)])).unwrap();
    assert_eq!(
        got,
        r#"{"state":{"phase":"Running"},"minAvailable":10,"taskStatusCount":{"m":{"phase":{"Running":1}},"w":{"phase":{"Pending":1,"Running":7}}},"pending":11,"running":22,"succeeded":33,"failed":44,"terminating":55,"unknown":66,"version":2,"retryCount":3,"runningDuration":"90s","controlledResources":{"plugin-svc":"svc","volume-pvc-x":"x"},"conditions":[{"status":"Running"}]}"#
    );
}

#[test]
fn a_job_nobody_reported_on_is_pending_with_the_templates_minimum() {
    for entries in [vec![], vec![("a", None)], vec![("a", status("{}")), ("b", status(r#"{"state":{}}"#))]] {
        let got = serde_json::to_string(&merged(entries)).unwrap();
        assert_eq!(got, r#"{"state":{"phase":"Pending"},"minAvailable":10,"conditions":[{"status":"Pending"}]}"#);
    }
}

#[test]
fn what_is_said_of_a_job_that_waits_stays_until_a_cluster_has_it() {
    let said =
        status(r#"{"state":{"phase":"Pending","reason":"WaitingForQuota","message":"1 of 2 in queue q"}}"#).unwrap();
    let words = |entries: Vec<(&'static str, Option<JobStatus>)>| {
        let state = merge_statuses(TEN, &said, &members(entries)).state;
        (state.phase, state.reason, state.message)
    };
    let kept = (Some(Phase::Pending), "WaitingForQuota".to_owned(), "1 of 2 in queue q".to_owned());
    assert_eq!(words(vec![]), kept);
    let gone = (Some(Phase::Pending), String::new(), String::new());
    assert_eq!(words(vec![("a", None)]), gone);
    assert_eq!(words(vec![("a", phase("Pending", 0, 0))]), gone);
    let running = status(r#"{"state":{"phase":"Running","reason":"r","message":"m"}}"#).unwrap();
    let evicted = merge_statuses(TEN, &running, &BTreeMap::new()).state;
    assert_eq!((evicted.phase, evicted.reason.as_str()), (Some(Phase::Pending), ""), "said of another phase");
}

#[test]
fn a_gang_runs_when_the_union_holds_its_minimum() {
    assert_eq!(merged_phase([("a", phase("Running", 6, 0)), ("b", phase("Pending", 0, 0))]), Phase::Pending);
    assert_eq!(merged_phase([("a", phase("Running", 6, 0)), ("b", phase("Pending", 4, 0))]), Phase::Running);
    assert_eq!(merged_phase([("a", phase("Running", 6, 0)), ("b", phase("Running", 4, 0))]), Phase::Running);
    assert_eq!(merged_phase([("a", phase("Running", 6, 0)), ("b", None)]), Phase::Pending);
}

#[test]
fn completed_needs_every_cluster() {
    assert_eq!(merged_phase([("a", phase("Completed", 0, 6)), ("b", phase("Completed", 0, 4))]), Phase::Completed);
    assert_eq!(merged_phase([("a", phase("Completed", 0, 10)), ("b", None)]), Phase::Running);
    assert_eq!(merged_phase([("a", phase("Completed", 0, 6)), ("b", phase("Completing", 3, 1))]), Phase::Completing);
    assert_eq!(merged_phase([("a", phase("Completed", 1, 5)), ("b", phase("Completed", 0, 4))]), Phase::Completing);
}

#[test]
fn one_failed_copy_fails_the_gang_unless_the_gang_can_do_without_it() {
    assert_eq!(merged_phase([("a", phase("Completed", 0, 6)), ("b", phase("Failed", 0, 0))]), Phase::Failed);
    assert_eq!(merged_phase([("a", phase("Running", 6, 0)), ("b", phase("Failed", 0, 0))]), Phase::Failed);
    let surplus = |done: u32| {
        let mut all = members([("a", phase("Completed", 0, done)), ("b", phase("Failed", 0, 1))]);
        all.get_mut("b").unwrap().share_minimum = Some(0);
        merge_statuses(TEN, &JobStatus::default(), &all).state.phase.unwrap()
    };
    assert_eq!(surplus(10), Phase::Completed);
    assert_eq!(surplus(8), Phase::Failed);
}

/// Two parts of five, each needed; five successes end the job.
fn five_of_ten(previous: &JobStatus, entries: &[(&'static str, Option<JobStatus>)]) -> JobStatus {
    let mut all = members(entries.iter().cloned());
    all.values_mut().for_each(|member| member.share_minimum = Some(5));
    merge_statuses(Template { min_success: Some(5), ..TEN }, previous, &all)
}

#[test]
fn min_success_counts_over_all_copies_and_ends_the_rest() {
    let none = JobStatus::default();
    let short = five_of_ten(&none, &[("a", phase("Running", 3, 2)), ("b", phase("Running", 3, 2))]);
    assert_eq!(short.state.phase, Some(Phase::Running));
    let enough = five_of_ten(&short, &[("a", phase("Running", 2, 3)), ("b", phase("Running", 3, 2))]);
    let said = |status: &JobStatus| (status.state.phase, status.state.reason.clone(), status.succeeded);
    let reached = |phase| (Some(phase), MIN_SUCCESS_REACHED.to_owned(), 5);
    assert_eq!(said(&enough), reached(Phase::Completing), "pods run yet");
    // The copies are taken away, one after the other.
    let one = five_of_ten(&enough, &[("a", phase("Running", 2, 3))]);
    assert_eq!(said(&one), reached(Phase::Completing));
    assert_eq!(said(&five_of_ten(&one, &[])), reached(Phase::Completed));
    // All of them succeeded in one copy, which stays.
    let left = five_of_ten(&none, &[("a", phase("Completed", 0, 5)), ("b", phase("Running", 5, 0))]);
    assert_eq!(said(&left), reached(Phase::Completing));
    assert_eq!(said(&five_of_ten(&left, &[("a", phase("Completed", 0, 5))])), reached(Phase::Completed));
}

#[test]
fn a_part_that_could_not_have_enough_fails_the_job_only_once_all_parts_ended() {
    let none = JobStatus::default();
    let failed = |succeeded: u32, failed: u32| {
        status(&format!(r#"{{"state":{{"phase":"Failed"}},"succeeded":{succeeded},"failed":{failed}}}"#))
    };
    let runs = five_of_ten(&none, &[("a", failed(2, 3)), ("b", phase("Running", 5, 0))]);
    assert_eq!((runs.state.phase, runs.succeeded), (Some(Phase::Running), 2));
    let enough = five_of_ten(&runs, &[("a", failed(2, 3)), ("b", phase("Running", 2, 3))]);
    assert_eq!(enough.state.phase, Some(Phase::Completing));
    // The Volcano of a forgets what its pods did: it was said before.
    let forgot = five_of_ten(&enough, &[("a", failed(0, 0))]);
    assert_eq!((forgot.state.phase, forgot.succeeded), (Some(Phase::Completed), 5));
    assert_eq!(five_of_ten(&forgot, &[("a", failed(0, 0))]), forgot);
    let short = five_of_ten(&runs, &[("a", failed(2, 3)), ("b", failed(2, 3))]);
    assert_eq!(short.state.phase, Some(Phase::Failed));
    // A copy that its policies restarted as often as they may has failed, as ever.
    let retried = status(r#"{"state":{"phase":"Failed"},"retryCount":3}"#);
    let fails = five_of_ten(&none, &[("a", retried), ("b", phase("Running", 5, 5))]);
    assert_eq!(fails.state.phase, Some(Phase::Failed));
}

#[test]
fn a_copy_that_restarts_or_is_ended_has_its_way_before_min_success() {
    for (word, shown) in
        [("Restarting", Phase::Restarting), ("Aborting", Phase::Aborting), ("Terminated", Phase::Terminating)]
    {
        let got = five_of_ten(&JobStatus::default(), &[("a", phase(word, 0, 0)), ("b", phase("Running", 0, 5))]);
        assert_eq!(got.state.phase, Some(shown));
    }
}

#[test]
fn commands_show_on_the_whole_job() {
    let one = |word| merged_phase([("a", phase(word, 0, 0)), ("b", phase("Running", 10, 0))]);
    assert_eq!(one("Aborting"), Phase::Aborting);
    assert_eq!(one("Aborted"), Phase::Aborting);
    assert_eq!(one("Terminated"), Phase::Terminating);
    assert_eq!(one("Restarting"), Phase::Restarting);
    let all = |word| merged_phase([("a", phase(word, 0, 0)), ("b", phase("Completed", 0, 4))]);
    assert_eq!(all("Aborted"), Phase::Aborted);
    assert_eq!(all("Terminated"), Phase::Terminated);
}

#[test]
fn a_preempted_job_is_pending_again() {
    let before = merged([("a", phase("Running", 6, 0)), ("b", phase("Running", 4, 0))]);
    let after = merge_statuses(TEN, &before, &BTreeMap::new());
    assert_eq!((after.state.phase, after.running), (Some(Phase::Pending), 0));
}

#[test]
fn a_finished_job_stays_finished_when_a_copy_vanishes() {
    let before = merged([("a", phase("Completed", 0, 6)), ("b", phase("Completed", 0, 4))]);
    assert_eq!(merge_statuses(TEN, &before, &BTreeMap::new()), before);
    assert_eq!(merge_statuses(TEN, &before, &members([("a", phase("Completed", 0, 6)), ("b", None)])), before);
    let again = merge_statuses(TEN, &before, &members([("a", phase("Running", 6, 0)), ("b", None)]));
    assert_eq!(again.state.phase, Some(Phase::Pending));
}

#[test]
fn a_retry_count_never_goes_back() {
    let before = JobStatus { retry_count: 2, version: 5, ..JobStatus::default() };
    let got = merge_statuses(TEN, &before, &members([("a", phase("Running", 10, 0))]));
    assert_eq!((got.retry_count, got.version), (2, 5));
}

#[test]
fn times_come_from_the_members_and_stay() {
    let at = |word: &str, running: u32, time: &str| {
        status(&format!(
            r#"{{"state":{{"phase":"{word}","lastTransitionTime":"{time}"}},"running":{running},
                "conditions":[{{"status":"Pending","lastTransitionTime":"2026-01-01T00:00:01Z"}},
                              {{"status":"{word}","lastTransitionTime":"{time}"}}]}}"#
        ))
    };
    let first =
        merged([("a", at("Running", 6, "2026-01-01T00:00:05Z")), ("b", at("Running", 4, "2026-01-01T00:00:07Z"))]);
    assert_eq!(first.state.last_transition_time.as_deref(), Some("2026-01-01T00:00:07Z"));
    // A restart in one cluster that ends in the same phase does not move the job's time.
    let later =
        members([("a", at("Running", 6, "2026-01-01T00:09:00Z")), ("b", at("Running", 4, "2026-01-01T00:00:07Z"))]);
    let second = merge_statuses(TEN, &first, &later);
    assert_eq!(second.state.last_transition_time, first.state.last_transition_time);
    let history: Vec<_> =
        second.conditions.iter().map(|c| (c.status.unwrap(), c.last_transition_time.clone())).collect();
    assert_eq!(
        history,
        [
            (Phase::Pending, Some("2026-01-01T00:00:01Z".to_owned())),
            (Phase::Running, Some("2026-01-01T00:00:07Z".to_owned()))
        ]
    );
}

#[test]
fn a_copys_end_is_not_in_the_jobs_history() {
    let done = status(
        r#"{"state":{"phase":"Completed"},"succeeded":6,"conditions":[{"status":"Running"},{"status":"Completed"}]}"#,
    );
    let got = merged([("a", done), ("b", phase("Running", 4, 0))]);
    assert!(got.conditions.iter().all(|c| c.status != Some(Phase::Completed)), "{:?}", got.conditions);
}

#[test]
fn a_failure_says_where_and_why() {
    let failed = status(r#"{"state":{"phase":"Failed","reason":"PodFailed","message":"pod w-0 exited with 1"}}"#);
    let got = merged([("b", failed), ("a", phase("Running", 6, 0))]);
    assert_eq!((got.state.reason.as_str(), got.state.message.as_str()), ("PodFailed", "b: pod w-0 exited with 1"));
}

#[test]
fn unknown_words_and_nulls_do_not_stop_the_merge() {
    let odd =
        status(r#"{"state":{"phase":"Dreaming","reason":null},"conditions":null,"taskStatusCount":null,"new":{}}"#);
    assert_eq!(merged_phase([("a", odd)]), Phase::Pending);
}

const TIMES: [&str; 4] =
    ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z", "2026-01-01T00:00:04Z"];

fn any_phase() -> impl Strategy<Value = Option<Phase>> {
    let words = [
        Phase::Pending,
        Phase::Running,
        Phase::Restarting,
        Phase::Completing,
        Phase::Completed,
        Phase::Aborting,
        Phase::Aborted,
        Phase::Terminating,
        Phase::Terminated,
        Phase::Failed,
    ];
    prop::option::weighted(0.9, prop::sample::select(words.to_vec()))
}

fn any_time() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::sample::select(TIMES.to_vec()).prop_map(str::to_owned))
}

prop_compose! {
    fn any_status()(
        phase in any_phase(), time in any_time(), history in prop::collection::vec((any_phase(), any_time()), 0..4),
        counters in prop::array::uniform8(0u32..6), pods in prop::collection::btree_map("[ab]", 0u32..5, 0..2),
        message in "|x|y", duration in prop::option::of("[1-9][smh]"), resource in prop::option::of("[xy]"),
    ) -> JobStatus {
        let [pending, running, succeeded, failed, terminating, unknown, version, retry_count] = counters;
        JobStatus {
            state: JobState { phase, reason: message.clone(), message, last_transition_time: time },
            min_available: 3,
            task_status_count: BTreeMap::from([("w".to_owned(), TaskState { phase: pods })]),
            pending, running, succeeded, failed, terminating, unknown, version, retry_count,
            running_duration: duration,
            controlled_resources: resource.into_iter().map(|r| ("plugin".to_owned(), r)).collect(),
            conditions: history
                .into_iter()
                .map(|(status, last_transition_time)| JobCondition { status, last_transition_time })
                .collect(),
        }
    }
}

fn any_members() -> impl Strategy<Value = Vec<MemberStatus>> {
    prop::collection::vec(
        (prop::option::weighted(0.9, any_status()), prop::option::of(0u32..3))
            .prop_map(|(status, share_minimum)| MemberStatus { status, share_minimum }),
        0..4,
    )
}

fn named(members: &[MemberStatus]) -> BTreeMap<ClusterName, MemberStatus> {
    members.iter().enumerate().map(|(i, m)| (ClusterName::from(format!("m{i}")), m.clone())).collect()
}

fn any_template() -> impl Strategy<Value = Template> {
    (0u32..12, prop::option::of(1u32..6)).prop_map(|(min_available, min_success)| Template {
        min_available,
        min_success,
        restarts: 0,
        restarts_failed_copies: None,
    })
}

/// What must hold whatever the names of the clusters are.
fn without_names(mut status: JobStatus) -> JobStatus {
    status.state.message.clear();
    status.state.reason.clear();
    status
}

proptest! {
    #[test]
    fn completed_is_never_claimed_while_something_runs(
        template in any_template(), previous in any_status(), members in any_members(),
    ) {
        let got = merge_statuses(template, &previous, &named(&members));
        if got.state.phase == Some(Phase::Completed) {
            for status in members.iter().filter_map(|m| m.status.as_ref()) {
                prop_assert_eq!(status.running, 0);
                prop_assert!(status.state.phase.is_none_or(Phase::has_ended), "{:?}", status.state.phase);
            }
        } else if !previous.state.phase.is_some_and(Phase::is_final) {
            prop_assert!(got.conditions.iter().all(|c| c.status != Some(Phase::Completed)));
        }
    }

    #[test]
    fn clusters_may_swap_their_names(
        template in any_template(), previous in any_status(), members in any_members().prop_shuffle(),
    ) {
        let mut reversed = members.clone();
        reversed.reverse();
        let (a, b) = (merge_statuses(template, &previous, &named(&members)), merge_statuses(template, &previous, &named(&reversed)));
        prop_assert_eq!(without_names(a), without_names(b));
    }

    #[test]
    fn merging_again_changes_nothing(
        template in any_template(), previous in any_status(), members in any_members(),
    ) {
        let members = named(&members);
        let once = merge_statuses(template, &previous, &members);
        prop_assert_eq!(&merge_statuses(template, &once, &members), &once);
        prop_assert_eq!(merge_statuses(template, &previous, &members), once);
    }

    #[test]
    fn counters_are_the_members_sums(template in any_template(), members in any_members()) {
        let got = merge_statuses(template, &JobStatus::default(), &named(&members));
        let sum = |f: fn(&JobStatus) -> u32| members.iter().filter_map(|m| m.status.as_ref()).map(f).sum::<u32>();
        prop_assert_eq!(got.running, sum(|s| s.running));
        prop_assert_eq!(got.succeeded, sum(|s| s.succeeded));
        prop_assert_eq!(got.pending, sum(|s| s.pending));
        prop_assert_eq!(got.failed, sum(|s| s.failed));
        prop_assert_eq!(got.min_available, template.min_available);
    }

    #[test]
    fn a_status_reads_back(status in any_status()) {
        let text = serde_json::to_string(&status).unwrap();
        prop_assert_eq!(serde_json::from_str::<JobStatus>(&text).unwrap(), status);
    }
}
