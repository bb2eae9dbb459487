//! Who imports whom among a crate's modules, and where that goes round in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// What each one imports.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The imports between the modules directly below the root.
pub fn link_modules(sources: &[Source]) -> Graph {
    let root = sources.iter().find(|source| source.module.is_empty());
    let modules: BTreeSet<&str> = sources.iter().filter_map(|source| Some(source.module.first()?.as_str())).collect();
    // A name that `lib.rs` takes from one of its modules belongs to that module.
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for path in root.iter().flat_map(|root| &root.paths) {
        if let (Some(module), Some(name)) = (path.first(), path.last())
            && modules.contains(module.as_str())
        {
            owners.insert(name, module);
        }
    }
    let mut graph: Graph = modules.iter().map(|module| ((*module).to_owned(), BTreeSet::new())).collect();
    for source in sources {
        let Some(from) = source.module.first() else { continue };
        for path in &source.paths {
            let Some(first) = path.first().map(String::as_str) else { continue };
            let to = if modules.contains(first) { first } else { owners.get(first).copied().unwrap_or("lib") };
            if to != from {
                graph.entry(from.clone()).or_default().insert(to.to_owned());
            }
        }
    }
    graph
}

/// The same below one module: the imports between the modules directly below that. What lies deeper counts as the
/// module that it is in, and a name that the module above takes from one of them belongs to that one.
#[must_use]
pub fn link_modules_below(sources: &[Source], module: &[&str]) -> Graph {
    let below = |path: &[String]| {
        let (start, rest) = path.split_at_checked(module.len())?;
        (start == module).then(|| rest.to_vec())
    };
    let inside = |source: &Source| {
        let paths = source.paths.iter().filter_map(|path| below(path)).collect();
        Some(Source { module: below(&source.module)?, paths, ..source.clone() })
    };
    link_modules(&sources.iter().filter_map(inside).collect::<Vec<_>>())
}

/// Sets of two and more that import each other in a circle.
#[must_use]
pub fn list_cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|start| (start.as_str(), list_reachable(graph, start))).collect();
    let mut cycles: Vec<BTreeSet<String>> = Vec::new();
    for (one, there) in &reached {
        let together = |other: &&str| there.contains(*other) && reached.get(*other).is_some_and(|it| it.contains(one));
        let cycle: BTreeSet<String> = there.iter().copied().filter(together).map(str::to_owned).collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn list_reachable<'a>(graph: &'a Graph, start: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![start];
    while let Some(one) = open.pop() {
        for next in graph.get(one).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    }

    #[test]
    fn imports_below_a_module_are_of_what_is_in_it_and_of_what_it_shows() {
        let source = |module: &str, paths: &[&str]| Source {
            file: String::new(),
            module: module.split("::").map(str::to_owned).collect(),
            code: String::new(),
            paths: paths.iter().map(|path| path.split("::").map(str::to_owned).collect()).collect(),
        };
        let sources = [
            source("q", &["q::a::Shown"]),
            source("q::a", &["q::b::Used", "other::c"]),
            source("q::b::c", &["q::Shown", "q::b::Own"]),
            source("other", &["q::b"]),
        ];
        assert_eq!(link_modules_below(&sources, &["q"]), graph(&[("a", "b"), ("b", "a")]));
    }

    #[test]
    fn a_circle_is_found_and_a_chain_is_none() {
        assert!(list_cycles(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let cycles = list_cycles(&graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
        assert_eq!(cycles, [BTreeSet::from(["b".to_owned(), "c".to_owned()])]);
    }
}
