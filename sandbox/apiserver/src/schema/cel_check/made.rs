//! Values that an expression makes: lists, and those of a named type, which the patches of a mutating policy are
//! written with (`apiserver/pkg/cel/mutation`).

use kube_cel::cel::common::ast::{EntryExpr, IdedEntryExpr, StructExpr};

use super::super::cel_type::{OBJECT, PATCH, Type};
use super::{Checker, Expression};

/// What a value of another type cannot stand beside.
fn is_plain(ty: Type<'_>) -> bool {
    ty.known_scalar() || matches!(ty, Type::Null)
}

impl<'a> Checker<'_, 'a> {
    pub(super) fn list_value(&mut self, elements: &[Expression]) -> Type<'a> {
        let found: Vec<Type<'a>> = elements.iter().map(|element| self.infer(element)).collect();
        // The elements of a list have one type (`cel.HomogeneousAggregateLiterals`).
        let known = found.iter().find(|ty| is_plain(**ty)).copied().filter(|_| !self.formatting);
        let other = found.iter().find(|ty| is_plain(**ty) && known.is_some_and(|k| k.name() != ty.name()));
        if let (Some(known), Some(other)) = (known, other) {
            let text = format!("expected type '{}' but found '{}'", known.name(), other.name());
            let blank = self.source.find(", ").is_some_and(|at| self.source.find(',') == Some(at));
            return self.complain_after(",", 1 + usize::from(blank), &text);
        }
        let patch = || Some(Type::Named(PATCH)).filter(|_| found.iter().any(|ty| ty.name() == PATCH));
        match known.or_else(patch).filter(|known| found.iter().all(|ty| ty.name() == known.name())).map(Type::name) {
            Some(element) => Type::Scalars(element),
            None => Type::List(None),
        }
    }

    /// The values of a map that is written out have one type, like the elements of a list.
    pub(super) fn map_value(&mut self, entries: &[IdedEntryExpr]) -> Type<'a> {
        let mut keys = Vec::new();
        let mut values: Vec<Type<'a>> = Vec::new();
        for entry in entries {
            if let EntryExpr::MapEntry(entry) = &entry.expr {
                keys.push(self.infer(&entry.key));
                let value = self.infer(&entry.value);
                values.extend(Some(value).filter(|_| !entry.optional));
            }
        }
        let first = keys.first().copied().filter(|first| first.known_scalar());
        let strange = keys.iter().find(|key| key.known_scalar() && first.is_some_and(|k| k.name() != key.name()));
        if let (Some(first), Some(strange)) = (first, strange) {
            let text = format!("expected type '{}' but found '{}'", first.name(), strange.name());
            self.complain_after(", ", 2, &text);
        }
        let known = values.iter().find(|ty| ty.known_scalar()).copied().filter(|_| !self.formatting);
        let other = values.iter().find(|ty| ty.known_scalar() && known.is_some_and(|k| k.name() != ty.name()));
        if let (Some(known), Some(other)) = (known, other) {
            let text = format!("expected type '{}' but found '{}'", known.name(), other.name());
            return self.complain_after(":", 0, &text);
        }
        if keys.iter().all(|key| matches!(key, Type::Text)) { Type::Map(None) } else { Type::Dyn }
    }

    pub(super) fn made_value(&mut self, made: &StructExpr) -> Type<'a> {
        let name = made.type_name.as_str();
        // A part of an object is named after its path: `Object.spec`.
        let root = name.split('.').next().unwrap_or_default();
        let found = match self.scopes.iter().rev().find(|(known, _)| known == root) {
            Some((_, found @ Type::Named(_))) if name == root || root == OBJECT => *found,
            _ => {
                let text = format!("undeclared reference to '{name}' (in container '')");
                return self.complain_after(name, name.len(), &text);
            }
        };
        for entry in &made.entries {
            if let EntryExpr::StructField(field) = &entry.expr {
                let given = self.infer(&field.value);
                if name == PATCH {
                    self.patch_field(&field.field, given);
                }
            }
        }
        found
    }

    /// The fields of an operation are texts, but for the value.
    fn patch_field(&mut self, field: &str, given: Type<'a>) {
        let wanted = match field {
            "value" => return,
            "op" | "path" | "from" => "string",
            _ => "",
        };
        let fits = wanted == "string" && matches!(given, Type::Text | Type::Dyn | Type::Error);
        if !fits {
            let given = given.shown();
            let text = format!("expected type of field '{field}' is '{wanted}' but provided type is '{given}'");
            self.complain_after(field, field.len(), &text);
        }
    }
}
