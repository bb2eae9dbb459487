//! Traces: our own format, and which reader is for which.
//!
//! A row is a task; rows with the same `job` are the tasks of one gang, and what concerns the whole job is taken from
//! the first of them:
//!
//! ```csv
//! job,queue,priority,arrival,run,estimate,task,replicas,min,cpu,memory,nvidia.com/gpu
//! train,ml,0,0,3600,4000,master,1,1,8,32Gi,
//! train,,,,,,worker,16,8,8,64Gi,8
//! ```
//! `namespace` and `user` say whose a job is, and `cards` which models of a card a task may use, the best first
//! (`A100|H100`, as annotation `volcano.sh/card.name`). `data` says where a job's data is, as annotation
//! `caldera.dev/data` does, in quotes where it has commas. `qos` is `BE` of best-effort pods, or `LC`, `HLS` or `LS`; a
//! job is best effort where all of its tasks are. Needed are `job`, `arrival` and `run` (seconds, or a number with ms,
//! s, m, h, d). Without `replicas` it is one, and without `min` all of them are needed; every other column is a
//! resource, asked for by each pod.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use caldera_core::{
    card_choice::read_card_models,
    declared_data::Data,
    gang::{Gang, QueueName, Task, TaskName},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

use super::{
    ReadError, Reader, Trace, TraceFormat, TraceOptions, dlrm, openb,
    table::{Row, Table},
};
use crate::{
    time::Millis,
    world::{self, Job, JobTerms, Shapes},
};

/// The latest arrival, and the longest run.
const LONGEST: Millis = Millis::from_secs(1_000 * 365 * 24 * 3_600);
/// Columns that are no resources.
const KNOWN: [&str; 14] = [
    "job",
    "queue",
    "namespace",
    "user",
    "priority",
    "arrival",
    "run",
    "estimate",
    "task",
    "replicas",
    "min",
    "cards",
    "qos",
    "data",
];
/// QoS levels of pods, the one first that gives way first.
const QOS_LEVELS: [&str; 4] = ["BE", "LS", "HLS", "LC"];
/// For jobs that name no namespace where others do, or a user alone.
const DEFAULT_NAMESPACE: &str = "default";
/// For jobs that name no queue.
const DEFAULT_QUEUE: &str = "default";

/// Reads a trace for a fleet whose nodes have the resources `offered`.
///
/// # Errors
/// [`ReadError`], with the line.
pub fn read_trace(
    text: &str,
    options: &TraceOptions,
    offered: &BTreeSet<ResourceName>,
    shapes: &mut Shapes,
) -> Result<Trace, ReadError> {
    let mut reader = Reader { shapes, offered, dropped: BTreeSet::new(), notes: Vec::new() };
    let mut terms = HashMap::new();
    let jobs = match options.format {
        TraceFormat::Caldera => read_own_trace(text, &mut reader, &mut terms)?,
        TraceFormat::Openb => openb::read_openb_jobs(text, &mut reader)?,
        TraceFormat::Dlrm => dlrm::read_dlrm_jobs(text, options, &mut reader)?,
    };
    if jobs.is_empty() {
        return Err(ReadError::File("there is no job in it".to_owned()));
    }
    Ok(Trace { terms, ..reader.finish(jobs, options) })
}

