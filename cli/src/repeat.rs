//! `--watch`: a list, printed anew each time it changes.
//!
//! Rule: the list is read again each second. On a terminal it is drawn over the old one, ages and all; elsewhere it is
//! printed again when something other than an age changed. A read that fails is told and tried again. A reader that
//! closed the pipe, as `head` does, ends it, whether anything changes or not.

use std::{io::IsTerminal as _, os::fd::AsFd, process::ExitCode, time::Duration};

use serde::Serialize;
use serde_json::Value;
use tokio::{io::Interest, net::unix::pipe::Sender};

use crate::output;

const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Clears the screen and goes to its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// A list as it is printed, and what it was made of.
#[derive(Debug, PartialEq)]
pub struct PrintedPage {
    text: String,
    facts: Value,
}

impl PrintedPage {
    /// Facts are compared without ages: fields `ageSeconds` and `waitedSeconds`.
    ///
    /// # Errors
    /// If the facts can not be serialized.
    pub fn new(text: String, facts: &impl Serialize) -> anyhow::Result<Self> {
        let mut facts = serde_json::to_value(facts)?;
        remove_ages(&mut facts);
        Ok(Self { text, facts })
    }
}

fn remove_ages(facts: &mut Value) {
    match facts {
        Value::Object(fields) => {
            fields.retain(|name, _| !["ageSeconds", "waitedSeconds"].contains(&name.as_str()));
            fields.values_mut().for_each(remove_ages);
        }
        Value::Array(all) => all.iter_mut().for_each(remove_ages),
        _ => {}
    }
}

/// Prints a list once, or again and again.
///
/// # Errors
/// If the first read fails.
pub async fn print_page(watch: bool, read: impl AsyncFn() -> anyhow::Result<PrintedPage>) -> anyhow::Result<ExitCode> {
    let mut page = read().await?;
    if !watch {
        output::try_write(&page.text);
        return Ok(ExitCode::SUCCESS);
    }
    let on_screen = std::io::stdout().is_terminal();
    let mut wanted = output::try_write(&frame_page(&page, on_screen));
    let mut trouble = String::new();
    let mut reader_gone = std::pin::pin!(wait_until_unread(std::io::stdout()));
    while wanted {
        tokio::select! {
            biased;
            () = &mut reader_gone => break,
            () = tokio::time::sleep(REDRAW_INTERVAL) => {}
        }
        match read().await {
            Ok(next) => {
                trouble.clear();
                let is_new = if on_screen { next != page } else { next.facts != page.facts };
                if is_new {
                    wanted = output::try_write(&frame_page(&next, on_screen));
                    page = next;
                }
            }
            Err(error) => {
                let said = output::escape_controls(&format!("caldera: {error:#}; trying again"));
                if said != trouble {
                    eprintln!("{said}");
                }
                trouble = said;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns once nobody reads this end of a pipe any more; never where that can not be seen, as of a file.
async fn wait_until_unread(output: impl AsFd) {
    // Nothing is written by it, so that it may block as it did.
    let watched = output.as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked);
    if let Ok(watched) = watched
        && watched.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn frame_page(page: &PrintedPage, on_screen: bool) -> String {
    if on_screen { format!("{CLEAR}{}", page.text) } else { page.text.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_in_which_only_ages_changed_is_the_same_off_a_terminal() {
        let page = |age: u32, state: &str| {
            let facts = json!({"jobs": [{"job": "j", "ageSeconds": age, "state": state}]});
            PrintedPage::new(format!("j {state} {age}s\n"), &facts).unwrap()
        };
        assert_eq!(page(1, "Waiting").facts, page(2, "Waiting").facts);
        assert_ne!(page(1, "Waiting"), page(2, "Waiting"));
        assert_ne!(page(1, "Waiting").facts, page(1, "Running").facts);
    }

    /// Found by a reader: `caldera job list -w | head -1` did not end while nothing changed.
    #[tokio::test]
    async fn a_reader_that_closed_its_pipe_is_found_without_a_write_and_a_file_has_none() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut unread = std::pin::pin!(wait_until_unread(writer));
        assert!(futures::poll!(&mut unread).is_pending(), "somebody reads");
        drop(reader);
        tokio::time::timeout(Duration::from_secs(60), unread).await.unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(futures::poll!(std::pin::pin!(wait_until_unread(file))).is_pending());
    }

    #[test]
    fn only_a_terminal_is_cleared() {
        let page = PrintedPage::new("x\n".to_owned(), &json!(1)).unwrap();
        assert_eq!(frame_page(&page, false), "x\n");
        assert_eq!(frame_page(&page, true), format!("{CLEAR}x\n"));
    }
}
