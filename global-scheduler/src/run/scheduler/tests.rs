//! The scheduler between two awaits, with a host that is a function.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use caldera_runtime::{
    client::WriteCounts,
    clock::SystemClock,
    write::{Failure, WriteOutcome},
};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{observe::binding::Binding, run::estimators::pool::Settings};

/// Reads are never answered; writes are noted.
#[derive(Default)]
struct Host {
    refuses_statuses: AtomicBool,
    /// Paths of writes.
    written: Mutex<Vec<String>>,
}

impl Host {
    async fn answer(&self, request: http::Request<Body>) -> Result<http::Response<Body>, http::Error> {
        if request.method() == http::Method::GET {
            return std::future::pending().await;
        }
        let path = request.uri().path().to_owned();
        let is_refused = path.ends_with("/status") && self.refuses_statuses.load(Ordering::Relaxed);
        self.written.lock().unwrap().push(path);
        let (code, body) = match is_refused {
            true => (
                403,
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403}),
            ),
            false => (200, json!({})),
        };
        http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
    }

    fn take_written(&self) -> Vec<String> {
        std::mem::take(&mut self.written.lock().unwrap())
    }
}

struct World {
    host: Arc<Host>,
    scheduler: Scheduler,
    outcomes: mpsc::Receiver<WriteOutcome<Tag>>,
}

impl World {
    /// Everything is listed, and there is no cluster.
    fn new() -> Self {
        let host = Arc::<Host>::default();
        let answers = Arc::clone(&host);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let host = Arc::clone(&answers);
            async move { host.answer(request).await }
        });
        let (client, stop) = (Client::new(service, "ns"), CancellationToken::new());
        let (writer, outcomes) = Writer::start_writer(client.clone(), stop.clone());
        let (events, _) = mpsc::channel(1);
        let members = Members::new(client, "test", WriteCounts::default(), Arc::new(SystemClock), events, stop);
        let (estimators, _) = EstimatorPool::new(Settings::default());
        let mut scheduler = Scheduler::new(Config::default(), members, writer, estimators);
        scheduler.apply_host_event(HostEvent::DataSources(Event::Reset(vec![])));
        scheduler.apply_host_event(HostEvent::DataClaims(Event::Reset(vec![])));
        scheduler.apply_host_event(HostEvent::Clusters(Box::new(Event::Reset(vec![]))));
        scheduler.apply_host_event(HostEvent::Links(Box::new(Event::Reset(vec![]))));
        Self { host, scheduler, outcomes }
    }

    fn apply_bindings(&mut self, event: Event<Binding>) {
        self.scheduler.apply_host_event(HostEvent::Bindings(false, Box::new(event)));
        self.scheduler.decide_due();
    }

    /// The next so many answers, which are taken in; what was written.
    async fn take_outcomes(&mut self, count: usize) -> Vec<String> {
        for _ in 0..count {
            let outcome = tokio::time::timeout(Duration::from_secs(60), self.outcomes.recv()).await;
            self.scheduler.apply_outcome(outcome.unwrap().unwrap());
            self.scheduler.decide_due();
        }
        self.host.take_written()
    }

    fn count_retries(&self) -> usize {
        self.scheduler.retries.list_failures().count()
    }
}

fn key() -> BindingKey {
    BindingKey { namespace: "ns".into(), name: "web".into() }
}

/// A binding of something that is not queued.
fn binding(template: &str) -> Binding {
    let object: Value = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "b", "resourceVersion": "3", "generation": 1,
            "labels": {"propagationpolicy.karmada.io/permanent-id": "p"},
        },
        "spec": {
            "resource": {"apiVersion": "example.io/v1", "kind": "Widget", "namespace": "ns", "name": template},
            "schedulerName": "caldera", "placement": {},
        },
    });
    Binding::parse_binding(&object).unwrap()
}

const STATUS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/ns/resourcebindings/web/status";
const EVENTS: &str = "/api/v1/namespaces/ns/events";

#[tokio::test]
async fn a_refusal_is_stored_and_recorded_on_the_binding_whatever_its_template_is_called() {
    let mut world = World::new();
    world.apply_bindings(Event::Reset(vec![binding(&format!("a{}", "\u{e9}".repeat(115)))]));
    let mut written = world.take_outcomes(2).await;
    written.sort();
    assert_eq!(written, [EVENTS, STATUS]);
}

#[tokio::test]
async fn a_status_that_the_server_refuses_is_written_again_after_a_wait_and_not_at_once() {
    let mut world = World::new();
    world.host.refuses_statuses.store(true, Ordering::Relaxed);
    world.apply_bindings(Event::Reset(vec![binding("web")]));
    assert_eq!(world.take_outcomes(3).await.len(), 3, "the status and two Events");
    assert!(world.scheduler.in_flight.is_empty() && world.scheduler.retries.must_wait(&key()));
    // An event of the binding makes it no sooner.
    world.apply_bindings(Event::Applied(Binding { resource_version: "4".into(), ..binding("web") }));
    assert!(world.scheduler.in_flight.is_empty());
    world.host.refuses_statuses.store(false, Ordering::Relaxed);
    tokio::time::sleep_until(world.scheduler.retries.next_due().unwrap()).await;
    world.scheduler.mark_expired_waits_due();
    world.scheduler.decide_due();
    assert!(world.take_outcomes(3).await.contains(&STATUS.to_owned()));
}

#[tokio::test]
async fn a_binding_that_is_gone_leaves_nothing_behind_also_where_only_a_list_says_so() {
    for gone in [Event::Reset(vec![]), Event::Deleted(binding("web"))] {
        let mut world = World::new();
        world.host.refuses_statuses.store(true, Ordering::Relaxed);
        world.apply_bindings(Event::Reset(vec![binding("web")]));
        world.take_outcomes(3).await;
        assert_eq!((world.count_retries(), world.scheduler.refused_at.len()), (1, 1));
        world.apply_bindings(gone);
        assert_eq!((world.count_retries(), world.scheduler.refused_at.len()), (0, 0));
    }
}

#[tokio::test]
async fn a_write_that_fails_after_its_binding_is_gone_is_not_tried_again() {
    let failures = [
        Failure::Conflict("changed".into()),
        Failure::Transient("busy".into()),
        Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() },
    ];
    for failure in failures {
        let mut world = World::new();
        world.apply_bindings(Event::Reset(vec![binding("web")]));
        world.apply_bindings(Event::Deleted(binding("web")));
        assert!(world.scheduler.in_flight.contains_key(&key()));
        world.scheduler.apply_outcome(WriteOutcome { tag: Tag::Status(key()), result: Err(failure) });
        assert_eq!((world.count_retries(), world.scheduler.in_flight.len()), (0, 0));
    }
}
