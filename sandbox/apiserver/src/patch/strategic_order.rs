//! The order of a merged list: elements the patch names stand in its order, the others in the stored one, and the two
//! interleave by the stored order as far as that is known (`normalizeElementOrder`).

use serde_json::Value;

use super::PatchError;
use super::strategic::no_merge_key;

pub struct Order<'a> {
    pub key: Option<&'a str>,
    pub wanted: &'a [Value],
    pub before: &'a [Value],
}

impl Order<'_> {
    pub fn arrange(&self, merged: Vec<Value>) -> Result<Vec<Value>, PatchError> {
        for list in [&merged, self.wanted, self.before] {
            self.keyed(list)?;
        }
        let (mut patched, mut kept): (Vec<Value>, Vec<Value>) =
            merged.into_iter().partition(|item| self.position(self.wanted, item).is_some());
        patched.sort_by_key(|item| self.position(self.wanted, item));
        kept.sort_by_key(|item| self.position(self.before, item));
        let (mut patched, mut kept) = (patched.into_iter().peekable(), kept.into_iter().peekable());
        let mut out = Vec::new();
        loop {
            let kept_first = match (kept.peek(), patched.peek()) {
                (Some(kept), Some(patched)) => {
                    match (self.position(self.before, kept), self.position(self.before, patched)) {
                        (Some(kept), Some(patched)) => kept < patched,
                        _ => false,
                    }
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return Ok(out),
            };
            out.extend(if kept_first { kept.next() } else { patched.next() });
        }
    }

    fn keyed(&self, list: &[Value]) -> Result<(), PatchError> {
        let Some(key) = self.key else { return Ok(()) };
        match list.iter().filter_map(Value::as_object).find(|map| !map.contains_key(key)) {
            Some(map) => Err(no_merge_key(map, key)),
            None => Ok(()),
        }
    }

    fn position(&self, list: &[Value], item: &Value) -> Option<usize> {
        list.iter().position(|other| same_element(other, item, self.key))
    }
}

fn same_element(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) if a.is_object() && b.is_object() => a.get(key) == b.get(key),
        _ => a == b,
    }
}

/// The elements a patch sends must appear in `$setElementOrder` in the same order.
pub fn check_consistent(changes: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if changes.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut wanted_left = wanted.iter();
    for change in changes.iter().filter(|change| change.get("$patch").is_none()) {
        if !wanted_left.any(|other| same_element(other, change, key)) {
            let text = format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                crate::schema::shown(&Value::from(changes.to_vec())),
                crate::schema::shown(&Value::from(wanted.to_vec()))
            );
            return Err(PatchError::Internal(text));
        }
    }
    Ok(())
}
