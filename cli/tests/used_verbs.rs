//! The roles of components grant what is used, and no more: compared with what all tests, the demo and the pages of the
//! docs used (`CALDERA_USED_VERBS`, see `caldera-sandbox`). `.ci/run` runs this last.

use std::{collections::BTreeSet, env, fs};

use caldera_cli::roles::{Granted, build_component_roles, name_account};
use serde_json::Value;

/// Components that run under accounts of their own wherever a sandbox has them.
const COMPONENTS: [&str; 3] = ["controller", "scheduler", "webhook"];

/// Resources and verbs that a test may do without, of any component: why it is granted all the same. A `*` is any.
const EXCUSED: [(&str, &str, &str); 16] = [
    ("create", "authentication.k8s.io/tokenreviews", "who asks for its state is asked who he is"),
    ("create", "authorization.k8s.io/subjectaccessreviews", "and what he may do"),
    ("*", "coordination.k8s.io/leases", "a component alone in its process has no lease"),
    ("get", "*", "the webhook reads what its cache lacks, which depends on who is faster"),
    ("watch", OPTIONAL, "of a kind that a host does not have nothing but the list is asked for"),
    ("patch", "work.karmada.io/clusterresourcebindings", "only a policy of all namespaces for what has none makes one"),
    ("patch", "work.karmada.io/clusterresourcebindings/status", "the same"),
    ("use", "scheduling.volcano.sh/queues", "an admission policy asks for it, and no request has this verb"),
    ("patch", "work.karmada.io/works", "a copy that nobody sees is rare"),
    ("delete", "batch.volcano.sh/jobs", UNSEEN),
    ("delete", "batch/jobs", UNSEEN),
    ("delete", "bus.volcano.sh/commands", UNSEEN),
    ("delete", "policy.karmada.io/propagationpolicies", UNSEEN),
    ("patch", "batch.volcano.sh/jobs", UNSEEN),
    ("patch", "batch/jobs/status", UNSEEN),
    ("patch", "policy.karmada.io/propagationpolicies", UNSEEN),
];
const UNSEEN: &str = "the controller's own tests have these writes; not every run of the scenarios does";
/// The groups of kinds that a host may lack.
const OPTIONAL: &str = "optional";
const OPTIONAL_GROUPS: [&str; 6] = [
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "sparkoperator.k8s.io",
    "trainer.kubeflow.org",
];

/// Whether an excuse is about one of `<user> <verb> <group>/<resource>`.
fn is_about((verbs, resources, _): &(&str, &str, &str), granted: &str) -> bool {
    let mut words = granted.split(' ').skip(1);
    let (Some(verb), Some(resource)) = (words.next(), words.next()) else { return false };
    let is_of = match *resources {
        "*" => true,
        OPTIONAL => OPTIONAL_GROUPS.iter().any(|group| resource.split('/').next() == Some(group)),
        one => one == resource,
    };
    is_of && (*verbs == "*" || *verbs == verb)
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    rule[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// `<user> <verb> <group>/<resource>` of each verb that a component is granted.
fn list_granted() -> BTreeSet<String> {
    let objects = build_component_roles(&Granted::default());
    let mut granted = BTreeSet::new();
    let bindings =
        objects.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")));
    for binding in bindings {
        let Some(subject) = binding["subjects"].as_array().and_then(|all| all.first()) else { continue };
        let Some(component) = subject["name"].as_str().and_then(|name| name.strip_prefix("caldera-")) else { continue };
        if !COMPONENTS.contains(&component) {
            continue;
        }
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        for rule in role.and_then(|role| role["rules"].as_array()).into_iter().flatten() {
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    for verb in texts(rule, "verbs") {
                        granted.insert(format!("{} {verb} {group}/{resource}", name_account(component)));
                    }
                }
            }
        }
    }
    granted
}

#[test]
#[ignore = "needs what all tests used: .ci/run sets CALDERA_USED_VERBS"]
fn every_verb_that_is_granted_was_used() {
    let folder = env::var_os("CALDERA_USED_VERBS").expect("CALDERA_USED_VERBS names a folder");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let used: BTreeSet<String> = files.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let granted = list_granted();
    assert!(granted.len() > 100 && used.len() > 50, "{} are granted, {} were used", granted.len(), used.len());
    let unused: Vec<&String> =
        granted.difference(&used).filter(|it| !EXCUSED.iter().any(|excuse| is_about(excuse, it))).collect();
    assert!(unused.is_empty(), "granted, and nobody used it: {unused:#?}");
}

#[test]
fn each_excuse_is_about_a_verb_that_is_granted() {
    let granted = list_granted();
    let idle = EXCUSED.iter().filter(|excuse| !granted.iter().any(|it| is_about(excuse, it)));
    assert_eq!(idle.collect::<Vec<_>>(), Vec::<&(&str, &str, &str)>::new());
    let groups =
        OPTIONAL_GROUPS.iter().filter(|group| !granted.iter().any(|it| it.contains(&format!(" watch {group}/"))));
    assert_eq!(groups.collect::<Vec<_>>(), Vec::<&&str>::new());
}
