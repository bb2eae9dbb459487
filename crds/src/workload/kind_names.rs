//! How a rule in CEL names kinds, and which names are taken.

use std::collections::BTreeSet;

use super::WorkloadKind;
use crate::cel::list_in_cel;

/// Groups, and all below them, whose kinds are told in code or are no workloads.
pub const RESERVED_GROUPS: [&str; 4] = ["k8s.io", "karmada.io", "volcano.sh", "caldera.dev"];
/// Why a name that is taken is refused.
pub(super) const TAKEN: &str = "its kind or plural is a word for a kind that is known already: objects of both could \
                                not be told apart, and Karmada would give their bindings the same names";

/// A CEL expression that is true where `of`, an object or a reference to one, is of one of these kinds in whichever
/// version of its group, as [`WorkloadKind::parse`] tells it.
#[must_use]
pub fn match_kinds_in_cel(kinds: impl IntoIterator<Item = WorkloadKind>, of: &str) -> String {
    let prefix = |kind: WorkloadKind| match kind.group() {
        "" => String::new(),
        group => format!("{group}/"),
    };
    let mut pairs: Vec<String> =
        kinds.into_iter().map(|kind| list_in_cel([prefix(kind).as_str(), kind.kind()])).collect();
    let mut seen = BTreeSet::new();
    pairs.retain(|pair| seen.insert(pair.clone()));
    let pairs = pairs.join(", ");
    format!(
        "[{pairs}].exists(k, k[1] == {of}.kind && (k[0] == '' ? !{of}.apiVersion.contains('/') : \
         {of}.apiVersion.startsWith(k[0])))"
    )
}

/// Words by which people and names of bindings know these kinds: no other kind may have one.
pub(super) fn list_taken_words(kinds: impl IntoIterator<Item = WorkloadKind>) -> Vec<&'static str> {
    let mut all: Vec<&'static str> = kinds.into_iter().flat_map(|kind| kind.aliases().iter().copied()).collect();
    all.retain(|word| !word.contains('.'));
    all.sort_unstable();
    all.dedup();
    all
}
