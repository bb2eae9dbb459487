//! The kinds that admins declared, and which of these declarations count.
//!
//! Rule: a [`KindDeclaration`](super::kind_declaration::KindDeclaration) becomes a [`Layout`] like those of the kinds
//! told in code, and from then on nothing asks where it is from. It counts unless it names a kind of Kubernetes,
//! Karmada, Volcano or Caldera, has a word that another kind has, or a path that is none: each is refused with a
//! sentence. Of two that tell the same kind the last one that is told to [`declare_kind`] counts: who reads them tells
//! it one.
//!
//! The kinds are a setting of the process, as the table in code is, and no input of a decision: each component reads
//! them before it decides anything, and adds what comes later. One that is deleted stays known until the process ends,
//! so that what runs of it is still charged, ends, and gives back what it held. Tables live as long as the process; at
//! most [`MOST_TABLES`] are made in it.

use std::sync::PoisonError;

use serde_json::{Value, json};

use super::{
    WorkloadKind,
    declared_kind::{DeclaredKind, KindNames, Table, known, list_declared_kinds},
    kind_declaration::{
        GroupKind, KindDeclarationSpec, LONGEST_PATH, MOST_POD_SETS, PodSetForm, PodSetPaths, StatusSign,
    },
    kind_names::{RESERVED_GROUPS, TAKEN, list_taken_words},
    layout::{Count, Demand, End, FieldDemand, Layout, Names, Number, Path, PodMarks, PodSets, StatusTest, TaskMark},
    layouts::{COMPLETED, FAILED, QUEUE},
};
use crate::cel::list_in_cel;

/// Kinds that may be declared on a host.
pub const MOST_DECLARED_KINDS: usize = 32;
/// Tables that a process makes of them, each time that one is changed.
const MOST_TABLES: usize = 512;
const STATUS: &str = "status.";
const UNSET: &str = "the declaration of its kind says that it must not be set";

/// Why a declaration does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Its group is of Kubernetes or of a project whose kinds are told in code.
    #[error("{0} is no group of your own: its kinds are told in code or are no workloads")]
    Reserved(String),
    /// Another kind has its name.
    #[error("{0}: {TAKEN}")]
    Taken(String),
    /// A field is not as the schema has it.
    #[error("{field}: {why}")]
    Field {
        /// Which one.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// There are too many.
    #[error("{MOST_DECLARED_KINDS} kinds are the most that can be told")]
    TooMany,
    /// There were too many changes.
    #[error("{MOST_TABLES} changes are the most that a process takes: restart it")]
    TooManyChanges,
}

/// What was told of the kinds that count.
#[must_use]
pub fn list_declarations() -> Vec<KindDeclarationSpec> {
    list_declared_kinds().iter().map(|DeclaredKind(table)| table.declaration.clone()).collect()
}

/// Has the process know a kind from now on.
///
/// # Errors
/// If the declaration does not count.
pub fn declare_kind(declaration: &KindDeclarationSpec) -> Result<WorkloadKind, DeclarationError> {
    let mut known = known().write().unwrap_or_else(PoisonError::into_inner);
    let others = known.kinds.iter().filter(|kind| !is_of(**kind, declaration)).copied().map(WorkloadKind::Declared);
    let others: Vec<WorkloadKind> = WorkloadKind::ALL.into_iter().chain(others).collect();
    check_names(declaration, &others)?;
    check_fields(declaration)?;
    let at = known.kinds.iter().position(|known| is_of(*known, declaration));
    if at.is_none() && known.kinds.len() >= MOST_DECLARED_KINDS {
        return Err(DeclarationError::TooMany);
    }
    let made = known.tables.iter().find(|table| table.declaration == *declaration).copied();
    let table = match made {
        Some(table) => table,
        None if known.tables.len() >= MOST_TABLES => return Err(DeclarationError::TooManyChanges),
        None => build_table(declaration),
    };
    if made.is_none() {
        known.tables.push(table);
    }
    let kind = DeclaredKind(table);
    let mut kinds = known.kinds.to_vec();
    match at {
        Some(at) => kinds[at] = kind,
        None => kinds.push(kind),
    }
    known.kinds = kinds.into();
    Ok(WorkloadKind::Declared(kind))
}

fn is_of(DeclaredKind(table): DeclaredKind, declaration: &KindDeclarationSpec) -> bool {
    (table.names.group, table.names.kind) == (&*declaration.group, &*declaration.kind)
}

