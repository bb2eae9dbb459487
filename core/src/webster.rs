//! Dividing whole seats by weights.
//!
//! Rule: Webster (Sainte-Laguë), as Karmada divides replicas (`pkg/util/helper/webstermethod.go`): each seat goes to the
//! largest `votes / (2 * seats + 1)`; equal quotients go to who has fewer seats, then by name, ascending or descending.
//! Karmada hands out seat by seat and compares doubles; here the seats that every quota surely reaches are given at
//! once and quotients are compared exactly, so the cost does not depend on the number of seats. The two differ only for
//! weights above 2^53, where doubles tie.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// Which name wins among equals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tie {
    /// The first in the alphabet.
    #[default]
    Ascending,
    /// The last.
    Descending,
}

impl Tie {
    /// Karmada's choice for a binding whose resource has this UID (`helper/binding.go`): FNV-1a of it, even or odd.
    #[must_use]
    pub fn of_uid(uid: &str) -> Self {
        let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        if uid.is_empty() || hash.is_multiple_of(2) { Self::Ascending } else { Self::Descending }
    }

    /// `a` and `b` in the order in which they win.
    #[must_use]
    pub fn order<T: Ord + ?Sized>(self, a: &T, b: &T) -> Ordering {
        match self {
            Self::Ascending => a.cmp(b),
            Self::Descending => b.cmp(a),
        }
    }
}

/// One claimant's next seat; the greatest gets it.
struct Claim<'a, N: ?Sized> {
    votes: u64,
    seats: u64,
    name: &'a N,
    tie: Tie,
    index: usize,
}

impl<N: Ord + ?Sized> Ord for Claim<'_, N> {
    fn cmp(&self, other: &Self) -> Ordering {
        let quotient = u128::from(self.votes) * (2 * u128::from(other.seats) + 1);
        let theirs = u128::from(other.votes) * (2 * u128::from(self.seats) + 1);
        quotient
            .cmp(&theirs)
            .then_with(|| other.seats.cmp(&self.seats))
            .then_with(|| self.tie.order(other.name, self.name))
            .then_with(|| other.index.cmp(&self.index))
    }
}
impl<N: Ord + ?Sized> PartialOrd for Claim<'_, N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<N: Ord + ?Sized> PartialEq for Claim<'_, N> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<N: Ord + ?Sized> Eq for Claim<'_, N> {}

/// Divides `house` seats among claimants with `(votes, name)`; seats in the same order. Without any vote nobody gets
/// anything.
#[must_use]
pub fn divide<N: Ord + ?Sized>(house: u64, claimants: &[(u64, &N)], tie: Tie) -> Vec<u64> {
    let total: u128 = claimants.iter().map(|(votes, _)| u128::from(*votes)).sum();
    let mut seats: Vec<u64> = vec![0; claimants.len()];
    if total == 0 || house == 0 {
        return seats;
    }
    // With the divisor total / (house - n / 2) the rounded quotas sum to at most the house, so everybody has those.
    let sure = (2 * u128::from(house)).saturating_sub(claimants.len() as u128);
    let mut left = house;
    if sure > 0 {
        for (seats, (votes, _)) in seats.iter_mut().zip(claimants) {
            *seats = odds_below(u128::from(*votes), sure, total);
            left -= *seats;
        }
    }
    let mut claims: BinaryHeap<Claim<'_, N>> = claimants
        .iter()
        .enumerate()
        .filter(|(_, (votes, _))| *votes > 0)
        .map(|(index, (votes, name))| Claim { votes: *votes, seats: seats[index], name: *name, tie, index })
        .collect();
    for _ in 0..left {
        let Some(mut claim) = claims.pop() else { break };
        claim.seats += 1;
        seats[claim.index] = claim.seats;
        claims.push(claim);
    }
    seats
}

/// How many odd numbers are below `votes * scale / total`.
fn odds_below(votes: u128, scale: u128, total: u128) -> u64 {
    let Some(product) = votes.checked_mul(scale) else { return 0 };
    let (whole, exact) = (product / total, product.is_multiple_of(total));
    u64::try_from(if exact { whole / 2 } else { whole.div_ceil(2) }).unwrap_or(0)
}

