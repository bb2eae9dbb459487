//! `caldera job`, `queue` and `cluster` against a sandbox: what an operator does.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use caldera_cli::{
    objects::{annotation_of, read_list_at, read_text_at},
    stack,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write, execute_write},
};
use serde_json::{Value, json};

use crate::{
    killed::Killed,
    sandbox::{BINARY, Sandbox, WAITING, caldera, until},
};

#[test]
fn jobs_queues_and_clusters_are_listed_and_changed_on_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 2);
    sandbox.run_and_wait();

    let table = sandbox.succeeds(&["job", "list", "-A", "--sort-by", "state"]);
    assert!(table.starts_with("NAMESPACE") && table.contains("member1,member2"), "{table}");
    assert!(!table.contains('\u{1b}'), "colour without a terminal: {table}");
    let names = sandbox.succeeds(&["job", "list", "-n", "default", "-o", "name", "--queue", "research"]);
    assert_eq!(names, "low-priority\nmindspore-cpu\n");
    sandbox.fails(&["job", "list", "-n", "nowhere"], "there is no namespace nowhere; there are ");
    let described = sandbox.succeeds(&["job", "describe", "low-priority", "-n", "default"]);
    assert!(described.starts_with("Job default/low-priority WAITS"), "{described}");

    assert_eq!(sandbox.succeeds(&["job", "hold", "low-priority", "-n", "default"]), "vcjob/low-priority held\n");
    sandbox.until_state("low-priority", "Held");
    let again = sandbox.succeeds(&["job", "hold", "low-priority", "-n", "default"]);
    assert_eq!(again, "vcjob/low-priority is held already\n");
    assert_eq!(sandbox.succeeds(&["job", "release", "low-priority", "-n", "default"]), "vcjob/low-priority released\n");
    sandbox.until_state("low-priority", "Waiting");
    sandbox.fails(&["job", "hold", "nobody", "-n", "default"], "there is no Volcano Job nobody in namespace default");

    the_names_that_a_shell_completes(&sandbox);
    settings_that_change_while_the_controller_runs(&sandbox);
    the_queues(&sandbox);
    the_clusters(&sandbox);
    a_fleet_that_is_paused_and_goes_on(&sandbox);
    what_is_said(&sandbox);
    moving_jobs(&sandbox);
    a_job_that_is_moved_to_another_cluster(&sandbox);

    // With quota for both it started; then it is deleted.
    until("low-priority starts", || {
        let state = sandbox.state_of("low-priority");
        (!["Waiting", "Admitted"].contains(&state.as_str())).then_some(()).ok_or(state)
    });
    let named = ["job", "delete", "low-priority", "deployment/web", "-n", "default"];
    assert_eq!(sandbox.succeeds(&named), "vcjob/low-priority deleted\ndeployment/web deleted\n");
    until("it is gone", || {
        let state = sandbox.state_of("low-priority");
        state.is_empty().then_some(()).ok_or(state)
    });
}

/// As fish asks: a candidate a line.
fn the_names_that_a_shell_completes(sandbox: &Sandbox) {
    for (line, want) in [
        (&["why", "-n", "default", "mind"][..], "mindspore-cpu\n"),
        (&["why", "-n", "nowhere", "mind"], ""),
        (&["job", "logs", "-n", "default", "deployment/w"], "deployment/web\n"),
        (&["queue", "drain", "rese"], "research\n"),
        (&["cluster", "cordon", "member1", "member"], "member1\nmember2\n"),
        (&["job", "list", "--namespace=defau"], "--namespace=default\n"),
    ] {
        let (last, before) = line.split_last().unwrap();
        let words = [&["--", "caldera"], before, &["--kubeconfig", &sandbox.kubeconfig, last]].concat();
        let output = caldera(&words).env("COMPLETE", "fish").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want, "{words:?}");
    }
    // As bash asks, which takes `--namespace=` for two words and more.
    let kubeconfig = ["--kubeconfig", &sandbox.kubeconfig];
    for (line, want) in [
        (&["job", "list", "--namespace", "=", "defau"][..], "default"),
        (&["why", "-n", "default", "mind"], "mindspore-cpu"),
        (&["cluster", "cordon", "member"], "member1 member2"),
        (&["job", "list", "--sort-by", "=", "pri"], "priority"),
    ] {
        let words = [&["caldera"], &kubeconfig[..], line].concat();
        let ask = "source <(\"$CALDERA\" completions bash); PATH=\"${CALDERA%/*}:$PATH\"; COMP_WORDBREAKS='= '; \
                   COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                   _caldera_complete caldera \"${!#}\" \"\"; echo \"${COMPREPLY[*]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", ask, "bash"]).args(&words).env("CALDERA", BINARY).env("HOME", "/nonexistent");
        let output = bash.env_remove("KUBECONFIG").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), want, "{words:?}");
    }
}

