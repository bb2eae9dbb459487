//! Where a workload's data is, as its user declares it.
//!
//! Annotation `caldera.dev/data`: pieces of data with commas between them, each `KEY=VALUE` where KEY is `cluster`,
//! `region`, `zone` or `provider`; `|` between places that have a copy of the same piece; `:SIZE` for how much it is,
//! in any unit (1 if not said). [`crate::place`] prefers clusters that have the data.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// So many pieces may be declared.
pub const MOST_PIECES: usize = 16;
/// So many places of one piece.
pub const MOST_PLACES: usize = 64;
/// The largest size.
pub const LARGEST: i64 = 1_000_000;

/// Where a workload's data is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Data {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Piece {
    /// Any of them has it.
    places: Vec<DataPlace>,
    size: i64,
}

/// Where a copy of a piece is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataPlace {
    /// In a cluster.
    Cluster(String),
    /// In all clusters of a region.
    Region(String),
    /// In all clusters that have a zone.
    Zone(String),
    /// In all clusters of a provider.
    Provider(String),
}

/// Why a text does not say where data is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDataError {
    /// Not `KEY=VALUE`.
    #[error("{0:?} is not KEY=VALUE with cluster, region, zone or provider as the key")]
    Malformed(String),
    /// Not a size.
    #[error("{0:?} is no size: a whole number from 1 to {LARGEST}")]
    Size(String),
    /// Too long.
    #[error("more than {MOST_PIECES} pieces of data, or more than {MOST_PLACES} places of one")]
    TooMany,
}

impl FromStr for Data {
    type Err = ParseDataError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pieces: Vec<Piece> = text.split(',').map(parse_piece).collect::<Result<_, _>>()?;
        if pieces.len() > MOST_PIECES || pieces.iter().any(|piece| piece.places.len() > MOST_PLACES) {
            return Err(ParseDataError::TooMany);
        }
        Ok(Self { pieces })
    }
}

fn parse_piece(text: &str) -> Result<Piece, ParseDataError> {
    let (places, size) = match text.rsplit_once(':') {
        Some((places, size)) => (places, size.trim()),
        None => (text, "1"),
    };
    let number = size.parse::<i64>().ok().filter(|number| (1..=LARGEST).contains(number));
    let size = number.ok_or_else(|| ParseDataError::Size(size.to_owned()))?;
    Ok(Piece { places: places.split('|').map(parse_place).collect::<Result<_, _>>()?, size })
}

fn parse_place(text: &str) -> Result<DataPlace, ParseDataError> {
    let malformed = || ParseDataError::Malformed(text.trim().to_owned());
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let value = value.trim().to_owned();
    match key.trim() {
        _ if value.is_empty() => Err(malformed()),
        "cluster" => Ok(DataPlace::Cluster(value)),
        "region" => Ok(DataPlace::Region(value)),
        "zone" => Ok(DataPlace::Zone(value)),
        "provider" => Ok(DataPlace::Provider(value)),
        _ => Err(malformed()),
    }
}

impl Data {
    /// The sizes of all pieces of which no place `has` a copy, in sum.
    pub fn sum_missing_sizes(&self, has: impl Fn(&DataPlace) -> bool) -> i64 {
        let missing = self.pieces.iter().filter(|piece| !piece.places.iter().any(&has));
        missing.map(|piece| piece.size).fold(0, i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (text, wrong) in
            [("", ""), ("m1", "m1"), ("node=n1", "node=n1"), ("cluster=", "cluster="), ("cluster=a,", "")]
        {
            assert_eq!(text.parse::<Data>(), Err(ParseDataError::Malformed(wrong.to_owned())), "{text}");
        }
        for (text, wrong) in
            [("cluster=a:0", "0"), ("cluster=a:-1", "-1"), ("cluster=a:much", "much"), ("cluster=a:1000001", "1000001")]
        {
            assert_eq!(text.parse::<Data>(), Err(ParseDataError::Size(wrong.to_owned())), "{text}");
        }
        let many = vec!["cluster=a"; MOST_PIECES + 1].join(",");
        assert_eq!(many.parse::<Data>(), Err(ParseDataError::TooMany));
        let many = vec!["cluster=a"; MOST_PLACES + 1].join("|");
        assert_eq!(many.parse::<Data>(), Err(ParseDataError::TooMany));
    }
}
