//! Jobs as their users write them (`fixtures/examples`, or `examples` of `CALDERA_SHARED_DIR`): each valid one goes all
//! the way, the invalid one is refused in a sentence.

use super::*;

fn documents(file: &std::path::Path) -> Vec<Value> {
    let text = caldera_fixtures::read_text(file);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

fn apply(cluster: &mut Cluster, mut object: Value) -> Result<(), String> {
    if object["metadata"].get("namespace").is_none() {
        object["metadata"]["namespace"] = "ns".into();
    }
    match (text(&object, "/apiVersion"), text(&object, "/kind")) {
        ("scheduling.volcano.sh/v1beta1", "Queue") => {
            object["metadata"]["namespace"] = Value::Null;
            let there: Vec<Value> = cluster.world.of(Kind::Queue).cloned().collect();
            let there: Vec<&Value> = there.iter().collect();
            caldera_crds::queue_admission::fill_queue_defaults(&mut object);
            let refusals = caldera_crds::queue_admission::list_volcano_creation_refusals(&object, &there);
            if !refusals.is_empty() {
                return Err(caldera_crds::queue_admission::join_messages(&refusals));
            }
            cluster.put(Kind::Queue, object);
            cluster.settle();
            Ok(())
        }
        ("batch.volcano.sh/v1alpha1", "Job") => cluster.submit(object).map_err(|refusals| refusals.join(" ")),
        ("apps/v1", "Deployment") => {
            cluster.put(Kind::Deployment, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

#[test]
fn every_example_goes_all_the_way_and_the_invalid_one_is_refused() {
    let folder = caldera_fixtures::find_folder("CALDERA_SHARED_DIR", "").join("examples");
    let (mut jobs, mut refused) = (0, 0);
    for file in caldera_fixtures::list_files(&folder, "yaml") {
        let mut cluster = Cluster::new(2, "16");
        // Examples name queues that other examples make.
        for queue in ["test", "root-eng-prod", "root-eng-dev", "root-sci-prod", "root-sci-dev"] {
            let own = documents(&file).iter().any(|object| text(object, "/metadata/name") == queue);
            if !own {
                cluster.add_queue(queue, json!({}));
            }
        }
        let outcome: Result<Vec<()>, String> =
            documents(&file).into_iter().map(|object| apply(&mut cluster, object)).collect();
        if file.file_name().is_some_and(|name| name.to_string_lossy().contains("deny")) {
            let refusal = outcome.unwrap_err();
            assert!(
                refusal.contains("job 'minAvailable' should not be greater than total replicas in tasks"),
                "{refusal}"
            );
            refused += 1;
            continue;
        }
        outcome.unwrap_or_else(|refusal| panic!("{}: {refusal}", file.display()));
        cluster.run();
        for job in cluster.world.of(Kind::VolcanoJob) {
            assert_eq!(text(job, "/status/state/phase"), "Completed", "{}: {}", file.display(), job["status"]);
            jobs += 1;
        }
        for deployment in cluster.world.of(Kind::Deployment) {
            assert_eq!(number(deployment, "/status/readyReplicas"), 1, "{}", file.display());
        }
    }
    println!("examples: {jobs} jobs completed, {refused} file refused");
    assert!(jobs > 0 && refused == 1);
}
