//! Reads a job whose kind is told by a table as a gang, of which each pod set in its [`Layout`] is a task.
//!
//! Rule: such a job goes whole to one cluster, with all its pods, as it was written: its pods find each other there,
//! and nobody could divide what only its controller understands. It keeps its whole charge until it ended. What its
//! controller could change in the member after the admission, such as an autoscaler's replicas, is refused: it would
//! never have been charged.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    gang::{Gang, Task, TaskName},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use serde_json::Value;

use super::{
    GangError, WorkloadKind, anti_affinity,
    field::Field,
    layout::{FieldDemand, Layout, MakePod, Names, PodSets, follow_path},
    pod_template, queue_of,
};
use crate::job_admission::MOST_TASKS;

impl FieldDemand {
    fn accepts(&self, value: &Value, object: &Value) -> bool {
        match self {
            Self::True => value == true,
            Self::Set => !value.is_null(),
            Self::Unset => match value {
                Value::Null | Value::Bool(false) => true,
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            },
            Self::Zero => value.is_null() || value == 0,
            Self::OneOf(words) => value.is_null() || Self::SetTo(words).accepts(value, object),
            Self::SetTo(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::SetToOrAt(words, other) if value.is_null() => {
                Self::SetTo(words).accepts(follow_path(object, other), object)
            }
            Self::SetToOrAt(words, _) => Self::SetTo(words).accepts(value, object),
            Self::OwnQueue => value.is_null() || value == "" || value == queue_of(object).as_str(),
        }
    }
}

/// One pod set of an object.
struct PodSet<'a> {
    name: String,
    place: Field<'a>,
    sets: &'static PodSets,
}

impl<'a> PodSet<'a> {
    /// Pods, and those of one replica.
    fn count_pods(&self) -> Result<(u64, u32), GangError> {
        let numbers = self.sets.replicas.iter().map(|number| number.read(&self.place));
        let numbers = numbers.collect::<Result<Vec<u32>, _>>()?;
        let multiply = |numbers: &[u32]| numbers.iter().fold(1, |all: u64, one| all.saturating_mul((*one).into()));
        let of_one = u32::try_from(multiply(numbers.get(1..).unwrap_or_default())).unwrap_or(u32::MAX);
        Ok((multiply(&numbers), of_one))
    }

    fn find_template(&self) -> Option<Field<'a>> {
        self.sets.templates.iter().find_map(|path| self.place.at(path))
    }

    fn read_task(
        &self,
        kind: WorkloadKind,
        make_pod: Option<MakePod>,
        root: &Field<'_>,
        replicas: u32,
    ) -> Result<Task, GangError> {
        let made = make_pod.map(|make| make(root, &self.place)).transpose()?;
        let template = made.as_ref().map(|pod| self.place.made_into(pod)).or_else(|| self.find_template());
        let mut task = Task {
            name: TaskName::from(self.name.as_str()),
            replicas,
            min_available: replicas,
            request: Resources::new(),
            node: caldera_core::gang::NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        };
        match &template {
            None if self.sets.requests.is_empty() => {
                let path = self.sets.templates.last().copied().unwrap_or_default();
                return Err(self.place.absent_field(path).wrong("a job needs the template of its pods"));
            }
            None => task.request = default_request(self.sets.requests),
            Some(pod) => {
                task.request = pod_template::read_request(pod)?;
                task.node = pod_template::node_claim(pod)?;
                pod_template::priority_class(pod).clone_into(&mut task.priority_class);
                task.node.most_per_node = anti_affinity::most_per_node(root.value, kind, pod.value, &task);
            }
        }
        Ok(task)
    }
}

fn default_request(amounts: &[(&'static str, &'static str)]) -> Resources {
    let amounts = amounts.iter().filter_map(|(name, amount)| Some((*name, amount.parse::<Quantity>().ok()?)));
    amounts.chain([(ResourceName::PODS, Quantity::from_units(1))]).collect()
}

