//! A terminal's screen as SVG: text that is text, on a dark ground of its own, so that it looks the same on a light
//! page and on a dark one. A recording moves by CSS alone, and stands still where the reader wants no motion.

use std::{fmt::Write as _, time::Duration};

use vt100::{Cell, Color, Screen};

use super::Recording;

/// Of a cell, and of the edge around all.
const WIDTH: u16 = 8;
const HEIGHT: u16 = 18;
const EDGE: u16 = 14;
const GROUND: &str = "#0d1117";
const TEXT: &str = "#d5dbe3";
/// Black to white, then the same brighter.
const PALETTE: [&str; 16] = [
    "#6e7681", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#d2a8ff", "#39c5cf", "#d5dbe3", "#6e7681", "#ffa198",
    "#56d364", "#e3b341", "#79c0ff", "#e2c5ff", "#56d4dd", "#ffffff",
];
/// A pause is no longer in a recording; the first screen is read, and the last.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_300);
const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LAST_PAUSE: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(80);

/// A screen as it is, from its first row on.
pub fn draw_screen(screen: &Screen, rows: u16, title: &str) -> String {
    let (_, columns) = screen.size();
    let mut svg = open(rows, columns, title);
    draw_rows(&mut svg, screen, rows, EDGE);
    svg + "</svg>\n"
}

/// What was printed in `rows` rows, line after line as it came: what is not printed yet is covered.
pub fn draw_recording(recording: &Recording, rows: u16, title: &str) -> String {
    let (_, columns) = recording.screen.size();
    let steps = shorten_pauses(&recording.lines);
    let (all, last) = steps.last().map_or((Duration::ZERO, 0), |(at, lines)| (*at + LAST_PAUSE, *lines));
    let (mut cover, mut roll) = (String::new(), String::new());
    for (at, lines) in &steps {
        let percent = 100.0 * at.as_secs_f64() / all.as_secs_f64();
        let down = lines * HEIGHT;
        let _ = write!(cover, "{percent:.2}%{{transform:translateY({down}px)}}");
        let up = lines.saturating_sub(rows) * HEIGHT;
        let _ = write!(roll, "{percent:.2}%{{transform:translateY(-{up}px)}}");
    }
    let mut svg = open(rows, columns, title);
    let (down, up) = (last * HEIGHT, last.saturating_sub(rows) * HEIGHT);
    let _ = writeln!(
        svg,
        "<style>.c{{transform:translateY({down}px)}}.r{{transform:translateY(-{up}px)}}\
         @keyframes c{{{cover}}}@keyframes r{{{roll}}}\
         @media (prefers-reduced-motion:no-preference){{.c{{animation:c {0:.1}s step-end infinite}}\
         .r{{animation:r {0:.1}s step-end infinite}}}}</style>",
        all.as_secs_f64()
    );
    let (width, height) = (columns * WIDTH + 2 * EDGE, rows * HEIGHT);
    let _ = writeln!(svg, "<svg y=\"{EDGE}\" width=\"{width}\" height=\"{height}\"><g class=\"r\">");
    draw_rows(&mut svg, &recording.screen, last, 0);
    let _ =
        writeln!(svg, "<rect class=\"c\" width=\"{width}\" height=\"{}\" fill=\"{GROUND}\"/>", (last + rows) * HEIGHT);
    svg + "</g></svg></svg>\n"
}

/// When how many lines are there, with no pause that is long but the first one, and one step for what comes at once.
fn shorten_pauses(lines: &[(Duration, u16)]) -> Vec<(Duration, u16)> {
    let (mut at, mut before, mut steps) = (Duration::ZERO, Duration::ZERO, vec![(Duration::ZERO, 0)]);
    let mut is_first = true;
    for (then, count) in lines {
        let pause = then.saturating_sub(before);
        before = *then;
        at += match is_first && *count > 5 && pause > LONGEST_PAUSE / 4 {
            true => FIRST_PAUSE,
            false => pause.min(LONGEST_PAUSE),
        };
        is_first &= at < FIRST_PAUSE;
        match steps.last_mut() {
            Some(last) if last.1 == *count => {}
            Some(last) if at.saturating_sub(last.0) < AT_ONCE => last.1 = *count,
            _ => steps.push((at, *count)),
        }
    }
    steps
}

