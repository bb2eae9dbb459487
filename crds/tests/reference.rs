//! `docs/reference/crds.md`: the fields of Caldera's own kinds, made of their schemas.
//!
//! Rule: a page is what the code says, or the test fails; `CALDERA_WRITE_DOCS=1` writes it. A field without a comment
//! is a defect of the type.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fmt::Write as _, fs, path::Path};

use caldera_crds::manifests::build_federation_crds;
use serde_json::Value;

const HEAD: &str = "# Fields of Caldera's own kinds

All are of API group `federation.caldera.dev`, version `v1alpha1`, and without a namespace. The kinds of Volcano and
Karmada that Caldera reads are theirs, unchanged: see their documentation. `caldera manifests --only crds` prints all
that a host needs.

<!-- made of the schemas: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-crds --test reference` -->
";

/// Fields of conditions, taints and selectors, which are Kubernetes' own.
const OF_KUBERNETES: [&str; 5] = ["effect", "lastTransitionTime", "observedGeneration", "reason", "values"];

fn describe(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// A field's type, with its bounds.
fn name_type(schema: &Value) -> String {
    let mut text = schema["type"].as_str().unwrap_or("any").to_owned();
    if let Some(values) = schema["enum"].as_array() {
        let words: Vec<String> = values.iter().filter_map(Value::as_str).map(|it| format!("`{it}`")).collect();
        text = words.join(", ");
    }
    let bound = |key: &str| schema[key].as_i64();
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => text += &format!(", {least} to {most}"),
        (Some(least), None) => text += &format!(", {least} or more"),
        (None, Some(most)) => text += &format!(", {most} or less"),
        (None, None) => {}
    }
    for (key, what) in [("maxItems", "items"), ("maxLength", "characters"), ("maxProperties", "entries")] {
        if let Some(most) = bound(key) {
            text += &format!(", {most} {what} at most");
        }
    }
    text
}

fn render_fields(schema: &Value, path: &str, page: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let (path, mut means) = (format!("{path}{name}"), describe(field));
        if OF_KUBERNETES.contains(&name.as_str()) && means.is_empty() {
            "As in Kubernetes.".clone_into(&mut means);
        }
        assert!(!means.is_empty(), "{path} has no comment");
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let _ = writeln!(page, "| `{path}` | {}{must} | {means} |", name_type(field));
        render_below(field, &path, page);
    }
}

/// The fields of an object, of a list's items, or of a map's values.
fn render_below(field: &Value, path: &str, page: &mut String) {
    render_fields(field, &format!("{path}."), page);
    if field["items"].is_object() {
        render_below(&field["items"], &format!("{path}[]"), page);
    }
    if field["additionalProperties"].is_object() {
        render_below(&field["additionalProperties"], &format!("{path}.*"), page);
    }
}

fn render_page() -> String {
    let mut page = HEAD.to_owned();
    let ours = build_federation_crds();
    for definition in ours.iter().filter(|it| it["spec"]["group"] == "federation.caldera.dev") {
        let (names, schema) = (&definition["spec"]["names"], &definition["spec"]["versions"][0]["schema"]);
        let schema = &schema["openAPIV3Schema"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let _ = write!(
            page,
            "\n## {}\n\n{} kubectl knows it as `{}` and `{}`.\n\n| field | type | means |\n|---|---|---|\n",
            text(&names["kind"]),
            describe(schema),
            text(&names["plural"]),
            text(&names["shortNames"][0]),
        );
        render_fields(schema, "", &mut page);
    }
    page
}

#[test]
fn the_reference_of_fields_is_what_the_schemas_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/crds.md");
    let wanted = render_page();
    if std::env::var_os("CALDERA_WRITE_DOCS").is_some() {
        fs::write(&path, wanted).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == wanted, "docs/reference/crds.md is not current: CALDERA_WRITE_DOCS=1 writes it");
}
