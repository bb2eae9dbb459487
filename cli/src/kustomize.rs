//! Tests, and the generator behind them: bases for kustomize, from the objects that `caldera manifests` prints. With
//! `CALDERA_WRITE_DOCS=1` they are written.
//!
//! Rule: one source with the charts. What the Karmada API needs is in the chart's own files, as far as they hold no
//! value of Helm's, and the base lists them; the rest but for the webhooks is beside them as the default values have
//! it. What runs the components is rendered with an image that is called
//! `caldera`, for an overlay to replace.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::{
    chart::{build_default_objects, build_karmada_chart, render_yaml, same},
    deploy::{Deploy, build_component_objects},
    manifests::parse_documents,
    monitoring::check_or_write_file,
};

/// Files of the chart without a value of Helm's.
const OF_KARMADA: [&str; 4] =
    ["crds/definitions.yaml", "templates/admission.yaml", "templates/propagation.yaml", "templates/roles.yaml"];
/// What has a value there, as the default values have it.
const DEFAULTS: &str = "kustomize/defaults.yaml";
const COMPONENTS: &str = "manifests/kustomize";
const KARMADA: &str = "charts/caldera-karmada";

fn deploy() -> Deploy {
    Deploy {
        image: "caldera".to_owned(),
        namespace: "caldera-system".to_owned(),
        collectors: Vec::new(),
        callers: vec!["karmada-system".to_owned()],
        caller_addresses: Vec::new(),
        console: false,
        stock_scheduler: false,
        ..Deploy::default()
    }
}

fn render_kustomization(about: &str, resources: &[&str]) -> String {
    let object = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
    });
    format!("# {about}\n{}\n", serde_saphyr::to_string(&object).unwrap().trim_end())
}

fn list_files() -> BTreeMap<String, String> {
    let files = [&OF_KARMADA[..], &[DEFAULTS]].concat();
    let karmada = render_kustomization("What Caldera needs on the Karmada API, but for its webhooks.", &files);
    let components = "Caldera's components, beside Karmada's control plane.";
    BTreeMap::from([
        (format!("{KARMADA}/kustomization.yaml"), karmada),
        (format!("{KARMADA}/{DEFAULTS}"), render_yaml(&build_default_objects())),
        (format!("{COMPONENTS}/kustomization.yaml"), render_kustomization(components, &["components.yaml"])),
        (format!("{COMPONENTS}/components.yaml"), render_yaml(&build_component_objects(&deploy()))),
    ])
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_bases_are_made_of_what_manifests_prints() {
    for (name, wanted) in list_files() {
        check_or_write_file(&name, &wanted);
    }
    let chart = build_karmada_chart();
    for (name, text) in chart.iter().filter(|(name, _)| name.ends_with(".yaml") && name.contains('/')) {
        assert_eq!(OF_KARMADA.contains(name), !text.contains("{{"), "{name}");
    }
}

/// Where kubectl is installed, which has kustomize in it.
#[test]
fn what_kustomize_builds_is_what_manifests_prints() {
    let chart = build_karmada_chart();
    let of_karmada = OF_KARMADA.iter().flat_map(|name| parse_documents(&chart[name]).unwrap());
    let of_karmada = of_karmada.chain(build_default_objects()).collect();
    for (base, wanted) in [(COMPONENTS, build_component_objects(&deploy())), (KARMADA, of_karmada)] {
        let Ok(built) = Command::new("kubectl").arg("kustomize").arg(root().join(base)).output() else {
            eprintln!("SKIPPED: there is no kubectl, so nobody builds {base}");
            return;
        };
        let (text, errors) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
        assert!(built.status.success(), "{errors}");
        let built: Vec<Value> = parse_documents(&text).unwrap();
        same(built, wanted);
    }
}