fn settings_that_change_while_the_controller_runs(sandbox: &Sandbox) {
    let maps = api_resource("", "v1", "ConfigMap", "configmaps");
    let choose = |data: Value| {
        let metadata = json!({"name": "caldera-settings", "namespace": "caldera-system"});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        sandbox.wait(stack::apply_object(&sandbox.host, map)).map(drop).map_err(|error| format!("{error:#}"))
    };
    let published = || -> Value {
        let map = sandbox.get(&maps, Some("caldera-system"), "caldera-controller").unwrap_or_default();
        serde_json::from_str(read_text_at(&map, "/data/settings.json")).unwrap_or_default()
    };
    let until_preempt_after = |seconds: Value| {
        until(&format!("preempt-after is {seconds}"), || {
            let settings = published();
            (settings["preemptAfter"] == seconds).then_some(()).ok_or(format!("{settings:#}"))
        });
    };
    let by_flags = published()["preemptAfter"].clone();
    choose(json!({"preempt-after": "77"})).unwrap();
    until_preempt_after(json!(77));
    // No outage of the webhook stops a ConfigMap, so that it may come late.
    let mut seconds = 100;
    until("what is not understood is not stored", || {
        seconds += 1;
        let refused = choose(json!({"preempt-after": seconds.to_string(), "oder": "fifo"})).err();
        let refused = refused.ok_or("it was stored")?;
        if refused.contains("oder: there is no such setting") { Ok(()) } else { Err(refused) }
    });
    // The flags' target threshold is known to the controller alone.
    choose(json!({"preempt-after": "78", "load-thresholds": "cpu=99"})).unwrap();
    until("the refusal is told", || {
        let events = sandbox.succeeds(&["events", "-n", "caldera-system", "-o", "wide"]);
        let is_reported = events.contains("SettingsRefused") && events.contains("load-thresholds: ");
        is_reported.then_some(()).ok_or(events)
    });
    assert_eq!(published()["preemptAfter"], 77);
    let write = Write {
        resource: maps.clone(),
        namespace: "caldera-system".to_owned(),
        name: "caldera-settings".to_owned(),
        subresource: None,
        body: Body::Delete { uid: None },
    };
    sandbox.wait(execute_write(&sandbox.host, &write)).unwrap();
    until_preempt_after(by_flags);
}

fn the_queues(sandbox: &Sandbox) {
    assert_eq!(sandbox.succeeds(&["queue", "close", "services"]), "queue services is Closing\n");
    assert_eq!(sandbox.succeeds(&["queue", "close", "services"]), "queue services is Closing already\n");
    assert_eq!(sandbox.succeeds(&["queue", "open", "services"]), "queue services is Open\n");
    sandbox.fails(&["queue", "open", "nowhere"], "there is no queue nowhere");
    let names = sandbox.succeeds(&["queue", "list", "-o", "name"]);
    assert_eq!(names, "root\ndefault\nresearch\nservices\ntraining\n");
    let sorted = sandbox.succeeds(&["queue", "list", "--sort-by", "{.name}", "-o", "jsonpath={.queues[*].name}"]);
    assert_eq!(sorted, "default research root services training");
    assert_eq!(sandbox.succeeds(&["queue", "list", "-l", "no=such", "-o", "name"]), "");
    sandbox.fails(&["queue", "list", "--sort-by", "nothing"], "no row has a field \"nothing\" to sort by");
    sandbox.fails(&["queue", "tree", "--sort-by", "name"], "of the list of queues");
    let tree = sandbox.succeeds(&["queue", "tree"]);
    assert!(tree.contains("\n  research "), "{tree}");
    for form in [["queue", "tree", "research"], ["queue", "research", "tree"]] {
        assert!(sandbox.succeeds(&form).contains("\nresearch "));
    }
    let described = sandbox.succeeds(&["queue", "describe", "research"]);
    assert!(described.contains("Waiting:") && described.contains("Above it:\n"), "{described}");
}

