//! `caldera reservation`: keeps an amount of the fleet for some queues, or for nobody, for a time; lists what is kept;
//! takes it back.
//!
//! Rule: `scontrol create reservation`, `show reservation` and `delete reservation` of Slurm. An amount is a
//! CapacityReservation. The list has maintenance windows of clusters too, which `caldera cluster maintenance` plans:
//! what is kept is looked for in one place.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Context, ensure};
use caldera_core::{
    device::DEVICE_CLASS_PREFIX,
    maintenance::{DEFAULT_NOTICE, Maintenance, MaintenanceWindow},
    quantity::Quantity,
    resources::{ResourceName, Resources},
    text::name_some,
    time::EpochSeconds,
};
use caldera_crds::{capacity_reservation::CapacityReservation, names::caldera::MAINTENANCE};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{ReservationAction, ReservationCreateArgs},
    change::{build_delete, print_outcome, to_exit_code},
    components,
    live::Gap,
    objects::{self, Visible, annotation_of, get_object, list_objects, name_of},
    output::{self, ListOutput, format_table},
};

/// What is kept.
#[derive(Debug, Serialize)]
struct Reservations {
    reservations: Vec<ReservationView>,
    /// What could not be seen.
    missing: Vec<Gap>,
}

/// An amount, a cluster or nodes that are kept for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReservationView {
    /// Of the CapacityReservation; none of a maintenance window.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The cluster whose window it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// `Planned`, `Open`, `Over` or `Invalid`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    /// In words.
    kept: String,
    /// What is kept, of a CapacityReservation.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    amounts: Resources,
    /// How long before its start jobs that say no end start no more, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice_seconds: Option<i64>,
    queues: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

pub async fn run_reservation(action: ReservationAction) -> anyhow::Result<ExitCode> {
    match action {
        ReservationAction::Create(args) => create_reservation(*args).await,
        ReservationAction::List { kubeconfig, output } => {
            let client = components::connect_for_command(kubeconfig.as_deref(), "reservation").await?;
            let all = read_reservations(&client, Timestamp::now()).await?;
            print_list(&output, &all)?;
            Ok(ExitCode::SUCCESS)
        }
        ReservationAction::Delete { names, kubeconfig } => {
            let client = components::connect_for_command(kubeconfig.as_deref(), "reservation").await?;
            let mut all_done = true;
            for name in names {
                let outcome = delete_reservation(&client, &name).await;
                all_done &= print_outcome(&format!("reservation {name}"), outcome);
            }
            Ok(to_exit_code(all_done))
        }
    }
}

fn reservation_resource() -> ApiResource {
    ApiResource::erase::<CapacityReservation>(&())
}

async fn create_reservation(args: ReservationCreateArgs) -> anyhow::Result<ExitCode> {
    let object = build_reservation(&args, Timestamp::now())?;
    let kept = object.read().map_err(anyhow::Error::msg)?;
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "reservation").await?;
    for warning in find_doubts(&client, &args).await? {
        output::write_warning(&format!("reservation {}: {warning}", args.name));
    }
    let outcome = async {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &reservation_resource());
        let written = serde_json::from_value(serde_json::to_value(&object)?).context("failed to build it")?;
        api.create(&PostParams::default(), &written).await.map_err(explain_refusal)?;
        Ok(format!("keeps {} {}", kept.amounts, kept.window))
    };
    Ok(to_exit_code(print_outcome(&format!("reservation {}", args.name), outcome.await)))
}

fn explain_refusal(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            anyhow::anyhow!("the host has no CapacityReservations: `caldera upgrade` brings their definition")
        }
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        error => error.into(),
    }
}

fn build_reservation(args: &ReservationCreateArgs, now: Timestamp) -> anyhow::Result<CapacityReservation> {
    let start = EpochSeconds::from(args.start.unwrap_or(now));
    let end = start.saturating_add(args.duration);
    ensure!(end > EpochSeconds::from(now), "that is over already");
    let mut amounts = Resources::new();
    for (name, amount) in &args.amounts {
        let amount = amount.with_context(|| format!("{name}: how much is to be kept?"))?;
        ensure!(amount > Quantity::ZERO, "{name}: it is above zero");
        ensure!(amounts.get(name).is_zero(), "{name} is there twice");
        amounts.set(ResourceName::from(name.as_str()), amount);
    }
    let written: serde_json::Map<String, Value> =
        amounts.iter().map(|(name, amount)| (name.to_string(), json!(amount.to_string()))).collect();
    let queues: BTreeSet<&String> = args.queues.iter().collect();
    let object = json!({
        "metadata": {"name": args.name},
        "spec": {
            "amounts": written, "start": start.to_timestamp(), "end": end.to_timestamp(), "queues": queues,
            "noticeSeconds": args.notice.filter(|notice| *notice != DEFAULT_NOTICE), "reason": args.reason,
        },
    });
    serde_json::from_value(object).context("failed to build it")
}

