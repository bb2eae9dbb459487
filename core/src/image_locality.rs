//! Image locality: how much of what a gang's pods would pull is on a cluster's nodes already.
//!
//! Rule (kube-scheduler `plugins/imagelocality`, which Volcano's nodeorder runs): an image counts by its bytes times
//! the share of nodes that have it. What a pod's images count together is worth nothing up to 23 MiB, and full marks
//! from 1000 MiB for each of its containers on, init containers among them. An image without a tag is `:latest`. Beyond
//! that rule, one without a registry is that of docker.io, as nodes name it. Here all nodes of a cluster that take pods
//! are asked, and the mean over all pods counts, in steps of a tenth: a few megabytes move no job. Images that nobody
//! knows of count as nothing, and so do those of a gang with very many kinds of pods, or very long names.

use std::{borrow::Cow, collections::BTreeMap};

/// Bytes of a pod's images up to which they are worth nothing.
const LEAST_BYTES: u64 = 23 << 20;
/// Bytes of images, for each container, from which more is worth no more.
const MOST_BYTES_PER_CONTAINER: u64 = 1000 << 20;
/// Names of images of a cluster that count: those with most bytes on its nodes.
pub const MOST_IMAGES: usize = 64;
/// Bytes of the names of all of them, and of those of a gang.
const MOST_NAMES_LENGTH: usize = 8 << 10;
/// Bytes of the longest name of an image on a node that counts.
const MOST_NAME_LENGTH: usize = 512;
/// Kinds of pods of which it is asked.
const MOST_KINDS: usize = 32;
/// Where an image comes from whose name says no registry.
const DEFAULT_REGISTRIES: [&str; 2] = ["docker.io/", "index.docker.io/"];
/// Full marks.
const TENTHS: u64 = 10;

/// An image on a node, under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeImage {
    /// With its tag, and without the registry that is meant where none is said.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl NodeImage {
    /// One that may count, as a node names it; `None` for one that is too small to be worth waiting for, and for a name
    /// that is longer than any that a registry gives.
    #[must_use]
    pub fn of_size(name: &str, bytes: u64) -> Option<Self> {
        (bytes > LEAST_BYTES && name.len() <= MOST_NAME_LENGTH)
            .then(|| Self { name: complete_image_name(name).into_owned(), bytes })
    }
}

/// Images that the nodes of a cluster have, and how many bytes of each a node has in the mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterImages(BTreeMap<String, u64>);

impl ClusterImages {
    /// The images that count, of so many nodes that have so many bytes of each together.
    #[must_use]
    pub fn from_totals<'a>(totals: impl Iterator<Item = (&'a str, u64)>, nodes: usize) -> Self {
        let nodes = nodes.max(1) as u64;
        Self::from_means(totals.map(|(name, bytes)| (name, bytes / nodes)))
    }

    /// The images that count, of these with so many bytes a node.
    #[must_use]
    pub fn from_means<'a>(means: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let mut all: Vec<(&str, u64)> = means.filter(|(_, bytes)| *bytes > 0).collect();
        let order = |a: &(&str, u64), b: &(&str, u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0));
        // Nodes may have very many: only those that count are sorted.
        if all.len() > MOST_IMAGES {
            all.select_nth_unstable_by(MOST_IMAGES, order);
            all.truncate(MOST_IMAGES);
        }
        all.sort_unstable_by(order);
        let mut left = MOST_NAMES_LENGTH;
        let fits = |(name, _): &(&str, u64)| {
            let rest = left.checked_sub(name.len());
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        Self(all.into_iter().filter(fits).map(|(name, bytes)| (name.to_owned(), bytes)).collect())
    }

    /// Each with its bytes a node.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// In tenths, how much of what the pods would pull is not there.
    #[must_use]
    pub fn count_missing_tenths(&self, pods: &PodImages) -> u64 {
        if self.0.is_empty() {
            return TENTHS;
        }
        let all = pods.0.iter().map(|kind| u128::from(kind.pods)).sum::<u128>().max(1);
        let marks = pods.0.iter().map(|kind| u128::from(kind.pods) * u128::from(self.rate_kind(kind))).sum::<u128>();
        TENTHS - u64::try_from(marks * u128::from(TENTHS) / (100 * all)).unwrap_or(0).min(TENTHS)
    }

    /// What one pod finds on a node, from 0 to 100.
    fn rate_kind(&self, kind: &ImagesOfKind) -> u64 {
        let there =
            kind.names.iter().filter_map(|name| self.0.get(name)).fold(0, |sum: u64, one| sum.saturating_add(*one));
        let most = MOST_BYTES_PER_CONTAINER.saturating_mul(kind.names.len() as u64);
        (there.clamp(LEAST_BYTES, most.max(LEAST_BYTES)) - LEAST_BYTES) * 100
            / (most.saturating_sub(LEAST_BYTES)).max(1)
    }
}

