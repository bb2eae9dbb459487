//! The memory that the costliest body takes of the interpreter. In a process of its own: the peak is the process's.

use std::fs;

use caldera_webhook::{
    decide::interpreter::{Interpretation, interpret_request},
    observe::cache::Cache,
};

/// The most that the process ever had in memory, in kB; `None` where the system does not tell.
fn read_peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

/// The values of the job take 64 MB, and took as much again for each of its copies.
#[test]
fn a_job_is_revised_without_a_copy_of_it() {
    let tasks = "{\"replicas\":2},".repeat(98_000);
    let body = format!(
        "{{\"request\":{{\"uid\":\"u\",\"kind\":{{\"group\":\"batch.volcano.sh\",\"kind\":\"Job\"}},\"operation\":\"ReviseReplica\",\
         \"replicas\":98000,\"object\":{{\"metadata\":{{}},\"spec\":{{\"tasks\":[{tasks}{{}}]}}}}}}}}"
    );
    let Some(before) = read_peak() else { return };
    let answer = interpret_request(body.as_bytes(), &Cache::default(), None);
    let Interpretation::Reply(reply) = answer else { panic!("{answer:?}") };
    let taken = read_peak().unwrap() - before;
    println!("{taken} kB for an answer of {} bytes", reply.body.len());
    assert!(reply.status == 200 && reply.body.len() > 1_000_000);
    assert!(taken < 85_000, "{taken} kB");
}
