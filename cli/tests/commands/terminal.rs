//! Programs in a pseudo-terminal of util-linux's `script`, and what they draw there.

pub mod svg;

use std::{
    io::{Read, Write},
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::{killed::Killed, sandbox::until};

fn spawn_in_terminal(shell: &str, rows: u16, columns: u16) -> Killed {
    let shell = format!("stty rows {rows} cols {columns}; {shell}");
    let started = Command::new("script")
        .args(["-qfec", &shell, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Killed(started.expect("util-linux's script is needed"))
}

/// A program in a terminal, and the screen that it draws.
pub struct Typist {
    process: Killed,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Typist {
    pub fn start(command: &str, rows: u16, columns: u16) -> Self {
        // A key that interrupts the program interrupts its shell too: bash goes on, dash ends unless it has a trap.
        let shell = format!("trap : INT; {command}; echo ended with $?; stty -a");
        let mut process = spawn_in_terminal(&shell, rows, columns);
        let (keys, mut output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let drawn = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                drawn.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { process, keys, screen }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub fn screen(&self) -> vt100::Screen {
        self.screen.lock().unwrap().screen().clone()
    }

    pub fn text(&self) -> String {
        self.screen().contents()
    }

    pub fn shows(&self, words: &[&str]) -> String {
        until(&format!("no {words:?}"), || {
            let text = self.text();
            if words.iter().all(|word| text.contains(word)) { Ok(text) } else { Err(text) }
        })
    }

    /// Whether some cell has a colour of its own.
    pub fn is_coloured(&self) -> bool {
        self.has_cell(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Something on it stands out, by colour or not.
    pub fn has_bold_text(&self) -> bool {
        self.has_cell(vt100::Cell::bold)
    }

    fn has_cell(&self, wanted: impl Fn(&vt100::Cell) -> bool) -> bool {
        let screen = self.screen();
        let (rows, columns) = screen.size();
        let mut cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells.any(|(row, column)| screen.cell(row, column).is_some_and(&wanted))
    }

    /// It ended with this code, and the terminal is as it was before.
    pub fn ended(mut self, code: i32) {
        let text = self.shows(&[&format!("ended with {code}"), "isig"]);
        let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
        for mode in ["icanon", "echo", "isig", "icrnl", "opost"] {
            assert!(words.contains(&mode), "{mode} is off:\n{text}");
        }
        let screen = self.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{text}");
        until("it goes on", || self.process.try_wait().unwrap().ok_or_else(String::new));
    }
}

/// What a program that only prints left on a terminal of any length, and how many lines there were at which time.
pub struct Recording {
    pub screen: vt100::Screen,
    pub lines: Vec<(Duration, u16)>,
}

/// Lines that a recording has at most.
const MOST_LINES: u16 = 400;

impl Recording {
    /// Runs it to its end.
    pub fn of(shell: &str, rows: u16, columns: u16) -> Self {
        let mut process = spawn_in_terminal(shell, rows, columns);
        let mut output = process.stdout.take().unwrap();
        let (began, mut parser) = (Instant::now(), vt100::Parser::new(MOST_LINES, columns, 0));
        let (mut bytes, mut lines) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            parser.process(&bytes[..count]);
            lines.push((began.elapsed(), parser.screen().cursor_position().0));
        }
        assert!(lines.last().is_some_and(|(_, last)| *last < MOST_LINES - 1), "nothing, or more than can be kept");
        Self { screen: parser.screen().clone(), lines }
    }
}
