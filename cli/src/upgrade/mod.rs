//! `caldera upgrade`: brings a Karmada API from an older Caldera to this one while jobs run, with a look before and
//! after.
//!
//! [`plan`] says what is applied, when, and what must hold, and is pure; here it is done, one line a step. Whoever runs
//! the components replaces them, and this waits until all are of this version. It may be stopped and run again.

pub mod plan;

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::Context;
use caldera_crds::{manifests::build_federation_crds, manifests::build_host_volcano_crds, queue_access};
use caldera_runtime::write::Failure;
use caldera_webhook::{Endpoint, build_configurations_for, build_member_customization};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use self::plan::{
    UpgradeStage, grants_registration, keep_trust, list_obstacles, list_other_versions, read_registered_webhook,
    widen_role,
};
use crate::{
    args::UpgradeArgs,
    components,
    doctor::{
        check::find_faults,
        facts::KarmadaAccount,
        finding::Finding,
        gather::{GatherOptions, gather_facts},
    },
    install::{apply_listed, find_present, rest_after_look, wait_for_health},
    manifests::{build_propagation_policies, list_admission_policies},
    objects::{admission_resource, get_object, key_of, read_text_at},
    output,
    roles::{Granted, NAMESPACE, build_component_roles},
};

/// How often registrations are read again where they changed between the look and the write.
const MOST_TRIES: usize = 5;

/// What is there to begin with. Whom callers trust is not in it: that changes while components are waited for.
struct Installation {
    granted: Granted,
    require_queue_access: bool,
    has_member_customization: bool,
}

/// Upgrades, and ends with the doctor's findings.
///
/// # Errors
/// With the first step that could not be done.
pub async fn run_upgrade(args: UpgradeArgs) -> anyhow::Result<ExitCode> {
    let host = components::connect_for_command(args.kubeconfig.as_deref(), "upgrade").await?;
    let installed = read_installation(&host, &args).await?;
    let places = GatherOptions {
        lease_namespaces: vec![args.lease_namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned())],
        probe_namespace: host.default_namespace().to_owned(),
        grace: 60,
        granted: installed.granted.clone(),
        karmada: KarmadaAccount::default(),
    };
    let findings = examine(&host, &places).await?;
    let obstacles = list_obstacles(&findings);
    if !obstacles.is_empty() {
        output::write_stdout(&format_findings("to be mended first", &obstacles));
        anyhow::bail!("{} faults are to be mended before an upgrade: `caldera doctor` says how", obstacles.len());
    }
    output::write_stdout(&format_findings("components that are to be replaced", &list_other_versions(&findings)));
    if args.dry_run || !args.yes {
        output::write_stdout(&describe_stages(&host, &args, &installed).await?);
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        output::confirm_all()?;
    }
    let wait = Duration::from_secs(args.wait.into());
    for (number, stage) in UpgradeStage::ALL.into_iter().enumerate() {
        let done = match stage {
            UpgradeStage::Components => wait_for_components(&host, &places, wait).await?,
            _ => apply_stage(&host, stage, &args, &installed).await?,
        };
        output::write_stdout(&format!("{}/{} {}: {done}\n", number + 1, UpgradeStage::ALL.len(), stage.title()));
    }
    let has_error = wait_for_health(&host, &places, wait).await?;
    Ok(ExitCode::from(u8::from(has_error)))
}

/// What an older `install` or `manifests` left, as far as it says what this one is to be like.
async fn read_installation(host: &Client, args: &UpgradeArgs) -> anyhow::Result<Installation> {
    read_registration(host).await?;
    let mut granted = Granted { registers: true, member_secrets: args.member_secrets.clone() };
    let is_webhooks = |object: &&Value| object["kind"] == "ClusterRole" && key_of(object) == "caldera-webhook";
    let role = build_component_roles(&granted).iter().find(is_webhooks).cloned().unwrap_or_default();
    granted.registers = find_present(host, &role).await?.as_ref().is_some_and(grants_registration);
    let mut require_queue_access = args.require_queue_access;
    for policy in queue_access::build_queue_access_policies() {
        require_queue_access |= find_present(host, &policy).await?.is_some();
    }
    let has_member_customization = find_present(host, &build_member_customization()).await?.is_some();
    Ok(Installation { granted, require_queue_access, has_member_customization })
}

