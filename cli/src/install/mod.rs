//! `caldera install`: all that a Karmada API needs for components that run as processes, in the order that is safe.
//!
//! [`plan`] says what is applied and when and is pure, [`credentials`] keeps certificates and kubeconfigs in a
//! directory, [`webhook_probe`] asks whether the webhook is reached, and here it is done, one line a step. Each step
//! looks at what is there, so it can be stopped anywhere and run again: what is there and right is not changed.

pub mod credentials;
pub mod plan;
pub mod webhook_probe;

use std::{fmt::Write as _, fs, path::Path, process::ExitCode, time::Duration};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::{
    client::{self, WriteCounts},
    watch::api_resource,
};
use caldera_webhook::Endpoint;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use self::{
    credentials::{CERTIFICATE_FILES, HostAccess, ensure_certificate, ensure_kubeconfig, locate_kubeconfig},
    plan::{InstallStage, InstallTarget, is_changed, list_accounts, may_apply},
    webhook_probe::wait_for_webhook,
};
use crate::{
    args::InstallArgs,
    doctor::{self, facts::KarmadaAccount, gather::GatherOptions},
    manifests::{build_apply_write, is_webhook_url},
    objects::{get_object, key_of, read_text_at},
    output,
    roles::{Granted, NAMESPACE},
    stack::apply_object,
    webhook_identity::{
        authority_secret::{read_authority, share_authority},
        host_of,
    },
};

/// Between two looks of the doctor.
const DOCTOR_INTERVAL: Duration = Duration::from_secs(1);

/// Installs, and ends with the doctor's findings.
///
/// # Errors
/// With the first step that could not be done.
pub async fn run_install(args: InstallArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(is_webhook_url(&args.components_at), "--components-at must be https://HOST[:PORT][/PATH]");
    let config = client::load_config(Some(&args.host_kubeconfig)).await?;
    let access = find_access(&config, args.host_server.as_deref())?;
    let server = config.cluster_url.to_string();
    let host = client::from_config(config, "install", &WriteCounts::default())?;
    client::check_server(&host, &server).await?;
    let wanted = InstallTarget {
        granted: Granted { registers: false, member_secrets: args.member_secrets.clone() },
        trusted: args.trusted.to_writers(),
        require_queue_access: args.require_queue_access,
        pull_members: args.pull_members,
        webhook_url: args.components_at.trim_end_matches('/').to_owned(),
    };
    if args.dry_run || !args.yes {
        output::write_stdout(&describe_plan(&host, &wanted, &args.dir).await?);
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        output::confirm_all()?;
    }
    let wait = Duration::from_secs(args.wait.into());
    let mut ca_pem = String::new();
    for (number, stage) in InstallStage::ALL.into_iter().enumerate() {
        let done = match stage {
            InstallStage::Credentials => {
                let (pem, done) = ensure_credentials(&host, &args, &access).await?;
                ca_pem = pem;
                done
            }
            InstallStage::Answer if args.prepare => {
                output::write_stdout(&format_server_command(&args));
                output::write_stdout("once it runs, do the same without --prepare\n");
                return Ok(ExitCode::SUCCESS);
            }
            InstallStage::Answer => {
                output::write_stdout(&format_server_command(&args));
                let endpoint = Endpoint::Url(wanted.webhook_url.clone());
                wait_for_webhook(&host, &endpoint, &ca_pem, wait).await?;
                "it answers".to_owned()
            }
            InstallStage::Accounts => {
                wait_for_namespace(&host, wait).await?;
                apply_listed(&host, stage.list_objects(&wanted, &ca_pem)).await?
            }
            InstallStage::Webhooks => {
                // It may have been replaced while the webhook was waited for. One made now would have signed nothing.
                let shared = read_authority(&host, NAMESPACE).await?;
                let ca_pem = shared.context("somebody deleted the authority meanwhile: install again")?.bundle();
                apply_listed(&host, stage.list_objects(&wanted, &ca_pem)).await?
            }
            _ => apply_listed(&host, stage.list_objects(&wanted, &ca_pem)).await?,
        };
        output::write_stdout(&format!("{}/{} {}: {done}\n", number + 1, InstallStage::ALL.len(), stage.title()));
    }
    let places = GatherOptions {
        lease_namespaces: vec![NAMESPACE.to_owned()],
        probe_namespace: host.default_namespace().to_owned(),
        grace: 60,
        granted: wanted.granted,
        karmada: KarmadaAccount::default(),
    };
    let has_error = wait_for_health(&host, &places, wait).await?;
    Ok(ExitCode::from(u8::from(has_error)))
}

