//! The execution controller at work: one for all members (Push mode).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::plan;
use crate::karmada::{
    api::{Change, Delete, Handler, Server, lock_state},
    control::{Control, MANAGER, Named, cluster_kind, is_ready, work_kind},
    events::About,
    interpreter::Operation,
    names,
    object::{ObjectExt, ObjectKey},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "execution-controller";

/// The resourceVersion that the last write left, by member and object.
#[derive(Default)]
struct Written(Mutex<BTreeMap<(String, ObjectKey), String>>);

impl Written {
    fn note_version(&self, cluster: &str, object: &Value) {
        lock_state(&self.0).insert((cluster.to_owned(), ObjectKey::of(object)), object.resource_version().to_owned());
    }

    fn forget_version(&self, cluster: &str, key: &ObjectKey) {
        lock_state(&self.0).remove(&(cluster.to_owned(), key.clone()));
    }

    /// Whether this state is not the one that was written, of an object that was.
    fn is_foreign(&self, cluster: &str, object: &Value) -> bool {
        lock_state(&self.0)
            .get(&(cluster.to_owned(), ObjectKey::of(object)))
            .is_some_and(|version| version != object.resource_version())
    }
}

/// Starts to bring Works to their members.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Named>> = Queue::new("execution", control.shutdown.clone());
    let written = Arc::new(Written::default());
    let works = queue.clone();
    control.host.add_handler(
        &work_kind(),
        Arc::new(move |change: &Change| {
            let Some(work) = change.latest() else { return };
            let moved = match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.generation() != new.generation(),
                _ => true,
            };
            if moved {
                works.add((work.namespace().to_owned(), work.name().to_owned()));
            }
        }),
    );
    let (works, noted) = (queue.clone(), written.clone());
    control.on_propagated(move |cluster| requeue_drifted(works.clone(), noted.clone(), cluster));
    let own = control.clone();
    queue.run(8, move |(namespace, name)| {
        let (own, written) = (own.clone(), written.clone());
        async move { sync_work(&own, &written, &namespace, &name).await }
    });
}

/// Works whose objects somebody changed or deleted in a member are applied again.
fn requeue_drifted(works: Arc<Queue<Named>>, written: Arc<Written>, cluster: &str) -> Handler {
    let cluster = cluster.to_owned();
    Arc::new(move |change: &Change| {
        let Some(object) = change.old.as_ref().or(change.new.as_ref()) else { return };
        let (namespace, name) = (object.annotation(names::WORK_NAMESPACE), object.annotation(names::WORK_NAME));
        if !plan::is_managed(object) || namespace.is_empty() || name.is_empty() {
            return;
        }
        let again = match (&change.old, &change.new) {
            (Some(_), None) => true,
            (None, Some(new)) => written.is_foreign(&cluster, new),
            (Some(old), Some(new)) => written.is_foreign(&cluster, new) && plan::has_drifted(old, new),
            (None, None) => false,
        };
        if again {
            works.add((namespace.to_owned(), name.to_owned()));
        }
    })
}

async fn sync_work(control: &Control, written: &Written, namespace: &str, name: &str) -> Result<Next, Failure> {
    let Some(work) = control.host.cached(&work_kind(), namespace, name) else { return Ok(Next::Done) };
    let Some(cluster_name) = names::cluster_of(namespace) else { return Ok(Next::Done) };
    let cluster = control.host.get_cached_or_live(&cluster_kind(), "", cluster_name).await?;
    if work.is_deleting() {
        delete_work(control, written, &work, cluster_name, cluster.as_deref()).await?;
        control.writer.modify(&work, "", |work| work.remove_finalizer(names::EXECUTION_FINALIZER)).await?;
        return Ok(Next::Done);
    }
    let Some(cluster) = cluster else {
        return Err(Failure(format!("Cluster.cluster.karmada.io \"{cluster_name}\" not found")));
    };
    let now = control.now();
    let dispatched = control.writer.modify(&work, "status", |work| plan::set_dispatching(work, &now)).await?;
    let Some(dispatched) = dispatched else { return Ok(Next::Done) };
    if dispatched.resource_version() != work.resource_version()
        && let Some(condition) = dispatched.items("/status/conditions").iter().find(|one| one["type"] == "Dispatching")
    {
        control.events.normal(SOURCE, About::object(&work), "WorkDispatching", condition.text("/message"));
    }
    if work.flag("/spec/suspendDispatching") {
        return Ok(Next::Done);
    }
    let member = control.member(cluster_name).filter(|_| is_ready(&cluster));
    let Some(member) = member else { return Err(Failure(format!("cluster({cluster_name}) not ready"))) };
    apply_work(control, written, &dispatched, &member).await
}

