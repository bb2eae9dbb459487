//! Decisions: what is to be written now, from what is known now. Values in, values out; one process may call it beside
//! the scheduler's. Before every kind is listed nothing is decided.
//!
//! Releases go first, in the engine's order, each within the capacity that the ones before it left. A decision that
//! releases returns right after them, once in a row; what users read comes after them, coalesced. The text of
//! [`decide`] has the order in which the rules are asked. [`Controller`] itself first creates the default queue and
//! takes up retries.
//!
//! The rules lie in folders, each with the table of its modules. Each folder imports only what stands above it here:
//!
//! | folder | decides |
//! |---|---|
//! | [`fleet`] | what the members have for jobs, and where a gang would go now |
//! | [`bindings`] | what each binding waits for or holds, and what the queue engine is told of it |
//! | [`admission`] | which jobs get quota and are released, and which grants count |
//! | [`preemption`] | which jobs leave their clusters for a pending one, or since nodes are hot |
//! | [`kinds`] | what HyperJobs, CronJobs and claims of data make, and what they say of themselves |
//! | [`lifecycle`] | which jobs are suspended, restarted, ended and deleted |
//! | [`copies`] | what is done where a copy in a member is not placed, not started, not seen, refused or lost |
//! | [`queues`] | what is written on queues, and when they open and close |
//! | [`status`] | what users read of their jobs, and when |
//! | [`accounts`] | what was used, how jobs ended, and who did what |
//!
//! Above all of them is [`deadlines`], which adds, compares and keeps times. Below them are the two that know them all:
//! [`controller`] has their state, and takes in objects and what became of writes; this module calls them. Of all that
//! is decided, [`sent_writes`] holds back what was sent and is not seen yet. [`shadow`] says what would be released and
//! evicted beside another scheduler.

mod accounts;
pub(crate) mod admission;
pub(crate) mod bindings;
mod controller;
mod copies;
mod deadlines;
pub(crate) mod fleet;
pub(crate) mod kinds;
pub(crate) mod lifecycle;
pub(crate) mod preemption;
mod queues;
mod sent_writes;
mod shadow;
pub(crate) mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use self::controller::Controller;
use self::{
    admission::{
        assumed_place::update_assumed_place,
        release::{Releases, release_admissible_jobs},
    },
    bindings::{
        job_gangs::{GangKey, JobGangSpec},
        jobs::JobPhase,
    },
    controller::QueueWrites,
    deadlines::earliest,
    fleet::capacity::FleetGrowth,
    status::pod_groups::{COALESCE, POD_GROUPS_PER_PASS},
};
pub(crate) use self::{
    bindings::eviction::{COPY_REFUSED, FORGED_RECORD, PODS_READY_TIMEOUT, find_who_wanted, is_requeue},
    copies::{
        member_loss::{MEMBER_LOST_AFTER, MemberLoss},
        pods_ready::DEFAULT_TIMEOUT,
    },
    deadlines::add_wait,
    shadow::{Shadow, ShadowNote, decide_in_shadow},
};
use crate::{
    observe::Key,
    write::{Decision, Tag},
};

/// What is to be written, and when to ask again if nothing happens.
#[derive(Debug, Default)]
pub struct Decisions {
    /// In this order.
    pub writes: Vec<Decision>,
    /// Ask again at this time; now, if there is more to do.
    pub next: Option<Timestamp>,
    /// How many of the writes are releases.
    pub releases: usize,
    /// There may be more to release.
    pub is_unfinished: bool,
    /// How many of the writes evict a job for another.
    pub evictions: usize,
    /// How many of the writes take a forged record away.
    pub forged: usize,
}

/// Decides what is to be written now.
pub fn decide(controller: &mut Controller, now: Timestamp) -> Decisions {
    let mut decisions = decide_each(controller, now);
    controller.sent_writes.forget_old_writes(now);
    decisions.writes.retain(|write| match write.tag() {
        Tag::Evict(key) => controller.jobs.begin_eviction(&key),
        _ => controller.sent_writes.begin_write(write, now),
    });
    decisions
}

