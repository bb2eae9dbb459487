//! The contract of `docs/design.md`, "Parts": who may import whom, and which code must be pure; and that a type's name
//! is unique in its crate. Run with `--nocapture` to see the graphs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use caldera_architecture::{
    Source, find_root, link_modules_below, list_cycles, list_shared_names, read_crates, read_modules, read_sources,
};

/// What each product crate may depend on. Nobody depends on a component but `cli`, which starts it.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("core", &[]),
    ("crds", &["core"]),
    ("runtime", &["core", "crds"]),
    ("webhook", &["core", "crds", "runtime"]),
    ("controller", &["core", "crds", "runtime"]),
    ("global-scheduler", &["core", "crds", "runtime"]),
    ("estimator", &["core", "crds", "runtime"]),
    ("simulate", &["core"]),
    // A model of the code is none if it calls it.
    ("model", &[]),
    ("sandbox/apiserver", &[]),
    ("sandbox", &["core", "crds", "runtime", "sandbox/apiserver"]),
    (
        "cli",
        &["core", "crds", "runtime", "webhook", "controller", "global-scheduler", "estimator", "simulate", "sandbox"],
    ),
];

/// Crates whose modules must not import each other in a circle.
const PRODUCT: [&str; 8] = ["core", "crds", "runtime", "webhook", "controller", "global-scheduler", "estimator", "cli"];

/// What runs as a process beside Karmada and has the three steps.
const COMPONENTS: [&str; 3] = ["webhook", "controller", "global-scheduler"];

/// What pure code never names: waiting, other processes, clocks, chance, and maps without an order.
const IMPURE: [&str; 12] = [
    "async ",
    ".await",
    "tokio",
    "futures::",
    "kube::Client",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "rand::",
    "thread::sleep",
    "std::net",
];

