//! Decodes what a member's collector measured of its ways to other clusters.
//!
//! Rule: a number below zero is none. An inventory is right without it.

use caldera_core::split::{MOST_MEASURED_LINKS, MeasuredLink};

use super::{Heartbeat, PeerLink};

impl Heartbeat {
    /// The links that are published; none by a collector that measures none.
    #[must_use]
    pub fn decode_links(&self) -> Vec<MeasuredLink> {
        self.links.iter().filter(|link| !link.to.is_empty()).take(MOST_MEASURED_LINKS).map(decode_link).collect()
    }
}

fn decode_link(link: &PeerLink) -> MeasuredLink {
    let read = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    MeasuredLink {
        to: link.to.as_str().into(),
        latency: read(link.latency_microseconds),
        bandwidth: read(link.bandwidth_megabits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_back_and_a_wild_number_is_none() {
        let link = |to: &str, latency: i64, bandwidth: i64| PeerLink {
            to: to.to_owned(),
            latency_microseconds: Some(latency),
            bandwidth_megabits: Some(bandwidth),
            since: String::new(),
        };
        let heartbeat =
            Heartbeat { links: vec![link("b", 7, 8), link("c", -1, 9), link("", 1, 1)], ..Heartbeat::default() };
        let read = |to: &str, latency, bandwidth| MeasuredLink { to: to.into(), latency, bandwidth };
        assert_eq!(heartbeat.decode_links(), [read("b", Some(7), Some(8)), read("c", None, Some(9))]);
    }
}
