//! Plots, by hand: two kinds of lines in a grid of panels are less than a plotting crate's feature list, and the same
//! bytes on every machine.

use std::fmt::Write as _;

use crate::{
    report::{Class, class_of, list_samples_with_durations, wait_of},
    run::Outcome,
    series::{Piece, split_into_pieces},
    time::Millis,
    world::World,
};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
/// Around the axes: left, top, right, bottom.
const MARGIN: [f64; 4] = [56.0, 34.0, 14.0, 40.0];
/// Told apart by people with any kind of sight (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

/// A simulated policy and what became of it.
pub type Run<'a> = (&'a str, &'a Outcome);

struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    /// Points by policy.
    lines: Vec<Vec<(f64, f64)>>,
}

#[derive(Clone)]
struct Axis {
    name: String,
    most: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

/// By class of size: which part of the jobs waited no longer than so long.
#[must_use]
pub fn draw_waits(world: &World, runs: &[Run<'_>]) -> String {
    let mut panels = Vec::new();
    let Some((_, first)) = runs.first() else { return draw(&[], runs) };
    let mut classes: Vec<Class> = (0..world.jobs.len()).map(|job| class_of(world, first, job)).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        let line = |(_, outcome): &Run<'_>| {
            let of_class = |job: &usize| !outcome.jobs[*job].resumed && class_of(world, outcome, *job) == class;
            let mut waits: Vec<(Millis, bool)> = (0..world.jobs.len())
                .filter(of_class)
                .map(|job| (wait_of(outcome, &outcome.jobs[job]), outcome.jobs[job].started.is_some()))
                .collect();
            waits.sort_unstable();
            let all = waits.len() as f64;
            let step = waits.len().div_ceil(200).max(1);
            let shown = |(i, _): &(usize, &(Millis, bool))| i % step == 0 || i + 1 == waits.len();
            // The curve of what never started ends below the top.
            let points = waits.iter().enumerate().filter(shown).filter(|(_, (_, started))| *started);
            points.map(|(i, (wait, _))| (wait.as_seconds().max(1.0), (i + 1) as f64 / all)).collect::<Vec<_>>()
        };
        let lines: Vec<Vec<(f64, f64)>> = runs.iter().map(line).collect();
        let resource = &first.resource;
        let title = format!("{} {resource}", class.as_str());
        panels.push(Panel { title, x: time_axis(&lines), y: part_axis("part of jobs"), lines });
    }
    draw(&panels, runs)
}

/// What is allocated, and how many jobs wait, over time: until nobody arrives or waits any more.
#[must_use]
pub fn draw_utilisation(runs: &[Run<'_>]) -> String {
    let busy_until = |(_, outcome): &Run<'_>| {
        let waits = list_samples_with_durations(outcome).filter(|(sample, _)| sample.waiting > 0).last();
        let arrival = outcome.jobs.iter().map(|job| job.arrival).max().unwrap_or_default();
        waits.map_or(arrival, |(sample, time)| sample.at.plus(time).max(arrival))
    };
    let end = runs.iter().map(busy_until).max().unwrap_or_default();
    let series: Vec<Vec<Piece>> = runs.iter().map(|(_, outcome)| split_into_pieces(outcome, end, 300)).collect();
    let hours = |at: Millis| at.as_seconds() / 3_600.0;
    let line = |of: fn(&Piece) -> f64| -> Vec<Vec<(f64, f64)>> {
        let points = |pieces: &Vec<Piece>| pieces.iter().map(|piece| (hours(piece.at), of(piece))).collect();
        series.iter().map(points).collect()
    };
    let most =
        |lines: &[Vec<(f64, f64)>], of: fn(&(f64, f64)) -> f64| lines.iter().flatten().map(of).fold(0.0, f64::max);
    let (allocated, waiting) = (line(|piece| piece.allocated / piece.capacity.max(1.0)), line(|piece| piece.waiting));
    let x = linear_axis("hours", most(&allocated, |point| point.0));
    let resource = runs.first().map_or(String::new(), |(_, outcome)| outcome.resource.to_string());
    let y = linear_axis("jobs", most(&waiting, |point| point.1));
    let panels = [
        Panel { title: format!("{resource} allocated"), x: x.clone(), y: part_axis("of capacity"), lines: allocated },
        Panel { title: "jobs in line".to_owned(), x, y, lines: waiting },
    ];
    draw(&panels, runs)
}

