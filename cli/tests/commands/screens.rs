//! The terminal screens of the docs: drawn anew by `.ci/screens`, from what commands print on a sandbox.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    killed::Killed,
    sandbox::{BINARY, Sandbox},
    terminal::{
        Recording, Typist,
        svg::{draw_recording, draw_screen},
    },
};

const COLUMNS: u16 = 100;
/// Where lines are longer.
const WIDE: u16 = 110;
const ROWS: u16 = 32;
/// A page stays small.
const MOST_BYTES: usize = 60_000;
const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images");
/// A job that no policy selects.
const LONELY: &str = "
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train, namespace: default}
spec:
  queue: research
  minAvailable: 2
  tasks:
    - name: worker
      replicas: 2
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox:1.36, resources: {requests: {cpu: \"1\"}}}]
";
const COMPONENTS: &str = "127.0.0.1:8443";

/// Where commands are typed: a folder, and a kubeconfig.
struct Prompt<'a> {
    dir: &'a Path,
    kubeconfig: &'a str,
}

impl Prompt<'_> {
    /// What a person typed before; `caldera` is in the path.
    fn prepare(&self) -> String {
        let bin = Path::new(BINARY).parent().unwrap().display();
        format!("export PATH={bin}:$PATH KUBECONFIG={}; cd {}", self.kubeconfig, self.dir.display())
    }

    /// Types commands, and draws what they print.
    fn draw(&self, name: &str, title: &str, columns: u16, commands: &[&str]) {
        let recording = self.record(columns, commands);
        let rows = recording.lines.last().map_or(0, |(_, rows)| *rows);
        write(name, &draw_screen(&recording.screen, rows, title));
    }

    fn record(&self, columns: u16, commands: &[&str]) -> Recording {
        let mut shell = self.prepare();
        for command in commands {
            // What a busy machine wants more is in a comment, and not shown.
            let (shown, more) = command.split_once(" # ").unwrap_or((command, ""));
            shell += &format!("; printf '\\033[32m$\\033[0m \\033[1m%s\\033[0m\\n' {shown:?}; {shown} {more}");
        }
        Recording::of(&shell, ROWS, columns)
    }

    fn run(&self, command: &str) {
        let done = Command::new("sh").args(["-c", &format!("{}; {command}", self.prepare())]).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
}

fn write(name: &str, svg: &str) {
    assert!(svg.len() < MOST_BYTES, "{name}: {} bytes", svg.len());
    fs::write(Path::new(IMAGES).join(name).with_extension("svg"), svg).unwrap();
}

#[test]
#[ignore = "writes docs/images: .ci/screens"]
fn the_terminal_screens_of_the_docs() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(dir.path(), 3);
    sandbox.fill_fleet();
    let prompt = Prompt { dir: dir.path(), kubeconfig: &sandbox.kubeconfig };
    let top = Typist::start(&format!("{}; caldera top", prompt.prepare()), ROWS, COLUMNS);
    top.shows(&["clusters 3/3 ready", "default/low-priority", "start of the selected: ", "CLUSTERS 3"]);
    write("top", &draw_screen(&top.screen(), ROWS, "caldera top: queues, members, and jobs that wait and run"));
    drop(top);
    let why = ["caldera job why low-priority"];
    prompt.draw("job-why", "caldera job why: the reason, the line, and what each member has", COLUMNS, &why);
    let get = ["kubectl get queues,podgroups,vcjob"];
    prompt.draw("kubectl-get", "kubectl get queues, podgroups and vcjob while jobs wait", 172, &get);
    fs::write(dir.path().join("train.yaml"), LONELY).unwrap();
    let apply = ["kubectl apply -f train.yaml", "caldera why train"];
    prompt.draw("submit-warning", "kubectl apply warns of a job that no policy selects", COLUMNS, &apply);
    prompt.run("kubectl delete vcjob train");
    break_something(&prompt);
    prompt.draw("doctor", "caldera doctor: what is wrong, and a command that mends it", COLUMNS, &["caldera doctor"]);
}

