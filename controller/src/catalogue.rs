//! How a catalogue is asked where data is, and what its answer says. No I/O: [`run`](crate::run) asks.
//!
//! Rule (volcano-global `pkg/controller/datadependency/plugin.go`): where no DataSource has the data of a claim a
//! catalogue is asked for its clusters, and a DataSource is made of the answer. Here the catalogue is a URL that an
//! adapter of the admin's answers. What a tenant writes goes into the URL as single segments, so that it reaches no
//! other place of that server; and into the DataSource's name as a hash (the peer's names are no names: defect 51).

use std::{collections::BTreeSet, str::FromStr, time::Duration};

use caldera_core::data_source::DataIdentity;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Bytes of an answer that are read.
pub const LARGEST_ANSWER: usize = 1 << 20;
/// Clusters of an answer.
const MOST_CLUSTERS: usize = 5000;
/// Characters of a cluster's name.
const LONGEST_NAME: usize = 253;
/// Parts of a DataSource's name that are the hash.
const HASH_BYTES: usize = 20;

/// Whom to ask, and how long.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// Where.
    pub url: CatalogueUrl,
    /// For an answer.
    pub timeout: Duration,
}

/// A URL with `{system}`, `{type}` and `{name}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueUrl {
    /// `https://host:port`.
    server: String,
    /// From the first `/` on.
    path: String,
}

/// Why a text is no such URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseCatalogueUrlError {
    /// Not of HTTP.
    #[error("it does not begin with http:// or https:// and a host")]
    NoServer,
    /// It would say the same of all data.
    #[error("there is no {{name}} in its path")]
    NoName,
    /// Something else is in braces.
    #[error("only {{system}}, {{type}} and {{name}} may be in braces, and not before the path")]
    UnknownPlaceholder,
}

impl FromStr for CatalogueUrl {
    type Err = ParseCatalogueUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or(ParseCatalogueUrlError::NoServer)?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let is_plain = |c: char| c.is_ascii_graphic() && c != '#';
        if !matches!(scheme, "http" | "https") || host.is_empty() || host.contains('@') || !text.chars().all(is_plain) {
            return Err(ParseCatalogueUrlError::NoServer);
        }
        if !path.contains("{name}") {
            return Err(ParseCatalogueUrlError::NoName);
        }
        let rest = ["{system}", "{type}", "{name}"].iter().fold(path.to_owned(), |rest, known| rest.replace(known, ""));
        if rest.contains(['{', '}']) || host.contains(['{', '}']) {
            return Err(ParseCatalogueUrlError::UnknownPlaceholder);
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { server: format!("{scheme}://{host}"), path })
    }
}

impl CatalogueUrl {
    /// Whom to ask.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What to ask of some data, with its attributes as JSON in parameter `attributes`. `None` of data whose words lead
    /// elsewhere in a path.
    #[must_use]
    pub fn path_of(&self, data: &DataIdentity) -> Option<String> {
        let words = [("{system}", &data.system), ("{type}", &data.category), ("{name}", &data.name)];
        // A server may decode a slash before it resolves dots.
        let leads_elsewhere =
            |word: &str| word.is_empty() || word.split(['/', '\\']).any(|part| [".", ".."].contains(&part));
        if words.iter().any(|(_, word)| leads_elsewhere(word)) {
            return None;
        }
        // Each in turn: what is filled in has no braces.
        let path = words.iter().fold(self.path.clone(), |path, (key, word)| path.replace(key, &escape(word)));
        if data.attributes.is_empty() {
            return Some(path);
        }
        let separator = if path.contains('?') { '&' } else { '?' };
        Some(format!("{path}{separator}attributes={}", escape(&json!(data.attributes).to_string())))
    }
}

/// Percent-encoding of all but RFC 3986's unreserved characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CatalogueAnswer {
    cluster_names: Vec<String>,
}

