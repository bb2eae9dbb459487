//! Goes through the scopes of `docs/reliability.md`, and prints its table: `cargo run --release -p caldera-model`.

use std::process::ExitCode;

use caldera_model::{model::Model, search::explore, state::Budget};

fn main() -> ExitCode {
    let mut is_sound = true;
    println!("| what may go wrong | states | steps | depth | records beyond the limit | time |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, model) in list_scopes() {
        let found = explore(&model);
        println!(
            "| {name} | {} | {} | {} | {} | {:.1} s |",
            found.states,
            found.steps,
            found.depth,
            found.over_granted,
            found.took.as_secs_f64()
        );
        for trace in [found.violation, found.stuck, found.unsettled].iter().flatten() {
            is_sound = false;
            println!("\n{}", trace.describe());
        }
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list_scopes() -> Vec<(&'static str, Model)> {
    let none = Budget::NONE;
    let all_but_takeovers = Budget { stops: 1, scheduler_stops: 1, lost: 1, deadlines: 1, forgeries: 1, ..none };
    let stops = Budget { stops: 1, scheduler_stops: 1, ..none };
    vec![
        ("nothing", Model::new(none)),
        ("a Lease is taken from a controller that lives on", Model::new(Budget { takeovers: 1, ..none })),
        ("the same, and an answer is lost", Model::new(Budget { takeovers: 1, lost: 1, ..none })),
        ("a Lease is taken so twice", Model::new(Budget { takeovers: 2, ..none })),
        ("kills of both, a lost answer, a deadline, a forged record", Model::new(all_but_takeovers)),
        (
            "kills of both, a lost answer; schedulers lag",
            Model { schedulers_lag: true, ..Model::new(Budget { lost: 1, ..stops }) },
        ),
        ("kills of both; two schedulers", Model { schedulers: 2, ..Model::new(stops) }),
    ]
}
