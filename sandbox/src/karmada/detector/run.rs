//! The detector at work: watches every kind on the host that can be propagated, and both sorts of policies.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    plan::{self, Interpreted, Scope},
    preemption,
};
use crate::karmada::{
    api::Change,
    control::{Control, binding_kind, cluster_binding_kind},
    events::About,
    interpreter::Operation,
    names,
    object::{Gvk, ObjectExt, ObjectKey, Shared},
    queue::{Failure, Next, Queue},
};

const SOURCE: &str = "resource-detector";
/// More than it takes the collector to take an owner that leaves orphans out of them.
const AFTER_COLLECTOR: Duration = Duration::from_millis(30);

type PolicyKey = (Scope, String, String);

/// A template, and whether only Karmada changed it or its policy: a lazy policy waits for somebody else to.
type TemplateKey = (ObjectKey, bool);

/// See the module.
pub struct Detector {
    control: Arc<Control>,
    templates: Arc<Queue<TemplateKey>>,
    policies: Arc<Queue<PolicyKey>>,
    kinds: std::sync::Mutex<BTreeSet<Gvk>>,
}

impl Detector {
    /// Starts to detect. Kinds are added with `follow` as they are discovered.
    #[must_use]
    pub fn start(control: &Arc<Control>) -> Arc<Self> {
        let shutdown = control.shutdown.clone();
        let detector = Arc::new(Self {
            control: control.clone(),
            templates: Queue::new("detector", shutdown.clone()),
            policies: Queue::new("detector-policies", shutdown),
            kinds: std::sync::Mutex::default(),
        });
        for scope in [Scope::Namespace, Scope::Cluster] {
            let (queue, own) = (detector.policies.clone(), control.clone());
            control.host.add_handler(
                &scope.gvk(),
                Arc::new(move |change: &Change| {
                    let Some(new) = &change.new else { return };
                    if change.old.as_ref().is_none_or(|old| old.generation() != new.generation()) {
                        queue.add((scope, new.namespace().to_owned(), new.name().to_owned()));
                    }
                    if let Some(old) = change.old.as_ref().filter(|_| own.gates.policy_preemption) {
                        let others = own.host.list_in(&scope.gvk(), new.namespace());
                        for other in preemption::find_preempting(old, new, &others) {
                            queue.add((scope, other.namespace().to_owned(), other.name().to_owned()));
                        }
                    }
                }),
            );
        }
        let own = detector.clone();
        detector.templates.run(8, move |(key, by_karmada)| {
            let own = own.clone();
            async move { own.sync_template(&key, by_karmada).await }
        });
        let own = detector.clone();
        detector.policies.run(2, move |key| {
            let own = own.clone();
            async move { own.sync_policy(&key).await }
        });
        detector
    }

    /// Looks after templates of a kind, from now on.
    pub fn follow_kind(&self, gvk: &Gvk) {
        if !plan::is_propagated(gvk) || !crate::karmada::api::lock_state(&self.kinds).insert(gvk.clone()) {
            return;
        }
        let (queue, control) = (self.templates.clone(), self.control.clone());
        self.control.host.add_handler(
            gvk,
            Arc::new(move |change: &Change| {
                let Some(object) = change.latest() else { return };
                if names::reserved_namespace(object.namespace()) {
                    return;
                }
                let real = match (&change.old, &change.new) {
                    (Some(old), Some(new)) => plan::is_changed(old, new),
                    _ => true,
                };
                if real {
                    let by_karmada = match (&change.old, &change.new) {
                        (Some(old), Some(new)) => {
                            is_claimed_lazily(&control, new) && plan::is_changed_by_karmada(old, new)
                        }
                        _ => false,
                    };
                    queue.add((ObjectKey::of(object), by_karmada));
                }
            }),
        );
    }