/// The images of a gang's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PodImages(Vec<ImagesOfKind>);

/// Pods with the same images.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ImagesOfKind {
    pods: u32,
    /// By container.
    names: Vec<String>,
}

impl PodImages {
    /// Of so many pods with containers of these images, each; `None` where nothing can be said.
    pub fn from_kinds<I, N>(kinds: impl IntoIterator<Item = (u32, I)>) -> Option<Self>
    where
        I: IntoIterator<Item = N>,
        N: AsRef<str>,
    {
        let mut all: Vec<ImagesOfKind> = Vec::new();
        let mut length = 0_usize;
        for (pods, names) in kinds {
            let names: Vec<String> =
                names.into_iter().map(|name| complete_image_name(name.as_ref()).into_owned()).collect();
            if pods == 0 || names.is_empty() {
                continue;
            }
            match all.iter().position(|known| known.names == names) {
                Some(at) => all[at].pods = all[at].pods.saturating_add(pods),
                None => {
                    length = names.iter().map(String::len).fold(length, usize::saturating_add);
                    if all.len() == MOST_KINDS || length > MOST_NAMES_LENGTH {
                        return None;
                    }
                    all.push(ImagesOfKind { pods, names });
                }
            }
        }
        (!all.is_empty()).then_some(Self(all))
    }
}

