//! The dependencies distributor: config maps, secrets and the like follow the workloads that need them.
//!
//! Rule: Karmada `pkg/dependenciesdistributor/dependencies_distributor.go`. The binding of a dependency has no
//! placement and no scheduler; it goes where those that need it are (`requiredBy`).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::{
    api::{Change, lock_state},
    control::{Control, Named, binding_kind},
    detector::plan::is_changed,
    events::About,
    interpreter::Operation,
    names,
    object::{Gvk, ObjectExt, Shared, selector_matches},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "dependencies-distributor";
/// Finalizer of a binding that others follow.
const FINALIZER: &str = "karmada.io/binding-dependencies-distributor";

struct Distributor {
    control: Arc<Control>,
    queue: Arc<Queue<Named>>,
    kinds: Mutex<BTreeSet<Gvk>>,
}

/// Starts to distribute dependencies.
pub fn run_controller(control: &Arc<Control>) {
    let distributor = Arc::new(Distributor {
        control: control.clone(),
        queue: Queue::new("dependencies", control.shutdown.clone()),
        kinds: Mutex::default(),
    });
    let queue = distributor.queue.clone();
    control.host.add_handler(
        &binding_kind(),
        Arc::new(move |change: &Change| {
            if concerns_dependencies(change)
                && let Some(binding) = &change.new
            {
                queue.add((binding.namespace().to_owned(), binding.name().to_owned()));
            }
        }),
    );
    let own = distributor.clone();
    distributor.queue.run(2, move |(namespace, name)| {
        let own = own.clone();
        async move { own.sync_binding(&namespace, &name).await }
    });
}

fn concerns_dependencies(change: &Change) -> bool {
    let Some(new) = &change.new else { return false };
    let deps = |binding: &Value| binding.flag("/spec/propagateDeps");
    let placed = |binding: &Value| !binding.items("/spec/clusters").is_empty();
    match &change.old {
        None => deps(new) && placed(new),
        Some(old) => {
            // Placed or not: only a new binding waits for its clusters.
            old.generation() != new.generation() && (deps(old) || deps(new))
        }
    }
}

impl Distributor {
    async fn sync_binding(self: &Arc<Self>, namespace: &str, name: &str) -> Result<Next, Failure> {
        let control = &self.control;
        let Some(binding) = control.host.cached(&binding_kind(), namespace, name) else { return Ok(Next::Done) };
        if !binding.flag("/spec/propagateDeps") || binding.is_deleting() {
            for attached in self.attached_bindings(&binding) {
                self.detach_binding(&attached, &binding).await?;
            }
            control.writer.modify(&binding, "", |binding| binding.remove_finalizer(FINALIZER)).await?;
            return Ok(Next::Done);
        }
        let Some(template) = control.template(&binding["spec"]["resource"]).await? else { return Ok(Next::Done) };
        if !control.interpreter.is_enabled(&template.gvk(), Operation::InterpretDependency) {
            return Ok(Next::Done);
        }
        let dependencies = match control.interpreter.interpret_dependencies(&template).await {
            Ok(dependencies) => dependencies,
            Err(error) => {
                control.events.warning(SOURCE, About::object(&template), "GetDependenciesFailed", &error);
                return Err(Failure(error));
            }
        };
        let told = format!("Get dependencies({}) succeed.", json!(dependencies));
        control.events.normal(SOURCE, About::object(&template), "GetDependenciesSucceed", told);
        let finalized = control.writer.modify(&binding, "", |binding| binding.add_finalizer(FINALIZER)).await?;
        let Some(finalized) = finalized else { return Ok(Next::Done) };
        let outcome = self.attach_dependencies(&finalized, &dependencies).await;
        let about = About::object(&binding);
        match &outcome {
            Ok(_) => {
                let message = "Sync schedule results to dependencies succeed.";
                control.events.normal(SOURCE, about, "SyncScheduleResultToDependenciesSucceed", message);
            }
            Err(Failure(error)) => {
                control.events.warning(SOURCE, about, "SyncScheduleResultToDependenciesFailed", error);
            }
        }
        outcome
    }

