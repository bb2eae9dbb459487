//! What there is: the host's objects, what each process remembers, and what is on its way between them.

/// Jobs, and their bindings. Job 0 is the older one.
pub const JOBS: usize = 2;
/// Controllers that want the Lease.
pub const CONTROLLERS: usize = 2;
/// Pods of a gang.
pub const GANG: u8 = 2;
/// Pods that the one queue may have: one gang.
pub const LIMIT: u8 = GANG;

/// Which binding.
pub type Job = usize;

/// Names one term of one holder of the Lease (`LeaseRecord::epoch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// How often the Lease had changed hands.
    pub term: u8,
    /// Unique for each start of a process.
    pub identity: u8,
}

/// The Lease as it is stored. Its version is not needed: who writes it has just read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How often it changed hands.
    pub term: u8,
    /// [`NOBODY`] once it was released.
    pub holder: u8,
}

/// Holds a Lease that was released.
pub const NOBODY: u8 = u8::MAX;

impl Lease {
    /// What a grant must name to be placed.
    pub const fn epoch(self) -> Epoch {
        Epoch { term: self.term, identity: self.holder }
    }
}

/// The admission record: all records of a job say the same but for the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// `None` for one that somebody wrote who has no Lease.
    pub epoch: Option<Epoch>,
}

/// A binding, as it is stored or was seen. Its gate is open if it has a record, and closed if not ("no record, no
/// start").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Binding {
    /// `resourceVersion`.
    pub version: u8,
    /// The admission record.
    pub record: Option<Grant>,
    /// Pods in `spec.clusters`.
    pub placed: u8,
}

/// What became of the patch of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assumed {
    /// It is on its way.
    Sent,
    /// Nobody knows: it is sent again.
    Unknown,
    /// It was refused, and the watch has not shown why.
    Conflict,
}

/// What is wrong with what a binding says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordFault {
    /// Nobody granted it.
    NotGranted,
    /// Nobody granted it, if we still hold the Lease: it says to be of a later one.
    NotGrantedByUs,
    /// It has clusters and no record.
    PlacedWithoutRecord,
}

/// What a controller knows of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JobState {
    /// As the watch last showed it.
    pub seen: Option<Binding>,
    /// Its workload says that it has ended, as the other watch last showed it.
    pub ended: bool,
    /// A record that it wrote for the version that it has seen.
    pub assumed: Option<Assumed>,
    /// It wrote a record that was not taken back since.
    pub sent: bool,
    /// What is to be taken away.
    pub fault: Option<RecordFault>,
}

/// A controller. Without an epoch it stands by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Controller {
    /// The Lease that it takes itself to hold. Its identity is this process's.
    pub epoch: Option<Epoch>,
    /// What it knows: nothing before its first list.
    pub jobs: [JobState; JOBS],
}

/// A grant that waits for a read of the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeenGrant {
    /// The version of the binding.
    pub version: u8,
    /// The epoch of the grant.
    pub epoch: Option<Epoch>,
}

/// A read of the Lease that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Read {
    /// Which grants it is for.
    pub grants: [Option<SeenGrant>; JOBS],
    /// The epoch that the server read, if there is a Lease, once it has; the answer is on its way then.
    pub found: Option<Option<Epoch>>,
}

/// A scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scheduler {
    /// Bindings as the watch last showed them; `None` before the first list.
    pub seen: [Option<Binding>; JOBS],
    /// Grants that the next read is for.
    pub waiting: [Option<SeenGrant>; JOBS],
    /// The read under way.
    pub reading: Option<Read>,
    /// Versions that may be placed.
    pub valid: [Option<u8>; JOBS],
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A controller.
    Controller(usize),
    /// A scheduler.
    Scheduler(usize),
}

/// What a patch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// Writes a record, and opens the gate.
    Grant(Grant),
    /// Takes record and clusters away, and closes the gate.
    Evict,
    /// Gives so many pods a cluster.
    Place(u8),
}

/// What the server said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The object as it was stored.
    Stored(Binding),
    /// The object is of another version.
    Conflict,
}

/// A patch on its way to the server, or its answer on the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Who waits for the answer; `None` once nobody does. It may land all the same.
    pub from: Option<Process>,
    /// Which binding.
    pub job: Job,
    /// The version that it tests.
    pub version: u8,
    /// What it does.
    pub write: Write,
    /// On its way back.
    pub answer: Option<Answer>,
}

/// How often each thing may go wrong from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A Lease is taken from a controller that lives on and does not know.
    pub takeovers: u8,
    /// A controller is killed.
    pub stops: u8,
    /// A controller is asked to stop, and gives its Lease up.
    pub releases: u8,
    /// A scheduler is killed.
    pub scheduler_stops: u8,
    /// A request, or its answer, is not heard of in time.
    pub lost: u8,
    /// A deadline of a controller passes.
    pub deadlines: u8,
    /// A tenant writes a record.
    pub forgeries: u8,
    /// Somebody deletes the Lease.
    pub lease_deletions: u8,
}

