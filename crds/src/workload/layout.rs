//! The table by which a kind is read: where the pods of such a job are in its spec, and what its status says of them.
//!
//! Rule: each kind's own controller says how many pods it makes of which template, and how it writes that they run or
//! have ended. [`layouts`](super::layouts) has the tables of the kinds told in code and names the sources,
//! [`declared`](super::declared) makes those of the declared kinds.

use caldera_core::gang::TaskName;
use serde_json::Value;

use super::{GangError, field::Field};

/// Fields from an object down to a value.
pub(super) type Path = &'static [&'static str];

pub(super) type MakePod = fn(&Field<'_>, &Field<'_>) -> Result<Value, GangError>;

/// Where a kind keeps what is read of it.
pub(super) struct Layout {
    pub(super) pod_sets: &'static [PodSets],
    /// Makes the pod of one pod set, where there is no template of all that it asks for: from the object and the set.
    pub(super) make_pod: Option<MakePod>,
    /// Where its own PriorityClass may be, before those of its pods.
    pub(super) classes: &'static [Path],
    /// The field that suspends it, as a path and as text.
    pub(super) suspend: Option<(Path, &'static str)>,
    /// Seconds that it may run.
    pub(super) deadline: Path,
    pub(super) demands: &'static [Demand],
    /// How its status says that it ended. The first that applies counts.
    pub(super) ends: &'static [End],
    pub(super) running: &'static [Count],
    pub(super) succeeded: &'static [Count],
    pub(super) failed: &'static [Count],
    pub(super) pods: PodMarks,
}

/// Pods of one template, or a list or map of such.
pub(super) struct PodSets {
    pub(super) at: Path,
    pub(super) names: Names,
    /// How many pods: the product of these. All but the first are the pods of one replica.
    pub(super) replicas: &'static [Number],
    /// The first that is there is the template.
    pub(super) templates: &'static [Path],
    /// What a pod asks for where there is no template; nothing if there must be one.
    pub(super) requests: &'static [(&'static str, &'static str)],
    /// They are there only where this field is absent or has this value.
    pub(super) only_if: Option<(Path, &'static str)>,
}

/// Where the name of a pod set is.
pub(super) enum Names {
    /// There is one.
    Only(&'static str),
    /// A map's keys, in lower case as labels of pods have them.
    Keys,
    /// This field of a list's items.
    Field(&'static str),
}

/// A number in the spec.
pub(super) struct Number {
    at: Path,
    default: u32,
    least: Path,
    most: Path,
    less: u32,
}

impl Number {
    pub(super) const fn field_or(at: Path, default: u32) -> Self {
        Self { at, default, least: &[], most: &[], less: 0 }
    }

    /// Never below this field.
    pub(super) const fn least(self, least: Path) -> Self {
        Self { least, ..self }
    }

    /// Never above this field.
    pub(super) const fn most(self, most: Path) -> Self {
        Self { most, ..self }
    }

    /// So many fewer.
    pub(super) const fn less(self, less: u32) -> Self {
        Self { less, ..self }
    }

    pub(super) fn read(&self, from: &Field<'_>) -> Result<u32, GangError> {
        let find = |path: Path| if path.is_empty() { None } else { from.at(path) };
        let mut number = find(self.at).map_or(Ok(self.default), |place| place.parse_count())?;
        if let Some(least) = find(self.least) {
            number = number.max(least.parse_count()?);
        }
        if let Some(most) = find(self.most) {
            number = number.min(most.parse_count()?);
        }
        Ok(number.saturating_sub(self.less))
    }
}

/// What a field must be, so that the member runs what was charged.
pub(super) struct Demand {
    pub(super) at: Path,
    pub(super) is: FieldDemand,
    pub(super) why: &'static str,
}

pub(super) enum FieldDemand {
    True,
    /// There at all.
    Set,
    /// Absent, false or empty.
    Unset,
    /// Absent or 0.
    Zero,
    /// Absent or one of these.
    OneOf(&'static [&'static str]),
    /// There, and one of these.
    SetTo(&'static [&'static str]),
    /// The same of another field where it is absent.
    SetToOrAt(&'static [&'static str], Path),
    /// Absent, empty or the queue that the job is charged in.
    OwnQueue,
}

/// An end, and what the status says then.
pub(super) struct End {
    pub(super) when: &'static [StatusTest],
    pub(super) phase: &'static str,
}

/// Something that a status says.
#[derive(Clone, Copy)]
pub(super) enum StatusTest {
    Field(Path, &'static str),
    /// A condition of this type is True.
    Condition(&'static str),
}

impl StatusTest {
    pub(super) fn holds(&self, status: &Value) -> bool {
        match self {
            Self::Field(path, value) => follow_path(status, path) == *value,
            Self::Condition(name) => {
                let mut conditions = status["conditions"].as_array().into_iter().flatten();
                conditions.any(|condition| condition["type"] == *name && condition["status"] == "True")
            }
        }
    }
}

/// Pods that a status counts.
pub(super) enum Count {
    Number(Path),
    /// This number of replicas of each pod set, of a list with names or a map.
    Each(Path, &'static str),
    /// One pod for each entry of a map with this value.
    Entries(Path, &'static str),
    /// This number of replicas of all pod sets together.
    Replicas(Path),
    /// One pod.
    OneIf(StatusTest),
    /// All pods.
    AllIf(StatusTest),
}

/// How the pods of a job are known in its member.
pub(super) struct PodMarks {
    /// The label with the job's name.
    pub(super) name: &'static str,
    /// A label that says that the job is of this kind, where others share that of the name.
    pub(super) also: Option<(&'static str, &'static str)>,
    /// Kinds between the job and its pods: group and kind of the pods' own controller.
    pub(super) through: &'static [(&'static str, &'static str)],
    pub(super) task: TaskMark,
    /// The label by which `caldera job logs` selects pods.
    pub(super) logs: &'static str,
}

/// How a pod says of which pod set it is.
pub(super) enum TaskMark {
    Label(&'static str),
    /// The first that is there.
    Labels(&'static [&'static str]),
    /// 0 is the first, all others are of the second.
    Index(&'static str, [&'static str; 2]),
}

impl TaskMark {
    pub(super) fn read_task_name(&self, labels: &Value) -> Option<TaskName> {
        match self {
            Self::Label(label) => labels[*label].as_str().map(TaskName::from),
            Self::Labels(all) => all.iter().find_map(|label| labels[*label].as_str()).map(TaskName::from),
            Self::Index(label, [first, others]) => {
                Some(TaskName::from(if labels[*label].as_str()? == "0" { *first } else { *others }))
            }
        }
    }
}

/// The value at a path; `null` where there is none.
pub(super) fn follow_path<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, field| &value[*field])
}
