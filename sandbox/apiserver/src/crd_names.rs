//! Which names a definition gets (apiextensions-apiserver `pkg/controller/status/naming_controller.go`): those that no
//! other definition of its group has. Each name is settled on its own; the last conflict is the one that is told.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::error::go_quote;

/// Names that are taken in a group: resources in one set, kinds in another.
#[derive(Debug, Default)]
pub struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

/// The names that a definition has now, and what keeps it from the others.
#[derive(Debug, PartialEq)]
pub struct Settled {
    pub names: Value,
    pub conflict: Option<(&'static str, String)>,
}

fn text_of<'v>(names: &'v Value, key: &str) -> &'v str {
    names.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts_of(names: &Value, key: &str) -> Vec<String> {
    let list = names.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Taken {
    /// Adds the accepted names of a definition, its own among them.
    pub fn add(&mut self, accepted: &Value) {
        self.resources.extend(["plural", "singular"].map(|key| text_of(accepted, key).to_owned()));
        self.resources.extend(texts_of(accepted, "shortNames"));
        self.kinds.extend(["kind", "listKind"].map(|key| text_of(accepted, key).to_owned()));
    }
}

/// Whether the definition has all the names it asks for.
pub fn is_settled(wanted: &Value, accepted: &Value) -> bool {
    ["plural", "singular", "kind", "listKind"].iter().all(|key| text_of(wanted, key) == text_of(accepted, key))
        && ["shortNames", "categories"].iter().all(|key| texts_of(wanted, key) == texts_of(accepted, key))
}

pub fn settle_names(wanted: &Value, accepted: &Value, taken: &Taken) -> Settled {
    let in_use = |name: &str| format!("{} is already in use", go_quote(name));
    let mut names = Map::new();
    let mut conflict = None;
    let mut settle = |key: &str, reason: &'static str, set: &BTreeSet<String>| {
        let (new, old) = (text_of(wanted, key), text_of(accepted, key));
        let free = new == old || !set.contains(new);
        if !free {
            conflict = Some((reason, in_use(new)));
        }
        let name = if free { new } else { old };
        if !name.is_empty() || matches!(key, "plural" | "kind") {
            names.insert(key.to_owned(), name.into());
        }
    };
    settle("plural", "PluralConflict", &taken.resources);
    settle("singular", "SingularConflict", &taken.resources);
    let (short, had) = (texts_of(wanted, "shortNames"), texts_of(accepted, "shortNames"));
    let own = |name: &String| {
        had.contains(name) || [text_of(accepted, "plural"), text_of(accepted, "singular")].contains(&name.as_str())
    };
    let clashes: Vec<String> =
        short.iter().filter(|n| !own(n) && taken.resources.contains(*n)).map(|n| in_use(n)).collect();
    let kept = if clashes.is_empty() { short } else { had.clone() };
    let clash = match clashes.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    settle("kind", "KindConflict", &taken.kinds);
    settle("listKind", "ListKindConflict", &taken.kinds);
    // The kinds come after the short names, so their conflict is told instead.
    if let Some(text) = clash
        && !matches!(conflict, Some(("KindConflict" | "ListKindConflict", _)))
    {
        conflict = Some(("ShortNamesConflict", text));
    }
    for (key, list) in [("shortNames", kept), ("categories", texts_of(wanted, "categories"))] {
        if !list.is_empty() {
            names.insert(key.to_owned(), list.into());
        }
    }
    Settled { names: Value::Object(names), conflict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(plural: &str, singular: &str, short: &[&str], kind: &str) -> Value {
        json!({"plural": plural, "singular": singular, "shortNames": short, "kind": kind, "listKind": format!("{kind}List")})
    }

    fn taken() -> Taken {
        let mut taken = Taken::default();
        taken.add(&names("curlies", "curly", &["cu"], "Curly"));
        taken
    }

    #[test]
    fn free_names_are_accepted() {
        let wanted = names("widgets", "widget", &["w"], "Widget");
        let settled = settle_names(&wanted, &Value::Null, &taken());
        assert_eq!(settled, Settled { names: wanted.clone(), conflict: None });
        assert!(is_settled(&wanted, &settled.names));
    }

    #[test]
    fn the_last_conflict_is_told_and_the_free_names_are_kept() {
        let settled = settle_names(&names("others", "curly", &["cu", "curlies"], "Curly"), &Value::Null, &taken());
        assert_eq!(settled.conflict, Some(("ListKindConflict", "\"CurlyList\" is already in use".to_owned())));
        assert_eq!(settled.names, json!({"plural": "others", "kind": ""}));
        let settled = settle_names(&names("others", "other", &["cu", "curlies"], "Other"), &Value::Null, &taken());
        let both = "[\"cu\" is already in use, \"curlies\" is already in use]".to_owned();
        assert_eq!(settled.conflict, Some(("ShortNamesConflict", both)));
        assert_eq!(settled.names["kind"], "Other");
    }

    #[test]
    fn a_name_that_is_its_own_already_is_no_conflict() {
        let own = names("curlies", "curly", &["cu"], "Curly");
        assert_eq!(settle_names(&own, &own, &taken()).conflict, None);
    }
}
