//! A JSON value together with its path, so that every error names the field that is wrong.

use caldera_core::quantity::Quantity;
use serde_json::Value;

use super::GangError;

/// The largest number of pods that Kubernetes' int32 fields hold.
const MOST_PODS: i64 = i32::MAX as i64;

/// A field of an object: its value, and its path where one is asked for.
#[derive(Clone)]
pub(super) struct Field<'a> {
    path: Option<String>,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    /// An object whose fields know their paths: a text for each of them.
    pub(super) const fn root(value: &'a Value) -> Self {
        Self { path: Some(String::new()), value }
    }

    /// An object that is only read: an error about it names no field.
    pub(super) const fn unnamed(value: &'a Value) -> Self {
        Self { path: None, value }
    }

    /// The field at this path; `None` if it is absent or `null`.
    pub(super) fn at(&self, fields: &[&str]) -> Option<Self> {
        let mut value = self.value;
        for field in fields {
            value = value.get(*field)?;
        }
        (!value.is_null()).then(|| Self { path: self.path_of(fields), value })
    }

    /// The same field with what is made of its value.
    pub(super) fn made_into<'b>(&self, value: &'b Value) -> Field<'b> {
        Field { path: self.path.clone(), value }
    }

    /// A field that is absent, for an error about it.
    pub(super) fn absent_field(&self, fields: &[&str]) -> Self {
        Self { path: self.path_of(fields), value: &Value::Null }
    }

    fn path_of(&self, fields: &[&str]) -> Option<String> {
        let mut path = self.path.clone()?;
        for field in fields {
            if field.contains(['.', '/']) {
                path = format!("{path}[{field}]");
            } else if path.is_empty() {
                path.push_str(field);
            } else {
                path.push('.');
                path.push_str(field);
            }
        }
        Some(path)
    }

    fn path_of_item(&self, index: usize) -> Option<String> {
        self.path.as_ref().map(|path| format!("{path}[{index}]"))
    }

    /// The items of a list field; none if it is absent.
    pub(super) fn list(&self, field: &str) -> Result<Vec<Self>, GangError> {
        let Some(list) = self.at(&[field]) else { return Ok(Vec::new()) };
        let items = list.value.as_array().ok_or_else(|| list.wrong_type("a list"))?;
        let item = |(index, value)| Self { path: list.path_of_item(index), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// The entries of a map at these fields; none if it is absent.
    pub(super) fn entries(&self, fields: &[&str]) -> Result<Vec<(&'a str, Self)>, GangError> {
        let Some(map) = self.at(fields) else { return Ok(Vec::new()) };
        let entries = map.value.as_object().ok_or_else(|| map.wrong_type("a map"))?;
        Ok(entries.iter().map(|(key, value)| (key.as_str(), Self { path: map.path_of(&[key]), value })).collect())
    }

    pub(super) fn text(&self) -> Result<&'a str, GangError> {
        self.value.as_str().ok_or_else(|| self.wrong_type("a text"))
    }

    /// The text of a field, empty if it is absent.
    pub(super) fn text_at(&self, field: &str) -> Result<&'a str, GangError> {
        self.at(&[field]).map_or(Ok(""), |place| place.text())
    }

    /// A number of pods or the like: 0 to 2147483647.
    pub(super) fn parse_count(&self) -> Result<u32, GangError> {
        let number = match self.value.as_i64() {
            Some(number) => number,
            None if self.value.as_u64().is_some() => i64::MAX,
            None => return Err(self.wrong_type("a whole number")),
        };
        if number < 0 {
            return Err(self.wrong(format!("{number} is below 0")));
        }
        match u32::try_from(number) {
            Ok(count) if number <= MOST_PODS => Ok(count),
            _ => Err(self.wrong(format!("{} is above {MOST_PODS}", self.value))),
        }
    }

    /// An amount of a resource: 0 or more. A JSON number is accepted too.
    pub(super) fn quantity(&self) -> Result<Quantity, GangError> {
        let number;
        let text = match self.value {
            Value::String(text) => text.as_str(),
            Value::Number(value) => {
                number = value.to_string();
                &number
            }
            _ => return Err(self.wrong_type("a quantity")),
        };
        let quantity: Quantity = text.parse().map_err(|error| self.wrong(format!("{error}")))?;
        if quantity.is_negative() {
            return Err(self.wrong(format!("{text} is below 0")));
        }
        Ok(quantity)
    }

    pub(super) fn wrong(&self, why: impl Into<String>) -> GangError {
        GangError::Field { field: self.path.clone().unwrap_or_default(), why: why.into() }
    }

    fn wrong_type(&self, wanted: &str) -> GangError {
        let mut found: String = self.value.to_string().chars().take(80).collect();
        if found.len() < self.value.to_string().len() {
            found.push_str("...");
        }
        self.wrong(format!("{found} is not {wanted}"))
    }
}
