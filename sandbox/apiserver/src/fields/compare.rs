//! What changed from one object to another, as sets of fields (`typed/compare.go`).

use serde_json::Value;

use super::set::{Element, Set};
use super::typed::{Atom, Type};

#[derive(Debug, Default)]
pub struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

pub fn compare_objects(old: &Value, new: &Value, ty: Type<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    compare_values(Some(old), Some(new), ty, &mut Vec::new(), &mut comparison);
    comparison
}

fn compare_values(
    old: Option<&Value>,
    new: Option<&Value>,
    ty: Type<'_>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) {
    let leaf = match (old, new) {
        (None, None) => return,
        (Some(_), None) => compare_atoms(ty.atom(old), old, new, ty, path, out),
        (None, Some(_)) => compare_atoms(ty.atom(new), old, new, ty, path, out),
        (Some(_), Some(_)) => {
            let (before, after) = (ty.atom(old), ty.atom(new));
            if before != after {
                compare_atoms(before, old, new, ty, path, out);
            }
            compare_atoms(after, old, new, ty, path, out)
        }
    };
    if !leaf {
        if old.is_none() {
            out.added.insert(path);
        } else if new.is_none() {
            out.removed.insert(path);
        }
    }
}

/// Whether the value was compared as a whole.
fn compare_atoms(
    atom: Atom,
    old: Option<&Value>,
    new: Option<&Value>,
    ty: Type<'_>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) -> bool {
    match atom {
        Atom::Scalar => compare_leaves(old, new, path, out),
        Atom::Map => {
            let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = before.is_none_or(|map| map.is_empty()) && after.is_none_or(|map| map.is_empty());
            if empty || ty.atomic_map() {
                return compare_leaves(old, new, path, out);
            }
            let keys = before.into_iter().flat_map(|map| map.keys());
            let fresh =
                after.into_iter().flat_map(|map| map.keys()).filter(|key| before.is_none_or(|b| !b.contains_key(*key)));
            for key in keys.chain(fresh) {
                let Some((member, _)) = ty.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                compare_values(
                    before.and_then(|map| map.get(key)),
                    after.and_then(|map| map.get(key)),
                    member,
                    path,
                    out,
                );
                path.pop();
            }
            false
        }
        Atom::List => {
            let (before, after) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let empty = before.is_none_or(|list| list.is_empty()) && after.is_none_or(|list| list.is_empty());
            if empty || ty.atomic_list() {
                return compare_leaves(old, new, path, out);
            }
            compare_elements(
                before.map(Vec::as_slice).unwrap_or_default(),
                after.map(Vec::as_slice).unwrap_or_default(),
                ty,
                path,
                out,
            );
            false
        }
    }
}

fn compare_leaves(old: Option<&Value>, new: Option<&Value>, path: &[Element], out: &mut Comparison) -> bool {
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(old), Some(new)) if old != new => out.modified.insert(path),
        _ => {}
    }
    true
}

fn compare_elements(before: &[Value], after: &[Value], ty: Type<'_>, path: &mut Vec<Element>, out: &mut Comparison) {
    type Group<'a> = (Element, Vec<&'a Value>);
    fn group<'a>(items: &'a [Value], ty: Type<'_>) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for item in items {
            let Ok(name) = ty.name(item) else { continue };
            match groups.iter_mut().find(|(other, _)| *other == name) {
                Some((_, list)) => list.push(item),
                None => groups.push((name, vec![item])),
            }
        }
        groups
    }
    let (old, new) = (group(before, ty), group(after, ty));
    let of = |groups: &[Group<'_>], name: &Element| groups.iter().position(|(other, _)| other == name);
    let names =
        old.iter().map(|(name, _)| name).chain(new.iter().map(|(name, _)| name).filter(|n| of(&old, n).is_none()));
    for name in names {
        let left = of(&old, name).map(|at| old[at].1.as_slice()).unwrap_or_default();
        let right = of(&new, name).map(|at| new[at].1.as_slice()).unwrap_or_default();
        path.push(name.clone());
        match (left, right) {
            ([] | [_], [] | [_]) => {
                compare_values(left.first().copied(), right.first().copied(), ty.element(), path, out);
            }
            ([_, _, ..], [_, _, ..]) => {
                if left != right {
                    out.modified.insert(path);
                }
            }
            ([_, _, ..], right) => {
                if let Some(item) = right.first() {
                    compare_values(None, Some(item), ty.element(), path, out);
                }
                out.removed.insert(path);
            }
            (left, _) => {
                if let Some(item) = left.first() {
                    compare_values(Some(item), None, ty.element(), path, out);
                }
                out.added.insert(path);
            }
        }
        path.pop();
    }
}
