//! A process that is started anew until its test ends.

use std::{
    process::{Command, ExitStatus},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use crate::killed::Killed;

/// A process that is started anew when it ends, as its Deployment does: on a machine that is very busy a component may
/// lose its lease, and then ends. Killed when dropped.
pub struct Supervised {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<ExitStatus>>>,
}

impl Supervised {
    pub fn start(mut command: Command) -> Self {
        let (stop, stopped) = channel();
        let mut child = Killed(command.spawn().unwrap());
        let thread = std::thread::spawn(move || {
            let mut ended = Vec::new();
            while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                if let Some(status) = child.try_wait().unwrap() {
                    ended.push(status);
                    child = Killed(command.spawn().unwrap());
                }
            }
            ended
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(ended) = self.thread.take().map(JoinHandle::join) else { return };
        if !std::thread::panicking() {
            let ended = ended.unwrap();
            // Who lost a lease says so and ends with 1. A panic ends with 101, a signal with no code.
            assert!(ended.iter().all(|status| status.code() == Some(1)) && ended.len() < 5, "{ended:?}");
        }
    }
}
