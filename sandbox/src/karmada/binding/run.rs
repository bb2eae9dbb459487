//! The binding controllers at work.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    overrides,
    plan::{self, Overridden, Target},
};
use crate::karmada::{
    api::{Change, Delete},
    control::{Control, binding_kind, cluster_binding_kind, work_kind},
    events::About,
    eviction::state,
    interpreter::Operation,
    names,
    object::{Gvk, ObjectExt, ObjectKey, Shared},
    queue::{Failure, Next, Queue},
};

type Key = (Gvk, String, String);

fn override_kind(cluster_wide: bool) -> Gvk {
    Gvk::new("policy.karmada.io/v1alpha1", if cluster_wide { "ClusterOverridePolicy" } else { "OverridePolicy" })
}

/// Starts to turn bindings into Works.
pub fn run_controller(control: &Arc<Control>) {
    let queue: Arc<Queue<Key>> = Queue::new("binding", control.shutdown.clone());
    for gvk in [binding_kind(), cluster_binding_kind()] {
        let (queue, kind, lag) = (queue.clone(), gvk.clone(), control.binding_lag.clone());
        control.host.add_handler(
            &gvk,
            Arc::new(move |change: &Change| {
                let Some(binding) = change.latest() else { return };
                let moved = match (&change.old, &change.new) {
                    (Some(old), Some(new)) => old.generation() != new.generation(),
                    _ => true,
                };
                let key = (kind.clone(), binding.namespace().to_owned(), binding.name().to_owned());
                if moved {
                    queue.add_after(key, lag.of(binding.namespace(), binding.name()));
                }
            }),
        );
    }
    for cluster_wide in [false, true] {
        let (queue, own) = (queue.clone(), control.clone());
        control.host.add_handler(
            &override_kind(cluster_wide),
            Arc::new(move |change: &Change| requeue_overridden(&own, &queue, change)),
        );
    }
    let own = control.clone();
    queue.run(8, move |(gvk, namespace, name)| {
        let own = own.clone();
        async move { sync_binding(&own, &gvk, &namespace, &name).await }
    });
}

/// Bindings whose templates an override policy names, or named before it was edited, are written again
/// (`EnqueueRequestsFromMapFunc` maps both sides of an update).
fn requeue_overridden(control: &Control, queue: &Queue<Key>, change: &Change) {
    let generation = |one: &Option<Shared>| one.as_ref().map(|one| one.generation());
    if change.old.is_some() && change.new.is_some() && generation(&change.old) == generation(&change.new) {
        return;
    }
    for policy in change.old.iter().chain(&change.new) {
        requeue_named(control, queue, policy);
    }
}

fn requeue_named(control: &Control, queue: &Queue<Key>, policy: &Value) {
    let selectors = policy.items("/spec/resourceSelectors");
    let names = |binding: &Value| {
        let reference = &binding["spec"]["resource"];
        let template = control.host.cached(&reference.gvk(), reference.text("/namespace"), reference.text("/name"));
        selectors.is_empty()
            || template
                .is_some_and(|template| crate::karmada::detector::plan::match_selectors(&template, selectors).is_some())
    };
    let mut kinds = vec![binding_kind()];
    if policy.namespace().is_empty() {
        kinds.push(cluster_binding_kind());
    }
    for gvk in kinds {
        for binding in control.host.list(&gvk) {
            let reach = policy.namespace().is_empty() || policy.namespace() == binding.namespace();
            if reach && names(&binding) {
                queue.add((gvk.clone(), binding.namespace().to_owned(), binding.name().to_owned()));
            }
        }
    }
}