fn check_names(declaration: &KindDeclarationSpec, others: &[WorkloadKind]) -> Result<(), DeclarationError> {
    let is_reserved = |group: &&str| declaration.group == **group || declaration.group.ends_with(&format!(".{group}"));
    if !declaration.group.contains('.') || RESERVED_GROUPS.iter().any(is_reserved) {
        return Err(DeclarationError::Reserved(declaration.group.clone()));
    }
    let word = |field, text: &str, is_upper: bool| {
        let mut letters = text.chars();
        let first =
            letters.next().is_some_and(|c| if is_upper { c.is_ascii_uppercase() } else { c.is_ascii_lowercase() });
        let rest = letters.all(|c| c.is_ascii_alphanumeric() && (is_upper || !c.is_ascii_uppercase()));
        let is_word = first && rest && text.len() <= 63;
        is_word.then_some(()).ok_or_else(|| DeclarationError::Field { field, why: format!("{text:?} is no name") })
    };
    word("spec.kind", &declaration.kind, true)?;
    word("spec.plural", &declaration.plural, false)?;
    word("spec.version", &declaration.version, false)?;
    let taken = list_taken_words(others.iter().copied());
    let has = |word: &str| taken.contains(&word);
    if has(&declaration.kind.to_lowercase()) || has(&declaration.plural) {
        return Err(DeclarationError::Taken(declaration.kind.clone()));
    }
    Ok(())
}

/// What the schema of a declaration refuses beside its form.
pub(crate) fn build_declaration_rules() -> Value {
    let groups = list_in_cel(RESERVED_GROUPS);
    let words = list_in_cel(list_taken_words(WorkloadKind::ALL));
    json!([
        {"rule": format!("self.group.contains('.') && !{groups}.exists(g, self.group == g || \
            self.group.endsWith('.' + g))"),
         "message": "kinds of Kubernetes, Karmada, Volcano and Caldera are told in code or are no workloads: a kind of \
            a group of your own can be told here"},
        {"rule": format!("!(self.kind.lowerAscii() in {words}) && !(self.plural in {words})"), "message": TAKEN},
        {"rule": "self.group == oldSelf.group && self.version == oldSelf.version && self.kind == oldSelf.kind && \
            self.plural == oldSelf.plural",
         "message": "what kind it is about can not be changed: delete it and make another"},
    ])
}

/// What is kept is kept for ever, so all of it is looked at before.
fn check_fields(declaration: &KindDeclarationSpec) -> Result<(), DeclarationError> {
    if declaration.pod_sets.is_empty() || declaration.pod_sets.len() > MOST_POD_SETS {
        let why = format!("there are {}: 1 to {MOST_POD_SETS} can be told", declaration.pod_sets.len());
        return Err(DeclarationError::Field { field: "spec.podSets", why });
    }
    for set in &declaration.pod_sets {
        check_path("spec.podSets.path", &set.path)?;
        check_path("spec.podSets.template", &set.template)?;
        set.replicas.iter().try_for_each(|text| check_path("spec.podSets.replicas", text))?;
        if let Some(PodSetForm::Other(word)) = &set.form {
            let why = format!("{word:?} is none of Single, List and Map");
            return Err(DeclarationError::Field { field: "spec.podSets.form", why });
        }
    }
    declaration.must_be_unset.iter().try_for_each(|text| check_path("spec.mustBeUnset", text))?;
    for (field, text) in [
        ("spec.queue", &declaration.queue),
        ("spec.priorityClass", &declaration.priority_class),
        ("spec.suspend", &declaration.suspend),
        ("spec.deadline", &declaration.deadline),
    ] {
        text.iter().try_for_each(|text| check_path(field, text))?;
    }
    let status = &declaration.status;
    status.running_pods.iter().try_for_each(|text| check_status_path("spec.status.runningPods", text))?;
    for (field, sign) in [
        ("spec.status.running", &status.running),
        ("spec.status.succeeded", &status.succeeded),
        ("spec.status.failed", &status.failed),
    ] {
        sign.iter().try_for_each(|sign| check_sign(field, sign))?;
    }
    Ok(())
}

fn check_sign(field: &'static str, declaration: &StatusSign) -> Result<(), DeclarationError> {
    match (&declaration.condition, &declaration.path) {
        (Some(_), None) => Ok(()),
        (None, Some(path)) if !declaration.values.is_empty() => check_status_path(field, path),
        _ => Err(DeclarationError::Field { field, why: "say a condition, or a path with values".to_owned() }),
    }
}

fn check_status_path(field: &'static str, text: &str) -> Result<(), DeclarationError> {
    match text.strip_prefix(STATUS) {
        Some(below) => check_path(field, below),
        None => Err(DeclarationError::Field { field, why: format!("{text:?} does not begin with status.") }),
    }
}

fn check_path(field: &'static str, text: &str) -> Result<(), DeclarationError> {
    let is_field = |part: &str| {
        let begins = part.chars().next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
        begins && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter))
    };
    if text.len() > LONGEST_PATH || !text.split('.').all(is_field) {
        let why = format!("{text:?} is no path: fields with dots between them, {LONGEST_PATH} letters at most");
        return Err(DeclarationError::Field { field, why });
    }
    Ok(())
}

