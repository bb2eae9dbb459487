//! One number for all that a value says.

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
};

/// A number that is the same for what prints the same, today and after a restart of the same version.
#[must_use]
pub fn fingerprint(value: &impl fmt::Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.hash(&mut self.0);
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    let _ = write!(hashing, "{value:?}");
    hashing.0.finish()
}
