//! Clusters that really use more, or less, than their pods ask for, with load-aware rescheduling or without it.
//!
//! Rule: [`caldera_core::load_aware`], driven as the controller drives it: each cluster is read twice a minute, and
//! once an interval it is decided who leaves hot ones. A cluster whose pods want more cores than its nodes have gives
//! each of them the same part of what it wants, so that all jobs there take longer. That is what rescheduling is held
//! against: when jobs end, what was wanted and not there, and what moves cost.
//!
//! Cores are one pool in each cluster: nodes that are full run short before their cluster does, so what is wanted in
//! vain is the least that it may be. Of the controller's rules one is left out: that its queue must let a job in again.
//!
//! Memory is not looked at: whoever wants more than there is of it is killed, and does not take longer.

mod made_up;
mod rescheduler;

use std::{collections::HashMap, sync::Arc};

use caldera_core::load_aware::LoadPolicy;

pub use made_up::make_up_load;

use self::rescheduler::Rescheduler;
use crate::{
    run::{Options, Outcome, simulate},
    time::Millis,
    world::World,
};

/// A world whose jobs use something else than they ask for.
#[derive(Debug, Clone)]
pub struct LoadedWorld {
    /// Who asks for what.
    pub world: World,
    /// What each job really uses of the cores that it asks for, in percent, by its name; who is not there uses all.
    pub uses: HashMap<Arc<str>, u32>,
    /// What a cluster uses differs from reading to reading by so many percent of it at most, up or down.
    pub noise: u32,
    /// Of the noise.
    pub seed: u64,
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadMove {
    /// When.
    pub at: Millis,
    /// Whose, by its place in [`World::jobs`].
    pub job: usize,
    /// Why, as the job is told.
    pub why: String,
}

/// What happened.
#[derive(Debug, Clone)]
pub struct LoadOutcome {
    /// To the jobs.
    pub outcome: Outcome,
    /// In the order in which they were made.
    pub moves: Vec<LoadMove>,
    /// How long each cluster was above its target threshold, in the order of [`World::clusters`].
    pub hot: Vec<Millis>,
    /// The longest time that a cluster was so without a break.
    pub longest_hot: Millis,
    /// Thousandths of cores times milliseconds that pods wanted and no node had.
    pub wanted_in_vain: u128,
}

/// Simulates to the end; nobody is moved by a policy that is not enabled, and its thresholds still say what is hot.
#[must_use]
pub fn simulate_load(loaded: &LoadedWorld, policy: &LoadPolicy, options: &Options) -> LoadOutcome {
    let mut rescheduler = Rescheduler::new(loaded, policy);
    let outcome = simulate(&loaded.world, &mut rescheduler, options);
    rescheduler.into_outcome(outcome)
}
