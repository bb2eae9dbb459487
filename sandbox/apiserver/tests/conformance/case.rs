//! The recorded cases as they stand in the files: one JSON document per line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub struct Case {
    pub id: String,
    pub area: String,
    pub why: String,
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub webhooks: BTreeMap<String, Value>,
    #[serde(default)]
    pub setup: Vec<Entry>,
    #[serde(default)]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub cleanup: Vec<Request>,
    /// It asks for a service address by name, of which the cluster has each once.
    #[serde(skip)]
    pub names_service_address: bool,
    /// Only in the kubectl area.
    #[serde(flatten)]
    pub kubectl: BTreeMap<String, Value>,
}

impl Case {
    pub fn tagged(&self, tag: &str) -> bool {
        self.tags.iter().any(|t| t == tag)
    }
}

/// A request, or an instruction to the runner.
pub enum Entry {
    Request(Box<Request>),
    Control(Control),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match control_of(&raw) {
            Some(control) => Ok(Entry::Control(control)),
            None => serde_json::from_str(raw.get()).map(Entry::Request).map_err(serde::de::Error::custom),
        }
    }
}

pub enum Step {
    Exchange(Box<Exchange>),
    Control(Control),
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match control_of(&raw) {
            Some(control) => Ok(Step::Control(control)),
            None => serde_json::from_str(raw.get()).map(Step::Exchange).map_err(serde::de::Error::custom),
        }
    }
}

fn control_of(raw: &RawValue) -> Option<Control> {
    #[derive(Deserialize)]
    struct Probe {
        control: Option<Control>,
    }
    serde_json::from_str::<Probe>(raw.get()).ok().and_then(|p| p.control)
}

#[derive(Deserialize, Clone)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Control {
    Settle { ms: u64 },
    WaitEstablished { crd: String },
    WaitGone { path: String },
    Compact,
}

#[derive(Deserialize, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub user: Option<String>,
    /// Kept as written: the order of keys reaches the server.
    pub body: Option<Box<RawValue>>,
    #[serde(rename = "bodyText")]
    pub body_text: Option<String>,
    #[serde(rename = "bodyRepeat")]
    pub body_repeat: Option<Repeat>,
    #[serde(rename = "bodyFrom")]
    pub body_from: Option<BodyFrom>,
    /// Only in background requests of the kubectl area.
    pub content_type: Option<String>,
}

#[derive(Deserialize, Clone)]
pub struct Repeat {
    pub prefix: String,
    pub unit: String,
    pub times: usize,
    pub suffix: String,
}

#[derive(Deserialize, Clone)]
pub struct BodyFrom {
    pub step: usize,
    pub patch: Value,
}

#[derive(Deserialize)]
pub struct Exchange {
    pub request: Request,
    pub response: Response,
    #[serde(default)]
    pub view: Option<Value>,
    #[serde(default)]
    pub webhook_calls: Vec<Value>,
    #[serde(default)]
    pub watch: Option<Watch>,
    #[serde(default)]
    pub during: Vec<During>,
}

#[derive(Deserialize)]
pub struct During {
    #[serde(default)]
    pub after_events: usize,
    #[serde(flatten)]
    pub rest: Value,
}

#[derive(Deserialize)]
pub struct Watch {
    pub end: String,
    pub bookmarks: Option<String>,
}

#[derive(Deserialize)]
pub struct Response {
    pub status: u16,
    #[serde(default)]
    pub headers: BTreeMap<String, Value>,
    pub body: Option<Value>,
    pub events: Option<Vec<Value>>,
}

#[derive(Deserialize)]
pub struct Fixture {
    pub set: String,
    pub name: String,
    pub body: Box<RawValue>,
}

/// All cases of the folder, in file order.
pub fn load(folder: &Path) -> Vec<Case> {
    let of_text = |text: &str, mut case: Case| {
        case.names_service_address = text.contains("\"clusterIP\":\"10.");
        case
    };
    caldera_fixtures::list_files(folder, "jsonl").iter().flat_map(|file| lines(file, of_text)).collect()
}

pub fn fixtures(folder: &Path) -> Vec<Fixture> {
    lines(&folder.join("fixtures/crds.jsonl"), |_, fixture| fixture)
}

fn lines<T: for<'de> Deserialize<'de>>(file: &Path, of_text: impl Fn(&str, T) -> T) -> Vec<T> {
    caldera_fixtures::read_text(file)
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(n, line)| {
            let read = serde_json::from_str(line).unwrap_or_else(|e| panic!("{} line {}: {e}", file.display(), n + 1));
            of_text(line, read)
        })
        .collect()
}
