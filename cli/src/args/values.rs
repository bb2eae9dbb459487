//! Values of arguments that have a form of their own.

use std::fmt;

use caldera_core::{quantity::Quantity, topology_discovery::TopologyLabels};
use caldera_crds::{selector::is_label_key, workload::WorkloadKind};
use caldera_sandbox::member::NodeGroup;
use jiff::Timestamp;

use super::names::find_kind;

/// What a user names: `NAME` for a Volcano Job, `KIND/NAME` for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobName {
    /// Kind.
    pub kind: WorkloadKind,
    /// Name in its namespace.
    pub name: String,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.aliases()[0], self.name)
    }
}

/// Reads `NAME` or `KIND/NAME`.
///
/// # Errors
/// If it is neither.
pub fn parse_job_name(text: &str) -> Result<JobName, String> {
    let (kind, name) = text.split_once('/').unwrap_or(("vcjob", text));
    let Some(known) = find_kind(kind) else {
        return Err(format!("{kind:?} is none of {}", list_kinds()));
    };
    if name.is_empty() || name.contains('/') {
        return Err(format!("want NAME, or KIND/NAME with one of {}", list_kinds()));
    }
    Ok(JobName { kind: known, name: name.to_owned() })
}

/// Whom `caldera why` is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhySubject {
    /// A workload.
    Workload(JobName),
    /// The jobs of the HyperJob of this name.
    HyperJob(String),
    /// The CronJobs of this name.
    CronJob(String),
}

/// Words for a HyperJob.
const HYPER_JOB_WORDS: [&str; 3] = ["hyperjob", "hyperjobs", "hj"];
/// Words for what makes jobs when they are due.
const CRON_JOB_WORDS: [&str; 4] = ["cronjob", "cronjobs", "cronvcjob", "cronvcjobs"];

/// Reads `NAME`, `KIND/NAME`, `hyperjob/NAME` or `cronjob/NAME`.
///
/// # Errors
/// If it is none of them.
pub fn parse_why_subject(text: &str) -> Result<WhySubject, String> {
    let subjects = [
        (&HYPER_JOB_WORDS[..], WhySubject::HyperJob as fn(String) -> WhySubject),
        (&CRON_JOB_WORDS[..], WhySubject::CronJob),
    ];
    match text.split_once('/') {
        Some((word, name))
            if let Some((words, subject)) =
                subjects.into_iter().find(|(words, _)| words.contains(&word.to_lowercase().as_str())) =>
        {
            let is_name = !name.is_empty() && !name.contains('/');
            is_name.then(|| subject(name.to_owned())).ok_or_else(|| format!("want {}/NAME", words[0]))
        }
        Some((word, _)) if find_kind(word).is_none() => {
            Err(format!("{word:?} is none of {}, {}, {}", list_kinds(), HYPER_JOB_WORDS[0], CRON_JOB_WORDS[0]))
        }
        _ => parse_job_name(text).map(WhySubject::Workload),
    }
}

/// The first word for each kind.
fn list_kinds() -> String {
    WorkloadKind::list_all().map(|kind| kind.aliases()[0]).collect::<Vec<_>>().join(", ")
}

/// Reads `RESOURCE=AMOUNT`, or `RESOURCE=none` for no amount.
///
/// # Errors
/// If it is neither.
pub fn parse_amount(text: &str) -> Result<(String, Option<Quantity>), String> {
    let (name, amount) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("want RESOURCE=AMOUNT")?;
    if amount == "none" {
        return Ok((name.to_owned(), None));
    }
    if amount.is_empty() {
        return Err(format!("want an amount of {name}, or {name}=none to take it away"));
    }
    amount
        .parse()
        .map(|amount| (name.to_owned(), Some(amount)))
        .map_err(|error: caldera_core::quantity::ParseQuantityError| error.to_string())
}

/// Reads a time as Kubernetes writes it.
///
/// # Errors
/// If it is none.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "want a time as 2026-11-26T08:00:00Z".to_owned())
}

/// Reads what has a form of its own.
///
/// # Errors
/// If it has another.
pub fn parse_value<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads `30`, `30s`, `5m`, `2h` or `1d`.
///
/// # Errors
/// If it is none of them.
pub fn parse_seconds(text: &str) -> Result<i64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(format!("{text:?} is no time as 30s, 5m, 2h or 1d")),
    };
    match number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(0) => Err(format!("{text:?} is too short: it is a second at least")),
        seconds => seconds.ok_or_else(|| format!("{text:?} is no time as 30s, 5m, 2h or 1d")),
    }
}