/// A job that has quota waits while all releases are paused, and all who are asked say so.
fn a_fleet_that_is_paused_and_goes_on(sandbox: &Sandbox) {
    let paused = sandbox.succeeds(&["pause", "--reason", "upgrade at noon"]);
    assert!(paused.contains("paused"), "{paused}");
    let other = WAITING.replace("name: low-priority", "name: paused").replace("queue: research", "queue: training");
    let small = other.replace("minAvailable: 6", "minAvailable: 1").replace("replicas: 6", "replicas: 1");
    sandbox.apply(&small);
    sandbox.until_state("paused", "Waiting");
    let says = |command: &[&str]| {
        until(&format!("{command:?} does not say it"), || {
            let (_, out, err) = sandbox.run(command);
            if out.contains("upgrade at noon") { Ok(()) } else { Err(out + &err) }
        });
    };
    says(&["why", "paused", "-n", "default"]);
    says(&["queue", "list"]);
    says(&["top", "--once"]);
    says(&["doctor"]);
    sandbox.succeeds(&["unpause"]);
    until("it starts", || {
        let state = sandbox.state_of("paused");
        (!["Waiting", "Admitted"].contains(&state.as_str())).then_some(()).ok_or(state)
    });
    for command in [["queue", "list"], ["top", "--once"]] {
        let out = sandbox.succeeds(&command);
        assert!(!out.contains("upgrade at noon"), "{out}");
    }
    sandbox.succeeds(&["job", "delete", "paused", "-n", "default"]);
    until("it is gone", || {
        let state = sandbox.state_of("paused");
        state.is_empty().then_some(()).ok_or(state)
    });
}

fn the_clusters(sandbox: &Sandbox) {
    let state = || -> String {
        let listed: Value = serde_json::from_str(&sandbox.succeeds(&["cluster", "list", "-o", "json"])).unwrap();
        read_text_at(&listed, "/clusters/0/state").to_owned()
    };
    assert_eq!(state(), "Ready");
    let listed = |more: &[&str]| sandbox.succeeds(&[["cluster", "list", "-o", "name"].as_slice(), more].concat());
    assert_eq!((listed(&["--sort-by", "name"]), listed(&["-l", "no=such"])), ("member1\nmember2\n".into(), "".into()));
    assert_eq!(sandbox.succeeds(&["cluster", "cordon", "member1"]), "cluster member1 cordoned\n");
    assert_eq!(state(), "Cordoned");
    let described = sandbox.succeeds(&["cluster", "describe", "member1"]);
    let words = ["Taint cluster.karmada.io/unschedulable:NoSchedule", "vcjob/mindspore-cpu", "ALLOCATABLE"];
    assert!(words.iter().all(|word| described.contains(word)), "{described}");
    assert_eq!(sandbox.succeeds(&["cluster", "uncordon", "member1"]), "cluster member1 uncordoned\n");
    assert_eq!(state(), "Ready");
    let window = ["--start", "2099-01-01T08:00:00Z", "--duration", "4h", "--reason", "new kernels"];
    let planned = sandbox.succeeds(&[["cluster", "maintenance", "member1"].as_slice(), &window].concat());
    let times = "from 2099-01-01T08:00:00Z to 2099-01-01T12:00:00Z (new kernels)";
    assert_eq!(planned, format!("cluster member1 is under maintenance {times}\n"));
    for ask in [["cluster", "list"].as_slice(), &["cluster", "describe", "member1"]] {
        let shown = sandbox.succeeds(ask);
        assert!(shown.contains("MAINTENANCE") && shown.contains(times), "{shown}");
    }
    let cancel = ["cluster", "maintenance", "member1", "--cancel"];
    assert_eq!(sandbox.succeeds(&cancel), "cluster member1 has no maintenance window any more\n");
    assert!(!sandbox.succeeds(&["cluster", "list"]).contains("MAINTENANCE"));
    sandbox.fails(&["cluster", "describe", "nowhere"], "there is no cluster nowhere; there are member1, member2");
}