/// The name with its tag, `:latest` where it says none, and without the registry that is meant where it says none.
fn complete_image_name(name: &str) -> Cow<'_, str> {
    let name = DEFAULT_REGISTRIES.iter().find_map(|registry| name.strip_prefix(registry)).unwrap_or(name);
    let name = name.strip_prefix("library/").filter(|rest| !rest.contains('/')).unwrap_or(name);
    // What follows a colon before the last slash is a port.
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}:latest")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn cluster(images: &[(&str, u64)]) -> ClusterImages {
        ClusterImages::from_means(images.iter().map(|(name, mib)| (*name, mib * MIB)))
    }

    fn pods(kinds: &[(u32, &[&str])]) -> PodImages {
        PodImages::from_kinds(kinds.iter().map(|(pods, names)| (*pods, names.iter().copied()))).unwrap()
    }

    #[test]
    fn an_image_without_a_tag_is_latest_one_without_a_registry_that_of_docker_and_a_port_is_no_tag() {
        let rows = [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("r.example:5000/a/b", "r.example:5000/a/b:latest"),
            ("r.example:5000/a/b:2", "r.example:5000/a/b:2"),
            ("a@sha256:00", "a@sha256:00"),
            ("", ":latest"),
            ("docker.io/library/busybox:1", "busybox:1"),
            ("library/busybox", "busybox:latest"),
            ("docker.io/library/a@sha256:00", "a@sha256:00"),
            ("index.docker.io/team/a", "team/a:latest"),
            ("library/team/a:1", "library/team/a:1"),
            ("docker.io.example/library/a:1", "docker.io.example/library/a:1"),
        ];
        for (name, want) in rows {
            assert_eq!(complete_image_name(name), want);
        }
    }

    #[test]
    fn of_a_cluster_the_largest_64_count_and_a_name_that_is_too_long_keeps_out_no_other() {
        let all: Vec<(String, u64)> = (0..200).map(|n| (format!("i{n}:1"), n + 1)).collect();
        let kept = ClusterImages::from_means(all.iter().rev().map(|(name, bytes)| (name.as_str(), *bytes)));
        let largest: BTreeMap<String, u64> = all[136..].iter().cloned().collect();
        assert_eq!(kept.0, largest);
        let long = "x".repeat(MOST_NAMES_LENGTH + 1);
        let kept = ClusterImages::from_means([(long.as_str(), 9), ("a:1", 1)].into_iter());
        assert_eq!(kept.0, BTreeMap::from([("a:1".to_owned(), 1)]));
        assert!(NodeImage::of_size(&"x".repeat(MOST_NAME_LENGTH), 1 << 30).is_some());
        assert!(NodeImage::of_size(&"x".repeat(MOST_NAME_LENGTH + 1), 1 << 30).is_none());
    }

    #[test]
    fn bytes_count_between_23_mib_and_1000_mib_a_container() {
        let missing = |mib: u64, containers: usize| {
            let mut names = vec!["a:1"];
            names.resize(containers, "other:1");
            cluster(&[("a:1", mib)]).count_missing_tenths(&pods(&[(1, &names)]))
        };
        assert_eq!([0, 23, 120, 121, 500, 1000, 9000].map(|mib| missing(mib, 1)), [10, 10, 10, 9, 6, 0, 0]);
        assert_eq!(missing(1000, 2), 6, "of two containers one is there");
    }

    #[test]
    fn the_mean_of_all_pods_counts_and_what_nobody_knows_is_not_there() {
        let gang = pods(&[(3, &["worker:1"]), (1, &["ps"])]);
        assert_eq!(cluster(&[("worker:1", 1000)]).count_missing_tenths(&gang), 3);
        assert_eq!(cluster(&[("ps:latest", 1000)]).count_missing_tenths(&gang), 8);
        assert_eq!(cluster(&[("worker:2", 1000), ("ps:1", 1000)]).count_missing_tenths(&gang), 10);
        assert_eq!(cluster(&[]).count_missing_tenths(&gang), 10);
    }

    #[test]
    fn pods_with_the_same_images_are_one_kind_and_of_too_many_kinds_nothing_is_said() {
        assert_eq!(pods(&[(3, &["a"]), (1, &["a:latest"])]), pods(&[(4, &["a"])]));
        let kinds = |count: u32| (0..count).map(|at| (1, vec![format!("i:{at}")])).collect::<Vec<_>>();
        let of = |kinds: &[(u32, Vec<String>)]| {
            PodImages::from_kinds(kinds.iter().map(|(pods, names)| (*pods, names.iter().map(String::as_str)))).is_some()
        };
        assert_eq!([0, 1, 32, 33].map(|count| of(&kinds(count))), [false, true, true, false]);
        assert!(!of(&[(0, vec!["a".into()]), (2, vec![])]));
        let long = |count: usize| of(&[(1, vec![format!("{:0>1000}:1", 7); count])]);
        assert_eq!([1, 8, 9].map(long), [true, true, false], "nobody keeps what a tenant writes at length");
    }

    #[test]
    fn of_a_clusters_images_those_with_most_bytes_count_within_a_bound() {
        let names: Vec<String> = (0..100).map(|at| format!("i:{at:03}")).collect();
        let of = |all: &[String]| {
            let totals = all.iter().enumerate().map(|(at, name)| (name.as_str(), (at as u64 + 1) * 100));
            ClusterImages::from_totals(totals, 10)
        };
        let kept = of(&names);
        assert_eq!((kept.iter().count(), kept.iter().next()), (MOST_IMAGES, Some(("i:036", 370))));
        let long: Vec<String> = (0..100).map(|at| format!("{at:0>500}")).collect();
        assert_eq!(of(&long).iter().count(), MOST_NAMES_LENGTH / 500);
        assert_eq!(ClusterImages::from_totals([("a", 9), ("b", 0)].into_iter(), 10), ClusterImages::default());
    }

    proptest! {
        /// Beside the formula of kube-scheduler, in floating point.
        #[test]
        fn the_tenths_are_those_of_the_formula(
            means in prop::collection::vec(0..4000_u64, 3),
            kinds in prop::collection::vec((1..500_u32, prop::collection::vec(0..4_usize, 1..4)), 1..5),
        ) {
            let names = ["a:1", "b:1", "c:1", "unknown:1"];
            let there = cluster(&names.iter().copied().zip(means.iter().copied()).collect::<Vec<_>>());
            let asked: Vec<(u32, Vec<&str>)> =
                kinds.iter().map(|(pods, images)| (*pods, images.iter().map(|at| names[*at]).collect())).collect();
            let gang = PodImages::from_kinds(asked.iter().map(|(pods, names)| (*pods, names.iter().copied()))).unwrap();
            let score = |images: &[usize]| {
                let sum: f64 = images.iter().map(|at| means.get(*at).copied().unwrap_or(0) as f64).sum();
                let most = 1000.0 * images.len() as f64;
                (100.0 * (sum.clamp(23.0, most) - 23.0) / (most - 23.0) + 1e-9).floor()
            };
            let (marks, all) = kinds.iter().fold((0.0, 0.0), |(marks, all), (pods, images)| {
                (marks + f64::from(*pods) * score(images), all + f64::from(*pods))
            });
            let want = 10.0 - (marks / all / 10.0 + 1e-9).floor();
            prop_assert!((there.count_missing_tenths(&gang) as f64 - want).abs() < 0.5);
        }
    }
}