async fn apply_work(control: &Control, written: &Written, work: &Value, member: &Arc<Server>) -> Result<Next, Failure> {
    let manifests = work.items("/spec/workload/manifests");
    let (events, cluster) = (&control.events, member.name.as_str());
    let mut errors: Vec<String> = Vec::new();
    for manifest in manifests {
        let what = format!("{}/{}", manifest.namespace(), manifest.name());
        match apply_one(control, written, manifest, member).await {
            Ok(()) => {
                let message = format!("Successfully applied resource({what}) to cluster {cluster}");
                events.normal(SOURCE, About::template_of(manifest), "SyncSucceed", message);
            }
            Err(error) => {
                let message =
                    format!("Failed to create or update resource({what}) in member cluster({cluster}): {error}");
                events.warning(SOURCE, About::template_of(manifest), "SyncFailed", message);
                errors.push(error);
            }
        }
    }
    let now = control.now();
    control.writer.modify(work, "status", |work| plan::set_applied(work, &errors, manifests.len(), &now)).await?;
    let what = format!("work({}/{}) to cluster({cluster})", work.namespace(), work.name());
    if errors.is_empty() {
        events.normal(SOURCE, About::object(work), "SyncSucceed", format!("Sync {what} successful."));
        return Ok(Next::Done);
    }
    let why = errors.join(", ");
    events.warning(SOURCE, About::object(work), "SyncFailed", format!("Failed to sync {what}, err: {why}"));
    Err(Failure(why))
}

async fn apply_one(control: &Control, written: &Written, manifest: &Value, member: &Arc<Server>) -> Result<(), String> {
    let gvk = manifest.gvk();
    // Kinds that the member does not serve are errors, not watches that never sync.
    member.resource(&gvk).await.map_err(|error| error.message())?;
    control.watch_in_member(member, &gvk);
    let (namespace, name, cluster) = (manifest.namespace(), manifest.name(), member.name.as_str());
    let writer = member.writer(MANAGER);
    let mut observed = member.get_cached_or_live(&gvk, namespace, name).await.map_err(|error| error.message())?;
    for _ in 0..5 {
        let outcome = match &observed {
            None => writer.create(manifest).await,
            Some(observed) => {
                plan::may_update(cluster, manifest, observed)?;
                let mut desired = manifest.clone();
                plan::keep_members_own(&mut desired, observed);
                if control.interpreter.is_enabled(&gvk, Operation::Retain) {
                    desired = control.interpreter.retain_fields(&desired, observed).await?;
                }
                if plan::is_up_to_date(&desired, observed) {
                    written.note_version(cluster, observed);
                    return Ok(());
                }
                writer.update(&desired).await
            }
        };
        match outcome {
            Ok(object) => {
                written.note_version(cluster, &object);
                return Ok(());
            }
            Err(error)
                if error.is_conflict() || error.already_exists() || (error.is_not_found() && observed.is_some()) =>
            {
                observed = member.get_live(&gvk, namespace, name).await.map_err(|error| error.message())?.map(Arc::new);
            }
            Err(error) => return Err(error.message()),
        }
    }
    Err(format!("resource({namespace}/{name}) changes faster than it can be written"))
}

/// Deletes what a Work brought, or lets go of it. In a cluster that does not answer only when the cluster leaves.
async fn delete_work(
    control: &Control,
    written: &Written,
    work: &Value,
    cluster_name: &str,
    cluster: Option<&Value>,
) -> Result<(), Failure> {
    let preserve = work.flag("/spec/preserveResourcesOnDeletion");
    let Some(member) = control.member(cluster_name).filter(|_| cluster.is_some_and(is_ready)) else {
        return match cluster {
            Some(cluster) if !cluster.is_deleting() => Err(Failure(format!("cluster({cluster_name}) not ready"))),
            _ => Ok(()),
        };
    };
    for manifest in work.items("/spec/workload/manifests") {
        let gvk = manifest.gvk();
        let found = match member.get_cached_or_live(&gvk, manifest.namespace(), manifest.name()).await {
            Err(error) if error.is_not_found() => None,
            other => other?,
        };
        let Some(observed) = found else {
            // Karmada has nothing to take its marks off, and tries again as long as the object is missing.
            let missing = format!("{}/{} not found, nothing to preserve", manifest.namespace(), manifest.name());
            if preserve {
                return Err(Failure(missing));
            }
            continue;
        };
        let key = ObjectKey::of(manifest);
        if preserve {
            let mut released = manifest.clone();
            plan::remove_marks(&mut released);
            apply_released(control, &released, &observed, &member).await.map_err(Failure)?;
        } else if plan::is_managed(&observed) {
            let how = Delete { propagation: Some("Background"), ..Delete::default() };
            member.writer(MANAGER).delete(&key, &how).await?;
        }
        written.forget_version(cluster_name, &key);
    }
    Ok(())
}

async fn apply_released(
    control: &Control,
    released: &Value,
    observed: &Value,
    member: &Arc<Server>,
) -> Result<(), String> {
    plan::may_update(&member.name, released, observed)?;
    let mut desired = released.clone();
    plan::keep_members_own(&mut desired, observed);
    if control.interpreter.is_enabled(&desired.gvk(), Operation::Retain) {
        desired = control.interpreter.retain_fields(&desired, observed).await?;
    }
    member.writer(MANAGER).update(&desired).await.map(drop).map_err(|error| error.message())
}
