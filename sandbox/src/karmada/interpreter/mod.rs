//! The resource interpreter: who knows about a kind, and what they say.
//!
//! Rule: Karmada `pkg/resourceinterpreter/interpreter.go`: per operation the first that declares it answers: users'
//! scripts, then webhooks, then what Karmada ships for foreign kinds, then what it knows of Kubernetes' own.

pub mod dependencies;
pub mod lua;
pub mod patching;
pub mod prune;
pub mod retain;
mod small;
pub mod status;
pub mod volcano;
pub mod webhook;
pub mod workload;

use std::sync::Arc;

use caldera_runtime::clock::SharedClock;
use serde_json::Value;

use super::{
    api::Server,
    object::{Gvk, ObjectExt},
};

/// What can be asked about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// How many replicas, and what each needs.
    InterpretReplica,
    /// The same for several pod templates.
    InterpretComponent,
    /// The object with so many replicas.
    ReviseReplica,
    /// What a member's status is, for the host.
    InterpretStatus,
    /// What the member's object keeps.
    Retain,
    /// The template's status from the members'.
    AggregateStatus,
    /// Whether the member's object is healthy.
    InterpretHealth,
    /// What else it needs.
    InterpretDependency,
}

impl Operation {
    /// Each.
    pub const ALL: [Self; 8] = [
        Self::InterpretReplica,
        Self::InterpretComponent,
        Self::ReviseReplica,
        Self::InterpretStatus,
        Self::Retain,
        Self::AggregateStatus,
        Self::InterpretHealth,
        Self::InterpretDependency,
    ];

    /// As configurations spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InterpretReplica => "InterpretReplica",
            Self::InterpretComponent => "InterpretComponent",
            Self::ReviseReplica => "ReviseReplica",
            Self::InterpretStatus => "InterpretStatus",
            Self::Retain => "Retain",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "InterpretDependency",
        }
    }
}

/// The kind of the webhooks' configurations.
#[must_use]
pub fn configuration_kind() -> Gvk {
    Gvk::new("config.karmada.io/v1alpha1", "ResourceInterpreterWebhookConfiguration")
}

/// See the module.
#[derive(Debug)]
pub struct Interpreter {
    host: Arc<Server>,
    caller: webhook::Caller,
    clock: SharedClock,
}

impl Interpreter {
    /// With the scripts and webhooks that are configured on the host; some of the webhooks are served in this process.
    #[must_use]
    pub fn new(host: Arc<Server>, in_process: webhook::InProcess, clock: SharedClock) -> Self {
        host.watch_kind(&configuration_kind());
        host.watch_kind(&lua::customization_kind());
        Self { host, caller: webhook::Caller::new(in_process), clock }
    }

    fn choose_scripts(&self, gvk: &Gvk, operation: Operation) -> Vec<String> {
        lua::choose_scripts(&self.host.list(&lua::customization_kind()), gvk, operation)
    }

    /// What the user's script in charge says, if there is one.
    fn ask_script<T>(
        &self,
        gvk: &Gvk,
        operation: Operation,
        ask: impl FnOnce(&lua::Script<'_>) -> Result<T, String>,
    ) -> Option<Result<T, String>> {
        let scripts = self.choose_scripts(gvk, operation);
        scripts.first().map(|text| ask(&lua::Script { text, now: self.clock.now() }))
    }

    fn choose_hook(&self, gvk: &Gvk, operation: Operation) -> Option<webhook::Hook> {
        webhook::choose_hook(&self.host.list(&configuration_kind()), gvk, operation)
    }

    /// Whether anybody can answer.
    #[must_use]
    pub fn is_enabled(&self, gvk: &Gvk, operation: Operation) -> bool {
        built_in(gvk, operation)
            || self.choose_hook(gvk, operation).is_some()
            || !self.choose_scripts(gvk, operation).is_empty()
    }

    async fn ask_hook(
        &self,
        hook: &webhook::Hook,
        operation: Operation,
        object: &Value,
        observed: Option<&Value>,
        replicas: i64,
        items: Option<&[Value]>,
    ) -> Result<Value, String> {
        let uid = uuid::Uuid::new_v4().to_string();
        let question = webhook::build_question(&uid, operation, object, observed, replicas, items);
        let answer = self.caller.call_hook(hook, &question).await?;
        webhook::accept_answer(hook, &uid, operation, &answer)
    }

    /// How many replicas, and what each needs.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn interpret_replicas(&self, object: &Value) -> Result<(i64, Option<Value>), String> {
        let operation = Operation::InterpretReplica;
        if let Some(answer) = self.ask_script(&object.gvk(), operation, |script| script.read_replicas(object)) {
            return answer;
        }
        match self.choose_hook(&object.gvk(), operation) {
            Some(hook) => {
                let response = self.ask_hook(&hook, operation, object, None, 0, None).await?;
                Ok((response.number("/replicas"), response.present("/replicaRequirements").cloned()))
            }
            None => Ok(workload::read_replicas(object)),
        }
    }

