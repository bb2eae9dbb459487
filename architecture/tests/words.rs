//! Sentences that people read name what people know: jobs, queues, clusters, and the objects that `kubectl` shows. They
//! have no words of the engine's insides. Names in the code are of the field: none is a metaphor of our own.

use std::fs;

use caldera_architecture::{find_root, read_sources};

/// Where sentences are that users read.
const TEXTS: [&str; 11] = [
    "core/src/reason/texts.rs",
    "core/src/reason/causes.rs",
    "core/src/split/refusal.rs",
    "core/src/split/node_miss.rs",
    "core/src/run_limit.rs",
    "controller/src/decide/status/pod_group_status.rs",
    "controller/src/explain/explanation.rs",
    "controller/src/explain/mod.rs",
    "cli/src/why.rs",
    "cli/src/why/answer.rs",
    "cli/src/why/tables.rs",
];

/// Words of the code alone, or with another meaning there. `ResourceBinding` is a kind that users can look up.
const FORBIDDEN: [&str; 23] = [
    "backoff",
    "binding",
    "dense",
    "dirty",
    "engine",
    "epoch",
    "gate",
    "hysteresis",
    "inadmissible",
    "lease",
    "ledger",
    "outbox",
    "overlay",
    "patch",
    "preemptor",
    "record",
    "sentinel",
    "shadow",
    "shape",
    "slot",
    "sweep",
    "unsatisfiable",
    "victim",
];

/// Crates whose names are of the field.
const CRATES: [&str; 9] =
    ["core", "crds", "runtime", "webhook", "controller", "global-scheduler", "estimator", "cli", "simulate"];

/// Words that no name has a part of: the glossary has another for each. Sentences of people may have them.
const METAPHORS: [&str; 16] = [
    "aside", "bed", "bunk", "covered", "desk", "heed", "room", "rooms", "sleeper", "stand", "stands", "tell",
    "telling", "tells", "told", "waking",
];

/// Words of a name, in lower case: `ToldKinds`, `told_kinds` and `TOLD_KINDS` have the same two.
fn list_name_parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if c == '_' || (c.is_ascii_uppercase() && was_small) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.push(c.to_ascii_lowercase());
        }
        was_small = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    parts
}

fn list_metaphors(code: &str) -> Vec<&str> {
    let names = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    names.filter(|name| list_name_parts(name).iter().any(|part| METAPHORS.contains(&part.as_str()))).collect()
}

#[test]
fn no_name_of_the_product_is_a_metaphor_of_our_own() {
    let mut found = Vec::new();
    for name in CRATES {
        let sources = read_sources(&find_root().join(name).join("src"));
        assert!(!sources.is_empty(), "{name} has no source any more");
        found.extend(sources.iter().flat_map(|source| {
            list_metaphors(&source.code).into_iter().map(move |word| format!("{name}/src/{}: {word}", source.file))
        }));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn metaphors_are_found_in_parts_of_names() {
    let code = "let told = is_told(ToldKinds, TOLD_WITHIN); let stolen = unstoppable(headroom, bedrock)";
    assert_eq!(list_metaphors(code), ["told", "is_told", "ToldKinds", "TOLD_WITHIN"]);
}

/// The literals of a source file, without its comments and its tests; what is put into them by name is left out.
fn list_literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "'").replace("'\"'", "''");
    let literals = code.split('"').skip(1).step_by(2);
    literals.map(|text| text.split('{').map(|part| part.split_once('}').map_or(part, |it| it.1)).collect()).collect()
}

fn find_forbidden_word(text: &str) -> Option<&'static str> {
    let is_word = |word: &str| FORBIDDEN.into_iter().find(|one| word == *one || word.strip_suffix('s') == Some(one));
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '/')).find_map(is_word)
}

#[test]
fn no_sentence_that_people_read_has_a_word_of_the_engine() {
    let mut found = Vec::new();
    for path in TEXTS {
        let source = fs::read_to_string(find_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let literals = list_literals(&source);
        assert!(!literals.is_empty(), "{path} has no text any more");
        let wrong =
            literals.iter().filter_map(|text| Some(format!("{path}: {}: {text:?}", find_forbidden_word(text)?)));
        found.extend(wrong);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn words_are_found_in_literals_alone() {
    let source = r#"
        // "the gate"
        let gate = write!(f, "its {gate} is open, {}; \"the\" ResourceBinding", shape);
        f.write_str("two victims of annotation caldera.dev/gate");
        #[cfg(test)]
        "an epoch"
    "#;
    let literals = list_literals(source);
    assert_eq!(literals.iter().map(|text| find_forbidden_word(text)).collect::<Vec<_>>(), [None, Some("victim")]);
    assert_eq!(literals[0], "its  is open, ; 'the' ResourceBinding");
}
