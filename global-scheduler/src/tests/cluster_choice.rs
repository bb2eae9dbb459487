//! Clusters that the user of a gang chose: it is placed there, and what is placed stays.

use super::*;

fn chosen(annotation: &str, clusters: &str) -> Value {
    let mut job = job(4, 4);
    job["metadata"]["annotations"][annotation] = clusters.into();
    job
}

#[test]
fn a_gang_is_placed_where_its_user_lets_it_go() {
    let to = |annotation: &str, clusters: &str| {
        let mut world = index(&[4, 9, 9], &[chosen(annotation, clusters), binding(4)]);
        targets(&verdict(&mut world).step)
    };
    assert_eq!(to("caldera.dev/clusters", "m2"), [("m2".into(), 4)]);
    assert_eq!(to("caldera.dev/exclude-clusters", "m0,m2"), [("m1".into(), 4)]);
    assert_eq!(to("caldera.dev/clusters", "M 2"), [("m0".into(), 4)], "what is not understood counts as absent");
    let mut world = index(&[4, 3], &[chosen("caldera.dev/clusters", "m1"), binding(4)]);
    let Step::Refuse { message, clear: false, .. } = verdict(&mut world).step else { panic!("it is placed") };
    assert!(message.ends_with("; its user lets it go only to m1"), "{message}");
}

#[test]
fn what_is_placed_stays_where_its_user_chooses_other_clusters() {
    let mut world = index(&[4, 9], &[job(4, 4), binding(4)]);
    let there = placed(binding(4), &mut world);
    let workload = read_workload(&chosen("caldera.dev/clusters", "m1")).unwrap();
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(workload));
    world.update_binding(Binding::parse_binding(&there).unwrap());
    assert_eq!(verdict(&mut world).step, Step::Rest);
}