/// Reads labels of nodes, from the widest domain to the narrowest.
///
/// # Errors
/// If one can be no label, or they make no topology.
pub fn parse_topology_labels(text: &str) -> Result<TopologyLabels, String> {
    let labels: TopologyLabels = parse_value(text)?;
    if let Some(wrong) = labels.keys().find(|key| !is_label_key(key)) {
        return Err(format!("{wrong:?} is no key of a label"));
    }
    Ok(labels)
}

/// Parses `NAME=COUNT:RESOURCE=AMOUNT,...`.
pub fn parse_node_group(text: &str) -> Result<NodeGroup, String> {
    let wanted = "want NAME=COUNT:RESOURCE=AMOUNT,..., for instance cpu=2:cpu=8,memory=32Gi";
    let (head, resources) = text.split_once(':').ok_or(wanted)?;
    let (prefix, count) = head.split_once('=').ok_or(wanted)?;
    let count = count.parse().map_err(|_| format!("{count:?} is not a number of nodes; {wanted}"))?;
    let mut allocatable = Vec::new();
    for part in resources.split(',') {
        let (name, amount) = part.split_once('=').ok_or(wanted)?;
        amount.parse::<Quantity>().map_err(|error| error.to_string())?;
        allocatable.push((name.to_owned(), amount.to_owned()));
    }
    Ok(NodeGroup { prefix: prefix.to_owned(), count, allocatable, labels: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!([parse_seconds("30"), parse_seconds("5m"), parse_seconds("1d")], [Ok(30), Ok(300), Ok(86_400)]);
        assert!(parse_time("2026-11-26T08:00:00Z").is_ok());
        assert!(parse_time("yesterday").unwrap_err().contains("2026-11-26T08:00:00Z"));
        for bad in ["", "m", "0s", "-1s", "1w", "1.5h", "99999999999999999999"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bare_name_is_a_volcano_job_and_kinds_are_named_as_kubectl_does() {
        let of = |text: &str| parse_job_name(text).map(|named| (named.kind, named.name));
        assert_eq!(of("x"), Ok((WorkloadKind::VolcanoJob, "x".to_owned())));
        assert_eq!(of("job/x"), Ok((WorkloadKind::BatchJob, "x".to_owned())));
        assert_eq!(of("Deployment/x"), Ok((WorkloadKind::Deployment, "x".to_owned())));
        for wrong in ["", "queue/x", "job/", "a/b/c", "job/b/c"] {
            assert!(parse_job_name(wrong).unwrap_err().contains("vcjob"), "{wrong}");
        }
    }

    /// Found by a reader: of what can be asked about, HyperJobs were not named.
    #[test]
    fn whom_why_can_be_asked_about_is_told_in_full() {
        assert!(parse_why_subject("queue/x").unwrap_err().ends_with(", hyperjob, cronjob"));
        assert_eq!(parse_why_subject("cronvcjob/x"), Ok(WhySubject::CronJob("x".to_owned())));
        assert_eq!(parse_why_subject("cronjob/").unwrap_err(), "want cronjob/NAME");
        assert_eq!(parse_why_subject("hj/x"), Ok(WhySubject::HyperJob("x".to_owned())));
    }

    #[test]
    fn an_amount_is_a_resource_with_a_quantity_or_none() {
        assert_eq!(parse_amount("cpu=20"), Ok(("cpu".to_owned(), Some("20".parse().unwrap()))));
        assert_eq!(parse_amount("memory=none"), Ok(("memory".to_owned(), None)));
        assert!(parse_amount("cpu=").unwrap_err().contains("cpu=none to take it away"));
        for wrong in ["cpu", "=1", "cpu=", "cpu=x"] {
            assert!(parse_amount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_group_reads_back() {
        let group = parse_node_group("gpu=2:cpu=16,nvidia.com/gpu=8").unwrap();
        assert_eq!((group.prefix.as_str(), group.count), ("gpu", 2));
        assert_eq!(group.allocatable[1], ("nvidia.com/gpu".to_owned(), "8".to_owned()));
    }

    #[test]
    fn a_bad_node_group_is_reported() {
        assert!(parse_node_group("x").unwrap_err().contains("want NAME=COUNT"));
        assert!(parse_node_group("x=2:cpu=8Q").unwrap_err().contains("unknown suffix"));
    }
}
