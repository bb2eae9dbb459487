//! `federation.caldera.dev/v1alpha1` WorkloadKind: a kind of workload that an admin declares.
//!
//! It says what a table of this folder says of a kind: where in its objects the pods, their number and its status are.
//! A path is a list of fields with dots between them, so following one costs no more than its length. Which objects
//! count is [`declared`](super::declared)'s to say. The schema refuses the same where CEL can say it, so that who
//! writes one is told at once.

use serde_json::json;

use crate::wire::{api_types, object, words};

/// The longest path.
pub const LONGEST_PATH: usize = 256;
/// Pod sets that a kind may have.
pub const MOST_POD_SETS: usize = 16;
/// A path: fields with dots between them.
pub(crate) const PATH: &str = "^[A-Za-z_][A-Za-z0-9_-]*([.][A-Za-z_][A-Za-z0-9_-]*)*$";

/// A path that begins with `status`.
const STATUS_PATH: &str = "^status([.][A-Za-z_][A-Za-z0-9_-]*)+$";

object! {
    /// A kind of workload that an admin declares, and that is queued.
    KindDeclaration as "WorkloadKind", "federation.caldera.dev", "v1alpha1", "workloadkinds", ClusterResourceScope
    { spec: KindDeclarationSpec } {}
}

words! {
    /// How pod sets are kept.
    PodSetForm {
        /// There is one.
        Single = "Single",
        /// A list of them.
        List = "List",
        /// A map: its keys are their names.
        Map = "Map",
    }
}

api_types! {
    /// How the API names the kind, and where its objects say what is read of them.
    #[derive(Eq)]
    pub struct KindDeclarationSpec {
        /// API group: a domain that is not of Kubernetes, Karmada, Volcano or Caldera.
        #[schemars(extend("minLength" = 3, "maxLength" = 253, "pattern" = crate::schema::DNS_SUBDOMAIN))]
        pub group: String,
        /// The version in which it is propagated.
        #[schemars(extend("minLength" = 2, "maxLength" = 63, "pattern" = "^[a-z][a-z0-9]*$"))]
        pub version: String,
        /// Kind, such as TrainRun.
        #[schemars(extend("minLength" = 1, "maxLength" = 63, "pattern" = "^[A-Z][A-Za-z0-9]*$"))]
        pub kind: String,
        /// Plural of the resource, such as trainruns.
        #[schemars(extend("minLength" = 1, "maxLength" = 63, "pattern" = "^[a-z][a-z0-9]*$"))]
        pub plural: String,
        /// Where its pods are. All of them are charged, and start in one cluster.
        #[serde_with(skip_apply)]
        #[schemars(extend("minItems" = 1, "maxItems" = 16))]
        pub pod_sets: Vec<PodSetPaths>,
        /// The field that is true while its user suspends it: spec.suspend.
        #[schemars(extend("maxLength" = 256, "pattern" = PATH))]
        pub suspend: Option<String>,
        /// The field in which it may name its queue, beside the usual labels and annotations.
        #[schemars(extend("maxLength" = 256, "pattern" = PATH))]
        pub queue: Option<String>,
        /// The field with its PriorityClass. Without it that of its pods counts.
        #[schemars(extend("maxLength" = 256, "pattern" = PATH))]
        pub priority_class: Option<String>,
        /// The field with the seconds that it may run.
        #[schemars(extend("maxLength" = 256, "pattern" = PATH))]
        pub deadline: Option<String>,
        /// Fields that must be absent, false or empty: by which a member would run more, or delete what ended.
        #[schemars(extend("maxItems" = 16, "items" = json!({"type": "string", "maxLength": 256, "pattern": PATH})))]
        pub must_be_unset: Vec<String>,
        /// What its status says.
        pub status: StatusPaths,
        /// How its pods are known.
        pub pods: PodLabels,
    }

    /// Pods of one template, or a list or map of such.
    #[derive(Eq)]
    pub struct PodSetPaths {
        /// From the object: spec.workers.
        #[schemars(extend("minLength" = 1, "maxLength" = 256, "pattern" = PATH))]
        pub path: String,
        /// Whether there is one, a list or a map. One if absent.
        pub form: Option<PodSetForm>,
        /// The task's name, of a single pod set. The last field of the path if absent.
        #[schemars(extend("maxLength" = 63, "pattern" = crate::schema::DNS_LABEL))]
        pub name: Option<String>,
        /// The field with the task's name, of the items of a list.
        #[schemars(extend("maxLength" = 256, "pattern" = "^[A-Za-z_][A-Za-z0-9_-]*$"))]
        pub name_field: Option<String>,
        /// From the pod set: how many pods it has. One if absent.
        #[schemars(extend("maxLength" = 256, "pattern" = PATH))]
        pub replicas: Option<String>,
        /// How many pods it has where an object does not say. One if absent.
        #[schemars(extend("minimum" = 0, "maximum" = 100000, "format" = null))]
        pub default_replicas: Option<i32>,
        /// From the pod set: the template of its pods, with `spec`.
        #[schemars(extend("minLength" = 1, "maxLength" = 256, "pattern" = PATH))]
        pub template: String,
    }

    /// What its status says.
    #[derive(Eq)]
    pub struct StatusPaths {
        /// The number of pods that run.
        #[schemars(extend("maxLength" = 256, "pattern" = STATUS_PATH))]
        pub running_pods: Option<String>,
        /// That all its pods run, where it does not count them.
        pub running: Option<StatusSign>,
        /// That it succeeded. A kind without it and without `failed` never ends.
        pub succeeded: Option<StatusSign>,
        /// That it failed.
        pub failed: Option<StatusSign>,
    }

    /// Something that a status says: a condition, or a field with one of these values.
    #[derive(Eq)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "say a condition, or a path with values",
        "rule": "has(self.condition) ? !has(self.path) && !has(self.values) : has(self.path) && has(self.values)",
    }]))]
    pub struct StatusSign {
        /// The type of a condition in status.conditions that is True.
        #[schemars(extend("minLength" = 1, "maxLength" = 316))]
        pub condition: Option<String>,
        /// A field.
        #[schemars(extend("maxLength" = 256, "pattern" = STATUS_PATH))]
        pub path: Option<String>,
        /// Texts of which the field has one.
        #[schemars(extend("minItems" = 1, "maxItems" = 8))]
        pub values: Vec<String>,
    }

    /// How its pods are known.
    #[derive(Eq)]
    pub struct PodLabels {
        /// The label of a pod with the name of its job.
        #[schemars(extend("minLength" = 1, "maxLength" = 316))]
        pub job_label: String,
        /// The label of a pod with the name of its pod set.
        #[schemars(extend("maxLength" = 316))]
        pub task_label: Option<String>,
        /// Kinds between a job and its pods, such as Job of group batch. Without them its pods are its own.
        #[schemars(extend("maxItems" = 8))]
        pub made_by: Vec<GroupKind>,
    }

    /// A kind of an API group.
    #[derive(Eq)]
    pub struct GroupKind {
        /// API group, empty for core.
        #[schemars(extend("maxLength" = 253))]
        pub group: Option<String>,
        /// Kind.
        #[schemars(extend("minLength" = 1, "maxLength" = 63))]
        pub kind: String,
    }
}
