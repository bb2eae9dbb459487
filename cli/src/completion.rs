//! Completes the command line for shells, and for kubectl where this program is its plugin.
//!
//! Rule: the script of `caldera completions SHELL` asks this program for each word (clap's `CompleteEnv`, variable
//! `COMPLETE`). kubectl completes `kubectl caldera` by running `kubectl_complete-caldera` with the words, and reads the
//! answer of Cobra's `__complete`: a candidate a line, a tab, what it is, and last a directive
//! (`pkg/cmd/plugin/plugin_completion.go` of kubectl). A link of that name to this program is enough.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{Command, CommandFactory};
use clap_complete::{
    Shell,
    engine::{CompletionCandidate, complete},
    env::{CompleteEnv, Shells},
};

use crate::{args::Args, output};

/// The variable by which a shell's script asks.
const VARIABLE: &str = "COMPLETE";
/// What kubectl runs, by name.
const FOR_KUBECTL: &str = "kubectl_complete-caldera";
/// Cobra's directive that files are no completion.
const NO_FILES: &str = ":4";

/// Answers a shell or kubectl that asks for completions. False if nobody asks.
///
/// # Errors
/// If the words can not be completed, in clap's words.
pub fn answer_completion() -> clap::error::Result<bool> {
    let directory = std::env::current_dir().ok();
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.first().is_some_and(|program| is_named(program, FOR_KUBECTL)) {
        output::write_script(&answer_kubectl(words, directory.as_deref())?);
        return Ok(true);
    }
    // Others use a variable of this name, too.
    let asks = |shell: OsString| Shells::builtins().names().any(|name| *name == *shell);
    if !std::env::var_os(VARIABLE).is_some_and(asks) {
        return Ok(false);
    }
    CompleteEnv::with_factory(Args::command).var(VARIABLE).bin("caldera").try_complete(words, directory.as_deref())
}

/// The command line, by the name that the user typed: `caldera`, or `kubectl caldera`.
#[must_use]
pub fn name_command() -> Command {
    let is_plugin = std::env::args_os().next().is_some_and(|program| is_named(&program, "kubectl-caldera"));
    if is_plugin { Args::command().bin_name("kubectl caldera") } else { Args::command() }
}

/// The script that has a shell ask.
///
/// # Errors
/// If there is none for the shell.
pub fn build_script(shell: Shell) -> std::io::Result<Vec<u8>> {
    let name = shell.to_string();
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer =
        shells.completer(&name).ok_or_else(|| std::io::Error::other(format!("no completion for {name}")))?;
    completer.write_registration(VARIABLE, "caldera", "caldera", "caldera", &mut script)?;
    Ok(if shell == Shell::Bash { join_words_of_bash(&script) } else { script })
}

/// The same, asked by a function that makes one word of those that bash splits at `=`.
fn join_words_of_bash(script: &[u8]) -> Vec<u8> {
    let script = String::from_utf8_lossy(script).replace("-F _clap_complete_caldera ", "-F _caldera_complete ");
    [include_str!("completion.bash"), &script].concat().into_bytes()
}

fn is_named(program: &OsStr, name: &str) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(name))
}

fn answer_kubectl(words: Vec<OsString>, directory: Option<&Path>) -> clap::error::Result<Vec<u8>> {
    let last = words.len().saturating_sub(1);
    let candidates = complete(&mut Args::command(), words, last, directory)?;
    let lines: Vec<String> = candidates.iter().map(format_candidate).chain([NO_FILES.to_owned()]).collect();
    Ok((lines.join("\n") + "\n").into_bytes())
}

fn format_candidate(candidate: &CompletionCandidate) -> String {
    let value = candidate.get_value().to_string_lossy();
    match candidate.get_help().map(ToString::to_string) {
        Some(help) => format!("{value}\t{}", help.lines().next().unwrap_or_default()),
        None => value.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_is_answered_as_cobra_does() {
        let ask = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            String::from_utf8(answer_kubectl(words, None).unwrap()).unwrap()
        };
        let answer = ask("kubectl_complete-caldera queue dra");
        assert!(answer.starts_with("drain\tCloses queues"), "{answer}");
        assert!(answer.ends_with("\n:4\n"), "{answer}");
        assert_eq!(ask("kubectl_complete-caldera no-such-command x"), ":4\n");
    }

    #[test]
    fn a_program_is_known_by_its_file_name() {
        assert!(is_named(OsStr::new("/usr/bin/kubectl_complete-caldera"), FOR_KUBECTL));
        assert!(!is_named(OsStr::new("/kubectl_complete-caldera/caldera"), FOR_KUBECTL));
    }
}