/// Amounts of what no member has, and queues that there are none of: most are misspelt.
async fn find_doubts(client: &Client, args: &ReservationCreateArgs) -> anyhow::Result<Vec<String>> {
    let (clusters, queues) = (objects::cluster_resource(), objects::queue_resource());
    let (members, queues) =
        futures::try_join!(list_objects(client, &clusters, None, None), list_objects(client, &queues, None, None))?;
    Ok(list_doubts(args, &members, &queues))
}

fn list_doubts(
    args: &ReservationCreateArgs,
    members: &Visible<Vec<Value>>,
    queues: &Visible<Vec<Value>>,
) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Ok(members) = members {
        let amounts = |member: &Value| member.pointer("/status/resourceSummary/allocatable").cloned();
        let there: Vec<Value> = members.iter().filter_map(amounts).collect();
        let unknown = args.amounts.iter().map(|(name, _)| name).filter(|name| {
            let is_there = there.iter().any(|amounts| amounts.get(name.as_str()).is_some());
            // Karmada's summary of a cluster tells of no devices that are claimed.
            let is_device = name.starts_with(DEVICE_CLASS_PREFIX);
            !there.is_empty() && !is_device && (!is_there || !ResourceName::from(name.as_str()).is_counted())
        });
        doubts.extend(unknown.map(|name| format!("no cluster has {name} for queues, so that nothing is kept of it")));
        doubts.extend(args.amounts.iter().filter_map(|(name, amount)| {
            let has = there.iter().filter_map(|amounts| amounts.get(name.as_str())?.as_str()?.parse().ok());
            let all = has.fold(Quantity::ZERO, Quantity::saturating_add);
            let is_all = !all.is_zero() && amount.is_some_and(|amount| amount >= all);
            is_all.then(|| format!("clusters have {name} {}: nobody else gets any in that time", all.plain()))
        }));
    }
    if let Ok(queues) = queues {
        let absent = args.queues.iter().filter(|name| !queues.iter().any(|queue| name_of(queue) == name.as_str()));
        doubts.extend(absent.map(|name| format!("there is no queue {name} yet")));
    }
    doubts
}

async fn delete_reservation(client: &Client, name: &str) -> anyhow::Result<&'static str> {
    let resource = reservation_resource();
    let object = get_object(client, &resource, None, name).await?.map_err(anyhow::Error::msg)?;
    let object = object.context(
        "there is none of this name; `caldera cluster maintenance CLUSTER --cancel` takes windows of clusters",
    )?;
    caldera_runtime::write::execute_write(client, &build_delete(&resource, &object)).await?;
    Ok("is deleted: what it kept is free for all")
}

async fn read_reservations(client: &Client, now: Timestamp) -> anyhow::Result<Reservations> {
    let (resource, clusters) = (reservation_resource(), objects::cluster_resource());
    let (amounts, clusters) =
        futures::try_join!(list_objects(client, &resource, None, None), list_objects(client, &clusters, None, None))?;
    let mut missing = Vec::new();
    let mut gap = |what: &str, why: String| missing.push(Gap { what: what.to_owned(), why });
    let amounts = amounts.unwrap_or_else(|why| {
        gap("capacityreservations.federation.caldera.dev", why);
        Vec::new()
    });
    let clusters = clusters.unwrap_or_else(|why| {
        gap("maintenance windows of clusters", why);
        Vec::new()
    });
    Ok(Reservations { reservations: list_views(&amounts, &clusters, now), missing })
}

