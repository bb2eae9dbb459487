//! Dividing whole seats by weights.
//!
//! Rule: Webster (Sainte-Laguë), as Karmada divides replicas (`pkg/util/helper/webstermethod.go`): each seat goes to
//! the largest `votes / (2 * seats + 1)`; equal quotients go to who has fewer seats, then by name, ascending or
//! descending. Karmada hands out seat by seat and compares quotients as IEEE doubles, and so does the comparison here:
//! the only one in this crate, exact for votes below 2^52 divided by twice the house, and tied where Karmada's ties
//! beyond. But seats are not handed out one by one: bounds in whole numbers say how many everybody surely gets and at
//! most can get, and of the few seats in between the best are picked at once. The cost is linear in the candidates
//! whatever the house.

use std::cmp::Ordering;

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
    pub fn compare_in_tie_order<T: Ord + ?Sized>(self, a: &T, b: &T) -> Ordering {
        match self {
            Self::Ascending => a.cmp(b),
            Self::Descending => b.cmp(a),
        }
    }
}

/// A seat that some candidate may get; the least is given first.
#[derive(Clone, Copy)]
struct Seat {
    /// Descending with the quotient: its bits, inverted (positive doubles sort as their bits do).
    rank: u64,
    /// Seats that the candidate has before this one.
    before: u64,
    candidate: usize,
}

impl Seat {
    fn new(votes: u64, before: u64, candidate: usize) -> Self {
        Self { rank: !(votes as f64 / (2.0 * before as f64 + 1.0)).to_bits(), before, candidate }
    }

    fn compare_seats<N: Ord + ?Sized>(&self, other: &Self, candidates: &[(u64, &N)], tie: Tie) -> Ordering {
        (self.rank, self.before)
            .cmp(&(other.rank, other.before))
            .then_with(|| tie.compare_in_tie_order(candidates[self.candidate].1, candidates[other.candidate].1))
            .then_with(|| self.candidate.cmp(&other.candidate))
    }
}

/// `votes * factor / total` for many votes with one division.
struct SeatQuota {
    reciprocal: u128,
    shift: u32,
}

impl SeatQuota {
    fn new(factor: u128, total: u128) -> Self {
        let shift = factor.leading_zeros().saturating_sub(1).min(63);
        Self { reciprocal: (factor << shift) / total, shift }
    }

    /// Rounded down, and too low by less than `votes >> shift` and 2.
    fn quota_of_votes(&self, votes: u64) -> u128 {
        // At most `factor << shift`, for nobody has more votes than there are.
        (u128::from(votes) * self.reciprocal) >> self.shift
    }

    /// Odd numbers that are surely below the quota.
    fn least_seats(&self, votes: u64) -> u64 {
        u64::try_from(self.quota_of_votes(votes) / 2).unwrap_or(u64::MAX)
    }

    /// Odd numbers that the quota may reach.
    fn most_seats(&self, votes: u64) -> u64 {
        let reach = self.quota_of_votes(votes) + u128::from(votes >> self.shift) + 2;
        u64::try_from(reach / 2).unwrap_or(u64::MAX)
    }
}

/// Divides `house` seats among candidates with `(votes, name)`; seats in the same order. Without any vote nobody gets
/// anything.
#[must_use]
pub fn divide_seats<N: Ord + ?Sized>(house: u64, candidates: &[(u64, &N)], tie: Tie) -> Vec<u64> {
    let mut seats: Vec<u64> = vec![0; candidates.len()];
    let total: u128 = candidates.iter().map(|(votes, _)| u128::from(*votes)).sum();
    if total == 0 || house == 0 {
        return seats;
    }
    let voters = candidates.iter().filter(|(votes, _)| *votes > 0).count() as u128;
    let twice = 2 * u128::from(house);
    // Quotients above `total / (2 * house - voters)` are at most as many as the house, those that reach
    // `total / (2 * house + voters)` at least as many. The margin is wider than what doubles round off, so that nothing
    // outside the bounds ties with what is inside.
    let margin = |quotas: u128| 1 + (quotas >> 48);
    let sure = twice.saturating_sub(voters);
    let least = SeatQuota::new(sure.saturating_sub(margin(sure)), total);
    let most = SeatQuota::new(twice + voters + margin(twice + voters), total);
    let mut left = house;
    let mut open: Vec<Seat> = Vec::with_capacity(2 * candidates.len() + 8);
    for (candidate, (votes, _)) in candidates.iter().enumerate().filter(|(_, (votes, _))| *votes > 0) {
        seats[candidate] = least.least_seats(*votes);
        left -= seats[candidate];
        open.extend((seats[candidate]..most.most_seats(*votes)).map(|before| Seat::new(*votes, before, candidate)));
    }
    let given = usize::try_from(left).unwrap_or(usize::MAX).min(open.len());
    if given < open.len() {
        open.select_nth_unstable_by(given, |a, b| a.compare_seats(b, candidates, tie));
    }
    for seat in &open[..given] {
        seats[seat.candidate] += 1;
    }
    seats
}