/// What each rule decides, one after the other.
fn decide_each(controller: &mut Controller, now: Timestamp) -> Decisions {
    let mut decisions = Decisions::default();
    controller.now = now;
    if !controller.is_complete() {
        return decisions;
    }
    controller.create_default_queue(&mut decisions);
    controller.resume_deferred(&mut decisions);
    controller.update_engine_fleet();
    let Controller { objects, jobs, deadlines, .. } = controller;
    let (writes, forged) = deadlines.forged.evict_faulty_records(objects, jobs, now);
    decisions.writes.extend(writes);
    decisions.forged += forged;
    decisions.writes.extend(deadlines.stale.regrant_or_take_back(objects, jobs, now));
    decisions.writes.extend(deadlines.withdrawals.advance_withdrawals(objects, jobs, now));
    decisions.writes.extend(deadlines.run_limits.warn_and_end_runs(objects, jobs, now));
    decisions.writes.extend(deadlines.restarts.restart_or_fail_jobs(objects, jobs, now));
    decisions.writes.extend(deadlines.successes.end_jobs(objects, jobs, now));
    decisions.writes.extend(deadlines.failed.end_failed_jobs(objects, jobs, now));
    decisions.writes.extend(controller.commands.carry_out_commands(&controller.objects, &controller.jobs, now));
    controller.release_jobs(&mut decisions);
    controller.shrink_records(&mut decisions);
    // Releases go out before anything is written about them; the next decision is for that, whatever else happens.
    if decisions.releases > 0 && !std::mem::replace(&mut controller.hurried, true) {
        decisions.next = Some(now);
        return decisions;
    }
    controller.hurried = false;
    let returned = controller.preempt_jobs(&mut decisions);
    if decisions.evictions > 0 || returned {
        // The preemptor gets its reservation before anything comes free. Who is back in line may start now: nothing
        // else needs to happen before that.
        controller.release_jobs(&mut decisions);
    }
    decisions.writes.extend(controller.take_deferred_decisions());
    controller.write_pod_groups_and_queue_numbers(&mut decisions);
    controller.write_waiting_states(&mut decisions);
    controller.record_admission_events(&mut decisions);
    let Controller { objects, jobs, capacity, deadlines, .. } = controller;
    decisions.writes.extend(deadlines.placement.requeue_unplaced(objects, jobs, now));
    decisions.writes.extend(deadlines.start.requeue_unstarted(objects, jobs, capacity, now));
    decisions.writes.extend(deadlines.start.give_up_incomplete_gangs(objects, jobs, now));
    decisions.writes.extend(deadlines.silent.touch_silent(objects, jobs, capacity, now));
    decisions.writes.extend(deadlines.unreported.request_reports(objects, jobs, now));
    decisions.writes.extend(deadlines.orphans.touch_bindings(objects, jobs, now));
    decisions.writes.extend(deadlines.held.drop_copies(objects, jobs, capacity, now));
    decisions.writes.extend(controller.member_loss.withdraw_from_lost_clusters(objects, jobs, now));
    decisions.writes.extend(deadlines.refused.requeue_refused(objects, jobs, capacity, now));
    decisions.writes.extend(controller.move_jobs_off_hot_clusters());
    decisions.writes.extend(controller.hyper_jobs.advance_hyper_jobs(&controller.objects, now));
    decisions.writes.extend(controller.cron_jobs.advance_cron_jobs(&controller.objects, now));
    let Controller { expiries, objects, hyper_jobs, cron_jobs, .. } = &mut *controller;
    decisions.writes.extend(expiries.delete_expired(objects, (hyper_jobs, cron_jobs), now));
    decisions.writes.extend(controller.data_claims.write_due(&controller.objects, now));
    controller.write_queues(&mut decisions);
    let more =
        controller.pod_groups.has_more() || (controller.pod_groups.may_write() && !controller.reasons.left.is_empty());
    let now_again = decisions.is_unfinished || more;
    decisions.next = if now_again { Some(now) } else { controller.next_due() };
    decisions
}