/// The first to begin first.
fn list_views(amounts: &[Value], clusters: &[Value], now: Timestamp) -> Vec<ReservationView> {
    let now = EpochSeconds::from(now);
    let mut all: Vec<ReservationView> = amounts.iter().map(|object| view_amount(object, now)).collect();
    for cluster in clusters {
        let name = name_of(cluster);
        let windows = match annotation_of(cluster, MAINTENANCE).map(str::parse::<Maintenance>) {
            None => continue,
            Some(Ok(windows)) => windows,
            Some(Err(why)) => {
                let kept = format!("nothing of cluster {name}: {why}");
                all.push(ReservationView { cluster: Some(name.to_owned()), ..view_invalid(None, kept) });
                continue;
            }
        };
        all.extend(windows.list_windows_ending_after(now).map(|window| {
            let kept = match window.node_groups.as_slice() {
                [] => format!("cluster {name}"),
                groups => format!("node groups {} of cluster {name}", name_some(groups)),
            };
            ReservationView { name: None, cluster: Some(name.to_owned()), kept, ..view_window(window, now) }
        }));
    }
    all.sort_by(|a, b| (&a.start, &a.name, &a.cluster).cmp(&(&b.start, &b.name, &b.cluster)));
    all
}

fn view_amount(object: &Value, now: EpochSeconds) -> ReservationView {
    let name = Some(name_of(object).to_owned());
    let read = serde_json::from_value::<CapacityReservation>(object.clone()).map_err(|error| error.to_string());
    match read.and_then(|object| object.read()) {
        Ok(kept) => {
            let (text, amounts) = (kept.amounts.to_string(), kept.amounts.clone());
            ReservationView { name, kept: text, amounts, ..view_window(&kept.window, now) }
        }
        Err(why) => view_invalid(name, format!("nothing: {why}")),
    }
}

fn view_invalid(name: Option<String>, kept: String) -> ReservationView {
    ReservationView {
        name,
        cluster: None,
        state: "Invalid",
        start: None,
        end: None,
        kept,
        amounts: Resources::new(),
        notice_seconds: None,
        queues: Vec::new(),
        reason: String::new(),
    }
}

fn view_window(window: &MaintenanceWindow, now: EpochSeconds) -> ReservationView {
    let text = |time: EpochSeconds| time.to_timestamp().map(|time| time.to_string());
    ReservationView {
        name: None,
        cluster: None,
        state: match now {
            _ if window.end <= now => "Over",
            _ if window.start <= now => "Open",
            _ => "Planned",
        },
        start: text(window.start),
        end: text(window.end),
        kept: String::new(),
        amounts: Resources::new(),
        notice_seconds: Some(window.notice),
        queues: window.queues.iter().map(ToString::to_string).collect(),
        reason: window.reason.clone(),
    }
}

fn print_list(form: &ListOutput, all: &Reservations) -> anyhow::Result<()> {
    let names: String =
        all.reservations.iter().filter_map(|one| one.name.as_ref()).map(|name| format!("{name}\n")).collect();
    let text = output::format_list(form, all, "STATE", &names, |wide| {
        let is_empty_handed = all.reservations.is_empty() && !all.missing.is_empty();
        let seen = if is_empty_handed { String::new() } else { format_reservations(&all.reservations) };
        seen + &output::format_gaps(&all.missing, wide)
    })?;
    output::write_stdout(&text);
    Ok(())
}

