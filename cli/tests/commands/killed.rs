//! A process that ends with its test, and one that is started anew until then.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

/// Killed when dropped.
pub struct Killed(pub Child);

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is started anew when it ends, as its Deployment does: on a machine that is very busy a component may
/// lose its lease, and then ends. Killed when dropped.
pub struct Supervised {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Supervised {
    pub fn start(mut command: Command) -> Self {
        let (stop, stopped) = channel();
        let mut child = Killed(command.spawn().unwrap());
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                if child.try_wait().unwrap().is_some() {
                    child = Killed(command.spawn().unwrap());
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
