//! A process that ends with its test.

use std::{
    ops::{Deref, DerefMut},
    process::Child,
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
