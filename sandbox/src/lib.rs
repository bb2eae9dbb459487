#![forbid(unsafe_code)]

pub mod karmada;
pub mod member;