/// In the ways in which people break it: a queue that was closed in one member, a cluster role that is gone.
fn break_something(prompt: &Prompt<'_>) {
    prompt.run("kubectl delete mutatingwebhookconfiguration queue.caldera.dev");
    let member = "--kubeconfig members/member1.kubeconfig";
    let close = "--subresource=status --type=merge -p '{\"status\":{\"state\":\"Closed\"}}'";
    prompt.run(&format!("kubectl {member} patch queue research {close}"));
}

#[test]
#[ignore = "writes docs/images: .ci/screens"]
fn the_screens_of_an_installation_in_the_docs() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start_with(dir.path(), &["--members", "1", "--bare"]);
    let prompt = Prompt { dir: dir.path(), kubeconfig: &sandbox.kubeconfig };
    fs::copy(&sandbox.kubeconfig, dir.path().join("karmada.kubeconfig")).unwrap();
    let at = format!("--host-kubeconfig karmada.kubeconfig --components-at https://{COMPONENTS} --dir caldera --yes");
    prompt.run(&format!("caldera install {at} --prepare"));
    let server = serve(&dir.path().join("caldera"));
    let install = format!("caldera install {at}");
    prompt.draw("install", "caldera install: six steps, and what the doctor finds", WIDE, &[&install]);
    drop(server);
    let uninstall = "caldera uninstall --kubeconfig karmada.kubeconfig --open-gates --yes | tail -n 14";
    prompt.draw("uninstall", "caldera uninstall: what is opened and removed", WIDE, &[uninstall]);
}

fn serve(made: &Path) -> Killed {
    let mut command = Command::new(BINARY);
    command.args(["server", "--lease-namespace", "caldera-system", "--listen", COMPONENTS]).current_dir(made);
    command.args(["--tls-cert", "tls.crt", "--tls-key", "tls.key"]);
    for part in ["webhook", "controller", "scheduler"] {
        command.args([format!("--{part}-kubeconfig"), format!("caldera-{part}.kubeconfig")]);
    }
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
#[ignore = "writes docs/images: .ci/screens"]
fn the_recording_of_the_demo_in_the_docs() {
    let dir = tempfile::tempdir().unwrap();
    let prompt = Prompt { dir: dir.path(), kubeconfig: "/nonexistent" };
    let recording = prompt.record(WIDE, &["caldera demo # --deadline 300"]);
    let text = recording.screen.contents();
    assert!(!text.contains('✗') && text.contains("What to try next"), "{text}");
    write("demo", &draw_recording(&recording, ROWS, "caldera demo: five acts on a host and three members"));
}

#[test]
fn a_screen_is_drawn_as_text_with_its_colours() {
    let mut parser = vt100::Parser::new(3, 20, 0);
    parser.process(b"\x1b[32mok\x1b[0m a<b  \r\n\x1b[7m x \x1b[0m\r\n");
    let svg = draw_screen(parser.screen(), 3, "A & B");
    assert!(svg.contains("<title>A &amp; B</title>"), "{svg}");
    assert!(svg.contains("fill=\"#3fb950\">ok\u{a0}</tspan>") && svg.contains(">a&lt;b</tspan>"), "{svg}");
    assert_eq!((svg.matches("<text ").count(), svg.matches("<rect ").count()), (2, 2), "{svg}");
}

#[test]
fn a_recording_rolls_on_and_skips_what_nobody_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let prompt = Prompt { dir: dir.path(), kubeconfig: "/nonexistent" };
    let mut recording = prompt.record(40, &["seq 40"]);
    assert_eq!(recording.lines.last().map(|(_, lines)| *lines), Some(41), "{}", recording.screen.contents());
    recording.lines = vec![(Duration::from_secs(1), 1), (Duration::from_secs(60), 41)];
    let svg = draw_recording(&recording, 32, "seq");
    // It ends nine lines further down than the picture is high, a few seconds after its beginning.
    assert!(svg.contains(".r{transform:translateY(-162px)}") && svg.contains("c 15.0s step-end"), "{svg}");
    assert!(svg.contains(">40</tspan>"), "{svg}");
}