/// As [`divide_seats`], but nobody gets more than their cap; what is over goes to the others by the same rule. Seats
/// remain only if all who have votes are at their caps.
#[must_use]
pub fn divide_seats_capped<N: Ord + ?Sized>(house: u64, candidates: &[(u64, u64, &N)], tie: Tie) -> Vec<u64> {
    let mut seats: Vec<u64> = vec![0; candidates.len()];
    let mut open: Vec<usize> = (0..candidates.len()).filter(|i| candidates[*i].0 > 0 && candidates[*i].1 > 0).collect();
    let mut left = house;
    while left > 0 && !open.is_empty() {
        let votes: Vec<(u64, &N)> = open.iter().map(|i| (candidates[*i].0, candidates[*i].2)).collect();
        let round = divide_seats(left, &votes, tie);
        let over: Vec<bool> = open.iter().zip(&round).map(|(i, got)| *got > candidates[*i].1).collect();
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
                seats[i] = candidates[i].1;
                left -= candidates[i].1;
            } else {
                still.push(i);
            }
        }
        open = still;
    }
    seats
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Seat by seat, with exact quotients.
    fn naive(house: u64, votes: &[u64], tie: Tie) -> Vec<u64> {
        seat_by_seat(house, votes, tie, |(votes, seats), (others, theirs)| {
            (u128::from(votes) * (2 * u128::from(theirs) + 1)).cmp(&(u128::from(others) * (2 * u128::from(seats) + 1)))
        })
    }

    /// Karmada's loop, seat by seat, with its doubles.
    fn karmada(house: u64, votes: &[u64], tie: Tie) -> Vec<u64> {
        let quotient = |(votes, seats): (u64, u64)| votes as f64 / (2 * seats + 1) as f64;
        seat_by_seat(house, votes, tie, |one, two| quotient(one).total_cmp(&quotient(two)))
    }

    fn seat_by_seat(
        house: u64,
        votes: &[u64],
        tie: Tie,
        quotients: impl Fn((u64, u64), (u64, u64)) -> Ordering,
    ) -> Vec<u64> {
        let names: Vec<String> = (0..votes.len()).map(|i| format!("c{i:03}")).collect();
        let mut seats = vec![0; votes.len()];
        for _ in 0..house {
            let best = (0..votes.len()).filter(|i| votes[*i] > 0).max_by(|a, b| {
                quotients((votes[*a], seats[*a]), (votes[*b], seats[*b]))
                    .then_with(|| seats[*b].cmp(&seats[*a]))
                    .then_with(|| tie.compare_in_tie_order(names[*b].as_str(), names[*a].as_str()))
            });
            if let Some(best) = best {
                seats[best] += 1;
            }
        }
        seats
    }

    fn named(votes: &[u64], tie: Tie, house: u64) -> Vec<u64> {
        let names: Vec<String> = (0..votes.len()).map(|i| format!("c{i:03}")).collect();
        let candidates: Vec<(u64, &str)> = votes.iter().zip(&names).map(|(v, n)| (*v, n.as_str())).collect();
        divide_seats(house, &candidates, tie)
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
        fn equals_karmadas_loop_where_doubles_tie(
            votes in prop::collection::vec(prop_oneof![
                0..5u64, (1_u64 << 53) - 4..(1 << 53) + 4, (1_u64 << 62)..(1 << 62) + 2000, u64::MAX - 9..=u64::MAX,
            ], 0..7),
            house in 0..200u64, down: bool,
        ) {
            let tie = if down { Tie::Descending } else { Tie::Ascending };
            prop_assert_eq!(named(&votes, tie, house), karmada(house, &votes, tie));
        }

        #[test]
        fn equals_karmadas_loop_with_many_claimants(
            votes in prop::collection::vec(prop_oneof![0..9u64, 0..4000u64, 0..(1u64 << 31)], 0..60),
            house in 0..400u64,
        ) {
            prop_assert_eq!(named(&votes, Tie::Ascending, house), karmada(house, &votes, Tie::Ascending));
        }

        #[test]
        fn every_seat_of_any_house_is_given(votes in prop::collection::vec(any::<u64>(), 1..9), house: u64) {
            let seats = named(&votes, Tie::Ascending, house);
            let given: u128 = seats.iter().map(|seats| u128::from(*seats)).sum();
            prop_assert_eq!(given, if votes.iter().all(|votes| *votes == 0) { 0 } else { u128::from(house) });
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
            let candidates: Vec<(u64, u64, &str)> =
                claims.iter().zip(&names).map(|((v, c), n)| (*v, *c, n.as_str())).collect();
            let seats = divide_seats_capped(house, &candidates, Tie::Ascending);
            prop_assert!(seats.iter().zip(&claims).all(|(seats, (_, cap))| seats <= cap));
            let capacity: u64 = claims.iter().filter(|(votes, _)| *votes > 0).map(|(_, cap)| cap).sum();
            prop_assert_eq!(seats.iter().sum::<u64>(), house.min(capacity));
        }
    }
}
