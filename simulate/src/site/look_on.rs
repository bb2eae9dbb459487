//! Until when is looked ahead: whoever simulates may have no more time, in the middle of an instant too.

use std::fmt;

/// See the module.
#[derive(Default)]
pub struct LookOn<'a> {
    /// Always, where nobody says.
    ask: Option<Box<dyn FnMut() -> bool + 'a>>,
    /// It was told not to.
    is_over: bool,
}

impl<'a> LookOn<'a> {
    /// As long as `ask` says so.
    pub fn while_true(ask: impl FnMut() -> bool + 'a) -> Self {
        Self { ask: Some(Box::new(ask)), is_over: false }
    }

    /// Whether to look on; once not, never again.
    pub fn ask(&mut self) -> bool {
        self.is_over = self.is_over || self.ask.as_mut().is_some_and(|ask| !ask());
        !self.is_over
    }
}

impl fmt::Debug for LookOn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookOn").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}