/// As [`divide`], but nobody gets more than their cap; what is over goes to the others by the same rule. Seats remain
/// only if all who have votes are at their caps.
#[must_use]
pub fn divide_capped<N: Ord + ?Sized>(house: u64, claimants: &[(u64, u64, &N)], tie: Tie) -> Vec<u64> {
    let mut seats: Vec<u64> = vec![0; claimants.len()];
    let mut open: Vec<usize> = (0..claimants.len()).filter(|i| claimants[*i].0 > 0 && claimants[*i].1 > 0).collect();
    let mut left = house;
    while left > 0 && !open.is_empty() {
        let votes: Vec<(u64, &N)> = open.iter().map(|i| (claimants[*i].0, claimants[*i].2)).collect();
        let round = divide(left, &votes, tie);
        let over: Vec<bool> = open.iter().zip(&round).map(|(i, got)| *got > claimants[*i].1).collect();
        if !over.contains(&true) {
            for (i, got) in open.iter().zip(round) {
                seats[*i] = got;
            }
            return seats;
        }
        // Who is over the cap stays over it in a smaller field: settle those, divide the rest anew.
        let mut still = Vec::with_capacity(open.len());
        for (i, over) in open.into_iter().zip(over) {
            if over {
                seats[i] = claimants[i].1;
                left -= claimants[i].1;
            } else {
                still.push(i);
            }
        }
        open = still;
    }
    seats
}

/// Orders by descending votes, for callers that need the largest first; stable.
#[must_use]
pub fn by_votes<T>(items: &[T], votes: impl Fn(&T) -> u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|i| Reverse(votes(&items[*i])));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Karmada's loop, seat by seat.
    fn naive(house: u64, votes: &[u64], tie: Tie) -> Vec<u64> {
        let names: Vec<String> = (0..votes.len()).map(|i| format!("c{i:03}")).collect();
        let mut seats = vec![0; votes.len()];
        for _ in 0..house {
            let best = (0..votes.len()).filter(|i| votes[*i] > 0).max_by(|a, b| {
                let one = u128::from(votes[*a]) * (2 * u128::from(seats[*b]) + 1);
                let two = u128::from(votes[*b]) * (2 * u128::from(seats[*a]) + 1);
                one.cmp(&two)
                    .then_with(|| seats[*b].cmp(&seats[*a]))
                    .then_with(|| tie.order(names[*b].as_str(), names[*a].as_str()))
            });
            if let Some(best) = best {
                seats[best] += 1;
            }
        }
        seats
    }

    fn named(votes: &[u64], tie: Tie, house: u64) -> Vec<u64> {
        let names: Vec<String> = (0..votes.len()).map(|i| format!("c{i:03}")).collect();
        let claimants: Vec<(u64, &str)> = votes.iter().zip(&names).map(|(v, n)| (*v, n.as_str())).collect();
        divide(house, &claimants, tie)
    }

    #[test]
    fn the_uid_decides_which_name_wins_a_tie() {
        assert_eq!(named(&[1, 1], Tie::Ascending, 3), [2, 1]);
        assert_eq!(named(&[1, 1], Tie::Descending, 3), [1, 2]);
        assert_eq!(Tie::of_uid(""), Tie::Ascending);
        // FNV-1a-32 of "a" is 0xe40c292c, of "b" 0xe70c2de5.
        assert_eq!((Tie::of_uid("a"), Tie::of_uid("b")), (Tie::Ascending, Tie::Descending));
    }

    proptest! {
        #[test]
        fn equals_seat_by_seat(votes in prop::collection::vec(0..50u64, 0..9), house in 0..120u64, down: bool) {
            let tie = if down { Tie::Descending } else { Tie::Ascending };
            prop_assert_eq!(named(&votes, tie, house), naive(house, &votes, tie));
        }

        #[test]
        fn never_more_seats_than_votes_while_votes_last(votes in prop::collection::vec(0..50u64, 1..9), part in 0..100u64) {
            let total: u64 = votes.iter().sum();
            let seats = named(&votes, Tie::Ascending, total * part / 100);
            prop_assert!(seats.iter().zip(&votes).all(|(seats, votes)| seats <= votes));
        }

        #[test]
        fn caps_hold_and_all_seats_are_given_while_there_is_room(
            claims in prop::collection::vec((0..20u64, 0..20u64), 0..8), house in 0..100u64,
        ) {
            let names: Vec<String> = (0..claims.len()).map(|i| format!("c{i}")).collect();
            let claimants: Vec<(u64, u64, &str)> =
                claims.iter().zip(&names).map(|((v, c), n)| (*v, *c, n.as_str())).collect();
            let seats = divide_capped(house, &claimants, Tie::Ascending);
            prop_assert!(seats.iter().zip(&claims).all(|(seats, (_, cap))| seats <= cap));
            let room: u64 = claims.iter().filter(|(votes, _)| *votes > 0).map(|(_, cap)| cap).sum();
            prop_assert_eq!(seats.iter().sum::<u64>(), house.min(room));
        }
    }
}