    async fn sync_template(&self, key: &ObjectKey, by_karmada: bool) -> Result<Next, Failure> {
        let host = &self.control.host;
        let Some(object) = host.get_cached_or_live(&key.gvk, &key.namespace, &key.name).await? else {
            return Ok(Next::Done);
        };
        if !object.label(names::TEMPLATE_CLAIMED_BY).is_empty() {
            return Ok(Next::Done);
        }
        if object.has_finalizer("orphan") {
            // In recordings the collector comes first, and then the binding is written as if its template stayed.
            tokio::time::sleep(AFTER_COLLECTOR).await;
        }
        if let Some((scope, namespace, name)) = plan::claiming_policy(&object) {
            return self.sync_claimed(&object, scope, &namespace, &name, by_karmada).await;
        }
        for scope in [Scope::Namespace, Scope::Cluster] {
            let candidates = match scope {
                Scope::Namespace if key.namespace.is_empty() => continue,
                Scope::Namespace => host.list_in(&scope.gvk(), &key.namespace),
                Scope::Cluster => host.list(&scope.gvk()),
            };
            if let Some(policy) = plan::choose_policy(&object, &candidates) {
                self.overrides_present(policy)?;
                return self.apply_policy(&object, scope, policy, by_karmada).await;
            }
        }
        Ok(Next::Done)
    }

    async fn sync_claimed(
        &self,
        object: &Shared,
        scope: Scope,
        namespace: &str,
        name: &str,
        by_karmada: bool,
    ) -> Result<Next, Failure> {
        let Some(policy) = self.control.host.get_cached_or_live(&scope.gvk(), namespace, name).await? else {
            self.clean_template(object, scope).await?;
            return Ok(Next::Done);
        };
        if policy.is_deleting() {
            return Err(Failure(format!("policy({namespace}/{name}) is being deleted")));
        }
        if plan::match_selectors(object, policy.items("/spec/resourceSelectors")).is_none() {
            return Ok(Next::Done);
        }
        self.overrides_present(&policy)?;
        self.apply_policy(object, scope, &policy, by_karmada).await
    }

    /// A policy waits for the overrides that it names.
    fn overrides_present(&self, policy: &Value) -> Result<(), Failure> {
        let (kind, namespace) = match policy.namespace() {
            "" => ("ClusterOverridePolicy", ""),
            namespace => ("OverridePolicy", namespace),
        };
        let gvk = Gvk::new("policy.karmada.io/v1alpha1", kind);
        let missing = policy
            .items("/spec/dependentOverrides")
            .iter()
            .filter_map(Value::as_str)
            .any(|name| self.control.host.cached(&gvk, namespace, name).is_none());
        if missing { Err(Failure("waiting for dependent overrides".to_owned())) } else { Ok(()) }
    }

    async fn apply_policy(
        &self,
        object: &Shared,
        scope: Scope,
        policy: &Shared,
        by_karmada: bool,
    ) -> Result<Next, Failure> {
        let name = match scope {
            Scope::Namespace => format!("policy({}/{})", policy.namespace(), policy.name()),
            Scope::Cluster => format!("cluster policy({})", policy.name()),
        };
        let about = About::object(object);
        match self.try_apply(object, scope, policy, by_karmada).await {
            Ok(changed) => {
                if changed {
                    self.control.events.normal(SOURCE, about, "ApplyPolicySucceed", format!("Apply {name} succeed"));
                }
                Ok(Next::Done)
            }
            Err(Failure(error)) => {
                let message = format!("Apply {name} failed: {error}");
                self.control.events.warning(SOURCE, about, "ApplyPolicyFailed", message);
                Err(Failure(error))
            }
        }
    }

    async fn try_apply(
        &self,
        object: &Shared,
        scope: Scope,
        policy: &Shared,
        by_karmada: bool,
    ) -> Result<bool, Failure> {
        let template = self.claim_template(object, scope, policy).await?;
        if by_karmada && plan::is_lazy(policy) {
            return Ok(false);
        }
        let interpreted = self.interpret_template(&template).await?;
        // Only ResourceBindings have one: a class that is missing keeps no ClusterResourceBinding from being made.
        let priority = if template.namespace().is_empty() { None } else { self.policy_priority(policy).await? };
        let mut desired = plan::build_binding(&template, scope, policy, &interpreted, priority);
        if self.control.gates.workload_affinity && !template.namespace().is_empty() {
            desired.put_or_remove(&["spec", "workloadAffinityGroups"], plan::affinity_groups(&template, policy));
        }
        let (gvk, writer) = (desired.gvk(), &self.control.writer);
        let mut existing = self.control.host.get_cached_or_live(&gvk, desired.namespace(), desired.name()).await?;
        for _ in 0..5 {
            let outcome = match &existing {
                None => writer.create(&desired).await,
                Some(existing) => {
                    let merged = plan::merge_binding(existing, &desired)?;
                    if merged == **existing {
                        return Ok(false);
                    }
                    writer.update(&merged).await
                }
            };
            match outcome {
                Ok(_) => return Ok(true),
                Err(error) if error.is_conflict() || error.already_exists() || error.is_not_found() => {
                    existing =
                        self.control.host.get_live(&gvk, desired.namespace(), desired.name()).await?.map(Arc::new);
                }
                Err(error) => return Err(Failure(error.message())),
            }
        }
        Err(Failure("the binding changes faster than it can be written".to_owned()))
    }

