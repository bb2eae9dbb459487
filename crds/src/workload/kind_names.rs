//! How the API and its users name a kind, and which names are taken.

use super::WorkloadKind;

/// Groups, and all below them, whose kinds are told in code or are no workloads.
pub const RESERVED_GROUPS: [&str; 4] = ["k8s.io", "karmada.io", "volcano.sh", "caldera.dev"];
/// Why a name that is taken is refused.
pub(super) const TAKEN: &str = "its kind or plural is a word for a kind that is known already: objects of both could \
                                not be told apart, and Karmada would give their bindings the same names";

/// How the API and its users name a kind.
#[derive(Clone, Copy)]
pub(super) struct KindNames {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    /// For people; no other kind has it.
    pub(super) title: &'static str,
    /// What people type for it on a command line.
    pub(super) aliases: &'static [&'static str],
}

/// Words by which people and names of bindings know these kinds: no other kind may have one.
pub(super) fn list_taken_words(kinds: impl IntoIterator<Item = WorkloadKind>) -> Vec<&'static str> {
    let mut all: Vec<&'static str> = kinds.into_iter().flat_map(|kind| kind.aliases().iter().copied()).collect();
    all.retain(|word| !word.contains('.'));
    all.sort_unstable();
    all.dedup();
    all
}