fn list_pod_sets<'a>(layout: &'static Layout, root: &Field<'a>) -> Result<Vec<PodSet<'a>>, GangError> {
    let mut all = Vec::new();
    for sets in layout.pod_sets {
        if let Some((path, value)) = sets.only_if
            && root.at(path).is_some_and(|place| place.value != value)
        {
            continue;
        }
        let set = |name: String, place| PodSet { name, place, sets };
        match sets.names {
            Names::Only(name) => all.extend(root.at(sets.at).map(|place| set(name.to_owned(), place))),
            Names::Keys => {
                all.extend(root.entries(sets.at)?.into_iter().map(|(key, place)| set(key.to_lowercase(), place)));
            }
            Names::Field(field) => {
                let Some((last, owner)) = sets.at.split_last() else { continue };
                let items = root.at(owner).map_or(Ok(Vec::new()), |place| place.list(last))?;
                for (index, place) in items.into_iter().enumerate() {
                    let name = match place.text_at(field)? {
                        "" => format!("default{index}"),
                        name => name.to_owned(),
                    };
                    all.push(set(name, place));
                }
            }
        }
        if all.len() > MOST_TASKS {
            return Err(root.absent_field(sets.at).wrong(format!("{} pod sets are above {MOST_TASKS}", all.len())));
        }
    }
    Ok(all)
}

/// Refuses what a member would not run as it is charged.
pub(super) fn check_demands(root: &Field<'_>, layout: &'static Layout) -> Result<(), GangError> {
    for demand in layout.demands {
        let value = follow_path(root.value, demand.at);
        if !demand.is.accepts(value, root.value) {
            return Err(root.absent_field(demand.at).wrong(demand.why));
        }
    }
    Ok(())
}

/// Reads a job of a kind with a table as a gang.
pub(super) fn read_gang(root: &Field<'_>, kind: WorkloadKind, layout: &'static Layout) -> Result<Gang, GangError> {
    let sets = list_pod_sets(layout, root)?;
    let mut names = BTreeSet::new();
    let (mut tasks, mut total) = (Vec::with_capacity(sets.len()), 0_u64);
    for set in &sets {
        if !names.insert(&set.name) {
            return Err(set.place.wrong(format!("{:?} is the name of earlier pods", set.name)));
        }
        let (pods, _) = set.count_pods()?;
        total = total.saturating_add(pods);
        let replicas = u32::try_from(total)
            .ok()
            .filter(|total| i32::try_from(*total).is_ok())
            .and_then(|_| u32::try_from(pods).ok())
            .ok_or_else(|| set.place.wrong(format!("{total} pods in all are above {}", i32::MAX)))?;
        tasks.push(set.read_task(kind, layout.make_pod, root, replicas)?);
    }
    if tasks.is_empty() {
        let path = layout.pod_sets.first().map_or(&["spec"][..], |sets| sets.at);
        return Err(root.absent_field(path).wrong("a job needs the template of its pods"));
    }
    let all = tasks.iter().fold(0, |all: u32, task| all.saturating_add(task.replicas));
    let one_cluster = format!("a {} goes whole to one cluster, where its pods find each other", kind.title());
    Ok(Gang { one_cluster: Some(one_cluster), ..Gang::new(tasks, all) })
}

/// Pods of one replica of each pod set; nothing of what can not be read.
pub(super) fn read_pods_per_replica(layout: &'static Layout, object: &Value) -> BTreeMap<String, u32> {
    let sets = list_pod_sets(layout, &Field::unnamed(object)).unwrap_or_default();
    sets.into_iter()
        .filter_map(|set| Some((set.count_pods().ok()?.1, set.name)))
        .map(|(pods, name)| (name, pods))
        .collect()
}

/// The PriorityClass: the job's own, else that of the first template that has one.
pub(super) fn priority_class<'a>(layout: &'static Layout, root: &Field<'a>) -> &'a str {
    let mut own = layout.classes.iter().filter_map(|path| root.at(path)?.value.as_str());
    own.find(|class| !class.is_empty()).unwrap_or_else(|| {
        let classes = list_templates(layout, root).into_iter().map(|pod| pod_template::priority_class(&pod));
        classes.into_iter().find(|class| !class.is_empty()).unwrap_or("")
    })
}

/// The templates of its pods.
pub(super) fn list_templates<'a>(layout: &'static Layout, root: &Field<'a>) -> Vec<Field<'a>> {
    list_pod_sets(layout, root).unwrap_or_default().iter().filter_map(PodSet::find_template).collect()
}
