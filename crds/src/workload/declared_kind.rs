//! The declared kinds, as this process knows them.
//!
//! Which of them count, and how long they stay, is [`declared`](super::declared)'s to say.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use super::{kind_declaration::KindDeclarationSpec, layout::Layout};

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

/// A declared kind. Two are the same if they are of one kind, whatever is told of it.
#[derive(Debug, Clone, Copy)]
pub struct DeclaredKind(pub(super) &'static Table);

pub(super) struct Table {
    pub(super) declaration: KindDeclarationSpec,
    pub(super) names: KindNames,
    pub(super) layout: Layout,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.names.kind)
    }
}

impl DeclaredKind {
    pub(super) const fn names(self) -> KindNames {
        self.0.names
    }

    pub(super) const fn layout(self) -> &'static Layout {
        &self.0.layout
    }

    const fn key(self) -> (&'static str, &'static str, &'static str) {
        (self.0.names.group, self.0.names.kind, self.0.names.version)
    }
}

impl PartialEq for DeclaredKind {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DeclaredKind {}

impl PartialOrd for DeclaredKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DeclaredKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for DeclaredKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// What the process knows.
#[derive(Default)]
pub(super) struct Known {
    /// Those that count, in the order in which they came.
    pub(super) kinds: Arc<[DeclaredKind]>,
    /// All that were made.
    pub(super) tables: Vec<&'static Table>,
}

pub(super) fn known() -> &'static RwLock<Known> {
    static KNOWN: OnceLock<RwLock<Known>> = OnceLock::new();
    KNOWN.get_or_init(RwLock::default)
}

/// The declared kinds that count.
pub(super) fn list_declared_kinds() -> Arc<[DeclaredKind]> {
    Arc::clone(&known().read().unwrap_or_else(PoisonError::into_inner).kinds)
}
