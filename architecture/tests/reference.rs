//! The pages of `docs/reference` that are made of the doc comments of constants and variants: names, reasons, events.
//!
//! Rule: a page is what the code says, or the test fails; `CALDERA_WRITE_DOCS=1` writes it. As for imports, only the
//! text of the sources is read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod comments;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use caldera_architecture::find_root;
use comments::{Constant, Variant, list_constants, list_files, list_variants, read_body, read_product};

const MADE: &str = "<!-- made of the sources: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-architecture` -->";
const TABLE: &str = "| name or value | means |\n|---|---|\n";

/// Compares a page with what it should be, or writes it.
fn hold(page: &str, wanted: &str) {
    let path = find_root().join("docs/reference").join(page);
    if std::env::var_os("CALDERA_WRITE_DOCS").is_some() {
        fs::write(&path, wanted).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == wanted, "docs/reference/{page} is not current: CALDERA_WRITE_DOCS=1 writes it");
}

fn read(path: impl AsRef<Path>) -> String {
    let path = find_root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A sentence in a cell of a table.
fn write_row(name: &str, means: &str, into: &mut String) {
    let _ = writeln!(into, "| `{name}` | {} |", means.replace('|', "\\|"));
}

fn render_names() -> String {
    let mut page = format!(
        "# Annotations and labels\n\nEvery annotation, label and finalizer that Caldera reads or writes, by the project \
         that owns the name. What users\nset is explained with examples in [jobs.md](../jobs.md); what only Caldera may \
         write, in\n[security.md](../security.md).\n\n{MADE}\n"
    );
    let of_names = |module: &str| {
        let all = list_constants(&read("crds/src/names.rs"));
        all.into_iter().filter(|it| it.module == module).collect::<Vec<Constant>>()
    };
    let of_file = |file: &str, prefix: &str| {
        let all = list_constants(&read(file)).into_iter();
        all.filter(|it| it.value.len() > prefix.len() && it.value.starts_with(prefix)).collect::<Vec<_>>()
    };
    let mut ours = of_names("caldera");
    ours.extend(of_file("core/src/place/score.rs", "caldera.dev/"));
    ours.extend(of_file("cli/src/deploy.rs", "caldera.dev/"));
    let sections = [
        ("Caldera's names", ours),
        ("Volcano's names", of_names("volcano")),
        ("Karmada's names", of_names("karmada")),
        ("Kubernetes' names", of_names("kubernetes")),
        ("The sandbox's names", of_file("sandbox/src/member/kubelet.rs", "sim.caldera.dev/")),
    ];
    for (title, constants) in sections {
        let _ = write!(page, "\n## {title}\n\n{TABLE}");
        for constant in &constants {
            let said = &constant.means;
            assert!(said.len() > 10 && !said.starts_with("See "), "{}: say what it means, for itself", constant.name);
            assert!(!said.contains("::"), "{}: name a page, and no module: users read no Rust", constant.name);
            write_row(&constant.value, said, &mut page);
        }
    }
    page
}

/// The tokens that a function of `Reason` or a list of it names, as variants or as words.
fn find_class<'a>(body: &str, by_variant: &'a BTreeMap<String, Vec<String>>) -> BTreeSet<&'a str> {
    let is_named = |variant: &str, token: &str| {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
        body.contains(&format!("\"{token}\"")) || body.split(&format!("Self::{variant}")).skip(1).any(ends)
    };
    let pairs = by_variant.iter().flat_map(|(variant, tokens)| tokens.iter().map(move |token| (variant, token)));
    pairs.filter(|(variant, token)| is_named(variant, token)).map(|(_, token)| token.as_str()).collect()
}

/// What each arm of a `match` gives as its token, with the variants it is for.
fn list_arms(body: &str, constants: &[Constant]) -> Vec<(Vec<(String, String)>, String)> {
    let value_of = |name: &str| constants.iter().find(|it| it.name == name).map(|it| it.value.clone());
    let arms = body.lines().filter_map(|line| line.split_once(" => "));
    arms.filter_map(|(pattern, token)| {
        let token = token.trim_end_matches(',');
        let word = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map(str::to_owned);
        let token = word.or_else(|| value_of(token.strip_prefix("Self::")?))?;
        let words = pattern.split(|c: char| !(c.is_alphanumeric() || c == ':'));
        let pairs = words.filter_map(|word| word.split_once("::"));
        Some((pairs.map(|(owner, variant)| (owner.to_owned(), variant.to_owned())).collect(), token))
    })
    .collect()
}

