//! The Karmada stand-ins against recordings of a real Karmada 1.19.
//!
//! A recording's inputs and actions are repeated on embedded API servers (a host, members `m1` and `m2`), each action as
//! soon as the objects that were there before it are there again and everything is quiet. Before every action, and at
//! the end, all objects are compared with the recorded ones; and for every object and writer the set of fields that were
//! written. Times, uids, versions and repetitions do not count.
//!
//! The recordings are in `fixtures/transcripts`, or in the folder that `CALDERA_TRANSCRIPTS_DIR` names.
//! `CALDERA_TRANSCRIPT=<id prefix>` runs only some of them and prints every difference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compare;
mod interpreter;
mod recorder;
mod recording;
mod replay;
mod stage;

use std::{collections::BTreeMap, sync::Arc};

use recording::Recording;

/// Scenarios that must pass; raised as more do.
const FLOOR: usize = 62;
/// Equal quotients are divided by whether a hash of the template's uid is even: a scenario with another division is
/// tried again with other uids.
const ATTEMPTS: usize = 12;
/// Karmada's own races end otherwise now and then: its scheduler writes the whole list of conditions as it read it.
const RACES: usize = 3;
/// Scenarios at a time.
const PARALLEL: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_stand_ins_do_what_karmada_did() {
    let folder = caldera_fixtures::find_folder("CALDERA_TRANSCRIPTS_DIR", "transcripts");
    let only = std::env::var("CALDERA_TRANSCRIPT").ok();
    if only.is_some() {
        let _ = tracing_subscriber_like();
    }
    let gate = Arc::new(tokio::sync::Semaphore::new(PARALLEL));
    let mut running = Vec::new();
    for file in caldera_fixtures::list_files(&folder, "json") {
        let recording = Recording::read(&file);
        if only.as_ref().is_some_and(|only| !recording.id.starts_with(only.as_str())) {
            continue;
        }
        let gate = gate.clone();
        running.push(tokio::spawn(async move {
            let _permit = gate.acquire().await.unwrap();
            let id = recording.id.clone();
            let outcome = match recording.unsupported() {
                Some(why) => Outcome::NotRun(why),
                None => {
                    let limit = std::time::Duration::from_secs(120);
                    let mut differences = Vec::new();
                    for attempt in 1..=ATTEMPTS {
                        differences = match tokio::time::timeout(limit, replay::replay(&recording)).await {
                            Ok(differences) => differences,
                            Err(_) => vec!["it did not end within two minutes".to_owned()],
                        };
                        let divided_otherwise = differences.iter().any(|one| one.contains("/spec/clusters"));
                        if differences.is_empty() || attempt >= RACES && !divided_otherwise {
                            break;
                        }
                    }
                    Outcome::Run(differences)
                }
            };
            (id, outcome)
        }));
    }
    let mut groups: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    let (mut passed, mut total) = (0, 0);
    for task in running {
        let (id, outcome) = task.await.unwrap();
        let group: String = id.chars().take_while(char::is_ascii_digit).collect();
        let counts = groups.entry(group).or_default();
        counts.1 += 1;
        total += 1;
        match outcome {
            Outcome::NotRun(why) => {
                counts.2 += 1;
                println!("  {id}: not run: {why}");
            }
            Outcome::Run(differences) if differences.is_empty() => {
                counts.0 += 1;
                passed += 1;
            }
            Outcome::Run(differences) => {
                println!("  {id}: {} differences, first: {}", differences.len(), shortened(&differences[0]));
                if only.is_some() {
                    for difference in &differences {
                        println!("    {difference}");
                    }
                }
            }
        }
    }
    for (group, (passed, total, not_run)) in &groups {
        let note = if *not_run == 0 { String::new() } else { format!(" ({not_run} not run)") };
        println!("transcripts {group}: {passed} of {total}{note}");
    }
    println!("transcripts total: {passed} of {total}");
    // Other recordings may be fewer.
    let fewer = std::env::var_os("CALDERA_TRANSCRIPTS_DIR").is_some() && total < FLOOR;
    assert!(only.is_some() || fewer || passed >= FLOOR, "only {passed} of {total} transcripts pass, {FLOOR} must");
}

enum Outcome {
    Run(Vec<String>),
    NotRun(String),
}

fn shortened(text: &str) -> String {
    text.chars().take(220).collect()
}

/// Logs go through `RUST_LOG` only when one scenario is looked at.
fn tracing_subscriber_like() -> Option<()> {
    std::env::var("RUST_LOG").ok()?;
    caldera_runtime::telemetry::start_logging("info", caldera_runtime::telemetry::Format::Text);
    Some(())
}
