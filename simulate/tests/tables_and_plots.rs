//! What is printed and plotted is whole and well formed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use caldera_simulate::{
    policy::PolicyName,
    read::Estimates,
    report::Report,
    run::{Options, Outcome, simulate},
    scenario::Scenario,
    series::{jobs_csv, split_into_pieces, time_csv},
    svg, tables,
    time::Millis,
    world::World,
};

fn outcomes() -> (World, Vec<(&'static str, Outcome)>) {
    let world = Scenario::Starvation.world(1, Estimates::AsGiven).unwrap();
    let options = Options { horizon: Some(Millis::from_secs(600)), ..Options::default() };
    let run = |name: PolicyName| (name.as_str(), simulate(&world, name.start(&world).as_mut(), &options));
    let outcomes = [PolicyName::BestEffortFifo, PolicyName::Fifo].map(run).to_vec();
    (world, outcomes)
}

#[test]
fn tables_name_every_policy_class_and_queue_and_mark_lower_bounds() {
    let (world, outcomes) = outcomes();
    let reports: Vec<Report> = outcomes.iter().map(|(name, outcome)| Report::new(name, &world, outcome, 4)).collect();
    let text = tables::tables(&reports);
    for word in ["best-effort-fifo", "starved", "GFR", "65-512 (1 job)", ">5 min", "large", "small"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

/// Found by a user: the report had numbers whose names say nothing to who has not read the page.
#[test]
fn each_number_of_the_first_table_is_explained_in_one_line_of_a_terminal() {
    let (world, outcomes) = outcomes();
    let text = tables::tables(&[Report::new("fifo", &world, &outcomes[1].1, 4)]);
    let (tables, legend) = text.rsplit_once("\n\n").unwrap();
    let first = tables.lines().skip(3).take_while(|line| !line.starts_with('└'));
    let names: Vec<&str> =
        first.map(|line| line[3..].trim_start_matches([' ', '│']).split("  ").next().unwrap()).collect();
    assert_eq!(names.len(), legend.lines().count(), "{text}");
    for (name, line) in names.iter().zip(legend.lines()) {
        assert!(line.starts_with(name) && line.len() > name.len() + 10 && line.chars().count() <= 132, "{line}");
    }
}

#[test]
fn bytes_are_told_in_gi() {
    let (world, _) = outcomes();
    let options =
        Options { resource: Some("memory".into()), horizon: Some(Millis::from_secs(60)), ..Options::default() };
    let outcome = simulate(&world, PolicyName::Fifo.start(&world).as_mut(), &options);
    let text = tables::tables(&[Report::new("fifo", &world, &outcome, 4)]);
    assert!(text.contains("wait by Gi of memory of the gang") && !text.contains("513+"), "{text}");
}

#[test]
fn csv_has_a_row_for_every_job_and_means_that_add_up() {
    let (world, outcomes) = outcomes();
    let (_, outcome) = &outcomes[0];
    let jobs = jobs_csv(&world, outcome, 4);
    assert_eq!(jobs.lines().count(), 1 + world.jobs.len());
    let large = jobs.lines().find(|line| line.starts_with("large,")).unwrap();
    assert!(large.starts_with("large,large,0,65-512,300,,,,300,397.451,"), "{large}");
    // The mean over all pieces is the SOR.
    let pieces = split_into_pieces(outcome, outcome.end, 100);
    assert_eq!(pieces.len(), 100);
    let mean = pieces.iter().map(|piece| piece.allocated).sum::<f64>() / 100.0 / outcome.capacity as f64;
    let sor = Report::new("p", &world, outcome, 4).sor.0 as f64 / 1e6;
    assert!((mean - sor).abs() < 1e-5, "{mean} {sor}");
    assert!(time_csv(outcome).lines().count() <= 1_001);
}

#[test]
fn plots_have_a_line_for_every_policy_in_every_panel() {
    let (world, outcomes) = outcomes();
    let runs: Vec<svg::Run<'_>> = outcomes.iter().map(|(name, outcome)| (*name, outcome)).collect();
    for (svg, panels) in [(svg::draw_waits(&world, &runs), 3), (svg::draw_utilisation(&runs), 2)] {
        assert_eq!(svg.matches("<polyline").count(), 2 * panels);
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
