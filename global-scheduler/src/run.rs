//! The loop: events of watches, outcomes of writes, answers of estimators and reads of the lease in, decisions once no
//! more of them wait. It is asynchronous, as the calls to estimators are ([`estimators`]); [`scheduler`] between two
//! awaits is not.

mod config;
pub mod estimators;
mod scheduler;

use std::{pin::pin, time::Duration};

use caldera_runtime::{
    clock::sleep_until,
    lease::{self, LeaseRecord},
    members::Members,
    watch::{Follower, declare_kinds},
    write::{Writer, wait_for_outcomes},
};
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::config::Config;
use self::{estimators::pool::EstimatorPool, scheduler::Scheduler};
use crate::{metrics::WRITE_QUEUE, observe::host_watch::watch_host};

/// Why the scheduler stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every watch ended although nobody asked them to.
    #[error("the watches on the Karmada API ended")]
    WatchesEnded,
}

/// Events taken in before the next decisions.
const MAX_EVENTS: usize = 4096;
/// After a read of the lease that failed.
const LEASE_RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Places released bindings until `shutdown`.
///
/// # Errors
/// If the watches end by themselves.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    let (events, mut host_events) = mpsc::channel(1024);
    declare_kinds(&client, &watches).await;
    watch_host(&Follower::new(client.clone(), events, watches.clone()));
    let (events, mut member_events) = mpsc::channel(4096);
    let (counts, clock) = (config.counts.clone(), config.clock.clone());
    let members = Members::new(client.clone(), "scheduler", counts, clock, events, watches.clone());
    let (writer, mut outcomes) = Writer::start_writer(client.clone(), watches);
    writer.register_gauges(&config.registry, WRITE_QUEUE.each_ref());
    let (estimators, mut answers) = EstimatorPool::new(config.estimators.clone());
    // At most one read of the lease is under way.
    let (lease_reads, mut leases) = mpsc::channel::<Option<LeaseRecord>>(1);
    let lease = config.grants.clone();
    let mut questions = config.states.register("scheduler");
    let mut scheduler = Scheduler::new(config, members, writer, estimators);
    loop {
        let mut wake = pin!(sleep_until(scheduler.next_wake()));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(question) = questions.recv() => question.answer(scheduler.describe_state()),
            Some(done) = outcomes.recv() => scheduler.apply_outcome(done),
            event = host_events.recv() => scheduler.apply_host_event(event.ok_or(Error::WatchesEnded)?),
            Some(event) = member_events.recv() => scheduler.apply_member_event(event),
            Some(answer) = answers.recv() => scheduler.store_estimate_and_mark_due(answer),
            Some(read) = leases.recv() => scheduler.mark_valid_grants_due(read.as_ref()),
            () = &mut wake => scheduler.mark_expired_waits_due(),
        }
        // Everything that is there already counts before anything is decided.
        for _ in 0..MAX_EVENTS {
            if let Ok(done) = outcomes.try_recv() {
                scheduler.apply_outcome(done);
            } else if let Ok(event) = host_events.try_recv() {
                scheduler.apply_host_event(event);
            } else if let Ok(event) = member_events.try_recv() {
                scheduler.apply_member_event(event);
            } else if let Ok(answer) = answers.try_recv() {
                scheduler.store_estimate_and_mark_due(answer);
            } else if let Ok(read) = leases.try_recv() {
                scheduler.mark_valid_grants_due(read.as_ref());
            } else {
                break;
            }
        }
        scheduler.decide_due();
        while scheduler.send_confirmations() {
            scheduler.decide_due();
        }
        if let Some((namespace, name)) = &lease
            && scheduler.begin_lease_read()
        {
            tokio::spawn(read_lease(client.clone(), namespace.clone(), name.clone(), lease_reads.clone()));
        }
    }
    wait_for_outcomes(outcomes).await;
    Ok(())
}

/// Reads the controller's lease until that succeeds.
async fn read_lease(client: Client, namespace: String, name: String, answer: mpsc::Sender<Option<LeaseRecord>>) {
    while !answer.is_closed() {
        match lease::read_lease(&client, &namespace, &name).await {
            Ok(lease) => return answer.send(lease).await.unwrap_or_default(),
            Err(failure) => tracing::warn!(%failure, "failed to read the controller's lease"),
        }
        tokio::time::sleep(LEASE_RETRY_PERIOD).await;
    }
}
