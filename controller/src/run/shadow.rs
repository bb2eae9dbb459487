//! The loop of a controller in shadow mode: it decides beside another scheduler, and writes nothing but its report.
//!
//! Rule: it follows what the controller follows, but for Works. What is decided goes to the log, the metrics and one
//! ConfigMap, as often as [`ShadowReport::is_due_after`] says. It holds no lease: a second one would overwrite the
//! report, and nothing else.

use std::{collections::BTreeSet, time::Duration};

use caldera_core::queue::OrderPolicy;
use caldera_runtime::{
    client::WriteCounts,
    members::Members,
    watch::declare_kinds,
    write::{Failure, execute_write},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    BACKLOG, EVENTS_PER_PASS, Error, READ_AGAIN_AT_MOST,
    chosen::{begin_with_settings, change_settings, follow_chosen_settings},
    compute_pause, read_fair_history, read_until_answered, sleep_for, update_member_watches, watch_host,
};
use crate::{
    config::Config,
    decide::{Controller, Shadow, ShadowNote, add_wait, decide_in_shadow},
    measure::Measures,
    metrics::{Metrics, SHADOW_COMPARED, SHADOW_EVICTED, ShadowMetrics},
    observe::Input,
    settings::Settings,
    shadow::{NAME, ShadowReport},
};

/// Between two looks at whether there is something to report.
const REPORT_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Between two tries to write one.
const WRITE_AGAIN: Duration = Duration::from_secs(10);

/// Runs until `shutdown`, beside another scheduler.
///
/// # Errors
/// If it can not go on.
pub async fn run_in_shadow(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let (metrics, reported) = (Metrics::register_in(&config.registry), ShadowMetrics::register_in(&config.registry));
    let stop = shutdown.child_token();
    let _stop_watches = stop.clone().drop_guard();
    let (inputs, mut events) = mpsc::channel(BACKLOG);
    let (clusters, mut seen_clusters) = mpsc::channel(64);
    let (member_events, mut member_inputs) = mpsc::channel(BACKLOG);
    let (clock, counts) = (config.clock.clone(), WriteCounts::default());
    let mut members = Members::new(client.clone(), "shadow", counts, clock.clone(), member_events, stop.clone());
    declare_kinds(&client, &shutdown).await;
    let declared_kinds = watch_host(&client, &inputs, clusters, &stop);
    let histories = inputs.clone();
    let flags = Settings::from_config(&config);
    let mut controller = Controller::default();
    controller.require_declared_kinds(declared_kinds);
    controller.jobs.shadow = Some(BTreeSet::new());
    let begun = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        begun = async {
            let earlier = read_report(&client, &config.namespace).await;
            (begin_with_settings(&client, &config.namespace, &flags, &mut controller).await, earlier)
        } => begun,
    };
    let (begun, earlier) = begun;
    let (mut settings, mut shadow) = (begun.settings, Shadow::new(earlier, clock.now()));
    let (choices, mut chosen) = mpsc::channel(1);
    let follow = follow_chosen_settings(client.clone(), config.namespace.clone(), begun.seen, choices, stop.clone());
    tokio::spawn(follow);
    if settings.order == OrderPolicy::FairHistory {
        let read = (client.clone(), config.namespace.clone(), histories, stop.clone());
        tokio::spawn(read_until_answered(read, read_fair_history));
    }
    let (reports, to_write) = watch::channel(None);
    tokio::spawn(write_reports(client, config.namespace.clone(), to_write, stop.clone()));
    let (mut measures, mut report) = (Measures::default(), clock.now());
    let mut next: Option<Timestamp> = None;
    loop {
        let pause = next.map(|at| compute_pause(at, clock.now()));
        let mut happened = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(input) = events.recv() => Some(input),
            Some(event) = seen_clusters.recv() => Some(update_member_watches(event, &mut members)),
            Some(event) = member_inputs.recv() => Some(Input::Member(event.cluster, event.update)),
            Some(map) = chosen.recv() => {
                change_settings(&mut controller, &flags, &mut settings, &map);
                None
            }
            () = sleep_for(pause) => None,
        };
        let now = clock.now();
        for _ in 0..EVENTS_PER_PASS {
            match happened {
                Some(Input::Bindings(event)) => shadow.observe_bindings(&mut controller, event, now),
                Some(input) => {
                    measures.observe_input(&input, now);
                    controller.observe(input, now);
                }
                None => break,
            }
            happened = events.try_recv().ok().or_else(|| {
                let cluster = seen_clusters.try_recv().ok().map(|event| update_member_watches(event, &mut members));
                cluster
                    .or_else(|| member_inputs.try_recv().ok().map(|event| Input::Member(event.cluster, event.update)))
            });
        }
        if let Some(input) = happened {
            match input {
                Input::Bindings(event) => shadow.observe_bindings(&mut controller, event, now),
                input => controller.observe(input, now),
            }
        }
        let overdue = controller.give_up_overdue_lists(now);
        let (notes, due) = decide_in_shadow(&mut controller, &mut shadow, now);
        notes.iter().for_each(|note| report_note(&reported, note));
        next = due.into_iter().chain(overdue).min();
        if !controller.is_complete() {
            continue;
        }
        config.ready.set_ready(true);
        if report <= now {
            report = add_wait(now, REPORT_EVERY);
            let built = shadow.build_report(&controller, now);
            reports.send_if_modified(|last: &mut Option<ShadowReport>| {
                let is_due = last.as_ref().is_none_or(|last| built.is_due_after(last));
                if is_due {
                    *last = Some(built);
                }
                is_due
            });
        }
        let look = measures.update_metrics_if_due(&mut controller, &metrics, now);
        next = next.into_iter().chain(look).chain([report]).min();
    }
    Ok(())
}