fn read_own_trace(
    text: &str,
    reader: &mut Reader<'_>,
    terms: &mut HashMap<Arc<str>, JobTerms>,
) -> Result<Vec<Job>, ReadError> {
    let table = Table::read(text, &["job", "arrival", "run"])?;
    let resources: Vec<&str> = table.header.iter().map(String::as_str).filter(|name| !KNOWN.contains(name)).collect();
    let has_terms = ["namespace", "user", "qos"].iter().any(|term| table.header.iter().any(|name| name == term));
    let mut order: Vec<(String, Row<'_>)> = Vec::new();
    let mut tasks: BTreeMap<String, Vec<Task>> = BTreeMap::new();
    let mut not_best_effort: BTreeSet<String> = BTreeSet::new();
    let mut names: HashSet<(String, TaskName)> = HashSet::new();
    for row in table.rows() {
        let job: String = row.read("job")?;
        let of_job = tasks.entry(job.clone()).or_default();
        if of_job.is_empty() {
            check_times(row)?;
            order.push((job.clone(), row));
        } else if !row.text("data").is_empty() {
            return Err(row.wrong(format!("data of job {job} belongs in its first row")));
        }
        let task = read_task(row, &resources, of_job.len())?;
        if !names.insert((job.clone(), task.name.clone())) {
            return Err(row.wrong(format!("job {job} has two tasks named {}", task.name)));
        }
        of_job.push(task);
        if !is_best_effort(row)? {
            not_best_effort.insert(job);
        }
    }
    let job = |(name, row): (String, Row<'_>)| {
        let gang = world::gang(tasks.remove(&name).unwrap_or_default());
        let gang = Gang { data: row.maybe::<Data>("data")?.map(Arc::new), ..gang };
        if gang.min_available == 0 {
            return Err(row.wrong(format!("job {name} needs no pod at all: min is 0 for every task")));
        }
        let best_effort = !not_best_effort.contains(&name);
        let name: Arc<str> = name.into();
        if has_terms {
            let namespace: Option<String> = row.maybe("namespace")?;
            let namespace = namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE).into();
            let submitter = row.maybe::<String>("user")?.map(Arc::from);
            // As the webhook and the controller read it of a job that says nothing else.
            let preemptable = best_effort.then_some(true);
            let of_job = JobTerms { namespace, submitter, preemptable, best_effort, ..JobTerms::default() };
            terms.insert(Arc::clone(&name), of_job);
        }
        Ok(Job {
            name,
            queue: QueueName::from(row.maybe::<String>("queue")?.as_deref().unwrap_or(DEFAULT_QUEUE)),
            priority: row.maybe("priority")?.unwrap_or(0),
            arrival: row.read("arrival")?,
            run: row.read("run")?,
            estimate: row.maybe("estimate")?,
            shape: reader.shapes.gang(gang),
            running: None,
        })
    };
    order.into_iter().map(job).collect()
}

/// Times that far away are mistakes, and sums of them would not be true.
fn check_times(row: Row<'_>) -> Result<(), ReadError> {
    for column in ["arrival", "run", "estimate"] {
        if row.maybe::<Millis>(column)?.is_some_and(|time| time > LONGEST) {
            return Err(row.wrong(format!("{column} is more than {LONGEST}")));
        }
    }
    Ok(())
}

fn is_best_effort(row: Row<'_>) -> Result<bool, ReadError> {
    match row.text("qos") {
        "" => Ok(false),
        level if QOS_LEVELS.contains(&level) => Ok(level == QOS_LEVELS[0]),
        level => Err(row.wrong(format!("qos {level:?} is none of {}", QOS_LEVELS.join(", ")))),
    }
}