fn part_axis(name: &str) -> Axis {
    let ticks = (0..=4).map(|i| (f64::from(i) / 4.0, format!("{} %", i * 25))).collect();
    Axis { name: name.to_owned(), most: 1.0, log: false, ticks }
}

/// From one second up, by powers of ten.
fn time_axis(lines: &[Vec<(f64, f64)>]) -> Axis {
    let most = lines.iter().flatten().map(|point| point.0).fold(10.0, f64::max);
    let named = [
        (1.0, "1 s"),
        (60.0, "1 min"),
        (3_600.0, "1 h"),
        (86_400.0, "1 d"),
        (864_000.0, "10 d"),
        (8_640_000.0, "100 d"),
    ];
    let ticks = named.into_iter().filter(|(at, _)| *at <= most).map(|(at, name)| (at, name.to_owned())).collect();
    Axis { name: "wait".to_owned(), most, log: true, ticks }
}

fn linear_axis(name: &str, most: f64) -> Axis {
    let most = most.max(1.0);
    let mut step = 1.0;
    for (i, factor) in [2.0, 2.5, 2.0].into_iter().cycle().enumerate() {
        if most / step <= 6.0 || i > 60 {
            break;
        }
        step *= factor;
    }
    let ticks = (0..=6).map(|i| f64::from(i) * step).filter(|at| *at <= most).map(|at| (at, format!("{at}"))).collect();
    Axis { name: name.to_owned(), most, log: false, ticks }
}

impl Axis {
    /// Where a value is between the axis' ends.
    fn at(&self, value: f64) -> f64 {
        if self.log { value.max(1.0).log10() / self.most.log10() } else { value / self.most }
    }
}

fn draw(panels: &[Panel], runs: &[Run<'_>]) -> String {
    let columns = panels.len().clamp(1, 2);
    let (width, height) = (WIDTH * columns as f64, HEIGHT * panels.len().div_ceil(columns) as f64 + 30.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, ((name, _), colour)) in runs.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let x = 20.0 + 150.0 * i as f64;
        let _ = writeln!(
            svg,
            "<path d=\"M{x} 16h24\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"20\">{}</text>",
            x + 30.0,
            escape(name)
        );
    }
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = (WIDTH * (i % columns) as f64, 30.0 + HEIGHT * (i / columns) as f64);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(&mut svg, panel);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn draw_panel(svg: &mut String, panel: &Panel) {
    let [left, top, right, bottom] = MARGIN;
    let (wide, high) = (WIDTH - left - right, HEIGHT - top - bottom);
    let px = |value: f64| left + wide * panel.x.at(value);
    let py = |value: f64| top + high * (1.0 - panel.y.at(value));
    let _ =
        writeln!(svg, "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>", top - 10.0, escape(&panel.title));
    for (at, name) in &panel.x.ticks {
        let (x, y) = (px(*at), top + high);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top}V{y:.1}\" stroke=\"#ddd\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            y + 14.0
        );
    }
    for (at, name) in &panel.y.ticks {
        let y = py(*at);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}h{wide}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            left - 5.0,
            y + 4.0
        );
    }
    let (middle, low) = (left + wide / 2.0, top + high + 30.0);
    let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text>", escape(&panel.x.name));
    let _ = writeln!(
        svg,
        "<text transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        top + high / 2.0,
        escape(&panel.y.name)
    );
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> = line.iter().map(|(x, y)| format!("{:.1},{:.1}", px(*x), py(*y))).collect();
        let points = points.join(" ");
        let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
