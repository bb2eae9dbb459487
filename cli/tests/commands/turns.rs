//! How many sandboxes and servers run at once: a command gives a member five seconds to answer, and two cores that play
//! six fleets would take longer.

use std::sync::{Condvar, Mutex, PoisonError};

/// As many as the largest file of tests started at once while each was a program of its own.
const MOST_AT_ONCE: usize = 3;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Held while a sandbox runs.
pub struct Turn(());

/// Waits until one more may run.
pub fn take_turn() -> Turn {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED.wait_while(running, |running| *running >= MOST_AT_ONCE).unwrap();
    *running += 1;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
