//! What the log says of what was decided, line by line.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use super::world::World;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The fields and the span of each line that is logged of a decision meanwhile.
fn capture_lines(run: impl FnOnce()) -> Vec<Value> {
    // Of one subscriber alone tracing takes it that a line which another thread logs first is for nobody.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let read = |line: &str| {
        let mut line = serde_json::from_str::<Value>(line).unwrap();
        let mut fields = line["fields"].take();
        fields["span"] = line["span"].take();
        fields
    };
    text.lines().map(read).filter(|fields| !fields["by"].is_null()).collect()
}

fn runs(world: &mut World, name: &str, queue: &str) {
    world.job(name, queue, 4);
    world.pass(1);
    let binding = format!("{name}-job");
    world.place(&binding, 4);
    let time = caldera_runtime::clock::format_time(world.now);
    world.patch("ResourceBinding", &binding, &json!({"status": {"lastScheduledTime": time}}));
    world.phase(name, "Running");
    world.pass(1);
}

#[test]
fn a_line_says_which_job_is_released_evicted_or_withdrawn_in_which_queue_and_by_whom() {
    let lines = capture_lines(|| {
        let mut world = World::empty();
        world.cluster("m1", "8");
        for name in ["a", "b"] {
            world.queue(name, &json!({"deserved": {"cpu": "4", "pods": "4"}}));
        }
        world.pass(10);
        runs(&mut world, "old", "b");
        runs(&mut world, "young", "b");
        world.job("mine", "a", 4);
        world.pass(5);
        world.patch("Job", "old", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
        world.pass(2);
    });
    let of = |message: &str, binding: &str| {
        let is_it = |line: &&Value| line["message"] == message && line["binding"] == binding;
        let found: Vec<&Value> = lines.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "one line for {message}, {binding}: {lines:#?}");
        found[0].clone()
    };
    let released = of("a job is released", "ns/mine-job");
    assert_eq!((&released["queue"], &released["by"]), (&json!("a"), &json!("controller")));
    let span = &released["span"];
    let said = ["name", "binding", "queue", "does"].map(|field| span[field].clone());
    assert_eq!(said, ["decision", "ns/mine-job", "a", "release"].map(|text| json!(text)));
    assert!(span["workload_uid"].as_str().is_some_and(|uid| uid.starts_with("uid-")), "{span}");
    assert!(released["charged"].as_str().is_some_and(|charged| charged.contains("cpu 4")), "{released}");
    let evicted = of("a job is evicted", "ns/young-job");
    let fields = ["queue", "clusters", "reason", "by", "preemptor"].map(|name| evicted[name].clone());
    assert_eq!(fields, ["b", "m1", "Reclaimed", "preemptor", "ns/mine-job"].map(|text| json!(text)));
    assert!(evicted["why"].as_str().is_some_and(|why| !why.is_empty()), "{evicted}");
    let suspended = of("a job is evicted", "ns/old-job");
    let fields = ["queue", "clusters", "reason", "by"].map(|name| suspended[name].clone());
    assert_eq!(fields, ["b", "m1", "Suspended", "user"].map(|text| json!(text)));
    assert!(suspended["preemptor"].is_null(), "{suspended}");
    assert_eq!(of("a job is released", "ns/old-job")["queue"], "b");
}
