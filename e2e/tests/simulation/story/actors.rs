//! What the actors do that not every world has. Each draws from a sequence of its own.

use serde_json::{Value, json};

use super::{Action, Story, job};
use crate::{
    actors::{Actor, Actors},
    prng::Prng,
    setting::{self, GUEST, MEMBERS, TREE},
    stand_in::NAMESPACE,
    workloads::CARDS,
};

/// Queue, and cores that its Deployment wants in the end at most: beside all of them each job still fits.
const SERVICES: [(&str, u64); 2] = [("vision", 2), ("open", 3)];

impl Story {
    pub fn add_actors(&mut self, seed: u64, actors: &Actors) {
        let sequence = |of: u64| Prng::new(seed ^ (of << 32));
        if actors.has(Actor::Services) {
            self.add_services(&mut sequence(1));
        }
        if actors.has(Actor::Cards) {
            self.add_card_jobs(&mut sequence(2));
        }
        if actors.has(Actor::Members) {
            self.cut_member(&mut sequence(3));
        }
        if actors.has(Actor::Limits) {
            self.change_limits(&mut sequence(4), actors);
        }
        if actors.has(Actor::Restores) {
            self.restore_backups(&mut sequence(5));
        }
        if actors.has(Actor::Trees) {
            self.change_tree(&mut sequence(6), actors);
        }
        self.actions.sort_by_key(|(at, _)| *at);
    }

    /// Limits go up and down, and are in the end what they were. Where a child would have more than its parent the
    /// webhook refuses.
    fn change_limits(&mut self, prng: &mut Prng, actors: &Actors) {
        for _ in 0..prng.between(4, 10) {
            let queue = ["lab", "lab", "vision", "speech"][usize::try_from(prng.below(4)).unwrap()];
            let cores = prng.between(2, 13).to_string();
            let spec = match prng.below(4) {
                0 => json!({"deserved": {"cpu": cores}}),
                _ => json!({"capability": {"cpu": cores}}),
            };
            self.actions.push((prng.below(95_000), Action::Limit { queue, spec, must: false }));
        }
        for (index, queue) in ["lab", "vision", "speech"].into_iter().enumerate() {
            let mut spec = setting::queue(queue, actors)["spec"].clone();
            spec["deserved"] = Value::Null;
            self.actions.push((100_000 + index as u64, Action::Limit { queue, spec, must: true }));
        }
        for index in 0..prng.between(1, 4) {
            let name = format!("l{index}");
            let cores = prng.between(1, 4);
            let submitted = job(&name, GUEST, &[("t0".into(), cores, cores, 1)], prng.between(3, 25), false);
            self.actions.push((prng.below(90_000), Action::Submit(submitted)));
            self.finish.insert(name);
        }
        let from = prng.between(5_000, 90_000);
        self.actions.push((from, Action::Queue(GUEST, false)));
        self.actions.push((from + prng.between(1_000, 20_000), Action::Queue(GUEST, true)));
    }

    /// Once or twice the host comes back with what it had a while ago: half a minute, or longer than a gang may take to
    /// start and a member to answer.
    fn restore_backups(&mut self, prng: &mut Prng) {
        let mut from = prng.between(10_000, 60_000);
        for _ in 0..prng.between(1, 3) {
            let is_old = prng.below(3) == 0;
            let lasts = if is_old { prng.between(330_000, 420_000) } else { prng.between(20_000, 100_000) };
            self.actions.push((from, Action::BackUp));
            self.actions.push((from + lasts, Action::Restore));
            from += lasts + prng.between(1_000, 20_000);
        }
    }

    /// Jobs in the leaves of a tree, and an admin who closes, moves, limits and deletes its queues. In the end it is
    /// what it was.
    fn change_tree(&mut self, prng: &mut Prng, actors: &Actors) {
        for index in 0..prng.between(4, 9) {
            let name = format!("t{index}");
            let queue = ["nlp", "cv", "ops"][usize::try_from(prng.below(3)).unwrap()];
            let cores = prng.between(1, 5);
            let submitted = job(&name, queue, &[("t0".into(), cores, cores, 1)], prng.between(3, 25), false);
            self.actions.push((prng.below(90_000), Action::Submit(submitted)));
            self.finish.insert(name);
        }
        let names = TREE.map(|(name, ..)| name);
        let choose = |prng: &mut Prng| names[usize::try_from(prng.below(5)).unwrap()];
        for _ in 0..prng.between(6, 16) {
            let (at, queue) = (prng.below(95_000), choose(prng));
            let action = match prng.below(8) {
                0 | 1 => Action::Branch(queue, false),
                2 => Action::Turn { queue, open: false, must: false },
                3 => Action::Turn { queue, open: true, must: false },
                4 | 5 => {
                    let parent = if prng.below(5) == 0 { "root" } else { choose(prng) };
                    Action::Limit { queue, spec: json!({"parent": parent}), must: false }
                }
                _ => {
                    let cores = if prng.below(4) == 0 { Value::Null } else { prng.between(1, 9).to_string().into() };
                    Action::Limit { queue, spec: json!({"capability": {"cpu": cores}}), must: false }
                }
            };
            self.actions.push((at, action));
        }
        for (index, queue) in names.into_iter().enumerate() {
            let at = 100_000 + 10 * index as u64;
            let mut spec = setting::queue(queue, actors)["spec"].clone();
            if spec["parent"].is_null() {
                spec["parent"] = "root".into();
            }
            if spec["capability"].is_null() {
                spec["capability"] = Value::Null;
            }
            self.actions.push((at, Action::Branch(queue, true)));
            self.actions.push((at + 1_000, Action::Limit { queue, spec, must: true }));
            self.actions.push((at + 3_000, Action::Turn { queue, open: true, must: true }));
        }
    }

