//! A fleet that several engines share: each *shard* is a top-level queue with all queues below it.
//!
//! What is charged on a queue's path depends on that path and the root alone, so a tree that is cut below the root
//! keeps all its rules: each shard has an engine and a scheduler of its own. What they share is the fleet, as resource
//! offers do it (Mesos: Hindman et al., NSDI'11), but by *leases* on whole nodes, so that two schedulers never pack the
//! same one:
//!
//! 1. A node is leased to one shard at most ([`lease`]). The leases of a cluster are one object; each change names the
//!    version that it is made of, and is refused if that is not the newest.
//! 2. A shard starts pods on a node only while it holds its lease, and renews it itself. So a lost allocator stops
//!    nothing that is leased; it stops changes between shards.
//! 3. An *allocator* leases out what nobody holds ([`division`]): first what shards are guaranteed, then what they
//!    deserve, as far as they ask for it, then what is left by weight. It knows shards and no jobs.
//! 4. It asks back an amount from who has more than that while another one has less. Which nodes the shard gives back
//!    it chooses itself, by whom it would evict, and gives each back once nothing of it runs there. No shard evicts in
//!    another.
//! 5. A node whose lease is over is leased anew only once nothing runs on it, as its member says. So a lost shard keeps
//!    what its pods hold, and nothing is admitted twice; for that long the rest of its slice is idle.

pub mod division;
pub mod give_back;
pub mod lease;

use crate::name::define_name;

define_name! {
    /// A node, unique in its cluster.
    NodeName
}
