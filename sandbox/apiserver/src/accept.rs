//! What form the client wants its answer in (`endpoints/handlers/negotiation`).

use crate::body::FORMATS;
use crate::error::Status;

/// What a watch can be streamed as.
pub const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
}

impl Encoding {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// A form other than the object's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Transform {
    #[default]
    None,
    /// `meta.k8s.io/<version>`.
    Table(String),
    PartialObject(String),
    PartialList(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    pub encoding: Encoding,
    pub transform: Transform,
}

struct Clause<'a> {
    essence: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|p| p.split_once('=')).collect();
        let quality = parameters.iter().find(|(k, _)| *k == "q").and_then(|(_, v)| v.parse().ok()).unwrap_or(1.0);
        Self { essence, parameters, quality }
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(k, _)| *k == name).map(|(_, v)| *v)
    }

    fn output(&self) -> Option<Output> {
        let encoding = match self.essence {
            "application/json" | "*/*" | "application/*" | "" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => return None,
        };
        let version = self.parameter("v").unwrap_or_default();
        let known = self.parameter("g") == Some("meta.k8s.io") && matches!(version, "v1" | "v1beta1");
        let transform = match self.parameter("as") {
            None => Transform::None,
            Some("Table") if known => Transform::Table(version.to_owned()),
            Some("PartialObjectMetadata") if known => Transform::PartialObject(version.to_owned()),
            Some("PartialObjectMetadataList") if known => Transform::PartialList(version.to_owned()),
            Some(_) => return None,
        };
        Some(Output { encoding, transform })
    }
}

/// Which other forms of an object there are (`AllowsMediaTypeTransform`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forms {
    None,
    /// Metadata alone: what is only created, as reviews and tokens are, has no table.
    Metadata,
    All,
}

/// The first acceptable clause by quality.
pub fn negotiate_output(accept: &str, forms: Forms) -> Result<Output, Status> {
    if accept.trim().is_empty() {
        return Ok(Output::default());
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(|c| Clause::parse(c.trim())).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
        .iter()
        .filter_map(Clause::output)
        .find(|output| match output.transform {
            Transform::None => true,
            Transform::Table(_) => forms == Forms::All,
            Transform::PartialObject(_) | Transform::PartialList(_) => forms != Forms::None,
        })
        .ok_or_else(|| Status::not_acceptable(&FORMATS))
}

/// The check that the router of built-in kinds makes before anything else: it knows no `application/*`.
pub fn check_routed(accept: &str, forms: &[&str], streams: bool) -> Result<(), Status> {
    if accept.trim().is_empty() {
        return Ok(());
    }
    let acceptable = accept.split(',').any(|clause| {
        let essence = clause.split(';').next().unwrap_or_default().trim();
        essence == "*/*" || forms.contains(&essence)
    });
    if acceptable {
        return Ok(());
    }
    let mut known = forms.to_vec();
    if streams {
        known.extend(STREAMS);
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", known.join(", "));
    let mut status = Status::new(406, "NotAcceptable", message);
    status.details = Some(Box::default());
    Err(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_clause_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate_output(table, Forms::All).unwrap().transform, Transform::Table("v1".into()));
        assert_eq!(negotiate_output(table, Forms::None).unwrap().transform, Transform::None);
        assert_eq!(
            negotiate_output("application/vnd.kubernetes.protobuf,application/json", Forms::All).unwrap(),
            Output::default()
        );
        assert_eq!(negotiate_output(table, Forms::Metadata).unwrap().transform, Transform::None);
        assert!(negotiate_output("application/json;as=Table;v=v1;g=meta.k8s.io", Forms::Metadata).is_err());
        assert!(negotiate_output("text/html", Forms::All).is_err());
        assert!(negotiate_output("application/json;as=Nope;v=v1;g=meta.k8s.io", Forms::All).is_err());
    }
}