/// Where the webhook is now, and the PEM by which it is trusted.
async fn read_registration(host: &Client) -> anyhow::Result<(Endpoint, String)> {
    let resource = admission_resource("MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    let configuration = get_object(host, &resource, None, "queue.caldera.dev").await?.map_err(anyhow::Error::msg)?;
    configuration.as_ref().and_then(read_registered_webhook).context(
        "there is no MutatingWebhookConfiguration queue.caldera.dev that could be read: `caldera install` makes it",
    )
}

/// Applies what a step applies, as what is there is now: again where that changed meanwhile.
async fn apply_stage(
    host: &Client,
    stage: UpgradeStage,
    args: &UpgradeArgs,
    installed: &Installation,
) -> anyhow::Result<String> {
    let mut tries = 1;
    loop {
        let applied = apply_listed(host, list_stage_objects(host, stage, args, installed).await?).await;
        let is_changed = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(Failure::Conflict(_)));
        if tries >= MOST_TRIES || !applied.as_ref().is_err_and(is_changed) {
            return applied;
        }
        tries += 1;
    }
}

/// What a step applies.
async fn list_stage_objects(
    host: &Client,
    stage: UpgradeStage,
    args: &UpgradeArgs,
    installed: &Installation,
) -> anyhow::Result<Vec<Value>> {
    let trusted = args.trusted.to_writers();
    Ok(match stage {
        UpgradeStage::Definitions => build_host_volcano_crds().into_iter().chain(build_federation_crds()).collect(),
        UpgradeStage::WiderRoles => {
            let mut wider = Vec::new();
            for role in build_component_roles(&installed.granted) {
                let found = find_present(host, &role).await?;
                wider.push(widen_role(&role, found.as_ref()));
            }
            wider
        }
        UpgradeStage::Policies => build_propagation_policies(),
        UpgradeStage::Components => Vec::new(),
        UpgradeStage::Webhooks => {
            let (endpoint, ca_pem) = read_registration(host).await?;
            let mut all = build_configurations_for(&endpoint, &ca_pem, &trusted);
            for configuration in &mut all {
                let found = find_present(host, configuration).await?;
                keep_trust(configuration, found.as_ref());
            }
            all.extend(list_admission_policies(&trusted, installed.require_queue_access));
            all.extend(installed.has_member_customization.then(build_member_customization));
            all
        }
        UpgradeStage::Roles => build_component_roles(&installed.granted),
    })
}

/// What would be done.
async fn describe_stages(host: &Client, args: &UpgradeArgs, installed: &Installation) -> anyhow::Result<String> {
    let mut text = String::new();
    for stage in UpgradeStage::ALL {
        let _ = writeln!(text, "{}", stage.title());
        for object in list_stage_objects(host, stage, args, installed).await? {
            let _ = writeln!(text, "  apply {} {}", read_text_at(&object, "/kind"), key_of(&object));
        }
    }
    Ok(text)
}

async fn examine(host: &Client, places: &GatherOptions) -> anyhow::Result<Vec<Finding>> {
    Ok(find_faults(&gather_facts(host, places).await?))
}

fn format_findings(title: &str, findings: &[&Finding]) -> String {
    let mut text = String::new();
    if !findings.is_empty() {
        let _ = writeln!(text, "{title}:");
    }
    for finding in findings {
        let _ = writeln!(text, "  {}", finding.what);
    }
    text
}

/// Waits until whoever runs the components has replaced all of them.
async fn wait_for_components(host: &Client, places: &GatherOptions, wait: Duration) -> anyhow::Result<String> {
    let until = Instant::now() + wait;
    let mut reported = false;
    loop {
        let began = Instant::now();
        let findings = examine(host, places).await?;
        let mut left = list_other_versions(&findings);
        left.extend(list_obstacles(&findings));
        if left.is_empty() {
            return Ok(format!("they are {}", env!("CARGO_PKG_VERSION")));
        }
        if !std::mem::replace(&mut reported, true) {
            output::write_stdout(&format_findings("replace the components now, one after the other", &left));
        }
        anyhow::ensure!(
            Instant::now() < until,
            "not all components are {} within {} s; nothing that fails closed was changed, and both versions have their \
             rights: replace them, and run it again\n{}",
            env!("CARGO_PKG_VERSION"),
            wait.as_secs(),
            format_findings("left", &left)
        );
        rest_after_look(began).await;
    }
}