fn read_task(row: Row<'_>, resources: &[&str], nth: usize) -> Result<Task, ReadError> {
    let replicas: u32 = row.maybe("replicas")?.unwrap_or(1);
    let min: u32 = row.maybe("min")?.unwrap_or(replicas);
    if replicas == 0 {
        return Err(row.wrong("replicas is 0".to_owned()));
    }
    if min > replicas {
        return Err(row.wrong(format!("min {min} is more than replicas {replicas}")));
    }
    let mut request = Resources::new();
    for name in resources {
        let Some(amount) = row.maybe::<Quantity>(name)? else { continue };
        if amount.is_negative() {
            return Err(row.wrong(format!("{name} is negative")));
        }
        request.set(*name, amount);
    }
    let name = match row.text("task") {
        "" if nth == 0 => "task".to_owned(),
        "" => format!("task-{}", nth + 1),
        name => name.to_owned(),
    };
    let cards = read_card_models(row.text("cards"));
    if cards.is_empty() && !row.text("cards").is_empty() {
        return Err(row.wrong(format!("cards {:?} names no model of a card", row.text("cards"))));
    }
    let mut task = world::task(&name, replicas, min, request);
    task.node.cards = cards;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Estimates;

    fn read(text: &str, options: &TraceOptions) -> Result<Trace, ReadError> {
        let offered = ["cpu", "nvidia.com/gpu"].map(ResourceName::from).into();
        read_trace(text, options, &offered, &mut Shapes::default())
    }

    #[test]
    fn rows_of_one_job_are_the_tasks_of_one_gang() {
        let text = "job,queue,priority,arrival,run,estimate,task,replicas,min,cpu,nvidia.com/gpu\n\
                    train,ml,7,10,1h,4000,master,1,1,8,\ntrain,,,,,,worker,16,8,8,8\nsmall,,,12.5,60,,,,,500m,\n";
        let trace = read(text, &TraceOptions { speed_milli: 2_000, ..TraceOptions::default() }).unwrap();
        let [train, small] = trace.jobs.as_slice() else { panic!("{trace:?}") };
        assert_eq!((train.queue.as_str(), train.priority, train.arrival), ("ml", 7, Millis(5_000)));
        assert_eq!((train.run, train.estimate), (Millis(3_600_000), Some(Millis(4_000_000))));
        let tasks: Vec<(&str, u32, u32)> =
            train.shape.gang.tasks.iter().map(|task| (task.name.as_str(), task.replicas, task.min_available)).collect();
        assert_eq!((tasks, train.shape.gang.min_available), (vec![("master", 1, 1), ("worker", 16, 8)], 9));
        assert_eq!((small.queue.as_str(), small.arrival), ("default", Millis(6_250)));
        assert_eq!(small.shape.full.get("cpu"), Quantity::from_milli(500));
    }

    #[test]
    fn a_job_whose_tasks_are_all_best_effort_may_be_evicted() {
        let text = "job,arrival,run,task,qos,cpu\na,0,1,x,BE,1\na,,,y,BE,1\nb,0,1,x,BE,1\nb,,,y,,1\nc,0,1,,LC,1\n";
        let trace = read(text, &TraceOptions::default()).unwrap();
        let terms = |job: &str| (trace.terms[job].best_effort, trace.terms[job].preemptable);
        assert_eq!([terms("a"), terms("b"), terms("c")], [(true, Some(true)), (false, None), (false, None)]);
        let wrong = read("job,arrival,run,qos,cpu\na,0,1,be,1\n", &TraceOptions::default()).unwrap_err();
        assert!(wrong.to_string().contains("qos \"be\" is none of BE, LS, HLS, LC"), "{wrong}");
    }

    #[test]
    fn whose_a_job_is_and_which_cards_it_may_use_are_read_where_the_columns_are_there() {
        let text = "job,arrival,run,namespace,user,cards,nvidia.com/gpu\na,0,1,lab,anna,A100|H100,1\nb,0,1,,,,1\n";
        let trace = read(text, &TraceOptions::default()).unwrap();
        let terms = |job: &str| trace.terms.get(job).map(|terms| (&*terms.namespace, terms.submitter.as_deref()));
        assert_eq!((terms("a"), terms("b")), (Some(("lab", Some("anna"))), Some(("default", None))));
        let models: Vec<&str> = trace.jobs[0].shape.on_cards.iter().map(|(card, _)| card.as_str()).collect();
        assert_eq!(models, ["nvidia.com/gpu:A100", "nvidia.com/gpu:H100"]);
        let plain = read("job,arrival,run,nvidia.com/gpu\na,0,1,1\n", &TraceOptions::default()).unwrap();
        assert!(plain.terms.is_empty() && plain.jobs[0].shape.on_cards.is_empty());
        let error = read("job,arrival,run,cards\na,0,1,|\n", &TraceOptions::default()).unwrap_err().to_string();
        assert_eq!(error, "line 2: cards \"|\" names no model of a card");
    }

    #[test]
    fn wrong_rows_are_named() {
        let error = |text: &str| read(text, &TraceOptions::default()).unwrap_err().to_string();
        assert_eq!(error("job,run\na,1\n"), "line 1: there is no column \"arrival\"; the columns are job, run");
        assert_eq!(error("job,arrival,run\na,1,\n"), "line 2: run is empty");
        assert!(error("job,arrival,run\na,soon,1\n").starts_with("line 2: arrival \"soon\": \"soon\" is no time"));
        let tasks = |row: &str| error(&format!("job,arrival,run,replicas,min,cpu\na,1,1,{row}\n"));
        assert_eq!(tasks("2,3,1"), "line 2: min 3 is more than replicas 2");
        assert_eq!(tasks("0,,1"), "line 2: replicas is 0");
        assert_eq!(tasks("2,0,1"), "line 2: job a needs no pod at all: min is 0 for every task");
        assert_eq!(tasks("2,,-1"), "line 2: cpu is negative");
        assert_eq!(error("job,arrival,run\n"), "there is no job in it");
    }

    #[test]
    fn pods_of_the_openb_trace_are_jobs() {
        let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
                    scheduled_time\np0,12000,16384,1,460,,LS,Running,10,110,30\np1,1000,1,0,0,,BE,Pending,10,110,\n";
        let trace = read(text, &TraceOptions { format: TraceFormat::Openb, ..TraceOptions::default() }).unwrap();
        let [job] = trace.jobs.as_slice() else { panic!("{trace:?}") };
        assert_eq!((job.queue.as_str(), job.arrival, job.run), ("ls", Millis(10_000), Millis(80_000)));
        assert_eq!(job.shape.full.to_string(), "cpu 12, nvidia.com/gpu 1, pods 1");
        assert_eq!(trace.notes.len(), 3, "{:?}", trace.notes);
    }

    #[test]
    fn instances_that_a_service_created_together_are_a_gang() {
        let head = "instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,creation_time,\
                    scheduled_time,deletion_time\n";
        let rows = "i0,HN,app_5,12,1,25,120.0,,,\ni1,CN,app_5,48,0,25,200.0,,,500\ni2,CN,app_5,48,0,25,240.0,,,\n\
                    i3,CN,app_5,48,0,1,8.5,3700,,4000\ni4,HN,app_5,12,1,25,120.0,3800.5,,5000\n";
        let trace =
            read(&format!("{head}{rows}"), &TraceOptions { format: TraceFormat::Dlrm, ..TraceOptions::default() });
        let trace = trace.unwrap();
        let shown: Vec<String> = trace
            .jobs
            .iter()
            .map(|job| {
                let tasks = job.shape.gang.tasks.iter().map(|task| format!("{}x{}", task.replicas, task.name));
                let tasks: Vec<String> = tasks.collect();
                format!("{} {} {} {}: {}", job.name, job.queue, job.arrival, job.run, tasks.join(" "))
            })
            .collect();
        // Memory is not offered, so that the two sizes of CN are one.
        let want = [
            "app_5-before tenant-1 0 s 1 h 23 min: 2xcn 1xhn",
            "app_5-000001 tenant-1 1 h 1 min 19 min 59 s: 1xcn 1xhn",
        ];
        let mut shown = shown;
        shown.sort_by_key(|text| !text.contains("before"));
        assert_eq!(shown, want);
    }

    #[test]
    fn estimates_are_none_the_truth_or_too_long() {
        let text = "job,arrival,run,cpu\na,1,100,1\nb,1,100,1\nc,1,100,1\n";
        let of = |estimates| {
            let trace = read(text, &TraceOptions { estimates, ..TraceOptions::default() }).unwrap();
            trace.jobs.iter().map(|job| job.estimate).collect::<Vec<_>>()
        };
        assert_eq!(of(Estimates::AsGiven), [None; 3]);
        assert_eq!(of(Estimates::Exact), [Some(Millis(100_000)); 3]);
        let rough = of(Estimates::Rough);
        assert!(rough.iter().flatten().all(|time| (100_000..=500_000).contains(&time.0)), "{rough:?}");
        assert!(rough[0] != rough[1] && rough == of(Estimates::Rough));
    }

    #[test]
    fn a_job_says_where_its_data_is_as_its_annotation_does() {
        let text = "job,arrival,run,cpu,data\na,0,1,1,\"cluster=m1:200Gi,region=eu:1Ti\"\nb,0,1,1,\n";
        let trace = read(text, &TraceOptions::default()).unwrap();
        let data = |job: usize| trace.jobs[job].shape.gang.data.as_deref().cloned();
        assert_eq!((data(0), data(1)), (Some("cluster=m1:200Gi,region=eu:1Ti".parse().unwrap()), None));
        let refused = |rows: &str| {
            let text = format!("job,arrival,run,task,cpu,data\n{rows}\n");
            read(&text, &TraceOptions::default()).unwrap_err().to_string()
        };
        assert!(refused("a,0,1,t,1,rack=7").contains("\"rack=7\" is not KEY=VALUE"));
        assert!(refused("a,0,1,t,1,cluster=m1:2Gi;region=eu:1Ti").contains("is not KEY=VALUE"));
        let later = refused("a,0,1,t,1,\na,,,u,1,cluster=m1");
        assert!(later.contains("data of job a belongs in its first row"), "{later}");
    }

    #[test]
    fn times_beyond_a_thousand_years_are_refused() {
        for row in ["18446744073709551,1,", "0,18446744073709551,", "0,1,40000000000"] {
            let text = format!("job,arrival,run,estimate,cpu\na,{row},1\n");
            let wrong = read(&text, &TraceOptions::default()).unwrap_err().to_string();
            assert!(wrong.contains(" is more than 365000 d"), "{wrong}");
        }
    }
}
