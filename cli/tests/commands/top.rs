//! `caldera top` in a pseudo-terminal, against a sandbox: what a person sees, presses and is left with.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::{
    outcome::read_outcome,
    sandbox::{BINARY, QUEUES, SPLIT, Sandbox, WAITING, until},
    terminal::Typist,
};

#[test]
fn top_is_driven_by_keys_and_leaves_the_terminal_clean() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 3);
    let kubeconfig = sandbox.kubeconfig.as_str();
    let command = |more: &str| format!("{BINARY} top --kubeconfig {kubeconfig} {more}");

    sandbox.apply(QUEUES);
    sandbox.apply(&SPLIT.replace("sleep 4", "sleep 600"));
    let mut top = Typist::start(&command(""), 40, 180);
    // What it showed before is there when the job is.
    top.shows(&["clusters 3/3 ready", "default/mindspore-cpu", "Running", "member1:"]);
    // What comes is seen without a key.
    sandbox.apply(WAITING);
    let text = top.shows(&["default/low-priority", "Waiting", "1/1", "needs cpu 12, used 20"]);
    let research = text.lines().find(|line| line.contains("  research")).unwrap();
    assert!(research.contains("20/20"), "{text}");
    // When it starts is worked out beside that.
    top.shows(&["START", "start of the selected: perhaps"]);
    assert!(top.is_coloured());
    top.press("/mindspore\r");
    let text = top.shows(&["filter mindspore", "JOBS 1"]);
    assert!(!text.contains("low-priority"), "{text}");
    // Escape clears the filter; then a job is asked about.
    top.press("\u{1b}");
    top.shows(&["JOBS 2"]);
    top.press("g\r");
    top.shows(&["why default/low-priority", "WAITS  [WaitingForQuota]", "PODS THAT FIT"]);
    top.press("q");
    top.shows(&["JOBS 2"]);
    // It is held, by a key and a word, and released again.
    top.press("H");
    top.shows(&["hold default/low-priority (Waiting)?", "y does it"]);
    top.press("n");
    top.shows(&["JOBS 2", "Waiting"]);
    top.press("H");
    top.shows(&["hold default/low-priority (Waiting)?"]);
    top.press("y");
    top.shows(&["vcjob/low-priority held"]);
    top.press("q");
    top.shows(&["Held"]);
    top.press("R");
    top.shows(&["release default/low-priority (Held)?"]);
    top.press("y");
    top.shows(&["vcjob/low-priority released"]);
    top.press("q");
    top.shows(&["JOBS 2", "Waiting"]);
    // What runs is not held, and says why.
    top.press("GHy");
    top.shows(&["not held: it is placed"]);
    top.press("q");
    top.shows(&["JOBS 2"]);
    top.press("q");
    top.ended(0);

    no_color_is_honoured(kubeconfig);
    zsh_completes_names(kubeconfig);
    a_pause_is_said(&sandbox, &command);

    // Not a terminal, and once.
    let run = |more: &[&str]| {
        let args = [&["top", "--kubeconfig", kubeconfig], more].concat();
        read_outcome(Command::new(BINARY).args(args).stdin(Stdio::null()).output().unwrap())
    };
    let (code, out, err) = run(&[]);
    assert!(code == Some(1) && out.is_empty() && err.contains("this is no terminal"), "{out}{err}");
    let (code, out, err) = run(&["--once"]);
    assert!(code == Some(0) && err.is_empty() && !out.contains('\u{1b}'), "{out}{err}");
    assert!(out.contains("default/low-priority") && out.contains("20/20") && out.contains("CLUSTERS 3"), "{out}");
    assert!(out.contains("perhaps "), "no expected start:\n{out}");
}

#[test]
fn the_demos_headlines_stand_out_on_a_terminal_and_it_ends_with_control_c() {
    for (before, stand_out) in [("", true), ("NO_COLOR=1", false)] {
        let mut demo = Typist::start(&format!("{before} {BINARY} demo"), 30, 100);
        demo.shows(&["Caldera: one line and one quota", "members, ready after"]);
        assert_eq!(demo.has_bold_text(), stand_out, "{before}: {}", demo.text());
        demo.press("\u{3}");
        demo.ended(1);
    }
}

/// On a terminal that is low and narrow.
fn no_color_is_honoured(kubeconfig: &str) {
    let command = |before: &str, what: &str| format!("{before} {BINARY} {what} --kubeconfig {kubeconfig}");
    let mut top = Typist::start(&command("NO_COLOR=1", "top"), 24, 60);
    top.shows(&["default/low-priority"]);
    assert!(!top.is_coloured(), "{}", top.text());
    top.press("\u{3}");
    top.ended(0);
    // A list, too, and only where it is set to something.
    for (before, is_coloured) in [("NO_COLOR=1", false), ("NO_COLOR=", true), ("TERM=dumb", false)] {
        let list = Typist::start(&command(before, "job list -n default"), 24, 120);
        list.shows(&["low-priority", "Waiting", "ended with 0"]);
        assert_eq!(list.is_coloured(), is_coloured, "{before}: {}", list.text());
        list.ended(0);
    }
}

/// As a person types them, with tab.
fn zsh_completes_names(kubeconfig: &str) {
    if Command::new("zsh").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: there is no zsh, so nobody presses tab in it");
        return;
    }
    let bin = std::path::Path::new(BINARY).parent().unwrap().display();
    let start = format!("HOME=/nonexistent KUBECONFIG={kubeconfig} PATH={bin}:$PATH zsh -f");
    let mut zsh = Typist::start(&start, 24, 120);
    zsh.press("autoload -U compinit; compinit -u -D; source <(caldera completions zsh); echo re''ady\r");
    zsh.shows(&["\nready"]);
    for (typed, completed) in [
        ("caldera queue describe rese", "caldera queue describe research"),
        ("caldera why -n default low", "caldera why -n default low-priority"),
        ("caldera job susp", "caldera job suspend"),
    ] {
        zsh.press(&format!("{typed}\t"));
        zsh.shows(&[completed]);
        zsh.press("\u{15}");
    }
    zsh.press("exit 0\r");
    zsh.ended(0);
}

/// Releases are paused and go on while somebody looks.
fn a_pause_is_said(sandbox: &Sandbox, command: &dyn Fn(&str) -> String) {
    let change = |args: &[&str]| {
        let done = Command::new(BINARY).args(args).args(["--kubeconfig", &sandbox.kubeconfig]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let mut top = Typist::start(&command(""), 24, 120);
    top.shows(&["default/low-priority"]);
    assert!(!top.text().contains("PAUSED"), "{}", top.text());
    change(&["pause", "--reason", "upgrade at noon"]);
    top.shows(&["RELEASES ARE PAUSED (upgrade at noon)", "default/low-priority"]);
    change(&["unpause"]);
    until("it is still said", || {
        let text = top.text();
        if text.contains("PAUSED") { Err(text) } else { Ok(()) }
    });
    top.press("q");
    top.ended(0);
}
