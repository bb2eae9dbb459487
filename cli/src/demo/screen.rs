//! How the demo's lines look: a first screen, a headline for each act, lines with their time, a last screen.
//!
//! Rule: colour on a terminal alone ([`crate::style`]), added to text whose controls are visible already. Nothing is
//! printed where one JSON document is wanted.

use std::{fmt::Write as _, time::Instant};

use super::acts::{DemoAct, NEXT, NEXT_PAGE};
use crate::{
    output,
    style::{self, Style},
};

const BOLD: u8 = 1;
const DIM: u8 = 2;

/// Where progress is told.
pub struct DemoScreen {
    started: Instant,
    style: Style,
    is_quiet: bool,
}

impl DemoScreen {
    pub fn new(started: Instant, is_quiet: bool) -> Self {
        Self { started, style: Style::of_stdout(), is_quiet }
    }

    pub const fn started(&self) -> Instant {
        self.started
    }

    pub fn print_opening(&self) {
        self.print(&format_opening(self.style));
    }

    pub fn print_act(&self, act: DemoAct) {
        self.print(&format_act(act, self.style));
    }

    /// One line, with the seconds since the start.
    pub fn print_line(&self, text: &str) {
        let at = self.style.paint(DIM, &format!("{:>6.1}s", self.started.elapsed().as_secs_f64()));
        self.print(&format!("{at}  {}\n", paint_last_word(&output::escape_controls(text), self.style)));
    }

    /// What a command would print, set off from the lines around it.
    pub fn print_answer(&self, command: &str, answer: &str) {
        let mut text = String::new();
        for line in answer.trim_end().lines() {
            let _ = writeln!(text, "         {line}");
        }
        let command = self.style.paint(BOLD, &format!("$ {command}"));
        self.print(&format!("\n         {command}\n{}\n", self.style.cut_lines(&output::escape_controls(&text))));
    }

    pub fn print_closing(&self) {
        self.print(&format_closing(self.style));
    }

    fn print(&self, text: &str) {
        if !self.is_quiet {
            output::try_write(text);
        }
    }
}

/// The word that says how something is, where a line ends with it.
fn paint_last_word(text: &str, style: Style) -> String {
    let at = text.rfind(' ').map_or(0, |at| at + 1);
    match style::colour_of(&text[at..]) {
        Some(colour) => format!("{}{}", &text[..at], style.paint(colour, &text[at..])),
        None => text.to_owned(),
    }
}

fn format_opening(style: Style) -> String {
    let mut text = style.paint(BOLD, "Caldera: one line and one quota for the jobs of a whole fleet");
    text += "\n\nA Karmada host and three members with Volcano, all of them stand-ins in this process, and\n\
             Caldera's own webhook, controller and scheduler. No cluster of yours is touched.\n\nWhat you will see, \
             in about 40 seconds:\n\n";
    for act in DemoAct::ALL {
        let _ = writeln!(text, "  {}  {}", act.number(), act.headline());
    }
    text + "\nEach line below is what the API showed at that second; at the end stands what held and what did not.\n\n"
}

fn format_act(act: DemoAct, style: Style) -> String {
    let head = format!("{} of {}  {}", act.number(), DemoAct::ALL.len(), act.headline());
    format!("\n{}\n", style.paint(BOLD, &head))
}

fn format_closing(style: Style) -> String {
    let mut text = format!("\n{}\n\n", style.paint(BOLD, "What to try next"));
    for (command, shows) in NEXT {
        let comment = if shows.is_empty() { String::new() } else { style.paint(DIM, &format!("    # {shows}")) };
        let _ = writeln!(text, "  {command}{comment}");
    }
    let _ = writeln!(text, "\nStep by step: {NEXT_PAGE}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_screen_names_every_act_and_the_last_one_what_to_try() {
        let opening = format_opening(Style::PLAIN);
        assert!(DemoAct::ALL.into_iter().all(|act| opening.contains(act.headline())), "{opening}");
        let closing = format_closing(Style::PLAIN);
        assert!(NEXT.into_iter().all(|(command, _)| closing.contains(command)), "{closing}");
        assert!(format_act(DemoAct::Lent, Style::PLAIN).starts_with("\n4 of 5  Lent quota"));
        let lines = opening.lines().chain(closing.lines());
        assert!(lines.into_iter().all(|line| line.chars().count() <= 120), "{opening}{closing}");
    }

    #[test]
    fn without_colour_there_is_no_escape_sequence() {
        let all = format_opening(Style::PLAIN)
            + &format_act(DemoAct::Gangs, Style::PLAIN)
            + &paint_last_word("train           Running", Style::PLAIN)
            + &format_closing(Style::PLAIN);
        assert!(!all.contains('\u{1b}'), "{all:?}");
    }
}
