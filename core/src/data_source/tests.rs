//! The rules by name, and the clusters of a workload against a naive model.

use proptest::prelude::*;

use super::*;

fn data(name: &str, attributes: &[(&str, &str)]) -> Arc<DataIdentity> {
    let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Arc::new(DataIdentity { system: "hive".into(), category: "table".into(), name: name.into(), attributes })
}

fn source(name: &str, created: i64, data: &Arc<DataIdentity>, clusters: &[&str]) -> DataSource {
    let clusters: BTreeSet<String> = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
    let (data, clusters) = (Arc::clone(data), Arc::new(clusters));
    DataSource { name: name.into(), created: EpochSeconds::new(created), data, clusters, deleting: false }
}

fn job(namespace: &str, name: &str) -> Arc<WorkloadRef> {
    let (namespace, name) = (namespace.into(), name.into());
    Arc::new(WorkloadRef { group: "batch.volcano.sh".into(), kind: "Job".into(), namespace, name })
}

fn key(name: &str) -> ClaimKey {
    ClaimKey { namespace: "ns".into(), name: name.into() }
}

fn claim(name: &str, data: &Arc<DataIdentity>, workload: &str) -> DataClaim {
    DataClaim {
        key: key(name),
        data: Arc::clone(data),
        workload: job("ns", workload),
        preferred: false,
        deleting: false,
        faults: Vec::new(),
    }
}

fn locality(index: &DataIndex, workload: &str) -> Arc<DataLocality> {
    index.find_locality(&job("ns", workload)).unwrap()
}

fn allowed(index: &DataIndex, workload: &str) -> Vec<&'static str> {
    let locality = locality(index, workload);
    ["m1", "m2", "m3"].into_iter().filter(|cluster| locality.allows(cluster)).collect()
}

#[test]
fn a_claim_is_bound_to_the_oldest_source_of_the_same_data() {
    let mut index = DataIndex::default();
    let users = data("users", &[]);
    index.set_claim(claim("c", &users, "j"));
    index.set_source(source("other", 1, &data("events", &[]), &["m3"]));
    index.set_source(source("more", 1, &data("users", &[("partition", "1")]), &["m3"]));
    assert_eq!(index.find_source(&users), None);
    index.set_source(source("younger", 9, &users, &["m2"]));
    index.set_source(source("older", 8, &users, &["m1"]));
    assert_eq!(index.find_source(&users).unwrap().name, "older");
    assert_eq!(allowed(&index, "j"), ["m1"]);
    let bound = |index: &DataIndex, source: &str| index.list_bound(source).count();
    assert_eq!((bound(&index, "older"), bound(&index, "younger"), bound(&index, "nothing")), (1, 0, 0));
    index.set_source(DataSource { deleting: true, ..source("older", 8, &users, &["m1"]) });
    assert_eq!(allowed(&index, "j"), ["m2"], "one that is being deleted is none");
    index.remove_source("younger");
    assert_eq!(allowed(&index, "j"), [""; 0]);
}

#[test]
fn a_workload_goes_where_all_that_it_requires_is() {
    let mut index = DataIndex::default();
    let [users, events] = ["users", "events"].map(|name| data(name, &[]));
    index.set_source(source("users", 1, &users, &["m1", "m2"]));
    index.set_source(source("events", 1, &events, &["m2", "m3"]));
    index.set_claim(claim("a", &users, "j"));
    assert_eq!(locality(&index, "j").to_string(), "its data is in m1, m2");
    index.set_claim(claim("b", &events, "j"));
    assert_eq!(allowed(&index, "j"), ["m2"]);
    assert_eq!(locality(&index, "j").to_string(), "the data of all its claims is in m2");
    index.set_source(source("events", 1, &events, &["m3"]));
    assert_eq!(locality(&index, "j").to_string(), "the data of all its claims is in no cluster");
    index.remove_claim(&key("b"));
    assert_eq!(allowed(&index, "j"), ["m1", "m2"]);
    index.set_claim(DataClaim { deleting: true, ..claim("a", &users, "j") });
    assert_eq!(index.find_locality(&job("ns", "j")), None);
}

#[test]
fn a_cluster_that_joins_later_is_allowed_only_once_a_source_lists_it_defect_48() {
    let mut index = DataIndex::default();
    let users = data("users", &[]);
    index.set_claim(claim("a", &users, "j"));
    index.set_source(source("users", 1, &users, &["m1"]));
    assert!(!locality(&index, "j").allows("joined-later"));
}

