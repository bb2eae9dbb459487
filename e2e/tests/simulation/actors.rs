//! Actors and faults that not every world has. The seed says which are in its world, and draws nothing else for that: a
//! world without any is what it was before there were any.
//!
//! `CALDERA_SIMULATION_ACTORS=all` puts all of them into each world, `=none` none, and names such as `services,cards`
//! those alone.

use std::collections::BTreeSet;

use crate::prng::Prng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// Deployments that are scaled and whose templates change.
    Services,
    /// Some nodes have cards, and some gangs ask for them.
    Cards,
    /// Another replica of the scheduler; a lease lets one be active.
    Schedulers,
    /// Each process has a clock of its own, wrong by up to half a minute.
    Clocks,
    /// Creates in members time out, members are slow, and one may be cut off.
    Members,
    /// An admin edits limits up and down, and makes an empty queue anew.
    Limits,
    /// The host comes back from a backup that is minutes old.
    Restores,
    /// An admin closes, moves and deletes queues that have queues above and below them, and gives them limits.
    Trees,
}

impl Actor {
    pub const ALL: [Self; 8] = [
        Self::Services,
        Self::Cards,
        Self::Schedulers,
        Self::Clocks,
        Self::Members,
        Self::Limits,
        Self::Restores,
        Self::Trees,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Cards => "cards",
            Self::Schedulers => "schedulers",
            Self::Clocks => "clocks",
            Self::Members => "members",
            Self::Limits => "limits",
            Self::Restores => "restores",
            Self::Trees => "trees",
        }
    }
}

/// Those of one world.
#[derive(Debug, Clone, Default)]
pub struct Actors(BTreeSet<Actor>);

impl Actors {
    /// Each is in each third world, restores in each sixth: its histories last for minutes more.
    pub fn of_seed(seed: u64) -> Self {
        let asked = std::env::var("CALDERA_SIMULATION_ACTORS").ok();
        let mut prng = Prng::new(seed ^ 0x70_6c61_7965_7273);
        let is_in = |actor: &Actor| {
            let drawn = prng.below(if *actor == Actor::Restores { 6 } else { 3 }) == 0;
            match asked.as_deref() {
                None => drawn,
                Some("all") => true,
                Some(names) => names.split(',').any(|name| name == actor.name()),
            }
        };
        Self(Actor::ALL.into_iter().filter(is_in).collect())
    }

    pub fn has(&self, actor: Actor) -> bool {
        self.0.contains(&actor)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|actor| actor.name()).collect()
    }
}
