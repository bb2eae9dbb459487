//! How a policy's weights, and scores from outside, order what is possible.

use caldera_core::place::score::ExternalScores;
use caldera_crds::score::{ClusterScore, Scores};

use super::{
    parity::{aggregated, goes, to, widget, world},
    *,
};
use crate::observe::ranking::read_policy_weights;

fn costs(i: usize, object: &mut Value) {
    let cost = ["30", "10", "20"][i];
    object["metadata"]["labels"] = json!({"caldera.dev/cost": cost});
}

fn policy(namespace: Option<&str>, weights: Option<&str>) -> Value {
    let mut object = json!({"kind": "PropagationPolicy", "metadata": {"name": "p", "annotations": {}}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    if let Some(weights) = weights {
        object["metadata"]["annotations"]["caldera.dev/score-weights"] = weights.into();
    }
    object
}

fn scores(measured: &str, scores: Value) -> Scores {
    let object = json!({
        "metadata": {"name": "carbon"}, "spec": {"measuredAt": measured, "validForSeconds": 60, "scores": scores},
    });
    Scores::from(&serde_json::from_value::<ClusterScore>(object).unwrap())
}

/// Two replicas of the policy `p` in namespace `ns`, or of the cluster's `p`.
fn of_policy(global: bool) -> Value {
    let mut object = widget(2, &aggregated(&json!({})));
    object["metadata"]["annotations"] = if global {
        json!({"clusterpropagationpolicy.karmada.io/name": "p"})
    } else {
        json!({"propagationpolicy.karmada.io/name": "p", "propagationpolicy.karmada.io/namespace": "ns"})
    };
    object
}

#[test]
fn the_weights_of_the_policy_that_made_a_binding_rank_clusters_for_it() {
    let mut world = world(&[9, 5, 7], costs);
    let object = of_policy(false);
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]), "without weights the roomiest");
    let say = |world: &mut Cache, weights: Option<&str>| {
        let policy = read_policy_weights(&policy(Some("ns"), weights)).unwrap();
        world.rankings.apply_policies(false, Event::Applied(policy));
    };
    say(&mut world, Some("cheapest=1"));
    assert_eq!(goes(&mut world, &object), to(&[("m1", 2)]));
    // Scores beat no capacity: what the cheapest has not goes to the next.
    let mut more = object.clone();
    more["spec"]["replicas"] = 6.into();
    more["metadata"]["name"] = "more".into();
    assert_eq!(goes(&mut world, &more).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m1", "m2"]);
    say(&mut world, Some("cheapest=lots"));
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]), "what makes no sense ranks nothing");
    say(&mut world, None);
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]));
}

#[test]
fn a_cluster_policy_ranks_too_and_a_binding_s_own_weights_come_first() {
    let mut world = world(&[9, 5, 7], costs);
    world
        .rankings
        .apply_policies(true, Event::Reset(vec![read_policy_weights(&policy(None, Some("cheapest=1"))).unwrap()]));
    assert_eq!(goes(&mut world, &of_policy(true)), to(&[("m1", 2)]));
    assert_eq!(goes(&mut world, &of_policy(false)), to(&[("m0", 2)]), "another policy of the same name");
    let mut own = of_policy(true);
    own["metadata"]["annotations"]["caldera.dev/score-weights"] = "cheapest=-1".into();
    assert_eq!(goes(&mut world, &own), to(&[("m0", 2)]));
    // A list of the policies in namespaces says nothing of the others.
    world.rankings.apply_policies(false, Event::Reset(vec![]));
    assert_eq!(goes(&mut world, &of_policy(true)), to(&[("m1", 2)]));
}

#[test]
fn scores_from_outside_count_until_they_are_too_old() {
    let mut world = world(&[9, 5, 7], |_, _| {});
    let mut object = of_policy(true);
    object["metadata"]["annotations"]["caldera.dev/score-weights"] = "carbon=1".into();
    let listed = json!([{"cluster": "m2", "score": 90}, {"cluster": "m1", "score": 50}]);
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]), "nobody has said anything yet");
    world.rankings.apply_scores(Event::Applied(scores("2026-01-01T00:00:00Z", listed.clone())));
    assert_eq!(goes(&mut world, &object), to(&[("m2", 2)]));
    world.rankings.apply_scores(Event::Applied(scores("2025-12-31T23:59:00Z", listed.clone())));
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]), "a minute old, and good for a minute");
    world.rankings.apply_scores(Event::Applied(scores("2026-01-01T00:00:00Z", listed.clone())));
    world.rankings.apply_scores(Event::Deleted(scores("2026-01-01T00:00:00Z", listed)));
    assert_eq!(goes(&mut world, &object), to(&[("m0", 2)]));
}