impl Budget {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        takeovers: 0,
        stops: 0,
        releases: 0,
        scheduler_stops: 0,
        lost: 0,
        deadlines: 0,
        forgeries: 0,
        lease_deletions: 0,
    };
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The Lease, if there is one.
    pub lease: Option<Lease>,
    /// As stored.
    pub bindings: [Binding; JOBS],
    /// Jobs that have ended.
    pub ended: [bool; JOBS],
    /// How often each job was started.
    pub starts: [u8; JOBS],
    /// Each controller.
    pub controllers: [Controller; CONTROLLERS],
    /// Each scheduler.
    pub schedulers: Vec<Scheduler>,
    /// In an order that says nothing.
    pub network: Vec<Message>,
    /// What may go wrong yet.
    pub left: Budget,
}

impl State {
    /// Two jobs wait, and nobody has the Lease.
    pub fn begin(schedulers: usize, left: Budget) -> Self {
        let scheduler = Scheduler { seen: [Some(Binding::default()); JOBS], ..Scheduler::default() };
        Self {
            lease: None,
            bindings: [Binding::default(); JOBS],
            ended: [false; JOBS],
            starts: [0; JOBS],
            controllers: [Controller::default(); CONTROLLERS],
            schedulers: vec![scheduler; schedulers],
            network: Vec::new(),
            left,
        }
    }

    /// Whether a process waits for an answer about a job: writes of one object are carried out one by one.
    pub fn awaits_answer(&self, who: Process, job: Job) -> bool {
        self.network.iter().any(|message| message.from == Some(who) && message.job == job)
    }

    /// Forgets what can make no difference any more, so that states that differ in nothing else are one: versions are
    /// numbered anew in their order, a patch that nobody waits for is dropped if its test can only fail, and an answer
    /// if it tells nothing.
    pub fn reduce(&mut self, tests_version: bool) {
        let current = self.bindings.map(|binding| binding.version);
        if tests_version {
            self.network.retain(|message| message.from.is_some() || message.version == current[message.job]);
        }
        let Self { controllers, schedulers, network, .. } = self;
        network.retain(|message| match (message.from, message.answer) {
            (Some(Process::Controller(who)), Some(answer)) => controllers[who].heeds_answer(message, answer),
            (Some(Process::Scheduler(who)), Some(answer)) => schedulers[who].heeds_answer(message, answer),
            _ => true,
        });
        for scheduler in &mut self.schedulers {
            for (valid, seen) in scheduler.valid.iter_mut().zip(scheduler.seen) {
                *valid = valid.filter(|valid| seen.is_some_and(|seen| seen.version == *valid));
            }
        }
        for job in 0..JOBS {
            // One bit for each version that somebody knows.
            let mut known = 0_u64;
            self.visit_versions(job, |version| known |= 1 << *version);
            let below = |version: u8| (known & ((1 << version) - 1)).count_ones();
            self.visit_versions(job, |version| *version = u8::try_from(below(*version)).unwrap_or(u8::MAX));
        }
        self.network.sort_unstable();
    }

    /// An identity that no process has, and that no Lease and no grant names.
    pub fn choose_identity(&self) -> u8 {
        let mut known = 0_u64;
        let mut note = |epoch: Option<Epoch>| {
            let identity = epoch.map(|epoch| epoch.identity).filter(|identity| *identity != NOBODY);
            known |= identity.map_or(0, |identity| 1 << identity);
        };
        note(self.lease.map(Lease::epoch));
        self.controllers.iter().for_each(|controller| note(controller.epoch));
        let seen = self.controllers.iter().flat_map(|controller| &controller.jobs).map(|job| job.seen);
        let seen = seen.chain(self.schedulers.iter().flat_map(|scheduler| scheduler.seen)).flatten();
        seen.chain(self.bindings).for_each(|binding| note(binding.record.and_then(|grant| grant.epoch)));
        for message in &self.network {
            if let Write::Grant(grant) = message.write {
                note(grant.epoch);
            }
            if let Some(Answer::Stored(stored)) = message.answer {
                note(stored.record.and_then(|grant| grant.epoch));
            }
        }
        for read in self.schedulers.iter().filter_map(|scheduler| scheduler.reading) {
            note(read.found.flatten());
            read.grants.into_iter().flatten().for_each(|grant| note(grant.epoch));
        }
        let waiting = self.schedulers.iter().flat_map(|scheduler| scheduler.waiting).flatten();
        waiting.for_each(|grant| note(grant.epoch));
        u8::try_from(known.trailing_ones()).unwrap_or(NOBODY)
    }

    fn visit_versions(&mut self, job: Job, mut visit: impl FnMut(&mut u8)) {
        visit(&mut self.bindings[job].version);
        for controller in &mut self.controllers {
            controller.jobs[job].seen.iter_mut().for_each(|seen| visit(&mut seen.version));
        }
        for scheduler in &mut self.schedulers {
            scheduler.seen[job].iter_mut().for_each(|seen| visit(&mut seen.version));
            scheduler.waiting[job].iter_mut().for_each(|grant| visit(&mut grant.version));
            scheduler.valid[job].iter_mut().for_each(&mut visit);
            let reading = scheduler.reading.as_mut().and_then(|read| read.grants[job].as_mut());
            reading.into_iter().for_each(|grant| visit(&mut grant.version));
        }
        for message in self.network.iter_mut().filter(|message| message.job == job) {
            visit(&mut message.version);
            if let Some(Answer::Stored(stored)) = &mut message.answer {
                visit(&mut stored.version);
            }
        }
    }
}