/// The clusters that an answer names.
///
/// # Errors
/// What is wrong with it.
pub fn read_answer(body: &[u8]) -> Result<BTreeSet<String>, String> {
    let answer: CatalogueAnswer = serde_json::from_slice(body).map_err(|error| format!("it is no answer: {error}"))?;
    if answer.cluster_names.len() > MOST_CLUSTERS {
        return Err(format!("it names more than {MOST_CLUSTERS} clusters"));
    }
    let wrong = |name: &&String| name.is_empty() || name.len() > LONGEST_NAME;
    if answer.cluster_names.iter().any(|name| wrong(&name)) {
        return Err("it names a cluster of no name, or of too long a one".to_owned());
    }
    Ok(answer.cluster_names.into_iter().collect())
}

/// The name of the DataSource that is made for some data: the same for the same data, and none that a user could have
/// another one's data get.
#[must_use]
pub fn name_source(data: &DataIdentity) -> String {
    let words = json!([data.system, data.category, data.name, data.attributes]).to_string();
    let hash = Sha256::digest(words.as_bytes());
    let hex: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("catalogue-{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(system: &str, name: &str, attributes: &[(&str, &str)]) -> DataIdentity {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        DataIdentity { system: system.into(), category: "table".into(), name: name.into(), attributes }
    }

    #[test]
    fn what_a_tenant_writes_is_one_segment_of_the_path() {
        let url: CatalogueUrl = "http://catalogue.data:8080/v1/{system}/{type}/{name}".parse().unwrap();
        assert_eq!(url.server(), "http://catalogue.data:8080");
        assert_eq!(url.path_of(&data("hive", "prod.users", &[])).unwrap(), "/v1/hive/table/prod.users");
        let hostile = data("{name}", "a/admin?x=1#y", &[]);
        assert_eq!(url.path_of(&hostile).unwrap(), "/v1/%7Bname%7D/table/a%2Fadmin%3Fx%3D1%23y");
        for word in ["", ".", "..", "../admin", "a/../../admin", "a\\..\\b"] {
            assert_eq!(url.path_of(&data(word, "users", &[])), None, "{word:?} leads elsewhere");
        }
        let with = data("hive", "users", &[("day", "1 2")]);
        assert_eq!(url.path_of(&with).unwrap(), "/v1/hive/table/users?attributes=%7B%22day%22%3A%221%202%22%7D");
        let query: CatalogueUrl = "https://catalogue?name={name}".parse().unwrap();
        assert_eq!(query.path_of(&with).unwrap(), "/?name=users&attributes=%7B%22day%22%3A%221%202%22%7D");
    }

    #[test]
    fn what_is_no_url_of_a_catalogue_is_refused_in_words() {
        use ParseCatalogueUrlError::{NoName, NoServer, UnknownPlaceholder};
        for (text, wrong) in [
            ("catalogue/{name}", NoServer),
            ("ftp://catalogue/{name}", NoServer),
            ("http:///{name}", NoServer),
            ("http://user:secret@catalogue/{name}", NoServer),
            ("http://catalogue/ {name}", NoServer),
            ("http://catalogue/tables", NoName),
            ("http://{name}/x", NoName),
            ("http://{system}/{name}", UnknownPlaceholder),
            ("http://catalogue/{name}/{user}", UnknownPlaceholder),
        ] {
            assert_eq!(text.parse::<CatalogueUrl>(), Err(wrong), "{text}");
        }
    }

    #[test]
    fn an_answer_names_clusters_or_is_none() {
        let read = |text: &str| read_answer(text.as_bytes());
        assert_eq!(read(r#"{"clusterNames": ["m2", "m1", "m2"]}"#).unwrap().len(), 2);
        assert!(read(r#"{"clusterNames": []}"#).unwrap().is_empty());
        for text in ["", "[]", "{}", r#"{"clusterNames": "m1"}"#, r#"{"clusterNames": [""]}"#] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&json!({"clusterNames": vec!["m"; 5001]}).to_string()).is_err());
    }

    #[test]
    fn a_source_has_a_name_whatever_its_data_is_called_defect_51() {
        let name = |system: &str, name: &str| name_source(&data(system, name, &[]));
        let of = name("Hive_2", "Prod/Users ü");
        assert!(of.len() <= 63 && of.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{of}");
        assert_eq!(of, name("Hive_2", "Prod/Users ü"));
        assert_ne!(name("a", "b-c"), name("a-b", "c"), "what is put together is told apart");
        assert_ne!(name("a", "b"), name_source(&data("a", "b", &[("k", "v")])));
    }
}