    /// Replicas and needs by pod template.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn interpret_components(&self, object: &Value) -> Result<Vec<Value>, String> {
        let operation = Operation::InterpretComponent;
        if let Some(answer) = self.ask_script(&object.gvk(), operation, |script| script.read_components(object)) {
            return answer;
        }
        match self.choose_hook(&object.gvk(), operation) {
            Some(hook) => {
                Ok(self.ask_hook(&hook, operation, object, None, 0, None).await?.items("/components").to_vec())
            }
            None => Ok(volcano::read_components(object, |template| workload::replica_requirements(&template["spec"]))),
        }
    }

    /// The object with so many replicas.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn revise_replicas(&self, object: &Value, replicas: i64) -> Result<Value, String> {
        let operation = Operation::ReviseReplica;
        if let Some(answer) =
            self.ask_script(&object.gvk(), operation, |script| script.revise_replicas(object, replicas))
        {
            return answer;
        }
        match self.choose_hook(&object.gvk(), operation) {
            Some(hook) => {
                patching::apply_patch(object, &self.ask_hook(&hook, operation, object, None, replicas, None).await?)
            }
            None => {
                let mut object = object.clone();
                workload::revise_replicas(&mut object, replicas);
                Ok(object)
            }
        }
    }

    /// The desired object with what the observed one keeps.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn retain_fields(&self, desired: &Value, observed: &Value) -> Result<Value, String> {
        let operation = Operation::Retain;
        if let Some(answer) =
            self.ask_script(&desired.gvk(), operation, |script| script.retain_fields(desired, observed))
        {
            return answer;
        }
        match self.choose_hook(&desired.gvk(), operation) {
            Some(hook) => patching::apply_patch(
                desired,
                &self.ask_hook(&hook, operation, desired, Some(observed), 0, None).await?,
            ),
            None => {
                let mut desired = desired.clone();
                retain::retain_fields(&mut desired, observed);
                Ok(desired)
            }
        }
    }

    /// The template with the status of all members.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn aggregate_status(&self, template: &Value, items: &[Value], now: &str) -> Result<Value, String> {
        let operation = Operation::AggregateStatus;
        if let Some(answer) =
            self.ask_script(&template.gvk(), operation, |script| script.aggregate_status(template, items))
        {
            return answer;
        }
        let gvk = template.gvk();
        if let Some(hook) = self.choose_hook(&gvk, operation) {
            return patching::apply_patch(
                template,
                &self.ask_hook(&hook, operation, template, None, 0, Some(items)).await?,
            );
        }
        let mut template = template.clone();
        if is_volcano_job(&gvk) {
            // In no cluster the script is given no table, and leaves what was.
            if !items.is_empty() {
                // An empty table does not come out of Lua.
                let status = volcano::aggregate_status(items, now).filter(|status| *status != serde_json::json!({}));
                template.put_or_remove(&["status"], status);
            }
        } else if let Some(status) = status::aggregate_status(&template, items, now) {
            template.put(&["status"], status);
        }
        Ok(template)
    }

    /// What a member object's status is, for the host.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn interpret_status(&self, observed: &Value) -> Result<Option<Value>, String> {
        let operation = Operation::InterpretStatus;
        if let Some(answer) =
            self.ask_script(&observed.gvk(), operation, |script| script.reflect_status(observed).map(Some))
        {
            return answer;
        }
        let gvk = observed.gvk();
        match self.choose_hook(&gvk, operation) {
            Some(hook) => Ok(self.ask_hook(&hook, operation, observed, None, 0, None).await?.get("rawStatus").cloned()),
            None if is_volcano_job(&gvk) => Ok(Some(volcano::reflect_status(observed))),
            None => Ok(status::reflect_status(observed)),
        }
    }

    /// Whether a member object is healthy.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn interpret_health(&self, observed: &Value) -> Result<bool, String> {
        let operation = Operation::InterpretHealth;
        if let Some(answer) = self.ask_script(&observed.gvk(), operation, |script| script.is_healthy(observed)) {
            return answer;
        }
        let gvk = observed.gvk();
        match self.choose_hook(&gvk, operation) {
            Some(hook) => Ok(self.ask_hook(&hook, operation, observed, None, 0, None).await?.flag("/healthy")),
            None if is_volcano_job(&gvk) => Ok(volcano::is_healthy(observed)),
            None => Ok(status::is_healthy(observed)),
        }
    }

    /// References to what the object needs.
    ///
    /// # Errors
    /// When the script or webhook in charge fails.
    pub async fn interpret_dependencies(&self, object: &Value) -> Result<Vec<Value>, String> {
        let operation = Operation::InterpretDependency;
        let scripts = self.choose_scripts(&object.gvk(), operation);
        if !scripts.is_empty() {
            let mut all = Vec::new();
            for text in &scripts {
                all.extend(lua::Script { text, now: self.clock.now() }.list_dependencies(object)?);
            }
            lua::sort_dependencies(&mut all);
            return Ok(all);
        }
        match self.choose_hook(&object.gvk(), operation) {
            Some(hook) => {
                Ok(self.ask_hook(&hook, operation, object, None, 0, None).await?.items("/dependencies").to_vec())
            }
            None => Ok(dependencies::list_dependencies(object)),
        }
    }
}

fn is_volcano_job(gvk: &Gvk) -> bool {
    *gvk == Gvk::new("batch.volcano.sh/v1alpha1", "Job")
}

fn built_in(gvk: &Gvk, operation: Operation) -> bool {
    let volcano = is_volcano_job(gvk);
    match operation {
        Operation::InterpretReplica => workload::counts_replicas(gvk),
        Operation::InterpretComponent => volcano,
        Operation::ReviseReplica => workload::replicas_field(gvk).is_some(),
        Operation::InterpretStatus => true,
        Operation::Retain => retain::retains(gvk),
        Operation::AggregateStatus => volcano || status::is_aggregated(gvk),
        Operation::InterpretHealth => volcano || status::tells_health(gvk),
        Operation::InterpretDependency => dependencies::has_dependencies(gvk),
    }
}
