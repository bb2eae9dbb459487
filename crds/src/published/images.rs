//! Encodes and decodes what a member's nodes have of images.
//!
//! Rule: what is no number of bytes is no image. An inventory is right without it.

use std::collections::BTreeMap;

use caldera_core::image_locality::{ClusterImages, MOST_IMAGES};

use super::{Heartbeat, Nodes};

/// The images that count of the nodes that take pods, as they are written.
#[must_use]
pub fn encode_images(nodes: &Nodes) -> BTreeMap<String, i64> {
    let takes_pods = nodes.values().filter(|node| node.takes_pods());
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for image in takes_pods.clone().flat_map(|node| &node.images) {
        let total = totals.entry(&image.name).or_default();
        *total = total.saturating_add(image.bytes);
    }
    let images = ClusterImages::from_totals(totals.into_iter(), takes_pods.count());
    images.iter().map(|(name, bytes)| (name.to_owned(), i64::try_from(bytes).unwrap_or(i64::MAX))).collect()
}

impl Heartbeat {
    /// The images that are published; none by a collector that does not know of them.
    #[must_use]
    pub fn decode_images(&self) -> ClusterImages {
        let mean = |(name, bytes): (&'_ String, &i64)| Some((name.clone(), u64::try_from(*bytes).ok()?));
        let means: Vec<(String, u64)> = self.images.iter().take(MOST_IMAGES).filter_map(mean).collect();
        ClusterImages::from_means(means.iter().map(|(name, bytes)| (name.as_str(), *bytes)))
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{image_locality::NodeImage, inventory::Node};
    use serde_json::json;

    use super::*;

    fn node(name: &str, unschedulable: bool, images: &[(&str, u64)]) -> (String, Node) {
        let images = images.iter().map(|(name, bytes)| NodeImage { name: (*name).to_owned(), bytes: *bytes }).collect();
        (name.to_owned(), Node { name: name.to_owned(), ready: true, unschedulable, images, ..Node::default() })
    }

    #[test]
    fn images_come_back_as_the_mean_over_nodes_that_take_pods_and_a_wild_number_is_none() {
        let nodes: Nodes =
            [node("n1", false, &[("a:1", 900), ("b:1", 30)]), node("n2", false, &[]), node("n3", true, &[("c:1", 5)])]
                .into();
        let images = encode_images(&nodes);
        assert_eq!(images, [("a:1".to_owned(), 450), ("b:1".to_owned(), 15)].into());
        let mut heartbeat = Heartbeat { images, ..Heartbeat::default() };
        assert_eq!(heartbeat.decode_images().iter().collect::<Vec<_>>(), [("a:1", 450), ("b:1", 15)]);
        heartbeat.images.insert("a:1".to_owned(), -1);
        assert_eq!(heartbeat.decode_images().iter().collect::<Vec<_>>(), [("b:1", 15)]);
        heartbeat.images = (0..1000).map(|at| (at.to_string(), 7)).collect();
        assert_eq!(heartbeat.decode_images().iter().count(), MOST_IMAGES);
    }

    #[test]
    fn a_heartbeat_without_images_is_read_and_without_any_it_is_written_as_before() {
        let old = json!({"seenAt": "", "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 1});
        let heartbeat: Heartbeat = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(heartbeat.decode_images(), ClusterImages::default());
        assert_eq!(serde_json::to_value(heartbeat).unwrap(), old);
    }
}