fn open(rows: u16, columns: u16, title: &str) -> String {
    let (width, height) = (columns * WIDTH + 2 * EDGE, rows * HEIGHT + 2 * EDGE);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-size=\"13.3\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" \
         fill=\"{TEXT}\">\n<title>{}</title>\n\
         <rect x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{GROUND}\" stroke=\"#444c56\"/>\n",
        escape(title),
        width - 1,
        height - 1
    )
}

/// What cells next to each other look like.
#[derive(Clone, PartialEq, Eq)]
struct Look {
    text: String,
    ground: String,
    is_bold: bool,
    /// Letters may be set further apart; lines and blocks are stretched, so that they touch.
    is_ascii: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let text = if cell.dim() { PALETTE[0].to_owned() } else { name_colour(cell.fgcolor(), TEXT) };
        let ground = name_colour(cell.bgcolor(), GROUND);
        let (text, ground) = if cell.inverse() { (ground, text) } else { (text, ground) };
        Self { text, ground, is_bold: cell.bold(), is_ascii: cell.contents().is_ascii() }
    }

    /// As far as it is seen on a cell without a sign.
    fn is_blank(&self) -> bool {
        self.ground == GROUND
    }
}

fn draw_rows(svg: &mut String, screen: &Screen, rows: u16, top: u16) {
    let (_, columns) = screen.size();
    for row in 0..rows {
        let mut runs: Vec<(u16, Look, String)> = Vec::new();
        for column in 0..columns {
            let Some(cell) = screen.cell(row, column) else { continue };
            let sign = if cell.has_contents() { cell.contents() } else { " " };
            let look = Look::of(cell);
            match runs.last_mut() {
                Some((_, of, text))
                    if *of == look || (sign == " " && look.is_blank() && of.is_blank() && of.is_ascii) =>
                {
                    text.push_str(sign);
                }
                _ => runs.push((column, look, sign.to_owned())),
            }
        }
        let Some(end) = runs.iter().rposition(|(_, look, text)| !look.is_blank() || !text.trim_end().is_empty()) else {
            continue;
        };
        runs.truncate(end + 1);
        let y = top + row * HEIGHT;
        let mut line = String::new();
        for (at, (column, look, text)) in runs.iter().enumerate() {
            let text = if at == end && look.is_blank() { text.trim_end() } else { text };
            let count = u16::try_from(text.chars().count()).unwrap();
            let (x, length) = (EDGE + column * WIDTH, count * WIDTH);
            if !look.is_blank() {
                let ground = &look.ground;
                let _ =
                    write!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{HEIGHT}\" fill=\"{ground}\"/>");
            }
            let _ = write!(line, "<tspan x=\"{x}\" textLength=\"{length}\"");
            if !look.is_ascii {
                line += " lengthAdjust=\"spacingAndGlyphs\"";
            }
            if look.text != TEXT {
                let _ = write!(line, " fill=\"{}\"", look.text);
            }
            if look.is_bold {
                line += " font-weight=\"700\"";
            }
            let _ = write!(line, ">{}</tspan>", escape(&keep_spaces(text)));
        }
        let _ = writeln!(svg, "<text y=\"{}\">{line}</text>", y + HEIGHT - 5);
    }
}

fn name_colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Default => default.to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        Color::Idx(at @ 0..=15) => PALETTE[usize::from(at)].to_owned(),
        // A cube of six steps each, then greys.
        Color::Idx(at @ 16..=231) => {
            let step = |by: u8| match (at - 16) / by % 6 {
                0 => 0,
                step => 55 + 40 * step,
            };
            format!("#{:02x}{:02x}{:02x}", step(36), step(6), step(1))
        }
        Color::Idx(at) => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (at - 232)),
    }
}

/// With spaces that a browser would take for one, or for none, as those that it keeps.
fn keep_spaces(text: &str) -> String {
    let signs: Vec<char> = text.chars().collect();
    let is_letter = |at: Option<usize>| at.and_then(|at| signs.get(at)).is_some_and(|sign| *sign != ' ');
    let keep = |(at, sign): (usize, &char)| {
        let is_between_words = is_letter(at.checked_sub(1)) && is_letter(at.checked_add(1));
        if *sign == ' ' && !is_between_words { '\u{a0}' } else { *sign }
    };
    signs.iter().enumerate().map(keep).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