    async fn attach_dependencies(self: &Arc<Self>, binding: &Value, dependencies: &[Value]) -> Result<Next, Failure> {
        let control = &self.control;
        let wanted = recorded_dependencies(dependencies);
        let text = wanted.to_string();
        let same = |recorded: &str| serde_json::from_str::<Value>(recorded).is_ok_and(|recorded| recorded == wanted);
        if !same(binding.annotation(names::BINDING_DEPENDENCIES)) {
            let record = |binding: &mut Value| binding.set_annotation(names::BINDING_DEPENDENCIES, &text);
            control.writer.modify(binding, "", record).await?;
        }
        for attached in self.attached_bindings(binding) {
            if !self.is_wanted(&attached, dependencies) {
                self.detach_binding(&attached, binding).await?;
            }
        }
        for dependency in dependencies {
            let gvk = dependency.gvk();
            self.watch_dependencies(&gvk);
            for object in self.find_objects(dependency).await? {
                self.attach_object(binding, &object).await?;
            }
        }
        Ok(Next::Done)
    }

    /// Bindings whose recorded dependencies name a changed object are looked at again.
    fn watch_dependencies(self: &Arc<Self>, gvk: &Gvk) {
        if !lock_state(&self.kinds).insert(gvk.clone()) {
            return;
        }
        let own = self.clone();
        self.control.host.add_handler(
            gvk,
            Arc::new(move |change: &Change| {
                let real = match (&change.old, &change.new) {
                    (Some(old), Some(new)) => is_changed(old, new),
                    _ => true,
                };
                let Some(object) = change.latest().filter(|_| real) else { return };
                for binding in own.control.host.list_in(&binding_kind(), object.namespace()) {
                    let recorded: Vec<Value> =
                        serde_json::from_str(binding.annotation(names::BINDING_DEPENDENCIES)).unwrap_or_default();
                    if !binding.is_deleting() && recorded.iter().any(|one| names_object(one, object)) {
                        own.queue.add((binding.namespace().to_owned(), binding.name().to_owned()));
                    }
                }
            }),
        );
    }

    async fn find_objects(&self, dependency: &Value) -> Result<Vec<Shared>, Failure> {
        let (gvk, namespace) = (dependency.gvk(), dependency.text("/namespace"));
        let name = dependency.text("/name");
        if !name.is_empty() {
            return match self.control.host.get_cached_or_live(&gvk, namespace, name).await {
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                found => Ok(found?.into_iter().collect()),
            };
        }
        self.control.host.until_synced(&gvk).await;
        let all = self.control.host.list_in(&gvk, namespace);
        Ok(all.into_iter().filter(|object| names_object(dependency, object)).collect())
    }

    fn is_wanted(&self, attached: &Value, dependencies: &[Value]) -> bool {
        let reference = &attached["spec"]["resource"];
        let object = self.control.host.cached(&reference.gvk(), reference.text("/namespace"), reference.text("/name"));
        dependencies.iter().any(|one| {
            one.gvk() == reference.gvk()
                && one.text("/namespace") == reference.text("/namespace")
                && match one.text("/name") {
                    "" => object.as_ref().is_some_and(|object| names_object(one, object)),
                    name => name == reference.text("/name"),
                }
        })
    }

    fn attached_bindings(&self, binding: &Value) -> Vec<Shared> {
        let label = depended_by(binding);
        let id = binding.label(names::BINDING_ID);
        let all = self.control.host.list_in(&binding_kind(), binding.namespace());
        all.into_iter().filter(|one| !id.is_empty() && one.label(&label) == id).collect()
    }

    async fn attach_object(&self, binding: &Value, object: &Value) -> Result<(), Failure> {
        let writer = &self.control.writer;
        let desired = attached_binding(binding, object);
        let existing =
            self.control.host.get_cached_or_live(&binding_kind(), desired.namespace(), desired.name()).await?;
        match existing {
            None => match writer.create(&desired).await {
                Err(error) if !error.already_exists() => Err(error.into()),
                Err(error) => Err(Failure(error.message())),
                Ok(_) => Ok(()),
            },
            Some(existing) => {
                let owner = existing.items("/metadata/ownerReferences").iter().find(|owner| owner.flag("/controller"));
                if owner.is_some_and(|owner| owner.text("/uid") != object.uid()) {
                    return Err(Failure(format!(
                        "failed to update resourceBinding({}/{}) due to different owner reference UID, will try again later after \
                         binding is garbage collected, see https://github.com/karmada-io/karmada/issues/6034",
                        desired.namespace(),
                        desired.name()
                    )));
                }
                let required = merge_required(&existing, &desired);
                let strategies = self.resolve_strategies(&required).await?;
                writer.modify(&existing, "", |existing| merge_attached(existing, &desired, strategies)).await?;
                Ok(())
            }
        }
    }

