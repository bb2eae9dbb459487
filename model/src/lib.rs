//! A model of gate, ledger, Lease and fencing, and a search that exhausts it.
//!
//! Two controllers want one Lease; a scheduler places what they grant; two jobs, each a gang of two pods, wait in one
//! queue that has room for one of them. Whatever may happen to them in any order is a step: messages that land late or
//! whose answers are lost, processes that are killed, a Lease that is taken from one that lives on. What is searched
//! for is in [`model::find_violation`] and [`search::Explored`]; what was found is in `docs/reliability.md`.
//!
//! Each action is something that the code does, under the code's name. A test holds this table to the sources:
//!
//! | action | file | function |
//! |---|---|---|
//! | `AcquireLease`, `TakeLease` | `runtime/src/lease.rs` | `acquire_lease` `try_acquire_or_renew` `decide_lease_action` |
//! | `NoticeLoss` | `runtime/src/lease.rs` | `keep_renewing` |
//! | `ReleaseLease` | `runtime/src/lease.rs` | `write_release` |
//! | `NoticeLoss`, `KillController` | `cli/src/components.rs` | `run_under_lease` |
//! | `ListBindings`, `WatchBinding`, `WatchWorkload` | `controller/src/observe/objects.rs` | `apply_bindings` `set_binding` `apply_workloads` |
//! | `ListBindings`, `WatchBinding` | `controller/src/decide/bindings/grant_history.rs` | `judge_grant` |
//! | `ListBindings`, `WatchBinding` | `controller/src/decide/admission/forged_record.rs` | `evict_faulty_records` |
//! | `ListBindings`, `WatchBinding` | `controller/src/decide/controller.rs` | `reassess_binding` |
//! | `WatchBinding`, `WatchWorkload` | `core/src/queue/quota/ledger.rs` | `compute_charge` |
//! | `ReleaseJob` | `controller/src/decide/admission/release.rs` | `release_admissible_jobs` |
//! | `ReleaseJob` | `controller/src/decide/bindings/jobs.rs` | `assume_record` `take_retry` |
//! | `SettleLaterGrants`, `WatchBinding` | `controller/src/decide/admission/stale_grant.rs` | `regrant_or_take_back` |
//! | `RequeueUnplaced` | `controller/src/decide/copies/placement_deadlines.rs` | `requeue_unplaced` |
//! | `RequeueUnplaced` | `controller/src/decide/bindings/eviction.rs` | `requeue_binding` |
//! | `ExecuteWrite` | `controller/src/write/patch.rs` | `patch_release` `patch_resize` `patch_eviction` |
//! | `ExecuteWrite` | `global-scheduler/src/write/binding_writes.rs` | `patch_clusters` |
//! | `ExecuteWrite`, `LoseAnswer` | `runtime/src/write.rs` | `execute_write` `classify_write_error` |
//! | `FollowAnswer`, `LoseAnswer` | `controller/src/decide/controller/answers.rs` | `apply_release_answer` `apply_eviction_answer` |
//! | `FollowAnswer`, `LoseAnswer` | `global-scheduler/src/run/scheduler/outcomes.rs` | `apply_outcome` `apply_write_failure` |
//! | `ListForScheduler`, `WatchForScheduler` | `global-scheduler/src/observe/cache.rs` | `update_binding` |
//! | `WatchForScheduler`, `ApplyRead` | `global-scheduler/src/run/scheduler.rs` | `decide_and_write_binding` `begin_lease_read` |
//! | `ReadLease` | `runtime/src/lease.rs` | `read_lease` |
//! | `ApplyRead` | `global-scheduler/src/decide/lease_fence.rs` | `may_place` `begin_read` `apply_read` |
//! | `KillScheduler` | `global-scheduler/src/run.rs` | `run` |
//! | `EndJob` | `core/src/status/mod.rs` | `merge_statuses` |
//! | `ForgeRecord` | `webhook/src/decide/protected_fields.rs` | `refuse_forged_binding` |
//! | `DeleteLease` | `runtime/src/lease.rs` | `build_action_write` |

pub mod controller;
pub mod model;
pub mod scheduler;
pub mod search;
pub mod state;
