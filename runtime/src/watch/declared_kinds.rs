//! The kinds of workload that admins declare: known before anything else is read, and followed as they come.
//!
//! Rule: a component declares what the host has before it follows any workload, so that none of them is taken for an
//! object that nobody queues. Later ones, and changes, count as they come: the objects of the kind are read anew then.
//! Of two objects that tell one kind the one whose name is first counts. A host without the definition tells none, and
//! what the process knows already stays known where the host refuses to tell. The objects of a kind are followed even
//! if nobody granted that yet: they count once they may be listed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use caldera_crds::workload::{
    WorkloadKind,
    declared::{declare_kind, list_declarations},
    kind_declaration::{KindDeclaration, KindDeclarationSpec},
};
use kube::{Client, Resource, api::ApiResource};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Event, Follower, ListedBefore, WatchOptions, api_resource, list_json};
use crate::client::describe_error;

/// After the first read that failed; doubles up to [`LONGEST_WAIT`].
const READ_AGAIN: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What an object tells, or why it can not be read.
type Declaration = Result<KindDeclarationSpec, String>;

/// What does not count of what the host tells, by the names of the objects. Of each it is logged once.
static FAULTS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Objects that tell a kind and do not count, and why.
#[must_use]
pub fn list_kind_faults() -> BTreeMap<String, String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Declares what the host has now.
///
/// # Errors
/// If it does not answer.
pub async fn read_declared_kinds(client: &Client) -> Result<(), kube::Error> {
    match list_json(client.clone(), &declaration_resource(), None, None, read_declaration).await {
        Ok(all) => {
            let all: BTreeMap<String, Declaration> = all.into_iter().collect();
            declare_all(&all, |_| false);
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            tracing::debug!(why = status.message, "no kinds are declared on the host; what is known stays known");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Declares what the host has now, as soon as it answers.
pub async fn declare_kinds(client: &Client, stop: &CancellationToken) {
    let mut wait = READ_AGAIN;
    while let Err(error) = read_declared_kinds(client).await {
        let error = describe_error(&error);
        if wait == READ_AGAIN {
            tracing::warn!(error, "can not read which kinds are declared; trying again until it works");
        } else {
            tracing::debug!(error, "still can not read which kinds are declared");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

fn declaration_resource() -> ApiResource {
    let (group, version) = (KindDeclaration::group(&()), KindDeclaration::version(&()));
    api_resource(&group, &version, &KindDeclaration::kind(&()), &KindDeclaration::plural(&()))
}

fn read_declaration(object: Value) -> Option<(String, Declaration)> {
    let name = object.pointer("/metadata/name")?.as_str()?.to_owned();
    let declaration = serde_json::from_value::<KindDeclaration>(object);
    Some((name, declaration.map(|declaration| declaration.spec).map_err(|error| error.to_string())))
}

/// Which of these objects count, in the order of their names, and why others do not.
fn choose_declarations(
    all: &BTreeMap<String, Declaration>,
) -> (Vec<(&str, &KindDeclarationSpec)>, BTreeMap<String, String>) {
    let mut first: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let (mut chosen, mut faults) = (Vec::new(), BTreeMap::new());
    for (name, declaration) in all {
        match declaration {
            Ok(declaration) => {
                let known = *first.entry((&declaration.group, &declaration.kind)).or_insert(name);
                if known == name {
                    chosen.push((known, declaration));
                } else {
                    faults.insert(name.clone(), format!("{known} tells the same kind, and its name is first"));
                }
            }
            Err(why) => drop(faults.insert(name.clone(), why.clone())),
        }
    }
    (chosen, faults)
}

/// Declares those that count and are not `known`.
fn declare_all(
    all: &BTreeMap<String, Declaration>,
    known: impl Fn(&KindDeclarationSpec) -> bool,
) -> Vec<(KindDeclarationSpec, WorkloadKind)> {
    let (chosen, mut faults) = choose_declarations(all);
    let mut declared = Vec::new();
    for (name, declaration) in chosen.into_iter().filter(|(_, declaration)| !known(declaration)) {
        match declare_kind(declaration) {
            Ok(kind) => declared.push((declaration.clone(), kind)),
            Err(why) => drop(faults.insert(name.to_owned(), why.to_string())),
        }
    }
    let mut logged = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, why) in &faults {
        if logged.get(name) != Some(why) {
            tracing::warn!(name, why, "a WorkloadKind does not count; what was known of its kind stays");
        }
    }
    *logged = faults;
    declared
}

/// What follows the objects of a kind, and by which words.
struct Followed {
    declaration: KindDeclarationSpec,
    before: ListedBefore,
    _stop: DropGuard,
}

impl<T: Send + 'static> Follower<T> {
    /// Follows the declared kinds: `follow` is called for each, and again when it is told anew. The kinds
    /// that the process knows already are followed at once, also those that the host does not tell any more: they are
    /// returned.
    pub fn follow_declared_kinds(
        &self,
        follow: impl Fn(&Self, WorkloadKind, WatchOptions) + Send + 'static,
    ) -> Vec<WorkloadKind> {
        let mut followed: BTreeMap<(String, String), Followed> = BTreeMap::new();
        let (client, events, all) = (self.client.clone(), self.events.clone(), self.stop.clone());
        let begin =
            move |followed: &mut BTreeMap<(String, String), Followed>, declaration: KindDeclarationSpec, kind| {
                let key = (declaration.group.clone(), declaration.kind.clone());
                let before = followed.get(&key).map(|known| known.before.clone()).unwrap_or_default();
                let stop = all.child_token();
                let follower = Self::new(client.clone(), events.clone(), stop.clone());
                // What is told anew ends what followed it before.
                followed.insert(key, Followed { declaration, before: before.clone(), _stop: stop.drop_guard() });
                follow(&follower, kind, WatchOptions::default().allow_unlisted_kind(before));
            };
        let mut at_once = Vec::new();
        for declaration in list_declarations() {
            if let Some(kind) = WorkloadKind::from_group_and_kind(&declaration.group, &declaration.kind) {
                begin(&mut followed, declaration, kind);
                at_once.push(kind);
            }
        }
        let mut objects: BTreeMap<String, Declaration> = BTreeMap::new();
        let convert = move |event: Event<(String, Declaration)>| -> Option<T> {
            // What runs of a kind that nobody tells any more is still looked after.
            event.apply_to(&mut objects);
            let declared = declare_all(&objects, |declaration| {
                followed
                    .get(&(declaration.group.clone(), declaration.kind.clone()))
                    .is_some_and(|known| known.declaration == *declaration)
            });
            declared.into_iter().for_each(|(declaration, kind)| begin(&mut followed, declaration, kind));
            None
        };
        let options = WatchOptions::default().allow_unlisted_kind(ListedBefore::default());
        self.follow_json(declaration_resource(), options, read_declaration, convert);
        at_once
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declaration(name: &str, suspend: &str) -> Option<(String, Declaration)> {
        let spec = json!({"group": "training.example.com", "version": "v1", "kind": "TwiceRun", "plural": "twiceruns",
            "podSets": [{"path": "spec", "template": "template"}], "suspend": suspend, "status": {},
            "pods": {"jobLabel": "run"}});
        read_declaration(json!({"metadata": {"name": name}, "spec": spec}))
    }

    #[test]
    fn of_two_objects_that_tell_one_kind_the_first_name_counts_and_what_does_not_parse_is_reported() {
        let broken = read_declaration(json!({"metadata": {"name": "c"}, "spec": {"podSets": 3}}));
        for order in [["b", "a"], ["a", "b"]] {
            let read = order.into_iter().filter_map(|name| declaration(name, &format!("spec.{name}")));
            let all: BTreeMap<String, Declaration> = read.chain(broken.clone()).collect();
            let (chosen, faults) = choose_declarations(&all);
            assert_eq!(chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a"]);
            assert_eq!(chosen[0].1.suspend.as_deref(), Some("spec.a"));
            assert_eq!(faults.keys().collect::<Vec<_>>(), ["b", "c"]);
            assert!(faults["b"].starts_with("a tells the same kind"), "{}", faults["b"]);
        }
    }
}