    /// One member may be cut off: for a while, or until its gangs are withdrawn from it.
    fn cut_member(&mut self, prng: &mut Prng) {
        let member = MEMBERS[usize::try_from(prng.below(2)).unwrap()];
        if prng.below(3) == 0 {
            return;
        }
        // Nobody says of it that it is ready meanwhile.
        let is_of_it = |action: &Action| matches!(action, Action::Reach(of, _) | Action::Ready(of, _) if *of == member);
        self.actions.retain(|(_, action)| !is_of_it(action));
        let from = prng.between(15_000, 90_000);
        let lasts = if prng.below(2) == 0 { prng.between(5_000, 90_000) } else { prng.between(330_000, 420_000) };
        let told = from + prng.between(10_000, 40_000);
        self.actions.push((from, Action::Cut(member, true)));
        if told < from + lasts {
            self.actions.push((told, Action::Lost(member, true)));
        }
        self.actions.push((from + lasts, Action::Cut(member, false)));
        self.actions.push((from + lasts + prng.between(1_000, 15_000), Action::Lost(member, false)));
    }

    /// Deployments that are scaled up and down, beyond what anybody has too, and whose pods come to ask for more or
    /// less. In the end each wants what it can have.
    fn add_services(&mut self, prng: &mut Prng) {
        for (index, (queue, most)) in SERVICES.into_iter().enumerate() {
            let name = format!("s{index}");
            let mut at = prng.below(40_000);
            self.actions.push((at, Action::Submit(service(&name, queue, 1))));
            loop {
                at += prng.between(2_000, 25_000);
                let cores = if prng.below(3) == 0 { prng.between(1, most + 1) } else { 1 };
                let replicas = prng.between(1, most / cores + 1);
                let is_last = at > 90_000;
                let (replicas, cores) = match prng.below(6) {
                    0 if !is_last => (30, cores),
                    1 if !is_last => (replicas, 20),
                    _ => (replicas, cores),
                };
                self.actions.push((at, Action::Reshape(name.clone(), replicas, cores)));
                if is_last {
                    break;
                }
            }
        }
    }

    /// Gangs that ask for cards, and one that asks for more than there are.
    fn add_card_jobs(&mut self, prng: &mut Prng) {
        for index in 0..prng.between(3, 6) {
            let name = format!("g{index}");
            let queue = ["vision", "speech", "open"][usize::try_from(prng.below(3)).unwrap()];
            let (replicas, cards) = if prng.below(3) == 0 { (1, 2) } else { (prng.between(1, 3), 1) };
            let mut tasks = vec![("t0".to_owned(), replicas, replicas, 1)];
            if prng.below(3) == 0 {
                tasks.push(("t1".to_owned(), prng.between(1, 3), 1, 1));
            }
            let gang = with_cards(job(&name, queue, &tasks, prng.between(3, 25), false), cards);
            self.actions.push((prng.below(90_000), Action::Submit(gang)));
            self.finish.insert(name);
        }
        let giant = with_cards(job("card-giant", "open", &[("t0".into(), 4, 4, 1)], 5, false), 2);
        self.actions.push((prng.below(60_000), Action::Submit(giant)));
        self.wait.insert("card-giant".into());
    }
}

/// The pods of the first task ask for cards too.
fn with_cards(mut job: Value, cards: u64) -> Value {
    let resources = &mut job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"];
    resources["requests"][CARDS] = cards.to_string().into();
    // A card can not be had twice: an API server wants both.
    resources["limits"] = json!({CARDS: cards.to_string()});
    job
}

fn service(name: &str, queue: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"scheduling.volcano.sh/queue-name": queue}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": service_template(name, 1),
        },
    })
}

pub fn service_template(name: &str, cores: u64) -> Value {
    let container = json!({
        "name": "c", "image": "i", "resources": {"requests": {"cpu": cores.to_string(), "memory": "16Mi"}},
    });
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}})
}
