//! What the model promises in small scopes, that it finds what is planted, and that it is about this code.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{fs, path::Path};

use caldera_model::{
    model::{Fault, Model},
    search::{Explored, Trace, explore},
    state::Budget,
};

const NONE: Budget = Budget::NONE;

fn explore_sound(model: Model) -> Explored {
    let found = explore(&model);
    println!(
        "{:?}: {} states, {} steps, depth {}, {:.1} s",
        model.budget,
        found.states,
        found.steps,
        found.depth,
        found.took.as_secs_f64()
    );
    let wrong = [&found.violation, &found.stuck, &found.unsettled].into_iter().flatten().next();
    assert!(wrong.is_none(), "{:?}\n{}", model.budget, wrong.map(Trace::describe).unwrap_or_default());
    assert!(found.good_ends > 0);
    found
}

#[test]
fn nothing_more_than_the_limit_half_or_twice_is_placed_and_all_ends_well_whatever_goes_wrong_once() {
    let single = [
        NONE,
        Budget { takeovers: 1, ..NONE },
        Budget { stops: 1, ..NONE },
        Budget { releases: 1, ..NONE },
        Budget { scheduler_stops: 1, ..NONE },
        Budget { lost: 1, ..NONE },
        Budget { deadlines: 1, ..NONE },
        Budget { forgeries: 1, ..NONE },
    ];
    single.into_iter().for_each(|budget| drop(explore_sound(Model::new(budget))));
}

#[test]
fn kills_and_lost_answers_go_together_with_whatever_else_goes_wrong() {
    let kills = Budget { stops: 1, scheduler_stops: 1, ..NONE };
    explore_sound(Model::new(Budget { lost: 1, ..kills }));
    explore_sound(Model::new(Budget { forgeries: 1, ..kills }));
    explore_sound(Model::new(Budget { stops: 2, deadlines: 1, ..NONE }));
}

#[test]
fn schedulers_that_lag_and_two_of_them_place_no_more() {
    let kills = Budget { stops: 1, scheduler_stops: 1, ..NONE };
    explore_sound(Model { schedulers_lag: true, ..Model::new(kills) });
    explore_sound(Model { schedulers: 2, ..Model::new(Budget { stops: 1, ..NONE }) });
}

#[test]
fn records_may_be_beyond_the_limit_between_a_stale_grant_and_its_withdrawal() {
    assert_eq!(explore_sound(Model::new(NONE)).over_granted, 0);
    assert!(explore_sound(Model::new(Budget { stops: 1, ..NONE })).over_granted > 0);
}

/// What is found of a planted defect. With nothing planted the same scope is sound.
fn find_planted(fault: Fault, budget: Budget) -> String {
    find_in(Model { fault: Some(fault), ..Model::new(budget) })
}

fn find_in(model: Model) -> String {
    let (found, fault) = (explore(&model), model.fault);
    let trace = found.violation.or(found.stuck).or(found.unsettled);
    let text = trace.unwrap_or_else(|| panic!("{fault:?} is not found in {} states", found.states)).describe();
    println!("{fault:?}, after {} states\n{text}", found.states);
    text
}

#[test]
fn a_scheduler_that_does_not_read_the_lease_is_found() {
    let text = find_planted(Fault::NoLeaseRead, Budget { takeovers: 1, ..NONE });
    assert!(text.contains("more is placed than the limit"));
}

#[test]
fn patches_that_test_no_version_are_found() {
    let text = find_planted(Fault::NoVersionTest, Budget { stops: 1, ..NONE });
    assert!(["more is placed", "without a record", "twice"].iter().any(|wrong| text.contains(wrong)));
}

#[test]
fn half_a_gang_is_found() {
    assert!(find_planted(Fault::HalfAGang, NONE).contains("half a gang is placed"));
}

#[test]
fn a_holder_that_begins_with_an_old_list_is_found() {
    assert!(find_planted(Fault::NoNewList, Budget { takeovers: 1, ..NONE }).contains("more is placed"));
}

#[test]
fn a_holder_that_takes_its_lease_again_under_the_epoch_of_before_is_found() {
    let budget = Budget { takeovers: 1, releases: 1, ..NONE };
    let model = Model { one_job: true, ..Model::new(budget) };
    explore_sound(model);
    assert!(find_in(Model { fault: Some(Fault::RenewsByTaking), ..model }).contains("can not be reached"));
}

#[test]
fn a_grant_in_the_place_of_one_that_is_not_taken_back_yet_is_found() {
    let budget = Budget { takeovers: 2, ..NONE };
    assert!(find_planted(Fault::FreesBeforeStored, budget).contains("more is placed"));
}

#[test]
fn a_controller_that_is_overtaken_and_takes_away_what_its_successor_placed_is_found() {
    assert!(find_planted(Fault::OvertakenTakesAway, Budget { takeovers: 1, ..NONE }).contains("twice"));
}

#[test]
fn a_tenant_that_may_write_the_epoch_that_is_held_is_found() {
    assert!(find_planted(Fault::ForgedEpoch, Budget { forgeries: 1, ..NONE }).contains("more is placed"));
}

#[test]
fn each_action_is_traced_to_functions_that_there_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (table, model) = (read(&folder.join("src/lib.rs")), read(&folder.join("src/model.rs")));
    let rows = table.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let mut traced = Vec::new();
    for row in rows {
        let cells: Vec<Vec<&str>> = row.split('|').map(|cell| cell.split('`').collect()).collect();
        let (actions, file) = (row.split('|').next().unwrap_or_default(), cells[1][1]);
        traced.extend(actions.split('`').map(str::to_owned));
        let source = read(&folder.join("..").join(file));
        let functions: Vec<&str> = cells[2].iter().skip(1).step_by(2).copied().collect();
        assert!(!functions.is_empty(), "{row}");
        for function in functions {
            assert!(source.contains(&format!("fn {function}")), "{file} has no function {function}");
        }
    }
    let (_, actions) = model.split_once("pub enum Action {").unwrap();
    let (actions, _) = actions.split_once("\n}").unwrap();
    let names = actions.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.is_empty());
    let names: Vec<&str> = names.filter_map(|line| line.split(['(', ',']).next()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(traced.iter().any(|it| it == name), "{name} is traced to nothing");
    }
}