async fn sync_binding(control: &Control, gvk: &Gvk, namespace: &str, name: &str) -> Result<Next, Failure> {
    let Some(binding) = control.host.cached(gvk, namespace, name) else { return Ok(Next::Done) };
    if binding.is_deleting() {
        // What was written a moment ago may not be in the cache yet, and would stay in its member for ever.
        let (label, id) = plan::id_of(&binding);
        let works = if id.is_empty() { vec![] } else { control.host.live_labelled(&work_kind(), label, id).await? };
        for work in works {
            if !work.is_deleting() {
                control.writer.delete(&ObjectKey::of(&work), &Delete::default()).await?;
            }
        }
        let finalizer = if namespace.is_empty() { names::CLUSTER_BINDING_FINALIZER } else { names::BINDING_FINALIZER };
        control.writer.modify(&binding, "", |binding| binding.remove_finalizer(finalizer)).await?;
        return Ok(Next::Done);
    }
    let works = control.host.list(&work_kind());
    for orphan in plan::find_orphan_works(&binding, &works) {
        control.writer.delete(&orphan, &Delete::default()).await?;
    }
    if plan::awaits_purge(&binding, &works) {
        return Ok(Next::After(Duration::from_secs(5)));
    }
    let Some(template) = control.template(&binding["spec"]["resource"]).await? else { return Ok(Next::Done) };
    let source = if namespace.is_empty() { "cluster-resource-binding-controller" } else { "binding-controller" };
    let (events, about) = (&control.events, [About::object(&binding), About::object(&template)]);
    match ensure_works(control, &binding, &template).await {
        Ok(()) => {
            let what = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            let message = format!("Sync work of {}({what}) successful.", gvk.kind);
            for about in about {
                events.normal(source, about, "SyncWorkSucceed", &message);
            }
            Ok(Next::Done)
        }
        Err(error) => {
            for about in about {
                events.warning(source, about, "SyncWorkFailed", &error);
            }
            Err(Failure(error))
        }
    }
}

/// Every target's Work, also when another one's fails; the errors together as Go's `NewAggregate` writes them.
async fn ensure_works(control: &Control, binding: &Value, template: &Shared) -> Result<(), String> {
    let completions = plan::divide_completions(binding, template);
    let mut errors: Vec<String> = Vec::new();
    for target in plan::target_clusters(binding) {
        if let Err(error) = ensure_work(control, binding, template, &target, completions.as_ref()).await
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
    match errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

async fn ensure_work(
    control: &Control,
    binding: &Value,
    template: &Value,
    target: &Target,
    completions: Option<&std::collections::BTreeMap<String, i64>>,
) -> Result<(), String> {
    let mut copy = template.clone();
    if plan::is_workload(binding) && control.interpreter.is_enabled(&copy.gvk(), Operation::ReviseReplica) {
        copy = control.interpreter.revise_replicas(&copy, target.replicas).await?;
    }
    if let Some(completions) = completions {
        plan::set_completions(&mut copy, &target.cluster, completions)?;
    }
    let overridden = apply_overrides(control, &mut copy, &target.cluster).await?;
    if control.gates.stateful_failover {
        for (label, value) in state::labels_to_inject(binding, &target.cluster) {
            copy.put(&["metadata", "labels", &label], value);
        }
    }
    write_work(control, &plan::build_work(binding, &copy, target, &overridden)).await
}

async fn apply_overrides(control: &Control, copy: &mut Value, cluster: &str) -> Result<Overridden, String> {
    let found = control.host.get_cached_or_live(&crate::karmada::control::cluster_kind(), "", cluster).await;
    let Some(cluster) = found.map_err(|error| error.message())? else {
        return Err(format!("Cluster.cluster.karmada.io \"{cluster}\" not found"));
    };
    let mut overridden = Overridden::default();
    let host = &control.host;
    let rules = overrides::matching_rules(&host.list(&override_kind(true)), copy, &cluster);
    for rule in &rules {
        overrides::apply_overriders(copy, &rule.overriders)?;
    }
    overridden.cluster_wide = overrides::record_applied(&rules);
    if !copy.namespace().is_empty() {
        let rules = overrides::matching_rules(&host.list_in(&override_kind(false), copy.namespace()), copy, &cluster);
        for rule in &rules {
            overrides::apply_overriders(copy, &rule.overriders)?;
        }
        overridden.namespaced = overrides::record_applied(&rules);
    }
    Ok(overridden)
}

async fn write_work(control: &Control, desired: &Value) -> Result<(), String> {
    let (namespace, name) = (desired.namespace(), desired.name());
    let mut existing =
        control.host.get_cached_or_live(&work_kind(), namespace, name).await.map_err(|error| error.message())?;
    for _ in 0..5 {
        let outcome = match &existing {
            None => {
                let mut new = desired.clone();
                plan::record_managed(&mut new);
                control.writer.create(&new).await
            }
            Some(work) if work.is_deleting() => return Err(format!("work {namespace}/{name} is being deleted")),
            Some(work) => {
                let merged = plan::merge_work(work, desired);
                if merged == **work {
                    return Ok(());
                }
                control.writer.update(&merged).await
            }
        };
        match outcome {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() || error.already_exists() => {
                let live =
                    control.host.get_live(&work_kind(), namespace, name).await.map_err(|error| error.message())?;
                existing = live.map(Arc::new);
            }
            Err(error) => return Err(error.message()),
        }
    }
    Err(format!("work {namespace}/{name} changes faster than it can be written"))
}
