//! Whose text is brought up to date next, of jobs whose PodGroup says something old.
//!
//! Rule: the front of each line first, so that with a small budget those who are next read what is true; of as many at
//! one place the one that waits longest. Every fifth is the one that waits longest of all, so that each is right some
//! time. A job that does not wait comes after the [`FRONT`] of the lines.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::reason::Position;
use jiff::Timestamp;

use crate::observe::Key;

/// Places at the front of a line where each counts.
pub(super) const FRONT: usize = 20;
/// One of so many is the one that waits longest.
const OLDEST_EVERY: u32 = 5;

/// The place that a text names.
pub(super) fn find_place(text: &str) -> usize {
    Position::parse_position(text).map_or(FRONT, |position| position.place)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OutdatedTexts {
    entries: BTreeMap<Key, (usize, Timestamp)>,
    by_place: BTreeSet<(usize, Timestamp, Key)>,
    by_age: BTreeSet<(Timestamp, Key)>,
    taken: u32,
}

impl OutdatedTexts {
    /// The text of a binding is old, and it is at this place of its line.
    pub(super) fn insert(&mut self, key: &Key, place: usize, now: Timestamp) {
        let since = self.remove(key).unwrap_or(now);
        self.entries.insert(key.clone(), (place, since));
        self.by_place.insert((place, since, key.clone()));
        self.by_age.insert((since, key.clone()));
    }

    /// It is not, or is being written. Gives back since when it was.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Timestamp> {
        let (place, since) = self.entries.remove(key)?;
        self.by_place.remove(&(place, since, key.clone()));
        self.by_age.remove(&(since, key.clone()));
        Some(since)
    }

    /// Takes the next one.
    pub(super) fn take_next(&mut self) -> Option<Key> {
        self.taken = self.taken.wrapping_add(1);
        let key = match self.taken % OLDEST_EVERY {
            0 => self.by_age.first().map(|(_, key)| key),
            _ => self.by_place.first().map(|(.., key)| key),
        };
        let key = key.cloned()?;
        self.remove(&key);
        Some(key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn the_front_of_each_line_is_first_and_every_fifth_the_oldest() {
        let mut texts = OutdatedTexts::default();
        let at = |second| Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(second)).unwrap();
        let key = |name: &str| Key::new("ns", name);
        texts.insert(&key("far"), find_place("waits in queue q, position 900 of 999"), at(0));
        texts.insert(&key("runs"), find_place("placed on m1"), at(1));
        for line in ["a", "b"] {
            (1..=4).for_each(|place| texts.insert(&key(&format!("{line}{place}")), place, at(2)));
        }
        // It was old already, and has moved.
        texts.insert(&key("b1"), 1, at(3));
        texts.remove(&key("a4"));
        let taken: Vec<String> = std::iter::from_fn(|| texts.take_next()).map(|key| key.name.to_string()).collect();
        assert_eq!(taken, ["a1", "b1", "a2", "b2", "far", "a3", "b3", "b4", "runs"]);
        assert_eq!((texts.len(), texts.by_place.len(), texts.by_age.len()), (0, 0, 0));
    }
}