    /// What all bindings that need a dependency want of it together.
    async fn resolve_strategies(&self, required: &[Value]) -> Result<Strategies, Failure> {
        let mut bindings = Vec::new();
        for one in required {
            let (namespace, name) = (one.text("/namespace"), one.text("/name"));
            let found = self.control.host.get_cached_or_live(&binding_kind(), namespace, name).await?;
            let missing = || Failure(format!("resourcebindings.work.karmada.io \"{name}\" not found"));
            bindings.push(found.ok_or_else(missing)?);
        }
        Ok(Strategies::of(&bindings))
    }

    async fn detach_binding(&self, attached: &Value, binding: &Value) -> Result<(), Failure> {
        let label = depended_by(binding);
        let rest: Vec<Value> =
            attached.items("/spec/requiredBy").iter().filter(|one| !is_of(one, binding)).cloned().collect();
        let strategies = if rest.is_empty() { None } else { Some(self.resolve_strategies(&rest).await?) };
        let leave = |attached: &mut Value| {
            attached.remove_labels(&[label.as_str()]);
            attached.put_or_remove(&["spec", "requiredBy"], (!rest.is_empty()).then(|| json!(rest)));
            set_strategies(attached, strategies);
        };
        self.control.writer.modify(attached, "", leave).await?;
        Ok(())
    }
}

/// What a dependency gets from those that need it (`policy_utils.go`): overwriting beats aborting, keeping beats not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Strategies {
    overwrite: bool,
    preserve: bool,
}

impl Strategies {
    fn of(bindings: &[Shared]) -> Self {
        Self {
            overwrite: bindings.iter().any(|one| one.text("/spec/conflictResolution") == "Overwrite"),
            preserve: bindings.iter().any(|one| one.flag("/spec/preserveResourcesOnDeletion")),
        }
    }
}

/// A binding of a policy of its own keeps what that says; one that nobody needs any more says nothing.
fn set_strategies(attached: &mut Value, strategies: Option<Strategies>) {
    if attached.present("/spec/placement").is_some() {
        return;
    }
    let resolution = strategies.map(|one| json!(if one.overwrite { "Overwrite" } else { "Abort" }));
    attached.put_or_remove(&["spec", "conflictResolution"], resolution);
    attached.put_or_remove(&["spec", "preserveResourcesOnDeletion"], strategies.map(|one| json!(one.preserve)));
}

/// What is written on a binding: Go's empty slice here is a nil one.
fn recorded_dependencies(dependencies: &[Value]) -> Value {
    if dependencies.is_empty() { Value::Null } else { json!(dependencies) }
}

fn names_object(dependency: &Value, object: &Value) -> bool {
    dependency.gvk() == object.gvk()
        && dependency.text("/namespace") == object.namespace()
        && match dependency.text("/name") {
            "" => dependency
                .present("/labelSelector")
                .is_some_and(|selector| selector_matches(Some(selector), &object.labels())),
            name => name == object.name(),
        }
}

fn depended_by(binding: &Value) -> String {
    format!("{}{}", names::DEPENDED_BY, names::binding_reference_key(binding.namespace(), binding.name()))
}

fn is_of(snapshot: &Value, binding: &Value) -> bool {
    snapshot.text("/namespace") == binding.namespace() && snapshot.text("/name") == binding.name()
}

