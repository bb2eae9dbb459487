//! The way back: members' objects, Works, bindings, templates.

pub mod binding;
pub mod plan;
pub mod work;
