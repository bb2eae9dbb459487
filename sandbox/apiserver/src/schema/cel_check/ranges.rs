//! The macros, whose variables are what is in another value: quantifiers, loops of two variables and what is done
//! with a value that may be missing (`cel-go/parser/macro.go`, `ext/comprehensions.go`, `cel/library.go`).

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr};

use super::super::cel_tree;
use super::super::cel_type::{Type, has_member};
use super::Checker;

impl<'a> Checker<'_, 'a> {
    /// A macro with two variables (`ext.TwoVarComprehensions`).
    pub(super) fn two_variables(&mut self, call: &CallExpr) -> Option<Type<'a>> {
        let (key, value, parts) = cel_tree::two_variables(call)?;
        let range = self.infer(call.target.as_deref()?);
        let (key_type, value_type) = match range {
            Type::List(node) => (Type::Int, node),
            Type::Map(node) => (Type::Text, node),
            _ => (Type::Dyn, None),
        };
        let depth = self.scopes.len();
        self.scopes.push((key.to_owned(), key_type));
        self.scopes.push((value.to_owned(), value_type.map_or(Type::Dyn, |node| Type::of(node, node.embedded))));
        for part in parts {
            self.infer(part);
        }
        self.scopes.truncate(depth);
        Some(match call.func_name.as_str() {
            "transformList" => Type::List(None),
            "transformMap" | "transformMapEntry" => Type::Map(None),
            _ => Type::Bool,
        })
    }

    /// A macro over a value that may be missing: its variable is that value.
    pub(super) fn optional_variable(&mut self, call: &CallExpr) -> Option<Type<'a>> {
        let (name, body) = cel_tree::optional_variable(call)?;
        let target = self.infer(call.target.as_deref()?);
        let variable = match target {
            Type::Optional(node, resource) => Type::of(node, resource),
            _ => Type::Dyn,
        };
        if !has_member(target, "hasValue") {
            let text = format!("found no matching overload for 'hasValue' applied to '{}.()'", target.shown());
            self.complain_at_call(&call.func_name, &text);
        }
        self.scopes.push((name.to_owned(), variable));
        self.infer(body);
        self.scopes.pop();
        Some(Type::Dyn)
    }

    pub(super) fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type<'a> {
        let range = self.infer(&comprehension.iter_range);
        let element = match range {
            Type::List(Some(node)) => Type::of(node, node.embedded),
            Type::Map(_) => Type::Text,
            Type::Bool
            | Type::Int
            | Type::Double
            | Type::Text
            | Type::Object(..)
            | Type::Metadata
            | Type::Optional(..) => {
                let text = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    range.shown()
                );
                self.complain("", &text)
            }
            _ => Type::Dyn,
        };
        let accumulator = self.infer(&comprehension.accu_init);
        let depth = self.scopes.len();
        self.scopes.push((comprehension.iter_var.clone(), element));
        self.scopes.push((comprehension.accu_var.clone(), accumulator));
        self.infer(&comprehension.loop_cond);
        self.infer(&comprehension.loop_step);
        let result = self.infer(&comprehension.result);
        self.scopes.truncate(depth);
        result
    }
}
