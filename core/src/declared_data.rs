//! Where a workload's data is, as its user declares it.
//!
//! Annotation `caldera.dev/data`: pieces of data with commas between them, each `KEY=VALUE` where KEY is `cluster`,
//! `region`, `zone` or `provider`; `|` between places that have a copy of the same piece; `:SIZE` for how much it is,
//! in any unit (1 if not said), or in bytes with a suffix (`200Gi`). [`crate::place`] prefers clusters that have the
//! data, and those to which it comes sooner where its size is in bytes. A place is named by letters, digits, `-`, `_`,
//! `.`, `/` and spaces: a semicolon in the place of a comma makes no place.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{quantity::Quantity, text::shorten_text};

/// So many pieces may be declared.
pub const MOST_PIECES: usize = 16;
/// So many places of one piece.
pub const MOST_PLACES: usize = 64;
/// The largest size in a unit of the user's own.
pub const LARGEST: i64 = 1_000_000;
/// The largest size in bytes: a pebibyte.
pub const MOST_BYTES: i64 = 1 << 50;

/// Where a workload's data is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Data {
    pieces: Vec<Piece>,
}

/// A piece of data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// Any of them has it.
    pub places: Vec<DataPlace>,
    /// How much it is.
    pub size: i64,
    /// The size is in bytes, and not in a unit of the user's own.
    #[serde(default)]
    pub in_bytes: bool,
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
    #[error("{0:?} is no size: a whole number from 1 to {LARGEST}, or bytes such as 200Gi, 1Pi at most")]
    Size(String),
    /// Too long.
    #[error("more than {MOST_PIECES} pieces of data, or more than {MOST_PLACES} places of one")]
    TooMany,
}

impl FromStr for Data {
    type Err = ParseDataError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.split(',').nth(MOST_PIECES).is_some() {
            return Err(ParseDataError::TooMany);
        }
        let pieces: Vec<Piece> = text.split(',').map(parse_piece).collect::<Result<_, _>>()?;
        if pieces.iter().any(|piece| piece.places.len() > MOST_PLACES) {
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
    let in_bytes = size.ends_with(|last: char| last.is_ascii_alphabetic());
    let number = if in_bytes { parse_bytes(size) } else { size.parse().ok() };
    let most = if in_bytes { MOST_BYTES } else { LARGEST };
    let number = number.filter(|number| (1..=most).contains(number));
    let size = number.ok_or_else(|| ParseDataError::Size(shorten_text(size)))?;
    Ok(Piece { places: places.split('|').map(parse_place).collect::<Result<_, _>>()?, size, in_bytes })
}

fn parse_bytes(text: &str) -> Option<i64> {
    let quantity: Quantity = text.parse().ok()?;
    i64::try_from(quantity.units_ceil()).ok().filter(|bytes| Quantity::from_units(*bytes) == quantity)
}

fn parse_place(text: &str) -> Result<DataPlace, ParseDataError> {
    let malformed = || ParseDataError::Malformed(shorten_text(text.trim()));
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let value = value.trim().to_owned();
    // As in names and labels: what has another separator in it is not one place.
    let is_named = |one: char| one.is_alphanumeric() || matches!(one, '-' | '_' | '.' | '/' | ' ');
    match key.trim() {
        _ if value.is_empty() || !value.chars().all(is_named) => Err(malformed()),
        "cluster" => Ok(DataPlace::Cluster(value)),
        "region" => Ok(DataPlace::Region(value)),
        "zone" => Ok(DataPlace::Zone(value)),
        "provider" => Ok(DataPlace::Provider(value)),
        _ => Err(malformed()),
    }
}

impl Data {
    /// The pieces of which no place `has` a copy.
    pub fn list_missing(&self, has: impl Fn(&DataPlace) -> bool) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| !piece.places.iter().any(&has))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_bytes_where_it_has_a_suffix() {
        let data: Data = "cluster=a:200Gi,cluster=b:7,cluster=c:1500M".parse().unwrap();
        let sizes: Vec<(i64, bool)> = data.list_missing(|_| false).map(|piece| (piece.size, piece.in_bytes)).collect();
        assert_eq!(sizes, [(200 << 30, true), (7, false), (1_500_000_000, true)]);
        for wrong in ["5m", "2Pi", "-1Gi", "0k"] {
            let error = format!("cluster=a:{wrong}").parse::<Data>();
            assert_eq!(error, Err(ParseDataError::Size(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (text, wrong) in [
            ("", ""),
            ("m1", "m1"),
            ("node=n1", "node=n1"),
            ("cluster=", "cluster="),
            ("cluster=a,", ""),
            ("cluster=a:2Gi;region=eu:1Ti", "cluster=a:2Gi;region=eu"),
            ("cluster='a'", "cluster='a'"),
        ] {
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