fn format_reservations(all: &[ReservationView]) -> String {
    if all.is_empty() {
        return "nothing is kept: `caldera reservation create` keeps an amount, `caldera cluster maintenance` a \
                cluster\n"
            .to_owned();
    }
    let has_reasons = all.iter().any(|one| !one.reason.is_empty());
    let mut header = vec!["RESERVATION", "STATE", "START", "END", "KEPT", "FOR"];
    header.extend(has_reasons.then_some("REASON"));
    let rows = all.iter().map(|one| {
        let queues =
            if one.queues.is_empty() { "nobody".to_owned() } else { format!("queue {}", name_some(&one.queues)) };
        let mut cells = vec![
            one.name.clone().unwrap_or_else(|| "(maintenance)".to_owned()),
            one.state.to_owned(),
            one.start.clone().unwrap_or_default(),
            one.end.clone().unwrap_or_default(),
            one.kept.clone(),
            queues,
        ];
        cells.extend(has_reasons.then(|| one.reason.clone()));
        cells
    });
    format_table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(amounts: &[(&str, &str)], queues: &[&str]) -> ReservationCreateArgs {
        ReservationCreateArgs {
            name: "upgrade".to_owned(),
            amounts: amounts.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().ok())).collect(),
            start: Some("2026-12-01T08:00:00Z".parse().unwrap()),
            duration: 4 * 3600,
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            notice: None,
            reason: Some("new model".to_owned()),
            kubeconfig: None,
        }
    }

    fn now() -> Timestamp {
        "2026-12-01T09:00:00Z".parse().unwrap()
    }

    #[test]
    fn what_is_created_reads_back_as_it_was_said() {
        let object = build_reservation(&args(&[("cpu", "100"), ("nvidia.com/gpu", "8")], &["ops"]), now()).unwrap();
        let kept = object.read().unwrap();
        assert_eq!(
            format!("{} {}", kept.amounts, kept.window),
            "cpu 100, nvidia.com/gpu 8 from 2026-12-01T08:00:00Z to 2026-12-01T12:00:00Z (new model) for all but jobs of \
             queue ops"
        );
        let late = ReservationCreateArgs { duration: 60, ..args(&[("cpu", "1")], &[]) };
        assert_eq!(build_reservation(&late, now()).unwrap_err().to_string(), "that is over already");
        let twice = build_reservation(&args(&[("cpu", "1"), ("cpu", "2")], &[]), now()).unwrap_err();
        assert_eq!(twice.to_string(), "cpu is there twice");
        for (amount, why) in [("0", "cpu: it is above zero"), ("none", "cpu: how much is to be kept?")] {
            let error = build_reservation(&args(&[("cpu", amount)], &[]), now()).unwrap_err();
            assert_eq!(error.to_string(), why);
        }
    }

    #[test]
    fn what_nobody_has_is_warned_of() {
        let member = json!({"status": {"resourceSummary": {"allocatable": {"cpu": "8", "pods": "9"}}}});
        let queue = json!({"metadata": {"name": "ops"}});
        let said = args(&[("cpu", "1"), ("requests.cpu", "1"), ("gpu", "1")], &["ops", "opps"]);
        assert_eq!(
            list_doubts(&said, &Ok(vec![member]), &Ok(vec![queue])),
            [
                "no cluster has requests.cpu for queues, so that nothing is kept of it",
                "no cluster has gpu for queues, so that nothing is kept of it",
                "there is no queue opps yet"
            ]
        );
        let devices = args(&[("deviceclass/gpu.io", "1")], &[]);
        let without = json!({"status": {"resourceSummary": {"allocatable": {"cpu": "8"}}}});
        assert_eq!(list_doubts(&devices, &Ok(vec![without]), &Ok(vec![])), [""; 0], "no summary has them");
        assert_eq!(
            list_doubts(&said, &Err("no".into()), &Err("no".into())),
            [""; 0],
            "what is not seen is not doubted"
        );
        let member = json!({"status": {"resourceSummary": {"allocatable": {"cpu": "8"}}}});
        let all = list_doubts(&args(&[("cpu", "16")], &[]), &Ok(vec![member.clone(), member]), &Ok(vec![]));
        assert_eq!(all, ["clusters have cpu 16: nobody else gets any in that time"]);
    }

    #[test]
    fn amounts_and_windows_of_clusters_are_listed_in_the_order_in_which_they_begin() {
        let amount = serde_json::to_value(build_reservation(&args(&[("cpu", "100")], &[]), now()).unwrap()).unwrap();
        let wrong = json!({"metadata": {"name": "wrong"}, "spec": {"amounts": {"cpu": "1"}}});
        let windows =
            r#"[{"start":"2026-12-02T00:00:00Z","end":"2026-12-02T01:00:00Z","nodeGroups":["a100"],"queues":["ops"]}]"#;
        let cluster = json!({"metadata": {"name": "m1", "annotations": {MAINTENANCE: windows}}});
        let table = format_reservations(&list_views(&[amount, wrong], &[cluster], now()));
        let words: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            words,
            [
                "RESERVATION STATE START END KEPT FOR REASON",
                "wrong Invalid - - nothing: it has no start or no end nobody -",
                "upgrade Open 2026-12-01T08:00:00Z 2026-12-01T12:00:00Z cpu 100 nobody new model",
                "(maintenance) Planned 2026-12-02T00:00:00Z 2026-12-02T01:00:00Z node groups a100 of cluster m1 queue ops -",
            ]
        );
        assert!(format_reservations(&[]).starts_with("nothing is kept: "));
        let amount = serde_json::to_value(build_reservation(&args(&[("cpu", "100")], &[]), now()).unwrap()).unwrap();
        let view = serde_json::to_value(&list_views(&[amount], &[], now())[0]).unwrap();
        assert_eq!((&view["amounts"], &view["noticeSeconds"]), (&json!({"cpu": "100"}), &json!(86_400)));
    }
}