    async fn claim_template(&self, object: &Shared, scope: Scope, policy: &Value) -> Result<Shared, Failure> {
        let id = policy.label(scope.id_label());
        let other_claim = scope == Scope::Namespace && !object.label(names::CLUSTER_POLICY_ID).is_empty();
        if !id.is_empty() && object.label(scope.id_label()) == id && !other_claim {
            return Ok(object.clone());
        }
        let mut claimed = Value::clone(object);
        plan::set_claim(&mut claimed, scope, policy);
        match self.control.writer.update(&claimed).await {
            Ok(written) => Ok(Arc::new(written)),
            Err(error) => Err(Failure(error.message())),
        }
    }

    async fn interpret_template(&self, template: &Value) -> Result<Interpreted, Failure> {
        let (gvk, interpreter) = (template.gvk(), &self.control.interpreter);
        let about = || About::object(template);
        if self.control.gates.multiple_templates && interpreter.is_enabled(&gvk, Operation::InterpretComponent) {
            return match interpreter.interpret_components(template).await {
                Ok(components) => {
                    let message = "Get components of resource template successfully.";
                    self.control.events.normal(SOURCE, about(), "GetComponentsSucceed", message);
                    Ok(Interpreted { components, ..Interpreted::default() })
                }
                Err(error) => {
                    self.control.events.warning(SOURCE, about(), "GetComponentsFailed", &error);
                    Err(Failure(error))
                }
            };
        }
        if !interpreter.is_enabled(&gvk, Operation::InterpretReplica) {
            return Ok(Interpreted::default());
        }
        match interpreter.interpret_replicas(template).await {
            Ok((replicas, requirements)) => {
                let message = "Get replicas of resource template successfully.";
                self.control.events.normal(SOURCE, about(), "GetReplicasSucceed", message);
                Ok(Interpreted { replicas, requirements, components: Vec::new() })
            }
            Err(error) => {
                self.control.events.warning(SOURCE, about(), "GetReplicasFailed", &error);
                Err(Failure(error))
            }
        }
    }

    async fn policy_priority(&self, policy: &Value) -> Result<Option<i64>, Failure> {
        let Some(wanted) = policy.present("/spec/schedulePriority") else { return Ok(None) };
        let source = wanted.text("/priorityClassSource");
        if source != "KubePriorityClass" {
            return Err(Failure(format!("priority class source is {source}, but {source} is not supported yet")));
        }
        let name = wanted.text("/priorityClassName");
        let class =
            self.control.host.get_cached_or_live(&Gvk::new("scheduling.k8s.io/v1", "PriorityClass"), "", name).await?;
        match class {
            Some(class) => Ok(Some(class.number("/value"))),
            None => Err(Failure(format!("PriorityClass.scheduling.k8s.io \"{name}\" not found"))),
        }
    }

    async fn sync_policy(&self, (scope, namespace, name): &PolicyKey) -> Result<Next, Failure> {
        let Some(policy) = self.control.host.get_cached_or_live(&scope.gvk(), namespace, name).await? else {
            return Ok(Next::Done);
        };
        if policy.is_deleting() {
            for object in self.claimed_by(*scope, &policy) {
                self.clean_template(&object, *scope).await?;
            }
            self.control.writer.modify(&policy, "", |policy| policy.remove_finalizer(scope.finalizer())).await?;
            return Ok(Next::Done);
        }
        let (selectors, lazy) = (policy.items("/spec/resourceSelectors"), plan::is_lazy(&policy));
        for object in self.claimed_by(*scope, &policy) {
            if plan::match_selectors(&object, selectors).is_some() {
                self.templates.add((ObjectKey::of(&object), lazy));
            } else {
                self.unclaim_unmatched(&object, *scope).await?;
            }
        }
        let kinds: BTreeSet<Gvk> =
            selectors.iter().map(|one| Gvk::new(one.text("/apiVersion"), one.text("/kind"))).collect();
        for gvk in kinds {
            for object in self.control.host.list(&gvk) {
                let free = plan::claiming_policy(&object).is_none() && !names::reserved_namespace(object.namespace());
                let reach = *scope == Scope::Cluster || object.namespace() == namespace;
                if free && reach && plan::match_selectors(&object, selectors).is_some() {
                    self.templates.add((ObjectKey::of(&object), lazy));
                }
            }
        }
        if self.control.gates.policy_preemption && preemption::preempts(&policy) {
            self.preempt_policies(*scope, &policy).await?;
        }
        Ok(Next::Done)
    }