impl Controller {
    fn create_default_queue(&mut self, decisions: &mut Decisions) {
        let name = caldera_crds::names::volcano::DEFAULT_QUEUE;
        let asked = &mut self.default_queue;
        if asked.again.is_some_and(|again| again <= self.now) {
            asked.again = None;
            if !self.objects.queues.contains_key(name) {
                decisions.writes.push(Decision::DefaultQueue);
            }
        }
    }

    /// Takes up what was put off until now: PodGroups, releases to be sent again, refusals and backoffs that end.
    fn resume_deferred(&mut self, decisions: &mut Decisions) {
        self.pod_groups.mark_due_dirty(self.now);
        for _ in 0..POD_GROUPS_PER_PASS {
            let Some((key, resend, assess)) = self.jobs.take_retry(&self.objects, self.now) else { return };
            self.pod_groups.mark_dirty(&key);
            decisions.writes.extend(resend);
            if assess {
                self.reassess_binding(&key);
            }
        }
    }

    /// Tells the engine what the fleet has, and what of it grew.
    fn update_engine_fleet(&mut self) {
        self.capacity.observe_ended_maintenance(self.now);
        if self.capacity.take_changed() {
            self.capacity.take_other_pods_changed();
            self.fleet_count.last = Some(self.now);
            let fleet = self.capacity.sum_fleet();
            self.queues.annotations.observe_fleet(&fleet, self.now);
            self.jobs.engine.set_fleet(fleet);
            self.jobs.engine.forget_possible_classes();
            self.requeue_unsatisfiable_jobs();
            self.reassess_duplicated_jobs();
            self.jobs.changed = true;
        } else {
            self.recount_other_usage();
        }
        let affinity_changed = self.objects.take_affinity_changed();
        if affinity_changed {
            // A duplicated job asks for as many copies as there are clusters without the others of its groups.
            self.reassess_bindings(|binding| binding.admission.is_none() && !binding.groups.is_empty());
        }
        let growth = self.capacity.take_capacity_growth();
        let Some(growth) = (if affinity_changed { Some(FleetGrowth::Somewhere) } else { growth }) else { return };
        match growth {
            FleetGrowth::By(growth) => self.jobs.engine.requeue_after_growth(&growth),
            FleetGrowth::Somewhere => self.jobs.engine.requeue_after_capacity_change(),
        }
        self.jobs.changed = true;
    }

    /// What others use in the members bounds the root of the queues. It is counted once a second at most, and nothing
    /// is written for it alone: pending jobs are asked again by what is free on nodes.
    fn recount_other_usage(&mut self) {
        self.fleet_count.due = None;
        if !self.capacity.have_other_pods_changed() {
            return;
        }
        let next = self.fleet_count.last.map(|last| add_wait(last, COALESCE));
        if let Some(next) = next.filter(|next| *next > self.now) {
            self.fleet_count.due = Some(next);
            return;
        }
        self.fleet_count.last = Some(self.now);
        self.capacity.take_other_pods_changed();
        let fleet = self.capacity.sum_fleet();
        self.jobs.engine.set_fleet(fleet);
        self.requeue_unsatisfiable_jobs();
    }

    /// Asks again about what could never fit in the fleet as it was.
    fn requeue_unsatisfiable_jobs(&mut self) {
        if self.capacity.forget_unsatisfiable_classes() {
            self.jobs.engine.requeue_after_capacity_change();
            self.jobs.changed = true;
        }
    }

    /// Bindings of jobs of gangs that are in line, or are once their gangs are looked at, each with the first of those
    /// that it starts together with.
    pub(crate) fn map_queued_bindings_to_leaders(&self) -> BTreeMap<Key, Option<Key>> {
        self.jobs.gangs.list_in_line(
            |gang| self.find_gang_spec(gang),
            |queue, asked| self.objects.check_job_size(queue, || asked.clone()),
        )
    }

    fn find_gang_spec(&self, gang: &GangKey) -> Option<JobGangSpec> {
        match gang {
            GangKey::HyperJob(key, owner) => self.hyper_jobs.find_gang_spec(key, owner),
            GangKey::Pods(_) => None,
        }
    }

