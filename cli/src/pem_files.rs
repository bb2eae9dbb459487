//! Certificates and keys that are named on the command line.

use std::{fs, path::Path};

use anyhow::Context;
use caldera_runtime::tls::Identity;

/// A certificate chain and its key, from the contents of two files.
pub fn read_identity(pems: &[String]) -> Identity {
    let text = |at: usize| pems.get(at).cloned().unwrap_or_default();
    Identity { cert_pem: text(0), key_pem: text(1) }
}

/// The text of a file.
///
/// # Errors
/// If it can not be read.
pub fn read_file(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}