/// Logs of both clusters and events, each told by where it is from.
fn what_is_said(sandbox: &Sandbox) {
    let logs = sandbox.succeeds(&["job", "logs", "mindspore-cpu", "-n", "default", "-f"]);
    for cluster in ["member1", "member2"] {
        let line =
            |line: &&str| line.starts_with(&format!("[{cluster}/mindspore-cpu-")) && line.contains("is simulated");
        assert!(logs.lines().any(|it| line(&it)), "{cluster}: {logs}");
    }
    let one = sandbox.succeeds(&["job", "logs", "mindspore-cpu", "-n", "default", "--rank", "0"]);
    assert!(one.lines().count() < logs.lines().count() && !one.is_empty(), "{one}");
    sandbox
        .fails(&["job", "logs", "mindspore-cpu", "-n", "default", "--task", "nobody"], "has no such pods in member1");
    sandbox.fails(&["job", "logs", "low-priority", "-n", "default"], "it has not started; `caldera why low-priority`");
    assert!(sandbox.succeeds(&["job", "logs", "deployment/web", "-n", "default"]).contains("/web-"));
    let exec = ["job", "exec", "mindspore-cpu", "-n", "default", "--kubeconfig", &sandbox.kubeconfig];
    let args = [exec.as_slice(), &["--all", "--", "true"]].concat();
    let refused = caldera(&args).output().unwrap();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && words.contains("pods are simulated and have no containers"), "{words}");

    let events = sandbox.succeeds(&["events", "-n", "default", "--for", "mindspore-cpu", "-o", "wide"]);
    assert!(events.starts_with("AGE") && events.contains("job/mindspore-cpu"), "{events}");
    assert!(!events.contains("low-priority"), "{events}");
    // What is not there is no answer "none".
    sandbox.fails(&["events", "-n", "nowhere"], "there is no namespace nowhere; there are ");
    sandbox
        .fails(&["events", "-n", "default", "--for", "nobody"], "there is no Volcano Job nobody in namespace default");
    sandbox.fails(&["job", "list", "-A", "-q", "nowhere"], "there is no queue nowhere");
    sandbox.fails(&["history", "-q", "nowhere"], "there is no queue nowhere");
    assert_eq!(sandbox.succeeds(&["history", "-q", "research"]), "no end of such a job is recorded\n");

    // Those on jobs with a label, in the order of a field.
    let labelled = json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "vision"}}]);
    let write = Write {
        resource: WorkloadKind::VolcanoJob.api_resource(),
        namespace: "default".to_owned(),
        name: "mindspore-cpu".to_owned(),
        subresource: None,
        body: Body::JsonPatch(labelled),
    };
    sandbox.wait(execute_write(&sandbox.host, &write)).unwrap();
    let ours = sandbox.succeeds(&["events", "-n", "default", "-l", "team=vision", "-o", "name"]);
    assert!(!ours.is_empty() && ours.lines().all(|line| line == "job/mindspore-cpu"), "{ours}");
    let sorted =
        sandbox.succeeds(&["events", "-n", "default", "--sort-by", "reason", "-o", "jsonpath={.events[*].reason}"]);
    assert!(sorted.split(' ').is_sorted(), "{sorted}");
    let by_age = sandbox.succeeds(&["job", "list", "-n", "default", "--sort-by", "ageSeconds", "-o", "name"]);
    assert!(by_age.starts_with("low-priority\n"), "the youngest is first: {by_age}");
    let none = sandbox.succeeds(&["job", "list", "-n", "default", "--since", "1s", "-o", "name"]);
    assert!(!none.contains("mindspore-cpu"), "{none}");
    let all = sandbox.succeeds(&["job", "list", "-n", "default", "--since", "1d", "-o", "name"]);
    assert!(all.contains("mindspore-cpu"), "{all}");

    // A list that is watched is printed, and again once it changed.
    let mut watching = caldera(&["job", "list", "-n", "default", "-o", "name", "-w", "--kubeconfig"]);
    watching.arg(&sandbox.kubeconfig).args(["--state", "Held"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = Killed(watching.spawn().unwrap());
    sandbox.succeeds(&["job", "hold", "low-priority", "-n", "default"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "low-priority");
    // Its reader leaves: the next change that it sees finds that, and nothing is said. It reads each second, so that
    // it may miss one that is taken back at once.
    drop(lines);
    let mut is_held = true;
    until("a reader that left is found", || {
        let verb = if is_held { "release" } else { "hold" };
        sandbox.succeeds(&["job", verb, "low-priority", "-n", "default"]);
        is_held = !is_held;
        std::thread::sleep(Duration::from_secs(2));
        watching.try_wait().unwrap().map(drop).ok_or_else(String::new)
    });
    ends_in_silence(&mut watching);
    if is_held {
        sandbox.succeeds(&["job", "release", "low-priority", "-n", "default"]);
    }
    sandbox.until_state("low-priority", "Waiting");
    what_nobody_reads(sandbox);
}

/// A reader that left is no failure, and no disk that is full is a success.
fn what_nobody_reads(sandbox: &Sandbox) {
    for args in
        [&["job", "list", "-A"][..], &["job", "logs", "mindspore-cpu", "-n", "default", "-f"], &["events", "-A"]]
    {
        let command = || {
            let mut command = caldera(args);
            command.args(["--kubeconfig", &sandbox.kubeconfig]).stderr(Stdio::piped());
            command
        };
        let mut left = Killed(command().stdout(Stdio::piped()).spawn().unwrap());
        drop(left.stdout.take());
        ends_in_silence(&mut left);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let lost = command().stdout(full).output().unwrap();
        let said = String::from_utf8(lost.stderr).unwrap();
        let is_one_sentence =
            said.lines().count() == 1 && said.starts_with("caldera: failed to write to standard output");
        assert!(lost.status.code() == Some(1) && is_one_sentence, "{args:?}: {said}");
    }
}

fn ends_in_silence(process: &mut Killed) {
    let code = until("it goes on", || process.try_wait().unwrap().ok_or_else(String::new)).code();
    let said = std::io::read_to_string(process.stderr.take().unwrap()).unwrap();
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

fn moving_jobs(sandbox: &Sandbox) {
    let said = |args: &[&str]| sandbox.succeeds(&[args, &["-n", "default"]].concat());
    assert_eq!(said(&["job", "suspend", "mindspore-cpu"]), "vcjob/mindspore-cpu suspended\n");
    assert_eq!(said(&["job", "suspend", "mindspore-cpu"]), "vcjob/mindspore-cpu is suspended already\n");
    sandbox.until_state("mindspore-cpu", "Suspended");
    assert_eq!(said(&["job", "resume", "mindspore-cpu"]), "vcjob/mindspore-cpu resumed\n");
    assert_eq!(said(&["job", "resume", "mindspore-cpu"]), "vcjob/mindspore-cpu is not suspended\n");
    // What it gave free went to the other: one of the two waits now, and both run once there is quota.
    assert_eq!(sandbox.succeeds(&["queue", "set", "research", "--capability", "cpu=40"]), "queue research is set\n");
    sandbox.until_state("mindspore-cpu", "Running");

    let requeued = said(&["job", "requeue", "mindspore-cpu"]);
    assert!(requeued.starts_with("vcjob/mindspore-cpu requeued: the job was taken off"), "{requeued}");
    let binding = sandbox.binding("mindspore-cpu-job");
    let eviction = annotation_of(&binding, "caldera.dev/eviction").unwrap_or_default();
    assert!(eviction.contains("Restarted"), "{binding:#}");
    sandbox.until_state("mindspore-cpu", "Running");
    sandbox.fails(&["job", "requeue", "deployment/web", "-n", "default"], "only Volcano Jobs are requeued");

    // What has ended needs no move. Found by the test itself: where that ended before the drain, the drain failed.
    sandbox.until_state("low-priority", "Completed");
    // The service is told; the gang has no room without that cluster, and waits.
    let web = read_list_at(&sandbox.binding("web-deployment"), "/spec/clusters").to_vec();
    let (code, out, err) = sandbox.run(&["cluster", "drain", "member1", "--max-at-once", "1", "--budget", "4"]);
    assert!(
        out.starts_with("cluster member1 cordoned\n")
            && out.contains("vcjob/mindspore-cpu requeued")
            && out.contains("cluster member1: "),
        "{out}{err}"
    );
    let stays = web.iter().any(|target| target["name"] == "member1");
    assert_eq!(
        (code == Some(1), err.contains("deployment/web stays in cluster member1")),
        (stays, stays),
        "{out}{err}"
    );
    assert_eq!(sandbox.succeeds(&["cluster", "uncordon", "member1"]), "cluster member1 uncordoned\n");
    sandbox.until_state("mindspore-cpu", "Running");

    let said = sandbox.succeeds(&["queue", "drain", "research"]);
    assert!(said.starts_with("queue research is Clos") && said.contains("vcjob/mindspore-cpu requeued"), "{said}");
    assert!(read_list_at(&sandbox.binding("mindspore-cpu-job"), "/spec/clusters").is_empty());
    assert_eq!(sandbox.succeeds(&["queue", "open", "research"]), "queue research is Open\n");
    sandbox.until_state("mindspore-cpu", "Running");
}

fn a_job_that_is_moved_to_another_cluster(sandbox: &Sandbox) {
    // It fills one of the two.
    sandbox.succeeds(&["job", "delete", "mindspore-cpu", "-n", "default"]);
    let small = WAITING.replace("low-priority", "small").replace(": 6", ": 1").replace("sleep 3", "sleep 600");
    sandbox.apply(&small.replace("queue: research", "queue: training").replace("cpu: \"2\"", "cpu: 200m"));
    sandbox.until_state("small", "Running");
    let to = |cluster: &str| ["job", "move", "small", "-n", "default", "--to", cluster].map(str::to_owned);
    let run = |args: &[String]| sandbox.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let place = || sandbox.row_of("small")["clusters"].clone();
    let is_in = |cluster: &str| {
        until(&format!("small runs in {cluster}"), || {
            let row = sandbox.row_of("small");
            let is_there = row["clusters"] == json!([cluster]) && row["state"] == "Running";
            is_there.then_some(()).ok_or(format!("{row:#}"))
        });
    };
    let (here, there) = if place() == json!(["member1"]) { ("member1", "member2") } else { ("member2", "member1") };
    let (code, out, err) = run(&to("nowhere"));
    assert!(code == Some(1) && err.contains("there is no cluster nowhere; there are member1, member2"), "{out}{err}");
    let (code, out, err) = run(&to(here));
    assert!(code == Some(0) && out.contains(&format!("may go to {here} alone")), "{out}{err}");
    assert_eq!(place(), json!([here]), "it is there already");
    let out = until("there is room in the other", || match run(&to(there)) {
        (Some(0), out, _) => Ok(out),
        (_, out, err) => Err(format!("{out}{err}")),
    });
    assert!(out.contains(&format!("leaves {here}: requeued")), "{out}");
    is_in(there);
    assert!(sandbox.succeeds(&["why", "small", "-n", "default"]).contains(&format!("go only to {there}")));
    let away = sandbox.succeeds(&["job", "move", "small", "-n", "default", "--away-from", there]);
    assert!(away.contains(&format!("may go anywhere but to {there}")), "{away}");
    is_in(here);
    sandbox.fails(
        &["job", "move", "small", "-n", "default", "--away-from", "member1,member2"],
        "not moved: it could never start there: its policy selects none of the clusters that are left",
    );
    let anywhere = sandbox.succeeds(&["job", "move", "small", "-n", "default", "--anywhere"]);
    assert!(anywhere.contains("may go wherever its policy lets it"), "{anywhere}");
    let job = sandbox.get(&WorkloadKind::VolcanoJob.api_resource(), Some("default"), "small").unwrap();
    assert!(!job["metadata"]["annotations"].to_string().contains("clusters"), "{job:#}");
    sandbox.fails(&["job", "move", "low-priority", "-n", "default", "--anywhere"], "not moved: it has ended");
    sandbox.succeeds(&["job", "delete", "small", "-n", "default"]);
}
