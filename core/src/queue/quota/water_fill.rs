//! Water-filling: one amount divided among several who may have at least and at most so much, by weight.
//!
//! Rule: the level rises for all alike, weight times as fast. One that has its most is left behind, and one that has
//! its least is not below it (Volcano's proportion plugin does so in rounds of floats, `proportion.go:199-266`).
//! Exact: the level is the largest whole number at which all together stay within the amount. What is left of the last
//! step (less than the sum of the weights, in billionths of a unit) goes to the first in order who can still take it.

use crate::queue::quota::amount::Amount;

/// One of those who share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portion {
    /// At least 1.
    pub(crate) weight: u32,
    pub(crate) least: Amount,
    /// Not below `least`.
    pub(crate) most: Amount,
}

impl Portion {
    fn amount_at(&self, level: Amount) -> Amount {
        (level * self.weight()).clamp(self.least, self.most)
    }

    fn weight(&self) -> i64 {
        i64::from(self.weight)
    }
}

/// What each gets: all of them their least even where that is more than `whole`, never more than their most.
pub(crate) fn fill_by_weight(whole: Amount, portions: &[Portion]) -> Vec<Amount> {
    let most = |portion: &Portion| portion.most;
    if portions.iter().map(most).sum::<Amount>() <= whole {
        return portions.iter().map(most).collect();
    }
    if portions.iter().map(|portion| portion.least).sum::<Amount>() >= whole {
        return portions.iter().map(|portion| portion.least).collect();
    }
    let level = find_level(whole, portions);
    let mut parts: Vec<Amount> = portions.iter().map(|portion| portion.amount_at(level)).collect();
    let mut rest = whole - parts.iter().copied().sum::<Amount>();
    for (part, portion) in parts.iter_mut().zip(portions) {
        let more = (portion.amount_at(level + Amount::SMALLEST) - *part).min(rest);
        *part += more;
        rest -= more;
    }
    parts
}

/// The largest level at which all together stay within `whole`. Between two of the levels where somebody begins or
/// ceases to rise, the sum is a straight line.
fn find_level(whole: Amount, portions: &[Portion]) -> Amount {
    let sum = |level| portions.iter().map(|portion| portion.amount_at(level)).sum::<Amount>();
    let begins = |portion: &Portion| portion.least / portion.weight();
    let ceases = |portion: &Portion| portion.most / portion.weight();
    let mut turns: Vec<Amount> =
        portions.iter().flat_map(|portion| [begins(portion), ceases(portion)]).chain([Amount::ZERO]).collect();
    turns.sort_unstable();
    turns.dedup();
    let within = turns.partition_point(|turn| sum(*turn) <= whole);
    let from = turns[within.saturating_sub(1)];
    let next = sum(from + Amount::SMALLEST);
    if next > whole {
        return from;
    }
    let rising = portions.iter().filter(|portion| begins(portion) <= from && from < ceases(portion));
    let steps = (whole - next) / rising.map(Portion::weight).sum::<i64>().max(1);
    from + Amount::SMALLEST + steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn portion(weight: u32, least: i128, most: i128) -> Portion {
        Portion { weight, least: Amount(least), most: Amount(most) }
    }

    fn fill(whole: i128, portions: &[Portion]) -> Vec<i128> {
        fill_by_weight(Amount(whole), portions).into_iter().map(|part| part.0).collect()
    }

    #[test]
    fn weight_decides_within_the_bounds_and_the_rest_goes_on() {
        let any = u64::MAX.into();
        assert_eq!(fill(100, &[portion(1, 0, any), portion(3, 0, any)]), [25, 75]);
        assert_eq!(fill(100, &[portion(1, 0, any), portion(3, 0, 30)]), [70, 30]);
        assert_eq!(fill(100, &[portion(1, 40, any), portion(3, 0, any)]), [40, 60]);
        assert_eq!(fill(100, &[portion(1, 70, any), portion(3, 60, any)]), [70, 60], "what is kept free is kept free");
        assert_eq!(fill(100, &[portion(1, 0, 10), portion(3, 0, 20)]), [10, 20]);
        assert_eq!(fill(10, &[portion(1, 0, any), portion(1, 0, any), portion(1, 0, any)]), [4, 3, 3]);
        assert_eq!(fill(10, &[]), [0i128; 0]);
    }

    fn portions() -> impl Strategy<Value = Vec<Portion>> {
        let one =
            (1u32..5, 0i128..40, 0i128..60).prop_map(|(weight, least, more)| portion(weight, least, least + more));
        prop::collection::vec(one, 0..6)
    }

    proptest! {
        #[test]
        fn the_level_is_the_highest_that_stays_within(whole in 0i128..200, portions in portions()) {
            let parts = fill(whole, &portions);
            let at = |portion: &Portion, level| portion.amount_at(Amount(level)).0;
            let sum = |level| portions.iter().map(|portion| at(portion, level)).sum::<i128>();
            let (least, most, got) = (sum(0), sum(1000), parts.iter().sum::<i128>());
            prop_assert_eq!(got, whole.clamp(least, most));
            let level = (0..1000).rev().find(|level| sum(*level) <= whole).unwrap_or(0);
            for (part, portion) in parts.iter().zip(&portions) {
                prop_assert!((at(portion, level)..=at(portion, level + 1)).contains(part));
            }
        }

        #[test]
        fn nobody_gets_less_because_another_asks_for_less(
            whole in 0i128..200, portions in portions(), who in any::<prop::sample::Index>(), most in 0i128..60,
        ) {
            prop_assume!(!portions.is_empty());
            let who = who.index(portions.len());
            let before = fill(whole, &portions);
            let mut modest = portions.clone();
            modest[who].most = portions[who].most.min(Amount(most));
            modest[who].least = portions[who].least.min(Amount(most));
            let after = fill(whole, &modest);
            let steps: i128 = portions.iter().map(|portion| i128::from(portion.weight)).sum();
            for i in (0..portions.len()).filter(|i| *i != who) {
                prop_assert!(after[i] >= before[i] - steps, "{before:?} {after:?}");
            }
        }
    }
}
