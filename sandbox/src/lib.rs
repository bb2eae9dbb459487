#![forbid(unsafe_code)]

pub mod member;