#[test]
fn crates_depend_only_on_those_below_them() {
    let crates = read_crates();
    let allowed = BTreeMap::from(MAY_USE);
    let mut broken = Vec::new();
    for (name, uses) in &crates {
        println!("{name} -> {}", join(uses));
        let Some(allowed) = allowed.get(name.as_str()) else { continue };
        let wrong = uses.iter().filter(|used| !allowed.contains(&used.as_str()));
        broken.extend(wrong.map(|used| format!("{name} uses {used}")));
    }
    for name in allowed.keys() {
        assert!(crates.contains_key(*name), "there is no crate {name}");
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn modules_of_product_crates_import_each_other_in_no_circle() {
    let mut broken = Vec::new();
    for name in PRODUCT {
        let modules = read_modules(name);
        println!("{name}");
        for (module, imports) in &modules {
            println!("  {module} -> {}", join(imports));
        }
        let cycles = list_cycles(&modules);
        broken.extend(cycles.into_iter().map(|cycle| format!("{name}: {cycle:?}")));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// In each folder what lies in a folder of it counts as that one.
#[test]
fn modules_of_one_folder_import_each_other_in_no_circle() {
    let mut circles = Vec::new();
    for name in PRODUCT {
        let sources = read_sources(&find_root().join(name).join("src"));
        let folders: BTreeSet<&[String]> =
            sources.iter().filter_map(|source| Some(source.module.split_last()?.1)).collect();
        for module in folders.into_iter().filter(|module| !module.is_empty()) {
            let module: Vec<&str> = module.iter().map(String::as_str).collect();
            let cycles = list_cycles(&link_modules_below(&sources, &module));
            circles.extend(cycles.into_iter().map(|cycle| format!("{name}::{}: {}", module.join("::"), join(&cycle))));
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

/// The tables are how a reader finds his way: the first has the folders in their order, each folder has its modules.
#[test]
fn decisions_of_the_controller_lie_in_folders_that_import_only_those_above_them() {
    let sources = read_sources(&find_root().join("controller/src"));
    let graph = link_modules_below(&sources, &["decide"]);
    let folders = list_rows("controller/src/decide/mod.rs");
    let mut above = BTreeSet::from(["deadlines".to_owned()]);
    for folder in folders {
        let imports = graph.get(&folder).unwrap_or_else(|| panic!("there is no folder {folder}"));
        println!("{folder} -> {}", join(imports));
        assert!(imports.is_subset(&above), "{folder} imports more than {above:?}");
        let head = format!("controller/src/decide/{folder}/mod.rs");
        let inside = link_modules_below(&sources, &["decide", &folder]);
        let rows: BTreeSet<String> = list_rows(&head).into_iter().collect();
        assert_eq!(rows, inside.into_keys().collect(), "left: the table of {head}; right: its modules");
        let declares_modules_alone = sources.iter().any(|source| {
            source.file == format!("decide/{folder}/mod.rs")
                && source.code.split(';').all(|item| item.trim().is_empty() || item.contains("mod "))
        });
        assert!(declares_modules_alone, "{head} has more than its table and its modules");
        above.insert(folder);
    }
    let beside: BTreeSet<String> = graph.into_keys().filter(|module| !above.contains(module)).collect();
    assert_eq!(join(&beside), "controller sent_writes shadow", "what is in no folder is what knows all of them");
}

/// The names that the tables in the head of a file begin their rows with.
fn list_rows(file: &str) -> Vec<String> {
    let text = fs::read_to_string(find_root().join(file)).unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_two_types_of_a_product_crate_share_a_name() {
    let mut shared = Vec::new();
    for name in PRODUCT {
        let sources = read_sources(&find_root().join(name).join("src"));
        shared.extend(list_shared_names(&sources).iter().map(|(one, files)| format!("{name}: {one} in {files:?}")));
    }
    assert!(shared.is_empty(), "{shared:#?}");
}

#[test]
fn components_observe_decide_and_write_and_only_run_waits() {
    let mut broken = Vec::new();
    for name in COMPONENTS {
        let modules = read_modules(name);
        let steps = ["observe", "decide", "write", "run"].into_iter();
        let missing = steps.filter(|step| !modules.contains_key(*step));
        broken.extend(missing.map(|step| format!("{name} has no {step}")));
        let sources = read_sources(&find_root().join(name).join("src"));
        let others = sources.iter().filter(|source| source.module.first().is_none_or(|first| first != "run"));
        let waiting = others.filter(|source| source.code.contains(".await"));
        broken.extend(waiting.map(|source| format!("{name}/src/{} waits", source.file)));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn what_decides_is_pure() {
    let mut broken = Vec::new();
    let mut seen = BTreeMap::new();
    for name in PRODUCT {
        for source in read_sources(&find_root().join(name).join("src")) {
            if name == "core" || source.module.iter().any(|part| part == "decide") {
                *seen.entry(name).or_insert(0) += 1;
                broken.extend(
                    list_impurities(&source).into_iter().map(|word| format!("{name}/src/{}: {word}", source.file)),
                );
            }
        }
    }
    println!("files that decide: {seen:?}");
    assert!(seen.contains_key("core"));
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Files that decide and still log: nearly all of them what a server answered to a write. No other may.
const LOGGING: [&str; 10] = [
    "controller/src/decide/admission/stale_grant.rs",
    "controller/src/decide/admission/unused_quota.rs",
    "controller/src/decide/controller.rs",
    "controller/src/decide/controller/answers.rs",
    "controller/src/decide/kinds/cron_jobs/mod.rs",
    "controller/src/decide/kinds/data_catalogue.rs",
    "controller/src/decide/kinds/data_claims.rs",
    "controller/src/decide/kinds/hyper_jobs/mod.rs",
    "controller/src/decide/preemption/attempt.rs",
    "global-scheduler/src/decide/lease_fence.rs",
];

#[test]
fn what_decides_logs_nothing() {
    let mut logging = Vec::new();
    for name in PRODUCT {
        for source in read_sources(&find_root().join(name).join("src")) {
            let decides = name == "core" || source.module.iter().any(|part| part == "decide");
            if decides && source.code.contains("tracing::") {
                logging.push(format!("{name}/src/{}", source.file));
            }
        }
    }
    logging.sort();
    assert_eq!(logging, LOGGING, "a decision carries its reason, and the edge logs it");
}

#[test]
fn whoever_waits_for_several_things_looks_at_them_in_the_order_of_the_text() {
    // Otherwise tokio throws dice, and a history of the simulation can not be had twice.
    let mut broken = Vec::new();
    let mut selects = 0;
    for name in PRODUCT.into_iter().chain(["sandbox", "sandbox/apiserver"]) {
        for source in read_sources(&find_root().join(name).join("src")) {
            for after in source.code.split("select! {").skip(1) {
                selects += 1;
                if !after.trim_start().starts_with("biased;") {
                    broken.push(format!("{name}/src/{}", source.file));
                }
            }
        }
    }
    assert!(selects > 10, "{selects}");
    assert!(broken.is_empty(), "select! without `biased;`: {broken:#?}");
}

fn list_impurities(source: &Source) -> Vec<&'static str> {
    IMPURE.into_iter().filter(|word| source.code.contains(word)).collect()
}