fn build_table(declaration: &KindDeclarationSpec) -> &'static Table {
    let lower = keep_text(&declaration.kind.to_lowercase());
    let (group, plural) = (keep_text(&declaration.group), keep_text(&declaration.plural));
    let names = KindNames {
        group,
        version: keep_text(&declaration.version),
        kind: keep_text(&declaration.kind),
        plural,
        title: keep_text(&declaration.kind),
        aliases: keep_list(vec![lower, plural, keep_text(&format!("{plural}.{group}"))]),
    };
    let path = |text: &Option<String>| text.as_deref().map(keep_path);
    let unset = |text: &String| Demand { at: keep_path(text), is: FieldDemand::Unset, why: UNSET };
    let mut demands: Vec<Demand> = declaration.must_be_unset.iter().map(unset).collect();
    demands.extend(path(&declaration.queue).map(|at| Demand { at, is: FieldDemand::OwnQueue, why: QUEUE }));
    let suspend_text = keep_text(declaration.suspend.as_deref().unwrap_or_default());
    let status = &declaration.status;
    let (succeeded, failed) = (list_signs(status.succeeded.as_ref()), list_signs(status.failed.as_ref()));
    let ends = succeeded.iter().map(|sign| (sign, COMPLETED)).chain(failed.iter().map(|sign| (sign, FAILED)));
    let ends = ends.map(|(sign, phase)| End { when: keep_list(vec![*sign]), phase }).collect();
    let count_all = |signs: Vec<StatusTest>| signs.into_iter().map(Count::AllIf).collect();
    let running = match &status.running_pods {
        Some(text) => vec![Count::Number(keep_status_path(text))],
        None => count_all(list_signs(status.running.as_ref())),
    };
    let layout = Layout {
        pod_sets: keep_list(declaration.pod_sets.iter().map(build_pod_sets).collect()),
        make_pod: None,
        classes: keep_list(Vec::from_iter(path(&declaration.priority_class))),
        suspend: path(&declaration.suspend).map(|path| (path, suspend_text)),
        deadline: path(&declaration.deadline).unwrap_or(&["spec", "activeDeadlineSeconds"]),
        demands: keep_list(demands),
        ends: keep_list(ends),
        running: keep_list(running),
        succeeded: keep_list(count_all(succeeded)),
        failed: keep_list(count_all(failed)),
        pods: build_pod_marks(declaration),
    };
    Box::leak(Box::new(Table { declaration: declaration.clone(), names, layout }))
}

fn build_pod_sets(declaration: &PodSetPaths) -> PodSets {
    let at = keep_path(&declaration.path);
    let names = match declaration.form.as_ref() {
        Some(PodSetForm::List) => Names::Field(keep_text(declaration.name_field.as_deref().unwrap_or_default())),
        Some(PodSetForm::Map) => Names::Keys,
        Some(PodSetForm::Single | PodSetForm::Other(_)) | None => {
            let last = at.last().map(|field| field.to_lowercase()).unwrap_or_default();
            Names::Only(keep_text(declaration.name.as_deref().unwrap_or(&last)))
        }
    };
    let replicas = declaration.replicas.as_deref().map(keep_path).unwrap_or_default();
    let default = declaration.default_replicas.map_or(1, |number| u32::try_from(number).unwrap_or(0));
    PodSets {
        at,
        names,
        replicas: keep_list(vec![Number::field_or(replicas, default)]),
        templates: keep_list(vec![keep_path(&declaration.template)]),
        requests: &[],
        only_if: None,
    }
}

fn build_pod_marks(declaration: &KindDeclarationSpec) -> PodMarks {
    let name = keep_text(&declaration.pods.job_label);
    let through = |made: &GroupKind| (keep_text(made.group.as_deref().unwrap_or_default()), keep_text(&made.kind));
    PodMarks {
        name,
        also: None,
        through: keep_list(declaration.pods.made_by.iter().map(through).collect()),
        task: TaskMark::Label(keep_text(declaration.pods.task_label.as_deref().unwrap_or_default())),
        logs: name,
    }
}

/// The things of which a status says one.
fn list_signs(declaration: Option<&StatusSign>) -> Vec<StatusTest> {
    let Some(declaration) = declaration else { return Vec::new() };
    match (&declaration.condition, &declaration.path) {
        (Some(name), _) => vec![StatusTest::Condition(keep_text(name))],
        (None, Some(path)) => {
            let path = keep_status_path(path);
            declaration.values.iter().map(|value| StatusTest::Field(path, keep_text(value))).collect()
        }
        (None, None) => Vec::new(),
    }
}

/// A path below `status`, from there.
fn keep_status_path(text: &str) -> Path {
    keep_path(text.strip_prefix(STATUS).unwrap_or(text))
}

fn keep_path(text: &str) -> Path {
    keep_list(text.split('.').map(keep_text).collect())
}

/// Kept for ever, as the table that has it is.
fn keep_list<T>(list: Vec<T>) -> &'static [T] {
    Box::leak(list.into_boxed_slice())
}

fn keep_text(text: &str) -> &'static str {
    Box::leak(text.into())
}

#[cfg(test)]
mod tests;