fn gang_goes(cores: &[i64], weights: &str) -> Vec<(String, i64)> {
    let mut world = index(cores, &[job(4, 4), binding(4)]);
    let best: ExternalScores = ExternalScores::new([("m1".to_owned(), 100), ("m2".to_owned(), 100)].into());
    let ranking = || caldera_core::place::score::Ranking {
        weights: weights.parse().unwrap(),
        external: [("carbon".to_owned(), best.clone())].into(),
    };
    world.fleet.refresh_capacities();
    let bound = &world.bindings[&key()];
    let around = crate::observe::cache::SchedulingContext { ranking: ranking(), ..world.context_of(bound, now()) };
    targets(&decide_binding(bound, world.request_of(bound), around, &world.fleet).step)
}

/// Feasibility and the fewest clusters come before any score, unless the policy says otherwise; then still feasibility.
#[test]
fn a_gang_is_split_for_a_score_only_if_the_policy_says_so() {
    assert_eq!(gang_goes(&[4, 3, 3], "carbon=100"), to(&[("m0", 4)]));
    let split = gang_goes(&[4, 3, 3], "first,carbon=100");
    assert_eq!(split.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m1", "m2"]);
    assert_eq!(gang_goes(&[4, 1, 1], "first,carbon=100").iter().map(|(_, pods)| pods).sum::<i64>(), 4);
    assert_eq!(gang_goes(&[4, 9, 9], "first,carbon=100").len(), 1);
}

/// Among clusters that are equally good for a gang the best scored wins.
#[test]
fn a_score_chooses_between_clusters_that_hold_the_gang_alone() {
    assert_eq!(gang_goes(&[4, 4, 1], "carbon=1"), to(&[("m1", 4)]));
    assert_eq!(gang_goes(&[4, 4, 1], "carbon=-1"), to(&[("m0", 4)]));
}

/// Members of six cores each; the gang says where its data is.
fn with_data(cores: &[i64], data: &str, pods: u32, weights: Option<&str>) -> Vec<(String, i64)> {
    let mut object = job(pods, pods);
    object["metadata"]["annotations"] = json!({"caldera.dev/data": data});
    let mut bound = binding(pods);
    if let Some(weights) = weights {
        bound["metadata"]["annotations"]["caldera.dev/score-weights"] = weights.into();
    }
    let mut world = index(cores, &[object, bound]);
    for i in 0..cores.len() {
        let mut object = cluster(&format!("m{i}"));
        object["spec"]["region"] = ["eu", "us", "eu"][i].into();
        costs(i, &mut object);
        world.apply_clusters(Event::Applied(serde_json::from_value(object).unwrap()));
    }
    targets(&verdict(&mut world).step)
}

#[test]
fn a_gang_goes_where_its_data_is_before_cost_and_after_closeness_and_few_clusters() {
    // The tightest of those that hold it, where nothing is said.
    assert_eq!(with_data(&[6, 5, 4], "cluster=elsewhere", 3, None), to(&[("m2", 3)]));
    assert_eq!(with_data(&[6, 5, 4], "cluster=m0", 3, None), to(&[("m0", 3)]));
    assert_eq!(with_data(&[6, 5, 4], "region=us:2,cluster=m0", 3, None), to(&[("m1", 3)]), "where most of it is");
    assert_eq!(with_data(&[6, 5, 4], "region=us:2,cluster=m0:3", 3, None), to(&[("m0", 3)]));
    assert_eq!(with_data(&[6, 5, 4], "cluster=m0|region=us", 3, None), to(&[("m1", 3)]), "two copies: the tighter");
    // The cheapest is m1.
    assert_eq!(with_data(&[6, 5, 4], "cluster=m0", 3, Some("cheapest=1")), to(&[("m0", 3)]));
    assert_eq!(
        with_data(&[6, 5, 4], "cluster=m0", 3, Some("first,cheapest=1")),
        to(&[("m1", 3)]),
        "the policy insists"
    );
    // No reason to wait, nor to be in two clusters.
    assert_eq!(with_data(&[6, 5, 4], "cluster=m2", 5, None), to(&[("m1", 5)]));
    // What can not be read is as if it were not there.
    assert_eq!(with_data(&[6, 5, 4], "nonsense", 3, None), to(&[("m2", 3)]));
}
