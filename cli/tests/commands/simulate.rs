//! `caldera simulate`: what it reads, what it prints and writes, and how it refuses.

use std::{fs, process::Command};

use serde_json::Value;

use crate::outcome::{read_outcome, write_file};

const FLEET: &str = "cluster,count,cpu,nvidia.com/gpu\neast,2,32,4\nwest,1,32,8\n";
const QUEUES: &str = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: ml}\nspec: {capability: \
                      {nvidia.com/gpu: 8}}\n---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: \
                      {name: web}\n";
const TRACE: &str = "job,queue,arrival,run,task,replicas,cpu,nvidia.com/gpu\ntrain,ml,0,60,worker,8,1,1\ntrain,,,,ps,1,2,\n\
                     late,ml,10,30,,4,1,1\nsite,web,0,1m,,2,4,\n";

/// Exit code, standard output, standard error.
fn simulate(args: &[&str]) -> (Option<i32>, String, String) {
    read_outcome(Command::new(env!("CARGO_BIN_EXE_caldera")).arg("simulate").args(args).output().unwrap())
}

#[test]
fn a_trace_on_a_fleet_is_reported_as_table_json_csv_and_plots() {
    let dir = tempfile::tempdir().unwrap();
    let [fleet, queues, trace] = [("fleet.csv", FLEET), ("queues.yaml", QUEUES), ("trace.csv", TRACE)]
        .map(|(name, text)| write_file(dir.path(), name, text));
    let out = dir.path().join("out/deep");
    let out = out.to_str().unwrap();
    let args = ["--fleet", &fleet, "--queues", &queues, "--trace", &trace, "--policy", "caldera,volcano-global"];
    let (code, table, error) = simulate(&[&args[..], &["--csv", out, "--svg", out]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert!(table.starts_with("seed 1: 3 jobs on 3 nodes in 2 clusters, 16 nvidia.com/gpu\n"), "{table}");
    let (_, json, _) = simulate(&[&args[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    let ours = &report["policies"][0];
    assert_eq!((&ours["policy"], ours["finished"].as_u64()), (&Value::from("caldera"), Some(3)));
    // `late` waits for the quota that `train` holds for a minute.
    assert_eq!(ours["waitSecondsByQueue"]["ml"]["max"], 50.0, "{json}");
    assert_eq!(simulate(&[&args[..], &["-o", "json"]].concat()).1, json);
    let mut written: Vec<String> =
        fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    written.sort();
    let want = [
        "caldera-jobs.csv",
        "caldera-time.csv",
        "utilisation.svg",
        "volcano-global-jobs.csv",
        "volcano-global-time.csv",
        "waits.svg",
    ];
    assert_eq!(written, want);
    // What if a cluster takes nothing new? The eight pods of `train` still fit the other one.
    let (_, json, _) = simulate(&[&args[..], &["--cordon", "west", "-o", "json"]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["policies"][0]["finished"], 3, "{json}");
}

#[test]
fn a_trace_says_whose_jobs_are_and_queues_limit_each_user() {
    let dir = tempfile::tempdir().unwrap();
    let trace = "job,queue,user,arrival,run,nvidia.com/gpu\na,ml,anna,0,60,1\nb,ml,anna,0,60,1\nc,ml,ben,0,60,1\n";
    let queues = QUEUES.replace("{name: ml}", "{name: ml, annotations: {caldera.dev/max-running-jobs-per-user: '1'}}");
    let [fleet, queues, trace] = [("fleet.csv", FLEET), ("queues.yaml", &queues), ("trace.csv", trace)]
        .map(|(name, text)| write_file(dir.path(), name, text));
    let (code, json, error) = simulate(&["--fleet", &fleet, "--queues", &queues, "--trace", &trace, "-o", "json"]);
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["policies"][0]["waitSecondsByQueue"]["ml"]["max"], 60.0, "{json}");
}

#[test]
fn the_order_and_the_wait_for_a_reservation_are_chosen_for_the_whole_simulation() {
    let run = |more: &[&str]| {
        let (code, json, error) =
            simulate(&[&["--scenario", "fairness", "--horizon", "20m", "-o", "json"], more].concat());
        assert_eq!(code, Some(0), "{error}");
        json
    };
    let usual = run(&[]);
    assert_eq!(usual, run(&["--order", "share", "--reservation-after", "60"]));
    assert_ne!(usual, run(&["--order", "fifo"]));
    assert_ne!(usual, run(&["--order", "fair-history", "--history-half-life", "3600"]));
    let large = |more: &[&str]| simulate(&[&["--scenario", "starvation", "-o", "json"], more].concat()).1;
    assert_ne!(large(&[]), large(&["--reservation-after", "0"]), "nothing is kept for the large gang");
}

#[test]
fn a_scenario_ends_with_its_hour_and_follows_its_seed() {
    let run = |seed: &str| simulate(&["--scenario", "fairness", "--seed", seed, "--horizon", "10m", "-o", "json"]).1;
    let report: Value = serde_json::from_str(&run("1")).unwrap();
    assert_eq!(report["policies"][0]["shares"]["contendedSeconds"], 600.0);
    assert_ne!(run("1"), run("2"));
}

#[test]
fn wrong_input_ends_with_code_2_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let [fleet, trace] =
        [("fleet.csv", FLEET), ("trace.csv", TRACE)].map(|(name, text)| write_file(dir.path(), name, text));
    let bad = |name: &str, text: &str| write_file(dir.path(), name, text);
    let wrong = |args: &[&str], words: &[&str]| {
        let (code, _, error) = simulate(args);
        assert_eq!(code, Some(2), "{args:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{args:?}: {word:?} is not in {error:?}");
        }
        assert!(!error.contains("panicked"), "{error}");
    };
    wrong(&[], &["--scenario", "--trace", "--kubeconfig"]);
    wrong(&["--scenario", "peace"], &["\"peace\" is no scenario"]);
    wrong(&["--scenario", "fairness", "--policy", "best"], &["\"best\" is no policy"]);
    wrong(&["--scenario", "fairness", "--speed", "0"], &["\"0\" is no factor"]);
    wrong(&["--scenario", "fairness", "--horizon", "soon"], &["\"soon\" is no time"]);
    wrong(&["--scenario", "fairness", "--cordon", "north"], &["no such cluster", "member01"]);
    wrong(&["--scenario", "fairness", "--resource", "amd.com/gpu"], &["no node has any"]);
    wrong(&["--trace", &trace], &["--fleet"]);
    wrong(&["--trace", "/nonexistent/t.csv", "--fleet", &fleet], &["/nonexistent/t.csv"]);
    let cut = bad("cut.csv", "job,arrival,run\na,0\n");
    wrong(&["--trace", &cut, "--fleet", &fleet], &["cut.csv: line 2: it has 2 fields"]);
    let yaml = bad("fleet.yaml", "clusters:\n- name: a\n  nodes: [{allocatable: {cpu: lots}}]\n");
    wrong(&["--trace", &trace, "--fleet", &yaml], &["fleet.yaml", "lots"]);
    let empty = bad("empty.yaml", "clusters: []\n");
    wrong(&["--trace", &trace, "--fleet", &empty], &["the fleet has no nodes"]);
    let queues = bad("queues.yaml", "kind: Queue\nmetadata: {name: web}\n");
    wrong(
        &["--trace", &trace, "--fleet", &fleet, "--queues", &queues],
        &["job train names queue ml", "the queues are: web"],
    );
    let pods = bad("pods.csv", "name,cpu\np,1\n");
    wrong(&["--trace", &pods, "--trace-format", "openb", "--fleet", &fleet], &["no column \"cpu_milli\""]);
}
