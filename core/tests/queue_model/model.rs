//! The model: it looks at everything anew after every event.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        Counted, Dequeue, FleetResources, Job, JobId, OrderPolicy, PriorityAging, QueueSpec, QueueState, RunningLimits,
        TenantOrder,
    },
    resources::Resources,
    tenant::Tenant,
    time::EpochSeconds,
};

use super::{AGING, ANY, HALF_LIFE, Has, NAMES, QUEUES, of_fleet};

/// What each of `(weight, least, most)` gets of `whole`, by trying levels.
fn fill(whole: i128, claims: &[(i128, i128, i128)]) -> Vec<i128> {
    let at = |level: i128| claims.iter().map(move |(weight, least, most)| (level * weight).clamp(*least, *most));
    let (mut low, mut high) = (0, 1i128 << 80);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if at(middle).sum::<i128>() <= whole { low = middle } else { high = middle }
    }
    let mut rest = (whole - at(low).sum::<i128>()).max(0);
    let parts = at(low).zip(at(low + 1)).map(|(part, next)| {
        let more = rest.min(next - part);
        rest -= more;
        part + more
    });
    parts.collect()
}

/// Compared by cross products, which are small here.
#[derive(Debug, Clone, Copy)]
pub struct Fraction(i128, i128);

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.1, other.1) {
            (0, 0) => std::cmp::Ordering::Equal,
            _ => (self.0 * other.1).cmp(&(other.0 * self.1)),
        }
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub policy: OrderPolicy,
    pub queues: BTreeMap<QueueName, QueueSpec>,
    pub fleet: FleetResources,
    /// What was above each queue when it had a sound descent last.
    pub last: BTreeMap<QueueName, Vec<QueueName>>,
    /// Of every queue in the tree and every resource.
    pub has: BTreeMap<(QueueName, &'static str), Has>,
    pub waiting: BTreeMap<JobId, Job>,
    pub held: BTreeMap<JobId, (QueueName, Resources, Counted)>,
    /// How many more jobs of a class find room.
    pub capacity: BTreeMap<u64, u32>,
    pub now: i64,
    /// What each queue used lately, in billionths, and whether anybody counted before `now`.
    pub mean: BTreeMap<(QueueName, &'static str), i128>,
    /// The same of each tenant of a queue, without zeros.
    pub tenant_mean: BTreeMap<(QueueName, Tenant, &'static str), i128>,
    pub counts: bool,
    /// When history counted last, if it does no more.
    pub counted_until: Option<i64>,
}

impl Model {
    /// The queue itself first; the root is not in it. `None` if its descent is broken.
    pub fn path(&self, name: &QueueName) -> (Vec<QueueName>, bool) {
        let mut path = vec![name.clone()];
        let mut at = name.clone();
        loop {
            let Some(parent) = self.queues.get(&at).and_then(|spec| spec.parent.clone()) else {
                return (path, self.queues.contains_key(name));
            };
            if !self.queues.contains_key(&parent) {
                return (path, false);
            }
            if path.contains(&parent) {
                return (vec![name.clone()], false);
            }
            path.push(parent.clone());
            at = parent;
        }
    }

    /// Where its jobs are charged: while it has no descent, where it was, as far as that is still there.
    pub fn charged_path(&self, name: &QueueName) -> Vec<QueueName> {
        let (path, sound) = self.path(name);
        let Some(last) = self.last.get(name).filter(|_| !sound) else { return path };
        let mut path = vec![name.clone()];
        for above in last.iter().filter(|above| self.queues.contains_key(*above)) {
            match self.path(above) {
                (rest, true) => {
                    path.extend(rest);
                    break;
                }
                _ => path.push(above.clone()),
            }
        }
        path
    }

    pub fn in_circle(&self, name: &QueueName) -> bool {
        let (path, sound) = self.path(name);
        let parent = self.queues.get(path.last().unwrap()).and_then(|spec| spec.parent.clone());
        !sound && parent.is_some_and(|parent| self.queues.contains_key(&parent))
    }

    pub fn children(&self, parent: Option<&QueueName>) -> Vec<&QueueSpec> {
        let top = |spec: &QueueSpec| {
            let (path, _) = self.path(&spec.name);
            path.get(1).cloned()
        };
        self.queues.values().filter(|spec| !self.in_circle(&spec.name) && top(spec).as_ref() == parent).collect()
    }

    pub fn open(&self, name: &QueueName) -> bool {
        let (path, sound) = self.path(name);
        sound
            && path.iter().all(|queue| self.queues[queue].state == QueueState::Open)
            && self.children(Some(name)).is_empty()
    }

    pub fn used(&self, queue: Option<&QueueName>, resource: &str) -> Quantity {
        let below = |holder: &QueueName| queue.is_none_or(|queue| self.charged_path(holder).contains(queue));
        let held = self.held.values().filter(|(holder, ..)| below(holder));
        held.fold(Quantity::ZERO, |sum, (_, charge, _)| sum.saturating_add(charge.get(resource)))
    }

    pub fn capability(spec: &QueueSpec, resource: &str) -> Option<i128> {
        let limit = spec.capability.get(resource)?;
        (resource != "cpu" || limit > Quantity::ZERO).then(|| limit.as_nano().max(0))
    }

    /// The most that a queue could have if no cluster were away; `None` while nobody knows.
    pub fn most(&self, queue: Option<&QueueName>, resource: &str) -> Option<i128> {
        let path = queue.map(|queue| self.path(queue).0).unwrap_or_default();
        let whole = self.fleet.whole.as_ref().map(|whole| of_fleet(whole, resource));
        path.iter().filter_map(|queue| Self::capability(&self.queues[queue], resource)).chain(whole).min()
    }

    pub fn asked_guarantee(&self, spec: &QueueSpec, resource: &str) -> i128 {
        let own = spec.guarantee.get(resource).as_nano().max(0);
        let sum = self.children(Some(&spec.name)).iter().map(|child| self.asked_guarantee(child, resource)).sum();
        let guarantee = own.max(sum).min(Self::capability(spec, resource).unwrap_or(i128::MAX));
        let never = self.most(self.path(&spec.name).0.get(1), resource).is_some_and(|most| guarantee > most);
        if never { 0 } else { guarantee }
    }

    pub fn asked_deserved(&self, spec: &QueueSpec, resource: &str) -> Option<i128> {
        if spec.deserved.is_unlimited() {
            let below = self.children(Some(&spec.name));
            return below.iter().filter_map(|child| self.asked_deserved(child, resource)).reduce(|a, b| a + b);
        }
        spec.deserved.get(resource).map(|amount| amount.as_nano().max(0))
    }

    pub fn work_out(&mut self) {
        self.has.clear();
        for name in self.queues.keys().cloned().collect::<Vec<_>>() {
            if let (path, true) = self.path(&name) {
                self.last.insert(name, path[1..].to_vec());
            }
        }
        for resource in NAMES {
            let fleet = of_fleet(&self.fleet.ready, resource);
            let deserved = if fleet == ANY { 0 } else { fleet };
            self.divide(None, resource, fleet, deserved);
        }
    }

    /// Divides among the children of a queue what it can have, and what it deserves.
    pub fn divide(&mut self, parent: Option<&QueueName>, resource: &'static str, real: i128, have: i128) {
        let children: Vec<QueueSpec> = self.children(parent).into_iter().cloned().collect();
        let asked: Vec<i128> = children.iter().map(|child| self.asked_guarantee(child, resource)).collect();
        let kept = if asked.iter().sum::<i128>() > real {
            fill(real, &asked.iter().map(|asked| (1, 0, *asked)).collect::<Vec<_>>())
        } else {
            asked
        };
        let free = real - kept.iter().sum::<i128>();
        let reals: Vec<i128> = (children.iter().zip(&kept))
            .map(|(child, kept)| (free + kept).min(Self::capability(child, resource).unwrap_or(i128::MAX)))
            .collect();
        let said: Vec<Option<i128>> = children.iter().map(|child| self.asked_deserved(child, resource)).collect();
        let mut parts: Vec<i128> =
            (0..children.len()).map(|i| said[i].unwrap_or(0).min(reals[i]).max(kept[i])).collect();
        if parent.is_some() && parts.iter().sum::<i128>() > have {
            parts = fill(have, &(0..children.len()).map(|i| (1, kept[i], parts[i])).collect::<Vec<_>>());
        }
        let (free, fixed): (Vec<usize>, Vec<usize>) =
            (0..children.len()).partition(|i| children[*i].deserved.is_unlimited());
        let rest = (have - fixed.iter().map(|i| parts[*i]).sum::<i128>()).max(0);
        let claims: Vec<_> =
            free.iter().map(|i| (i128::from(children[*i].weight.max(1)), parts[*i], reals[*i])).collect();
        for (i, part) in free.iter().zip(fill(rest, &claims)) {
            parts[*i] = part;
        }
        for (i, child) in children.iter().enumerate() {
            let deserved = Some(parts[i]).filter(|part| *part > 0 || said[i].is_some());
            self.has.insert((child.name.clone(), resource), Has { real: reals[i], kept: kept[i], deserved });
            self.divide(Some(&child.name), resource, reals[i], deserved.unwrap_or(0));
        }
    }

    /// The smallest ceiling of a queue and everything above.
    pub fn ceiling(&self, path: &[QueueName], resource: &'static str) -> i128 {
        let fleet = of_fleet(&self.fleet.ready, resource);
        let Some(queue) = path.first() else { return fleet };
        let outside = || self.queues.get(queue).and_then(|spec| Self::capability(spec, resource)).unwrap_or(fleet);
        self.has.get(&(queue.clone(), resource)).map_or_else(outside, |has| has.real).min(fleet)
    }

    /// The most that a queue could have if nothing ran and no cluster were away; `None` while nobody knows.
    pub fn reach(&self, queue: Option<&QueueName>, resource: &str) -> Option<i128> {
        let Some(queue) = queue else { return self.fleet.whole.as_ref().map(|whole| of_fleet(whole, resource)) };
        let parent = self.path(queue).0.get(1).cloned();
        let left = self.reach(parent.as_ref(), resource).map(|have| {
            let siblings = self.children(parent.as_ref());
            let asked: Vec<i128> = siblings.iter().map(|spec| self.asked_guarantee(spec, resource)).collect();
            let kept = match asked.iter().sum::<i128>() > have {
                true => fill(have, &asked.iter().map(|asked| (1, 0, *asked)).collect::<Vec<_>>()),
                false => asked,
            };
            let of_others = siblings.iter().zip(&kept).filter(|(spec, _)| spec.name != *queue);
            have - of_others.map(|(_, kept)| kept).sum::<i128>()
        });
        Self::capability(&self.queues[queue], resource).into_iter().chain(left).min()
    }

    pub fn is_never(&self, job: &Job) -> bool {
        let asked = job.ask.minimum();
        let more = |name: &str| self.reach(Some(&job.queue), name).is_some_and(|most| asked.get(name).as_nano() > most);
        NAMES.into_iter().any(|name| !asked.get(name).is_zero() && more(name))
    }

    pub fn fits(&self, queue: &QueueName, asked: &Resources) -> bool {
        let (path, _) = self.path(queue);
        NAMES.into_iter().filter(|name| !asked.get(name).is_zero()).all(|name| {
            (0..=path.len()).all(|from| {
                let used = self.used(path.get(from), name).saturating_add(asked.get(name));
                used.as_nano() <= self.ceiling(&path[from..], name)
            })
        })
    }

    /// Jobs that hold something in a queue or below it: all, or those of this tenant.
    pub fn running(&self, queue: &QueueName, of: Option<&Tenant>) -> u32 {
        let counts = |(holder, charge, counted): &&(QueueName, Resources, Counted)| {
            let holds = charge.iter().any(|(_, amount)| !amount.is_zero());
            holds && self.charged_path(holder).contains(queue) && of.is_none_or(|of| counted.tenants().contains(of))
        };
        u32::try_from(self.held.values().filter(counts).count()).unwrap()
    }

    pub fn may_run(&self, job: &Job) -> bool {
        self.path(&job.queue).0.iter().all(|queue| {
            let RunningLimits { all, of_namespace, of_user } = self.queues[queue].running;
            let [namespace, user] = job.ask.counted.tenants() else { panic!("{job:?}") };
            all.is_none_or(|most| self.running(queue, None) < most)
                && of_namespace.is_none_or(|most| self.running(queue, Some(namespace)) < most)
                && of_user.is_none_or(|most| self.running(queue, Some(user)) < most)
        })
    }

    pub fn mean_of(&self, queue: &QueueName, resource: &'static str) -> i128 {
        self.mean.get(&(queue.clone(), resource)).copied().unwrap_or(0)
    }

    /// So many half-lives pass in which everybody uses what they use now.
    pub fn pass_time(&mut self, half_lives: u32) {
        self.now += i64::from(half_lives) * HALF_LIFE;
        if self.policy != OrderPolicy::FairHistory {
            return;
        }
        for name in self.queues.keys().filter(|_| self.counts).cloned().collect::<Vec<_>>() {
            for resource in NAMES {
                let used = self.used(Some(&name), resource).as_nano();
                let more = self.mean_of(&name, resource) - used;
                self.mean.insert((name.clone(), resource), used + more.div_euclid(1 << half_lives));
                let has_ceiling = self.has.get(&(name.clone(), resource)).is_some_and(|has| has.real < ANY);
                for tenant in self.tenants() {
                    let counts = has_ceiling && self.takes_turns(&name, &tenant);
                    let used = if counts { self.tenant_use(&name, &tenant, resource) } else { 0 };
                    let key = (name.clone(), tenant, resource);
                    let more = self.tenant_mean.get(&key).copied().unwrap_or(0) - used;
                    let mean = used + more.div_euclid(1 << half_lives);
                    self.tenant_mean.insert(key, mean);
                }
            }
        }
        self.tenant_mean.retain(|_, mean| *mean != 0);
        self.counts = true;
    }

    /// Another policy counts from now on. Of the time in which history did not count it is as if nobody used anything.
    pub fn change_policy(&mut self, policy: OrderPolicy) {
        if self.policy == policy {
            return;
        }
        self.counts = false;
        if self.policy == OrderPolicy::FairHistory {
            self.counted_until = Some(self.now);
        }
        self.policy = policy;
        if policy != OrderPolicy::FairHistory {
            return;
        }
        let Some(until) = self.counted_until.take() else { return };
        let half_lives = (self.now - until) / HALF_LIFE;
        let age = |mean: i128| if half_lives > 32 { 0 } else { mean.div_euclid(1 << half_lives) };
        self.mean.values_mut().for_each(|mean| *mean = age(*mean));
        self.tenant_mean.values_mut().for_each(|mean| *mean = age(*mean));
        self.tenant_mean.retain(|_, mean| *mean != 0);
    }

    /// Of jobs that hold something, or did lately.
    fn tenants(&self) -> BTreeSet<Tenant> {
        let of_jobs = self.held.values().flat_map(|(.., counted)| counted.tenants()).cloned();
        of_jobs.chain(self.tenant_mean.keys().map(|(_, tenant, _)| tenant.clone())).collect()
    }

    /// What the jobs of a tenant hold in a queue, without those below it.
    fn tenant_use(&self, queue: &QueueName, tenant: &Tenant, resource: &str) -> i128 {
        let is_its = |(holder, _, counted): &&(QueueName, Resources, Counted)| {
            holder == queue && counted.tenants().contains(tenant)
        };
        self.held.values().filter(is_its).map(|(_, charge, _)| charge.get(resource).as_nano()).sum()
    }

    /// What tenants used lately of the queues where they take turns, as far as it counts.
    pub fn list_tenant_means(&self) -> BTreeMap<(QueueName, Tenant, String), i128> {
        let counts = |(queue, tenant, _): &(QueueName, Tenant, &str)| self.takes_turns(queue, tenant);
        let all = self.tenant_mean.iter().filter(|(key, _)| self.policy == OrderPolicy::FairHistory && counts(key));
        all.map(|((queue, tenant, name), mean)| ((queue.clone(), tenant.clone(), (*name).to_owned()), *mean)).collect()
    }

    pub fn share(&self, queue: &QueueName) -> (i128, bool) {
        let of = |resource| {
            let deserved = self.has[&(queue.clone(), resource)].deserved.filter(|deserved| *deserved > 0)?;
            let used = match (self.policy, self.used(Some(queue), resource).as_nano()) {
                (OrderPolicy::FairHistory, used) => (used + self.mean_of(queue, resource)) / 2,
                (_, used) => used,
            };
            Some(used * 1_000_000_000 / deserved)
        };
        let share = NAMES.into_iter().filter_map(of).max();
        (share.unwrap_or(1_000_000_000), share.is_none())
    }

    /// From the top down; a leaf stands for whatever would be below it.
    pub fn shares(&self, leaf: &QueueName) -> Vec<(i128, bool)> {
        let (path, _) = self.path(leaf);
        let mut shares: Vec<_> = path.iter().rev().map(|queue| self.share(queue)).collect();
        shares.resize(QUEUES, self.share(leaf));
        shares
    }

    /// What of a job's place its queue's line is ordered by.
    pub fn place(&self, job: &Job) -> (Reverse<i32>, Fraction, EpochSeconds, EpochSeconds, JobId) {
        let (path, _) = self.path(&job.queue);
        let aging = path.iter().find_map(|queue| self.queues.get(queue)?.aging);
        let waited = self.now - job.created.as_time().as_seconds();
        let aged = aging.map_or(0, |_| AGING.iter().filter(|(after, _)| *after <= waited).map(|(_, by)| by).sum());
        let aged = if aging == Some(PriorityAging::default()) { 0 } else { aged };
        let (priority, deadline) = match self.policy {
            OrderPolicy::Fifo => (0, None),
            _ => (job.priority + aged, job.deadline),
        };
        let created = job.created.as_time();
        (Reverse(priority), self.tenant_share(job), deadline.unwrap_or(EpochSeconds::MAX), created, job.id.clone())
    }

    /// Whose turns there are in a queue.
    pub fn tenant_order(&self, queue: &QueueName) -> TenantOrder {
        let (path, _) = self.path(queue);
        let said = path.iter().find_map(|queue| self.queues.get(queue)?.tenant_order);
        let is_fifo = self.queues[queue].dequeue == Dequeue::Fifo || self.policy == OrderPolicy::Fifo;
        said.filter(|_| !is_fifo).unwrap_or(TenantOrder::None)
    }

    fn takes_turns(&self, queue: &QueueName, tenant: &Tenant) -> bool {
        match self.tenant_order(queue) {
            TenantOrder::None => false,
            TenantOrder::Namespaces => matches!(tenant, Tenant::Namespace(_)),
            TenantOrder::Users => true,
        }
    }

    /// What the tenant of a job has of its queue, where tenants take turns there.
    pub fn tenant_share(&self, job: &Job) -> Fraction {
        let [namespace, user] = job.ask.counted.tenants() else { panic!("{job:?}") };
        let tenant = match self.tenant_order(&job.queue) {
            TenantOrder::Namespaces => namespace,
            TenantOrder::Users => user,
            TenantOrder::None => return Fraction(0, 1),
        };
        let of = |resource| {
            let real = self.has.get(&(job.queue.clone(), resource)).map_or(ANY, |has| has.real);
            let now = self.tenant_use(&job.queue, tenant, resource);
            let mean = self.tenant_mean.get(&(job.queue.clone(), tenant.clone(), resource)).copied().unwrap_or(0);
            let held = if self.policy == OrderPolicy::FairHistory { (now + mean) / 2 } else { now };
            // What the queue may have none of any more counts while it is held.
            (held > 0 && real < ANY && (real > 0 || now > 0)).then_some(Fraction(held, real.max(0)))
        };
        NAMES.into_iter().filter_map(of).max().unwrap_or(Fraction(0, 1))
    }

    /// What of its queue's place comes before that.
    pub fn turn(&self, queue: &QueueName) -> (Reverse<i32>, Vec<(i128, bool)>) {
        let priority = Reverse(self.queues[queue].priority);
        match self.policy {
            OrderPolicy::Share | OrderPolicy::FairHistory => (priority, self.shares(queue)),
            OrderPolicy::Strict => (priority, Vec::new()),
            OrderPolicy::Fifo => (Reverse(0), Vec::new()),
        }
    }

    /// The first in order of all that may start, by looking at all.
    pub fn next(&mut self) -> Option<(JobId, Resources)> {
        let mut order: Vec<&Job> = self
            .waiting
            .values()
            .filter(|job| self.open(&job.queue))
            .filter(|job| {
                self.queues[&job.queue].dequeue == Dequeue::Traverse
                    || self
                        .waiting
                        .values()
                        .filter(|o| o.queue == job.queue)
                        .all(|o| self.place(o) >= self.place(job) || self.is_never(o))
            })
            .collect();
        order.sort_by_key(|job| (self.turn(&job.queue), self.place(job)));
        let job = order
            .into_iter()
            .find(|job| {
                self.may_run(job)
                    && self.fits(&job.queue, &job.ask.minimum())
                    && self.capacity.get(&job.ask.fit.0).is_some_and(|r| *r > 0)
            })?
            .clone();
        let mut charged = job.ask.minimum();
        for task in &job.ask.tasks {
            for _ in 0..(task.most - task.min) / task.step {
                let mut more = charged.clone();
                more.add(&task.request.times(u64::from(task.step * job.ask.copies)));
                if self.fits(&job.queue, &more) {
                    charged = more;
                }
            }
        }
        *self.capacity.entry(job.ask.fit.0).or_default() -= 1;
        self.waiting.remove(&job.id);
        self.held.insert(job.id.clone(), (job.queue.clone(), charged.clone(), job.ask.counted.clone()));
        Some((job.id, charged))
    }

    pub fn over(&self) -> BTreeSet<(Option<QueueName>, &'static str)> {
        let mut over = BTreeSet::new();
        for name in self.queues.keys() {
            let (path, _) = self.path(name);
            for resource in NAMES {
                for from in 0..=path.len() {
                    let most = self.ceiling(&path[from..], resource);
                    if self.used(path.get(from), resource).as_nano() > most {
                        over.insert((path.get(from).cloned(), resource));
                    }
                }
            }
        }
        over
    }
}
