//! Whether a CA bundle can be read from a file.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read as _},
    path::Path,
};

use caldera_runtime::tls::parse_roots;

/// More is no bundle.
const MOST_BYTES: u64 = 1 << 20;

/// What is wrong with it, to be said behind its name.
#[must_use]
pub fn find_ca_file_fault(path: &Path) -> Option<String> {
    match read_bounded(path) {
        Ok(pem) if parse_roots(&pem).is_ok_and(|roots| !roots.is_empty()) => None,
        Ok(_) => Some("has no certificate in PEM".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("is not in this directory".to_owned()),
        Err(error) => Some(format!("can not be read ({error})")),
    }
}

fn read_bounded(path: &Path) -> Result<String, Error> {
    if !path.metadata()?.is_file() {
        return Err(Error::other("it is no file"));
    }
    let mut pem = String::new();
    File::open(path)?.take(MOST_BYTES).read_to_string(&mut pem)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use caldera_runtime::tls::Authority;

    use super::*;

    #[test]
    fn a_bundle_is_a_file_with_a_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert_eq!(find_ca_file_fault(&path).unwrap(), "is not in this directory");
        assert!(find_ca_file_fault(dir.path()).unwrap().starts_with("can not be read"));
        for text in ["", "nonsense", "-----BEGIN CERTIFICATE-----"] {
            fs::write(&path, text).unwrap();
            assert_eq!(find_ca_file_fault(&path).unwrap(), "has no certificate in PEM", "{text}");
        }
        fs::write(&path, Authority::new("test").unwrap().cert_pem).unwrap();
        assert_eq!(find_ca_file_fault(&path), None);
    }
}