    /// Puts the jobs of gangs in line of which something changed.
    pub(crate) fn queue_changed_gangs(&mut self) {
        for gang in self.jobs.gangs.take_changed() {
            let spec = self.find_gang_spec(&gang);
            for key in self.jobs.queue_gang_jobs(&self.objects, &gang, spec.as_ref(), self.now) {
                self.pod_groups.mark_dirty(&key);
                self.recount_phase(&key);
                let Self { objects, jobs, capacity, waiting_states, now, .. } = self;
                waiting_states.observe_binding(objects, jobs, &key, *now);
                if let Some(binding) = objects.bindings.get(&key) {
                    update_assumed_place(objects, jobs, capacity, binding);
                }
            }
        }
    }

    fn release_jobs(&mut self, decisions: &mut Decisions) {
        self.queue_changed_gangs();
        let Releases { writes, is_unfinished } =
            release_admissible_jobs(&mut self.jobs, &self.objects, &mut self.capacity, self.now);
        decisions.releases += writes.len();
        decisions.is_unfinished |= is_unfinished;
        for (key, decision) in writes {
            self.pod_groups.mark_dirty(&key);
            self.recount_phase(&key);
            decisions.writes.push(decision);
        }
    }

    /// Writes the records that shrink: unused quota, and what is not wanted any more.
    fn shrink_records(&mut self, decisions: &mut Decisions) {
        for (key, record) in self.deadlines.unused.cut_unused(&self.objects, &self.jobs, self.now) {
            self.jobs.schedule_smaller_record(key, record);
        }
        decisions.writes.extend(self.jobs.write_smaller_records(&self.objects));
        self.jobs.changed |= self.jobs.engine.take_reservations_changed();
    }

    /// Whether jobs are back in line that were evicted.
    fn preempt_jobs(&mut self, decisions: &mut Decisions) -> bool {
        let Self { objects, jobs, capacity, preemption, now, .. } = self;
        let changed = jobs.changed;
        preemption.close_attempt(jobs, changed, *now);
        jobs.cleanups.observe_deleted_jobs(|workload| capacity.runs_anywhere(workload), *now);
        let returning = preemption.take_returning_jobs(objects, jobs, capacity, *now);
        returning.iter().for_each(|key| self.reassess_binding(key));
        let Self { objects, jobs, capacity, preemption, now, .. } = self;
        jobs.engine.set_preemptor(preemption.schedule.preemptor().cloned());
        if preemption.begin_round(decisions.releases > 0, *now) {
            let writes = preemption.attempt_preemption(objects, jobs, capacity, *now);
            let evicts = |write: &&Decision| matches!(write, Decision::Evict { .. } | Decision::Shrink { .. });
            decisions.evictions += writes.iter().filter(evicts).count();
            decisions.writes.extend(writes);
        }
        let is_in_line = |key| self.jobs.states.get(key).is_some_and(|state| state.phase == JobPhase::Pending);
        let returned = returning.iter().any(is_in_line);
        if returned {
            // Their old pods were somebody else's since they were evicted, and made the fleet smaller until now.
            self.jobs.engine.set_fleet(self.capacity.sum_fleet());
        }
        returned
    }

    fn move_jobs_off_hot_clusters(&mut self) -> Vec<Decision> {
        let Self { objects, jobs, capacity, preemption, load_aware, now, .. } = self;
        load_aware.move_jobs(objects, jobs, capacity, &preemption.schedule.policy, *now)
    }