/// How the components reach the API: as the admin does, with what he trusts.
fn find_access(config: &kube::Config, server: Option<&str>) -> anyhow::Result<HostAccess> {
    anyhow::ensure!(
        !config.accept_invalid_certs,
        "the kubeconfig trusts any certificate, and the components must not: give it certificate-authority-data"
    );
    let to_pem = |der: &Vec<u8>| {
        let base64 = STANDARD.encode(der);
        let lines = base64.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
        format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
    };
    let ca_pem = config.root_cert.as_ref().map(|all| all.iter().map(to_pem).collect());
    let server = server.map_or_else(|| config.cluster_url.to_string(), str::to_owned);
    Ok(HostAccess { server: server.trim_end_matches('/').to_owned(), ca_pem })
}

/// The object as it is.
///
/// # Errors
/// If it can not be seen.
pub async fn find_present(host: &Client, object: &Value) -> anyhow::Result<Option<Value>> {
    let write = build_apply_write(object.clone(), plan::MANAGER)?;
    let namespace = Some(write.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    get_object(host, &write.resource, namespace, &write.name).await?.map_err(anyhow::Error::msg)
}

/// What would be done.
async fn describe_plan(host: &Client, wanted: &InstallTarget, dir: &Path) -> anyhow::Result<String> {
    let mut plan = String::new();
    for stage in InstallStage::ALL {
        let _ = writeln!(plan, "{}", stage.title());
        if stage == InstallStage::Credentials {
            let _ = writeln!(plan, "  in {}", dir.display());
        }
        for object in stage.list_objects(wanted, "") {
            let present = find_present(host, &object).await?;
            let verb = match &present {
                None => "create",
                Some(_) if may_apply(&object, present.as_ref()) => "apply",
                Some(_) => "leave",
            };
            let _ = writeln!(plan, "  {verb} {} {}", read_text_at(&object, "/kind"), key_of(&object));
        }
    }
    Ok(plan)
}

/// Applies the objects in their order; in words, what that changed.
///
/// # Errors
/// With the first that is refused.
pub async fn apply_listed(host: &Client, objects: Vec<Value>) -> anyhow::Result<String> {
    let (mut created, mut changed, mut same, mut left) = (0, 0, 0, 0);
    for object in objects {
        let present = find_present(host, &object).await?;
        if !may_apply(&object, present.as_ref()) {
            left += 1;
            continue;
        }
        let stored = apply_object(host, object).await?;
        match present {
            None => created += 1,
            Some(before) if is_changed(&before, &stored) => changed += 1,
            Some(_) => same += 1,
        }
    }
    let mut done = format!("{created} created, {changed} changed, {same} as they were");
    if left > 0 {
        let _ = write!(done, ", {left} of others left alone");
    }
    Ok(done)
}

/// Waits until our namespace is not being removed: in one that is nothing can be made, as right after an uninstall.
///
/// # Errors
/// If it is still there after that time.
pub async fn wait_for_namespace(host: &Client, wait: Duration) -> anyhow::Result<()> {
    let resource = api_resource("", "v1", "Namespace", "namespaces");
    let until = Instant::now() + wait;
    let mut reported = false;
    loop {
        let found = get_object(host, &resource, None, NAMESPACE).await?.map_err(anyhow::Error::msg)?;
        if found.is_none_or(|namespace| read_text_at(&namespace, "/metadata/deletionTimestamp").is_empty()) {
            return Ok(());
        }
        if !std::mem::replace(&mut reported, true) {
            output::write_stdout(&format!("waiting until namespace {NAMESPACE} of an earlier installation is gone\n"));
        }
        anyhow::ensure!(
            Instant::now() < until,
            "namespace {NAMESPACE} is being removed since an earlier installation, and still there after {} s: \
             `kubectl get namespace {NAMESPACE} -o yaml` says in its status what holds it; then install again",
            wait.as_secs()
        );
        tokio::time::sleep(DOCTOR_INTERVAL).await;
    }
}

/// Has the certificate and the kubeconfigs; what signed the certificate, and in words which are new.
async fn ensure_credentials(
    host: &Client,
    args: &InstallArgs,
    access: &HostAccess,
) -> anyhow::Result<(String, String)> {
    fs::create_dir_all(&args.dir).with_context(|| format!("failed to make {}", args.dir.display()))?;
    // No process of ours would replace it.
    let shared = share_authority(host, NAMESPACE, None).await?;
    let mut new = Vec::new();
    if ensure_certificate(&args.dir, &shared.to_authority()?, host_of(&args.components_at))? {
        new.push("certificate");
    }
    for account in list_accounts(args.collectors) {
        if ensure_kubeconfig(host, &args.dir, access, account).await? {
            new.push(account);
        }
    }
    let done = match new.as_slice() {
        [] => "as they were".to_owned(),
        _ => format!("new in {}: {}; processes that run use it within seconds", args.dir.display(), new.join(", ")),
    };
    Ok((shared.bundle(), done))
}

/// The command that runs the components with what was written.
fn format_server_command(args: &InstallArgs) -> String {
    let rest = args.components_at.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let port = rest.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or(443);
    let mut words =
        vec!["caldera server".to_owned(), format!("--lease-namespace {NAMESPACE}"), format!("--listen 0.0.0.0:{port}")];
    for (flag, file) in ["--tls-cert", "--tls-key"].into_iter().zip(CERTIFICATE_FILES) {
        words.push(format!("{flag} {}", args.dir.join(file).display()));
    }
    for part in ["webhook", "controller", "scheduler"] {
        let path = locate_kubeconfig(&args.dir, &format!("caldera-{part}"));
        words.push(format!("--{part}-kubeconfig {}", path.display()));
    }
    let trusted = if args.trusted.writers.is_empty() { "" } else { " and the same --trusted-writer" };
    format!("to be run where {} leads to{trusted}:\n  {}\n", args.components_at, words.join(" "))
}

/// Prints the doctor's findings, once there is no error among them or the time is over; whether there is one.
///
/// # Errors
/// If the API server does not answer.
pub async fn wait_for_health(host: &Client, places: &GatherOptions, wait: Duration) -> anyhow::Result<bool> {
    let until = Instant::now() + wait;
    loop {
        let began = Instant::now();
        let (findings, has_error) = doctor::examine_installation(host, places).await?;
        if !has_error || Instant::now() >= until {
            output::write_stdout(&format!("\n{findings}"));
            return Ok(has_error);
        }
        rest_after_look(began).await;
    }
}

/// Between two looks of the doctor: each asks the host for all of the fleet, so most of the time nothing is asked.
pub async fn rest_after_look(began: Instant) {
    tokio::time::sleep(DOCTOR_INTERVAL.max(began.elapsed() * 4)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Json, Router, http::StatusCode, response::IntoResponse as _};
    use serde_json::json;

    use super::*;

    /// A host whose namespace is being removed for so many looks.
    fn start_host(looks: usize) -> Client {
        let count = Arc::new(AtomicUsize::new(0));
        let api = Router::new().fallback(async move || {
            if count.fetch_add(1, Ordering::Relaxed) < looks {
                let metadata = json!({"name": NAMESPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"});
                return Json(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).into_response();
            }
            let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
            (StatusCode::NOT_FOUND, Json(gone)).into_response()
        });
        Client::new(api, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_being_removed_is_waited_for_and_not_for_ever() {
        wait_for_namespace(&start_host(3), Duration::from_secs(60)).await.unwrap();
        wait_for_namespace(&start_host(0), Duration::ZERO).await.unwrap();
        let late = wait_for_namespace(&start_host(usize::MAX), Duration::from_secs(60)).await.unwrap_err().to_string();
        assert!(late.contains("still there after 60 s"), "{late}");
    }
}
