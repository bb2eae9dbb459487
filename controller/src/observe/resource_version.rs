//! The order of the versions of one object.

/// Versions are opaque, but every API server counts them; what is no number is taken for newer.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}