/// Logs and counts what would have been done.
fn report_note(metrics: &ShadowMetrics, note: &ShadowNote) {
    match note {
        ShadowNote::Released { binding, queue, clusters } => {
            metrics.released.inc();
            tracing::info!(%binding, queue, clusters, "a job would be released");
        }
        ShadowNote::Evicted { binding, by, reason, why } => {
            metrics.evicted.get_or_create(&SHADOW_EVICTED.build_labels([reason])).inc();
            tracing::info!(%binding, preemptor = by, reason, why, "a job would be evicted");
        }
        ShadowNote::Placed { binding, verdict, clusters, would_be_in, why } => {
            let verdict = verdict.as_str();
            metrics.compared.get_or_create(&SHADOW_COMPARED.build_labels([verdict])).inc();
            tracing::info!(%binding, verdict, clusters, would_be_in, why, "the other scheduler placed a job");
        }
    }
}

/// What an earlier shadow reported, once the server answers. What can not be read begins anew.
async fn read_report(client: &Client, namespace: &str) -> Option<ShadowReport> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    loop {
        let why = match maps.get_opt(NAME).await {
            Ok(None) => return None,
            Ok(Some(map)) => match ShadowReport::read_config_map(&json!(map)) {
                Ok(report) => return Some(report),
                Err(wrong) => {
                    tracing::warn!(namespace, why = wrong, "the earlier report is not understood: a new one begins");
                    return None;
                }
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(namespace, why, "whether there is an earlier report is not known yet");
        tokio::time::sleep(READ_AGAIN_AT_MOST).await;
    }
}

/// Writes each report, unless a newer one comes first.
async fn write_reports(
    client: Client,
    namespace: String,
    mut reports: watch::Receiver<Option<ShadowReport>>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = reports.changed() => if changed.is_err() { return },
        }
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        match execute_write(&client, &report.to_write(&namespace)).await {
            Ok(_) => {}
            Err(failure @ Failure::Transient(_)) => tracing::debug!(namespace, %failure, "no report written yet"),
            Err(failure) => {
                tracing::warn!(namespace, %failure, "the report is not written");
                tokio::time::sleep(WRITE_AGAIN).await;
            }
        }
    }
}