    /// Takes the templates that a policy names from the policies that have them and must give way.
    async fn preempt_policies(&self, scope: Scope, policy: &Shared) -> Result<(), Failure> {
        for selector in policy.items("/spec/resourceSelectors") {
            let (gvk, namespace) = (selector.gvk(), selector.text("/namespace"));
            let found = self.control.host.get_cached_or_live(&gvk, namespace, selector.text("/name")).await?;
            let Some(template) = found.filter(|template| !template.is_deleting()) else { continue };
            let Some((held, namespace, name)) = plan::claiming_policy(&template) else { continue };
            let holder = self.control.host.get_cached_or_live(&held.gvk(), &namespace, &name).await?;
            let Some(holder) = holder.filter(|holder| holder.uid() != policy.uid()) else { continue };
            if preemption::may_preempt(scope, policy, held, &holder) {
                self.claim_template(&template, scope, policy).await?;
                let message = preemption::describe_preemption(scope, policy, held, &holder);
                self.control.events.normal(SOURCE, About::object(&template), "PreemptPolicySucceed", message);
            }
        }
        Ok(())
    }

    /// Templates that carry the policy's mark.
    fn claimed_by(&self, scope: Scope, policy: &Value) -> Vec<Shared> {
        let id = policy.label(scope.id_label());
        let mut kinds: BTreeSet<Gvk> = policy
            .items("/spec/resourceSelectors")
            .iter()
            .map(|one| Gvk::new(one.text("/apiVersion"), one.text("/kind")))
            .collect();
        for gvk in [binding_kind(), cluster_binding_kind()] {
            for binding in self.control.host.list(&gvk) {
                if binding.label(scope.id_label()) == id {
                    kinds.insert(binding["spec"]["resource"].gvk());
                }
            }
        }
        let mine = |object: &Shared| !id.is_empty() && object.label(scope.id_label()) == id;
        kinds.iter().flat_map(|gvk| self.control.host.list(gvk)).filter(mine).collect()
    }

    /// Takes a policy's marks off a template's binding, then off the template.
    async fn clean_template(&self, object: &Value, scope: Scope) -> Result<(), Failure> {
        let id = object.label(scope.id_label()).to_owned();
        let (gvk, name) = (plan::binding_kind(object), names::binding_name(object.text("/kind"), object.name()));
        if let Some(binding) = self.control.host.get_cached_or_live(&gvk, object.namespace(), &name).await? {
            self.unclaim_template(&binding, scope, &id).await?;
        }
        self.unclaim_template(object, scope, &id).await
    }

    /// The other way round when the policy no longer names the template.
    async fn unclaim_unmatched(&self, object: &Value, scope: Scope) -> Result<(), Failure> {
        let id = object.label(scope.id_label()).to_owned();
        self.unclaim_template(object, scope, &id).await?;
        let (gvk, name) = (plan::binding_kind(object), names::binding_name(object.text("/kind"), object.name()));
        if let Some(binding) = self.control.host.get_cached_or_live(&gvk, object.namespace(), &name).await? {
            self.unclaim_template(&binding, scope, &id).await?;
        }
        Ok(())
    }

    async fn unclaim_template(&self, object: &Value, scope: Scope, id: &str) -> Result<(), Failure> {
        let unclaim = |object: &mut Value| {
            if object.label(scope.id_label()) == id {
                plan::remove_claim(object, scope);
            }
        };
        self.control.writer.modify(object, "", unclaim).await?;
        Ok(())
    }
}

/// Whether the policy that claims a template is a lazy one.
fn is_claimed_lazily(control: &Control, template: &Value) -> bool {
    plan::claiming_policy(template)
        .and_then(|(scope, namespace, name)| control.host.cached(&scope.gvk(), &namespace, &name))
        .is_some_and(|policy| plan::is_lazy(&policy))
}
