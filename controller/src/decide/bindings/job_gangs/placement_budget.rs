//! How many placements of jobs that start together one pass may ask for.
//!
//! Rule: a question about a unit costs as many placements as it has jobs, 500 at most, and as many again for each time
//! that it is asked with nodes that may come; and one pass may ask about every unit in line. So releases of a pass end
//! after [`PLACEMENTS`], once the question at hand is answered, as they end after so many releases: new events are
//! never far behind. The next pass goes on where this one stopped, for what was refused is remembered. Where what
//! happened meanwhile raises the same questions again, that would never reach the last in line: each pass in a row that
//! was not enough is followed by one that may ask for twice as many. A job that waits for itself costs one placement,
//! and is not counted.

/// So many units of the largest size fit in: four.
const PLACEMENTS: usize = 2_000;

/// What the next pass may ask for.
#[derive(Debug)]
pub(crate) struct PlacementBudget(usize);

impl Default for PlacementBudget {
    fn default() -> Self {
        Self(PLACEMENTS)
    }
}

impl PlacementBudget {
    /// So many placements.
    #[cfg(test)]
    pub(crate) const fn of(placements: usize) -> Self {
        Self(placements)
    }

    pub(crate) const fn placements(&self) -> usize {
        self.0
    }

    /// A pass is over; whether it stopped for want of budget.
    pub(crate) fn end_pass(&mut self, is_exhausted: bool) {
        self.0 = if is_exhausted { self.0.saturating_mul(2) } else { PLACEMENTS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_are_not_enough_are_followed_by_larger_ones_until_one_is() {
        let mut budget = PlacementBudget::default();
        for passes in 0..3 {
            assert_eq!(budget.placements(), PLACEMENTS << passes);
            budget.end_pass(true);
        }
        budget.end_pass(false);
        assert_eq!(budget.placements(), PLACEMENTS);
    }
}
