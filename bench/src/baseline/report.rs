//! The table.

use super::parts::{Used, Writes};

/// What was written since.
pub fn subtract(mut after: Writes, before: &Writes) -> Writes {
    for (key, count) in &mut after {
        *count -= before.get(key).copied().unwrap_or_default();
    }
    after.retain(|_, count| *count > 0);
    after
}

pub fn print_writes(writes: &Writes, by_harness: u64, jobs: usize) {
    let jobs = jobs as f64;
    for ((component, verb, resource), count) in writes {
        println!("  {component:<11} {verb:<7} {resource:<26} {count:>7} {:>7.2} a job", *count as f64 / jobs);
    }
    let mut components: Vec<&str> = writes.keys().map(|(component, ..)| component.as_str()).collect();
    components.dedup();
    for component in components {
        let of_one: u64 = writes.iter().filter(|((of, ..), _)| of == component).map(|(_, count)| count).sum();
        println!("  {component:<11} {:.2} writes a job", of_one as f64 / jobs);
    }
    let own: u64 = writes.values().sum();
    println!("own writes a job: {:.2}", own as f64 / jobs);
    println!("writes a job with the harness: {:.2}", (own + by_harness) as f64 / jobs);
}

pub fn print_used(used: &[Used], embedded: bool) {
    for Used { name, cpu, memory, most, .. } in used {
        let (memory, most) = (memory / 1024, most / 1024);
        println!("  {name:<14} CPU {:>7.1} s   RSS {memory:>5} MiB, at most {most} MiB", cpu.as_secs_f64());
    }
    let ours =
        used.iter().filter(|used| ["webhook", "controller", "scheduler", "server"].contains(&used.name.as_str()));
    let (cpu, memory, own) = ours.fold((0.0, 0, 0), |(cpu, memory, own), used| {
        (cpu + used.cpu.as_secs_f64(), memory + used.memory, own + used.own)
    });
    let (memory, own) = (memory / 1024, own / 1024);
    println!("all components: CPU {cpu:.1} s, RSS {memory} MiB, of it {own} MiB without the pages of their binary");
    if embedded {
        println!("this process is the API server and the load; its CPU and memory are both");
    }
}
