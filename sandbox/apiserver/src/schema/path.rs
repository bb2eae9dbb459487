//! Field paths in the two notations of the API server, grown and shrunk in one buffer.

use std::fmt::Write as _;

/// A path as `field.Path` prints it: `spec.list[0].map[key]`. Empty at the root.
#[derive(Debug, Default)]
pub struct FieldPath {
    text: String,
}

impl FieldPath {
    pub fn at(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How an error at this path names it: the root prints as `<nil>`.
    pub fn name(&self) -> String {
        if self.text.is_empty() { "<nil>".to_owned() } else { self.text.clone() }
    }

    /// The path of a member, without going there.
    pub fn member(&self, name: &str) -> String {
        if self.text.is_empty() { name.to_owned() } else { format!("{}.{name}", self.text) }
    }

    pub fn in_member<T>(&mut self, name: &str, then: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.text.len();
        if length > 0 {
            self.text.push('.');
        }
        self.text.push_str(name);
        self.back(length, then)
    }

    pub fn in_key<T>(&mut self, key: &str, then: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.text.len();
        let _ = write!(self.text, "[{key}]");
        self.back(length, then)
    }

    pub fn in_index<T>(&mut self, index: usize, then: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.text.len();
        let _ = write!(self.text, "[{index}]");
        self.back(length, then)
    }

    fn back<T>(&mut self, length: usize, then: impl FnOnce(&mut Self) -> T) -> T {
        let out = then(self);
        self.text.truncate(length);
        out
    }
}
