//! What the numbers were measured on, printed with them: a benchmark on a busy machine has to say so.

use std::{fs, time::Duration};

/// Cores, memory, kernel, load.
pub fn print_machine() {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value).trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!(
        "machine: {cores} cores of {}, {} memory, Linux {}",
        field(&read("/proc/cpuinfo"), "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
    );
    if cfg!(debug_assertions) {
        println!("this is a debug build: its numbers mean nothing");
    }
    print_load("at the start");
}

/// How many others wanted the processors in the last minute.
pub fn print_load(when: &str) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average {when}: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
}

/// A line of `/proc/<pid>/status` in KiB.
pub fn read_memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// User and system time of a process so far.
pub fn read_cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may have spaces; user and system time are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // The kernel shows hundredths of a second to programs, whatever its own tick is.
    Some(Duration::from_millis(ticks * 10))
}
