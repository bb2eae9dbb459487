//! A component as a process.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context;

use crate::machine;

/// Killed when dropped.
pub struct Component(Child);

impl Component {
    pub fn start(name: &str, kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["caldera", name, "--no-lease", "--kubeconfig"]).arg(kubeconfig).stdin(Stdio::null());
        command.spawn().map(Self).with_context(|| format!("failed to start the {name}"))
    }

    /// A line of its `/proc` status, in KiB.
    pub fn read_memory(&self, field: &str) -> anyhow::Result<u64> {
        machine::read_memory(self.0.id(), field).context("the component is gone")
    }

    /// SIGKILL: it gets no chance to tidy up.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