#[test]
fn a_claim_without_a_source_is_reported_with_what_there_is_no_source_of() {
    let mut index = DataIndex::default();
    index.set_claim(claim("a", &data("users", &[("region", "eu")]), "j"));
    let first = "waits for DataSourceClaim ns/a: no DataSource has system hive, type table, name users and attributes region=eu";
    assert_eq!(locality(&index, "j").describe_wait().as_deref(), Some(first));
    index.set_claim(claim("b", &data("events", &[]), "j"));
    assert_eq!(locality(&index, "j").to_string(), format!("{first}; so do 1 more of its claims"));
    assert_eq!(allowed(&index, "j"), [""; 0]);
    let long = describe_long_lack();
    assert!(long.len() < 1200 && long.ends_with(" and 1 more"), "{long}");
}

fn describe_long_lack() -> String {
    let long = "x".repeat(5000);
    let attributes = ["a", "b", "c", "d", "e"].map(|key| (key, long.as_str()));
    locality::describe_lack(&data(&long, &attributes))
}

#[test]
fn what_a_claim_says_wrong_is_reported_with_what_it_waits_for() {
    let mut index = DataIndex::default();
    let faults = vec!["its annotation a means nothing".to_owned()];
    index.set_claim(DataClaim { faults, ..claim("a", &data("users", &[]), "j") });
    let wait = locality(&index, "j").describe_wait().unwrap();
    assert!(wait.ends_with(", name users and no attributes; its annotation a means nothing"), "{wait}");
}

#[test]
fn what_is_preferred_orders_clusters_and_waits_for_nothing() {
    let mut index = DataIndex::default();
    let [users, events, lost] = ["users", "events", "lost"].map(|name| data(name, &[]));
    index.set_source(source("users", 1, &users, &["m1", "m2"]));
    index.set_source(source("events", 1, &events, &["m2"]));
    for (name, data) in [("a", &users), ("b", &events), ("c", &lost)] {
        index.set_claim(DataClaim { preferred: true, ..claim(name, data, "j") });
    }
    assert_eq!(allowed(&index, "j"), ["m1", "m2", "m3"]);
    let locality = locality(&index, "j");
    assert_eq!(["m1", "m2", "m3"].map(|cluster| locality.count_missing(cluster)), [1, 0, 2]);
    assert_eq!(locality.describe_wait(), None);
}

#[test]
fn a_claim_constrains_no_workload_of_another_namespace() {
    let mut index = DataIndex::default();
    let users = data("users", &[]);
    index.set_source(source("users", 1, &users, &["m1"]));
    index.set_claim(DataClaim { workload: job("victims", "j"), ..claim("a", &users, "j") });
    assert_eq!(index.find_locality(&job("victims", "j")), None);
    assert_eq!(index.list_bound("users").count(), 0);
}

#[test]
fn a_workload_with_more_claims_than_are_looked_at_waits() {
    let mut index = DataIndex::default();
    let users = data("users", &[]);
    index.set_source(source("users", 1, &users, &["m1"]));
    (0..=MOST_CLAIMS).for_each(|at| index.set_claim(claim(&format!("c{at}"), &users, "j")));
    assert_eq!(allowed(&index, "j"), [""; 0]);
    let wait = locality(&index, "j").describe_wait();
    assert_eq!(wait.as_deref(), Some("65 DataSourceClaims name it, and 64 are the most"));
    index.remove_claim(&key("c0"));
    assert_eq!(allowed(&index, "j"), ["m1"]);
}

#[test]
fn a_change_concerns_the_claims_of_its_data_and_nobody_else() {
    let mut index = DataIndex::default();
    let [users, events] = ["users", "events"].map(|name| data(name, &[]));
    index.set_claim(claim("a", &users, "j"));
    index.set_claim(claim("b", &events, "k"));
    index.set_source(source("users", 1, &users, &["m1"]));
    index.take_changed();
    index.set_source(source("users", 1, &users, &["m1"]));
    assert_eq!(index.take_changed(), DataChange::default(), "nothing changed");
    index.set_source(source("users", 1, &users, &["m2"]));
    let changed = index.take_changed();
    assert_eq!(changed.workloads, [job("ns", "j")].into());
    assert_eq!(changed.claims, [key("a")].into());
    // One that takes over concerns the one that it takes over from.
    index.set_source(source("before", 0, &users, &["m1"]));
    assert_eq!(index.take_changed().sources, ["before".to_owned(), "users".to_owned()].into());
    index.remove_claim(&key("a"));
    let changed = index.take_changed();
    assert_eq!((changed.workloads.len(), changed.sources), (1, ["before".to_owned()].into()));
}