/// The binding of what an independent binding's template needs.
fn attached_binding(binding: &Value, object: &Value) -> Value {
    let mut snapshot = json!({"namespace": binding.namespace(), "name": binding.name()});
    let clusters = binding.items("/spec/clusters");
    if !clusters.is_empty() {
        snapshot.put(&["clusters"], json!(clusters));
    }
    let resolution = match binding.text("/spec/conflictResolution") {
        "Overwrite" => "Overwrite",
        _ => "Abort",
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {
            "name": names::binding_name(object.text("/kind"), object.name()),
            "namespace": binding.namespace(),
            "finalizers": [names::BINDING_FINALIZER],
            "labels": {depended_by(binding): binding.label(names::BINDING_ID)},
            "ownerReferences": [{
                "apiVersion": object.text("/apiVersion"), "kind": object.text("/kind"), "name": object.name(), "uid": object.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "resource": {
                "apiVersion": object.text("/apiVersion"), "kind": object.text("/kind"), "namespace": object.namespace(),
                "name": object.name(), "uid": object.uid(), "resourceVersion": object.resource_version(),
            },
            "requiredBy": [snapshot],
            "conflictResolution": resolution,
            "preserveResourcesOnDeletion": binding.flag("/spec/preserveResourcesOnDeletion"),
        },
    })
}

/// Who needs it: those that did, renewed, and the new one.
fn merge_required(existing: &Value, desired: &Value) -> Vec<Value> {
    let mut required = existing.items("/spec/requiredBy").to_vec();
    for new in desired.items("/spec/requiredBy") {
        let same = required.iter_mut().find(|old| old["namespace"] == new["namespace"] && old["name"] == new["name"]);
        match same {
            Some(old) => *old = new.clone(),
            None => required.push(new.clone()),
        }
    }
    required
}

fn merge_attached(existing: &mut Value, desired: &Value, strategies: Strategies) {
    for (key, value) in desired.labels() {
        existing.set_label(&key, &value);
    }
    let required = merge_required(existing, desired);
    existing.put(&["spec", "requiredBy"], json!(required));
    existing.put(&["spec", "resource"], desired["spec"]["resource"].clone());
    set_strategies(existing, Some(strategies));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_nothing_says_null() {
        assert_eq!(recorded_dependencies(&[]).to_string(), "null");
        assert_eq!(recorded_dependencies(&[json!({"kind": "Secret"})]).to_string(), r#"[{"kind":"Secret"}]"#);
    }

    #[test]
    fn a_dependency_is_marked_with_a_hash_of_who_needs_it() {
        let binding = json!({"metadata": {"namespace": "default", "name": "web-deployment"}});
        assert_eq!(depended_by(&binding), "resourcebinding.karmada.io/depended-by-69c6c647cc");
    }

    #[test]
    fn a_second_dependent_is_added_and_the_first_renewed() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": "c"}});
        let binding = |name: &str, cluster: &str| json!({"metadata": {"namespace": "n", "name": name}, "spec": {"clusters": [{"name": cluster}]}});
        let mut attached = attached_binding(&binding("a", "m1"), &object);
        let plain = Strategies { overwrite: false, preserve: false };
        merge_attached(&mut attached, &attached_binding(&binding("b", "m2"), &object), plain);
        merge_attached(&mut attached, &attached_binding(&binding("a", "m3"), &object), plain);
        let all: Vec<(&str, &str)> = attached
            .items("/spec/requiredBy")
            .iter()
            .map(|one| (one.text("/name"), one.text("/clusters/0/name")))
            .collect();
        assert_eq!(all, [("a", "m3"), ("b", "m2")]);
    }

    #[test]
    fn a_shared_dependency_is_overwritten_or_kept_if_one_of_its_dependents_wants_that() {
        let binding = |spec: Value| -> Shared { Arc::new(json!({"spec": spec})) };
        let plain = binding(json!({"conflictResolution": "Abort"}));
        let keen = binding(json!({"conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true}));
        let both = Strategies::of(&[plain.clone(), keen]);
        assert_eq!(both, Strategies { overwrite: true, preserve: true });
        let mut attached = json!({"spec": {}});
        set_strategies(&mut attached, Some(both));
        assert_eq!(attached["spec"], json!({"conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true}));
        set_strategies(&mut attached, Some(Strategies::of(&[plain])));
        assert_eq!(attached["spec"], json!({"conflictResolution": "Abort", "preserveResourcesOnDeletion": false}));
        set_strategies(&mut attached, None);
        assert_eq!(attached["spec"], json!({}));
        let mut own = json!({"spec": {"placement": {}, "conflictResolution": "Abort"}});
        set_strategies(&mut own, Some(both));
        assert_eq!(own["spec"]["conflictResolution"], "Abort");
    }
}