    /// Writes PodGroups that changed; and at most once a second, after something moved, every pending job's reason.
    /// That is less often where writes are slow.
    fn write_pod_groups_and_queue_numbers(&mut self, decisions: &mut Decisions) {
        let Self { objects, jobs, preemption, pod_groups, reasons, now, .. } = self;
        let now = *now;
        decisions.writes.extend(pod_groups.write_changed(objects, jobs, preemption, now));
        let wait = pod_groups.wait_between_sweeps();
        if jobs.changed && reasons.due.is_none() && reasons.left.is_empty() {
            reasons.due = Some(reasons.last.map_or(now, |last| add_wait(last, wait)).max(now));
        }
        if reasons.due.is_some_and(|due| due <= now) {
            reasons.due = None;
            reasons.last = Some(now);
            jobs.changed = false;
            pod_groups.begin_sweep();
            self.queues.lifecycle.observe_jobs();
            reasons.left = jobs.engine.list_pending_positions().map(|(id, position)| (id.clone(), position)).collect();
            self.queues.numbers.mark_all_due(now);
        }
        let QueueWrites { counts, numbers, lifecycle, .. } = &mut self.queues;
        decisions.writes.extend(numbers.write_due(objects, jobs, counts, |name| lifecycle.is_writing(name), now));
        for _ in 0..POD_GROUPS_PER_PASS {
            let Some((id, position)) = pod_groups.may_write().then(|| reasons.left.pop_front()).flatten() else {
                break;
            };
            let Some(reason) = jobs.engine.explain_pending_at(id.as_str(), position) else { continue };
            for key in jobs.list_bindings_in_line(&id) {
                let reason = Some(reason.clone());
                decisions
                    .writes
                    .extend(pod_groups.write_pod_group_if_due(objects, jobs, preemption, &key, reason, now));
            }
        }
        // A sweep that goes on gives turns.
        let turns = if reasons.left.is_empty() { pod_groups.take_first_turns(now) } else { Vec::new() };
        for key in turns {
            let Some(reason) = jobs.explain_pending(&key) else { continue };
            let writes = pod_groups.write_pod_group_if_due(objects, jobs, preemption, &key, Some(reason), now);
            decisions.writes.extend(writes);
        }
        if pod_groups.lacks_first() && reasons.left.is_empty() {
            reasons.due.get_or_insert(add_wait(now, wait));
        }
    }

    /// A text that follows a PodGroup's is one more of the budget of texts.
    fn write_waiting_states(&mut self, decisions: &mut Decisions) {
        let Self { objects, jobs, pod_groups, waiting_states, now, .. } = self;
        waiting_states.set_latency_from(&pod_groups.budget);
        let (writes, texts) = waiting_states.write_due(objects, jobs, *now);
        pod_groups.take_texts_from_budget(texts, *now);
        decisions.writes.extend(writes);
    }

    fn record_admission_events(&mut self, decisions: &mut Decisions) {
        self.admission_events.set_latency_from(&self.pod_groups.budget);
        decisions.writes.extend(self.admission_events.record_due(&self.objects, &self.jobs, self.now));
    }

    fn write_queues(&mut self, decisions: &mut Decisions) {
        let QueueWrites { counts, numbers, annotations, lifecycle } = &mut self.queues;
        let (objects, engine) = (&self.objects, &self.jobs.engine);
        let in_flight = |name: &_| numbers.is_in_flight(name);
        decisions.writes.extend(lifecycle.advance_queues(objects, engine, in_flight, self.now));
        decisions.writes.extend(annotations.write_due(objects, engine, counts, self.now));
    }

    /// When to decide again if nothing happens.
    fn next_due(&self) -> Option<Timestamp> {
        let Self { deadlines, queues, .. } = self;
        let reservation = self.jobs.engine.next_due().and_then(|due| due.to_timestamp());
        [
            self.default_queue.again,
            self.fleet_count.due,
            self.capacity.next_maintenance_end(self.now),
            self.reasons.due,
            self.pod_groups.next_due(!self.reasons.left.is_empty()),
            self.waiting_states.next_due(self.now),
            self.admission_events.next_due(self.now),
            self.jobs.next_retry(),
            deadlines.start.next_incomplete_gang(&self.jobs),
            self.jobs.cleanups.next_look(),
            self.preemption.next_due(),
            reservation,
            deadlines.next_due(),
            self.member_loss.next_due(),
            self.load_aware.next_due(),
            self.expiries.0.next_due(),
            self.commands.next_due(),
            self.hyper_jobs.next_due(),
            self.cron_jobs.next_due(),
            self.data_claims.next_due(),
            self.data_catalogue.next_due(),
            queues.numbers.next_due(),
            queues.annotations.next_due(),
            queues.lifecycle.next_due(),
        ]
        .into_iter()
        .fold(None, earliest)
    }
}