/// A source, a claim or their removal; few names, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Source(u8, u8, Vec<u8>, bool),
    NoSource(u8),
    Claim(u8, u8, u8, bool, bool),
    NoClaim(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let clusters = prop::collection::vec(0..4_u8, 0..4);
    prop_oneof![
        (0..4_u8, 0..3_u8, clusters, prop::bool::weighted(0.1))
            .prop_map(|(name, data, clusters, deleting)| Step::Source(name, data, clusters, deleting)),
        (0..4_u8).prop_map(Step::NoSource),
        (0..5_u8, 0..3_u8, 0..2_u8, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(name, data, of, preferred, foreign)| Step::Claim(name, data, of, preferred, foreign)),
        (0..5_u8).prop_map(Step::NoClaim),
    ]
}

/// What there is, as two lists.
#[derive(Debug, Default)]
struct Model {
    sources: Vec<DataSource>,
    claims: Vec<DataClaim>,
}

impl Model {
    fn of(&self, workload: &WorkloadRef) -> Vec<&DataClaim> {
        let own = |claim: &&DataClaim| *claim.workload == *workload && claim.is_of_its_namespace();
        self.claims.iter().filter(own).collect()
    }

    fn has(&self, claim: &DataClaim, cluster: &str) -> Option<bool> {
        let of_it = self.sources.iter().filter(|source| source.data == claim.data && !source.deleting);
        let oldest = of_it.min_by_key(|source| (source.created, source.name.clone()))?;
        Some(oldest.clusters.contains(cluster))
    }

    fn allows(&self, workload: &WorkloadRef, cluster: &str) -> bool {
        let required = self.of(workload).into_iter().filter(|claim| !claim.preferred);
        required.into_iter().all(|claim| self.has(claim, cluster) == Some(true))
    }

    fn count_missing(&self, workload: &WorkloadRef, cluster: &str) -> i64 {
        let preferred = self.of(workload).into_iter().filter(|claim| claim.preferred);
        preferred.filter(|claim| self.has(claim, cluster) == Some(false)).count().try_into().unwrap()
    }
}

proptest! {
    #[test]
    fn a_cluster_is_allowed_if_every_claim_is_satisfied_there(steps in prop::collection::vec(step(), 0..40)) {
        let (mut index, mut model) = (DataIndex::default(), Model::default());
        for step in steps {
            match step {
                Step::Source(name, of, clusters, deleting) => {
                    let clusters: Vec<String> = clusters.iter().map(|cluster| format!("m{cluster}")).collect();
                    let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
                    let of = data(&of.to_string(), &[]);
                    let one = source(&name.to_string(), i64::from(name % 2), &of, &clusters);
                    let one = DataSource { deleting, ..one };
                    model.sources.retain(|known| known.name != one.name);
                    model.sources.push(one.clone());
                    index.set_source(one);
                }
                Step::NoSource(name) => {
                    model.sources.retain(|known| known.name != name.to_string());
                    index.remove_source(&name.to_string());
                }
                Step::Claim(name, of, workload, preferred, foreign) => {
                    let namespace = if foreign { "other" } else { "ns" };
                    let workload = job(namespace, &workload.to_string());
                    let of = data(&of.to_string(), &[]);
                    let one = DataClaim { preferred, workload, ..claim(&name.to_string(), &of, "") };
                    model.claims.retain(|known| known.key != one.key);
                    model.claims.push(one.clone());
                    index.set_claim(one);
                }
                Step::NoClaim(name) => {
                    model.claims.retain(|known| known.key != key(&name.to_string()));
                    index.remove_claim(&key(&name.to_string()));
                }
            }
            for workload in [job("ns", "0"), job("ns", "1"), job("other", "0")] {
                let found = index.find_locality(&workload);
                prop_assert_eq!(found.is_none(), model.of(&workload).is_empty());
                let found = found.unwrap_or_default();
                for cluster in ["m0", "m1", "m2", "m3"] {
                    prop_assert_eq!(found.allows(cluster), model.allows(&workload, cluster));
                    prop_assert_eq!(found.count_missing(cluster), model.count_missing(&workload, cluster));
                }
            }
            for source in &model.sources {
                let bound = |claim: &&DataClaim| {
                    claim.is_of_its_namespace()
                        && index.find_source(&claim.data).is_some_and(|first| first.name == source.name)
                };
                prop_assert_eq!(index.list_bound(&source.name).count(), model.claims.iter().filter(bound).count());
            }
        }
    }
}