fn render_reasons() -> String {
    let source = read("core/src/reason/causes.rs") + &read("core/src/reason.rs") + &read("core/src/reason/tokens.rs");
    let constants = list_constants(&source);
    let variants = list_variants(&source);
    let say = |owner: &str, name: &str| {
        let found = variants.iter().find(|it: &&Variant| it.owner == owner && it.name == name);
        found.map_or_else(|| panic!("no comment on {owner}::{name}"), |it| it.means.clone())
    };
    let (causes, reasons) = source.rsplit_once("impl Reason {").unwrap();
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut by_variant: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (body, itself) in [(read_body(causes, "fn token"), "EvictionCause"), (read_body(reasons, "fn token"), "Reason")]
    {
        for (pairs, token) in list_arms(&body, &constants) {
            let mut said: Vec<String> = Vec::new();
            for (owner, variant) in &pairs {
                let owner = if owner == "Self" { itself } else { owner };
                said.push(say(owner, variant));
                by_variant.entry(variant.clone()).or_default().push(token.clone());
            }
            rows.push((token, said.join(" Or: ")));
        }
    }
    rows.sort();
    let inadmissible = find_class(&read_body(reasons, "UNSATISFIABLE: "), &by_variant);
    let mut wants_a_change = find_class(&read_body(reasons, "fn needs_user_action"), &by_variant);
    wants_a_change.extend(inadmissible);
    let released = find_class(&read_body(reasons, "fn is_released").replace("ExceedsLimit", ""), &by_variant);
    let mut page = format!(
        "# Reasons and events\n\nWhat to do about each is in [troubleshooting.md](../troubleshooting.md).\n\n{MADE}\n\n\
         ## Reasons\n\nThe reason of the condition of a workload's PodGroup, and what `caldera why` says. After each \
         comes a sentence with\nnumbers.\n"
    );
    let sections = [
        ("Waiting helps", "The job starts by itself once what it waits for is there."),
        ("Somebody has to change something", "The job, its queue or the fleet: waiting alone does not help."),
        ("Admitted", "The job has its quota: it is placed, runs or ended."),
    ];
    for (at, (title, said)) in sections.into_iter().enumerate() {
        let _ = write!(page, "\n### {title}\n\n{said}\n\n{}", TABLE.replace("name or value", "reason"));
        for (token, means) in &rows {
            let changes = wants_a_change.contains(token.as_str());
            let class = if changes { 1 } else { 2 * usize::from(released.contains(token.as_str())) };
            if class == at {
                write_row(token, means, &mut page);
            }
        }
    }
    let _ = write!(
        page,
        "\n## Events\n\nOn the workload, its binding or its queue. Beside these, a reason above is also recorded as an \
         event when it is the\nfirst one, and when somebody has to change something.\n\n| event | means |\n|---|---|\n"
    );
    for event in list_events() {
        write_row(&event.value, &event.means, &mut page);
    }
    page
}

/// Constants whose comment says that they are an event's reason, by name.
fn list_events() -> Vec<Constant> {
    let mut events: BTreeMap<String, Constant> = BTreeMap::new();
    for file in list_product_files() {
        for constant in list_constants(&read_product(&file)) {
            let said = constant.means.to_lowercase();
            if constant.value.starts_with(char::is_uppercase)
                && said.split(|c: char| !c.is_alphabetic()).any(|it| it == "event")
            {
                events.insert(constant.value.clone(), constant);
            }
        }
    }
    events.into_values().collect()
}

/// The sources of what runs on a host, without tests.
fn list_product_files() -> Vec<PathBuf> {
    let crates = ["core", "crds", "runtime", "webhook", "controller", "global-scheduler", "estimator", "cli"];
    crates.iter().flat_map(|folder| list_files(&find_root().join(folder).join("src"), "rs")).collect()
}

#[test]
fn the_reference_of_names_is_what_the_code_says() {
    hold("names.md", &render_names());
}

#[test]
fn the_reference_of_reasons_and_events_is_what_the_code_says() {
    hold("reasons.md", &render_reasons());
}

/// The names under `caldera.dev/` in a text; not those of API groups.
fn list_our_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, begin) in text.match_indices("caldera.dev/") {
        let rest = &text[at + begin.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(rest.len());
        if !text[..at].ends_with(['.', '/']) && end > 0 {
            names.insert(format!("{begin}{}", &rest[..end]));
        }
    }
    names
}

#[test]
fn every_name_of_ours_in_the_code_and_on_a_page_is_in_the_reference() {
    let known = render_names();
    let mut wrong = BTreeSet::new();
    let pages = list_files(&find_root().join("docs"), "md");
    let texts = list_product_files().into_iter().map(|file| read_product(&file)).chain(pages.iter().map(read));
    for text in texts {
        wrong.extend(list_our_names(&text).into_iter().filter(|name| !known.contains(&format!("`{name}`"))));
    }
    assert!(wrong.is_empty(), "not in crds/src/names.rs, or misspelt: {wrong:?}");
}

/// An event's reason is a reason of a job, or a constant with a comment, so that the reference has it.
#[test]
fn no_event_is_named_by_a_literal() {
    let (reasons, mut wrong) = (render_reasons(), Vec::new());
    for file in list_product_files() {
        let text = read_product(&file);
        for (at, _) in text.match_indices("EventType::") {
            let call: String = text[at..].chars().take(80).collect();
            let next = call.split(',').nth(1).unwrap_or_default().trim_start();
            if next.starts_with('"') && !reasons.contains(&next.replace('"', "`")) {
                wrong.push(format!("{}: {next}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
