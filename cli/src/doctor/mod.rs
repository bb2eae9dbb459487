//! `caldera doctor`: what is wrong with an installation, and the command that mends it.
//!
//! Three steps: [`gather`] reads facts, [`check`] makes findings of them and is pure, and here they are printed. Rule:
//! it changes nothing. What it could not see is a note, and never taken for healthy or ill.

pub mod check;
pub mod facts;
pub mod finding;
pub mod gather;

use std::{fmt::Write as _, path::Path, process::ExitCode};

use caldera_controller::settings;
use caldera_core::text::count_noun;
use kube::Client;
use serde::Serialize;

use self::{
    check::{CA_FILE, find_faults},
    facts::{KarmadaAccount, Versions},
    finding::{Check, Finding, Severity},
    gather::{GatherOptions, ca_file::find_ca_file_fault, kubeconfigs::read_kubeconfigs},
};
use crate::{
    args::{DoctorArgs, FailOn},
    components,
    output::{self, format_columns},
    roles::Granted,
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
struct DoctorReport {
    versions: Versions,
    checks: Vec<CheckResult>,
    findings: Vec<Finding>,
}

/// One check in a word.
#[derive(Debug, Serialize)]
struct CheckResult {
    check: Check,
    /// `ok`, or the worst of its findings.
    result: &'static str,
}

pub async fn run_doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "doctor").await?;
    let lease_namespaces = match args.lease_namespace {
        Some(namespace) => vec![namespace],
        None => settings::NAMESPACES.map(str::to_owned).to_vec(),
    };
    let granted = Granted { registers: args.registers_webhooks, member_secrets: args.member_secrets };
    let probe_namespace = args.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let karmada = KarmadaAccount { user: args.karmada_user, groups: args.karmada_group };
    let places = GatherOptions { lease_namespaces, probe_namespace, grace: args.grace, granted, karmada };
    let mut facts = gather::gather_facts(&client, &places).await?;
    facts.kubeconfigs = read_kubeconfigs(args.kubeconfig.as_deref(), args.dir.as_deref()).await?;
    facts.ca_file_fault = find_ca_file_fault(Path::new(CA_FILE));
    facts.host_kubeconfig = args.kubeconfig.map(|file| file.display().to_string());
    let report = make_report(facts.versions.clone(), find_faults(&facts));
    output::print_painted(args.output, &report, "RESULT", |wide| format_report(&report, wide))?;
    Ok(choose_exit_code(&report.findings, args.fail_on))
}

/// Looks at an installation; the findings as text, and whether one is an error.
///
/// # Errors
/// If the API server does not answer.
pub async fn examine_installation(client: &Client, places: &GatherOptions) -> anyhow::Result<(String, bool)> {
    let facts = gather::gather_facts(client, places).await?;
    let report = make_report(facts.versions.clone(), find_faults(&facts));
    let has_error = report.findings.iter().any(|finding| finding.severity >= Severity::Error);
    Ok((format_report(&report, false), has_error))
}

/// 1 if something is as bad as that.
fn choose_exit_code(findings: &[Finding], fail_on: FailOn) -> ExitCode {
    let bad = match fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
        FailOn::Never => return ExitCode::SUCCESS,
    };
    ExitCode::from(u8::from(findings.iter().any(|finding| finding.severity >= bad)))
}

fn make_report(versions: Versions, findings: Vec<Finding>) -> DoctorReport {
    let worst = |check| findings.iter().filter(|one| one.check == check).map(|one| one.severity).max();
    let result = |check| CheckResult { check, result: worst(check).map_or("ok", Severity::word) };
    DoctorReport { versions, checks: Check::ALL.into_iter().map(result).collect(), findings }
}

fn format_report(report: &DoctorReport, wide: bool) -> String {
    let Versions { caldera, host, members } = &report.versions;
    let mut text = format!("caldera {caldera}, Karmada API server {host}");
    if !members.is_empty() {
        let all: Vec<String> = members.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let _ = write!(text, ", members: {}", finding::join_first_names(all.iter().map(String::as_str)));
    }
    text += "\n\n";
    let rows = report.checks.iter().map(|one| [one.check.word().to_owned(), one.result.to_owned()]);
    text += &format_columns(["CHECK", "RESULT"], rows);
    let is_shown = |finding: &&Finding| wide || finding.severity > Severity::Note;
    for finding in report.findings.iter().filter(is_shown) {
        let Finding { check, severity, what, fix } = finding;
        let _ = writeln!(text, "\n{} {}: {what}", severity.word(), check.word());
        if let Some(fix) = fix {
            let _ = writeln!(text, "  $ {fix}");
        }
    }
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Note].map(count);
    let more = if notes > 0 && !wide { " (-o wide)" } else { "" };
    let _ = writeln!(
        text,
        "\n{}, {}, {}{more}",
        count_noun(errors, "error"),
        count_noun(warnings, "warning"),
        count_noun(notes, "note")
    );
    text
}
