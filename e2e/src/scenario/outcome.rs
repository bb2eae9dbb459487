//! How scenarios came out: one that this world can not play is skipped, and is not one that passed.
//!
//! Rule: the test harness knows no skipped test and tells nothing of those that pass. So each scenario says how it came
//! out, with the counts so far, where the harness does not catch it: the last line has the totals. The sandbox has all
//! that scenarios need: there a skipped one has failed.

use std::{
    fmt,
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use crate::world::is_given;

/// Why a scenario is not played in this world: an error that its play ends with.
#[derive(Debug)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

/// Ends a play that needs more than this world has.
///
/// # Errors
/// Always: that is how it ends.
pub fn skip(reason: &str) -> anyhow::Result<()> {
    Err(Skipped(reason.to_owned()).into())
}

/// Scenarios of this process.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    passed: u32,
    skipped: u32,
}

/// Says that a scenario passed, or was skipped.
///
/// # Panics
/// If one is skipped in the sandbox.
pub(crate) fn report(name: &str, skipped: Option<&Skipped>) {
    static COUNTS: Mutex<Counts> = Mutex::new(Counts { passed: 0, skipped: 0 });
    #[allow(clippy::panic)]
    if let Some(Skipped(reason)) = skipped.filter(|_| !is_given()) {
        panic!("{name} is skipped, and the sandbox has all that a scenario needs: {reason}");
    }
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    match skipped {
        Some(_) => counts.skipped += 1,
        None => counts.passed += 1,
    }
    let line = describe(name, skipped, *counts);
    // Past what the harness catches; who closed it wants to hear nothing.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn describe(name: &str, skipped: Option<&Skipped>, Counts { passed, skipped: left_out }: Counts) -> String {
    let said = skipped.map_or_else(|| "passed".to_owned(), |Skipped(reason)| format!("SKIPPED: {reason}"));
    format!("scenario {name}: {said} ({passed} passed, {left_out} skipped)\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_is_skipped_says_why_and_is_not_one_that_passed() {
        let counts = Counts { passed: 3, skipped: 1 };
        let skipped = Skipped("it needs three members".to_owned());
        let said = describe("links", Some(&skipped), counts);
        assert_eq!(said, "scenario links: SKIPPED: it needs three members (3 passed, 1 skipped)\n");
        assert_eq!(describe("line", None, counts), "scenario line: passed (3 passed, 1 skipped)\n");
    }

    #[test]
    fn the_sandbox_skips_nothing() {
        if !is_given() {
            let skipped = Skipped("it needs three members".to_owned());
            assert!(std::panic::catch_unwind(|| report("links", Some(&skipped))).is_err());
        }
    }
}
