//! Placeholders of the recordings (`<uid:1>`, `<rv:2>`, `<time>`...): binding them at their first appearance in an
//! answer, checking them afterwards, and putting bound values into later requests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"<(uid|rv|lrv|suffix|continue|token):(\d+)>|<(time|microtime|age|hash|server|binary|webhook-url|webhook-ca|webhook-host)>",
    )
    .unwrap()
});

#[derive(Clone, Default)]
pub struct Bindings {
    pub values: BTreeMap<(String, u64), String>,
    /// Texts known before the case starts, such as the address of the webhook server.
    pub fixed: BTreeMap<String, String>,
}

impl Bindings {
    /// The text to send for a recorded request text.
    pub fn substitute(&self, text: &str) -> String {
        NAMED
            .replace_all(text, |caps: &regex::Captures<'_>| {
                let whole = caps.get(0).unwrap().as_str();
                let found = match (caps.get(1), caps.get(2), caps.get(3)) {
                    (Some(kind), Some(n), _) => self.lookup(kind.as_str(), n.as_str().parse().unwrap()),
                    (_, _, Some(name)) => self.fixed.get(name.as_str()).cloned(),
                    _ => None,
                };
                found.unwrap_or_else(|| whole.to_owned())
            })
            .into_owned()
    }

    fn lookup(&self, kind: &str, n: u64) -> Option<String> {
        let other = match kind {
            "rv" => "lrv",
            "lrv" => "rv",
            _ => kind,
        };
        self.values.get(&(kind.into(), n)).or_else(|| self.values.get(&(other.into(), n))).cloned()
    }

    /// Whether the actual text is one that the recorded text stands for; binds what was free. `Err` says why not.
    pub fn matches(&mut self, golden: &str, actual: &str) -> Result<(), String> {
        if golden == actual {
            return Ok(());
        }
        if !golden.contains('<') || !NAMED.is_match(golden) {
            return Err("differs".into());
        }
        let mut pattern = String::from("(?s)^");
        let mut names: Vec<(String, Option<u64>)> = Vec::new();
        let mut last = 0;
        for caps in NAMED.captures_iter(golden) {
            let whole = caps.get(0).unwrap();
            pattern.push_str(&regex::escape(&golden[last..whole.start()]));
            last = whole.end();
            let (name, n) = match caps.get(1) {
                Some(kind) => (kind.as_str(), Some(caps[2].parse().unwrap())),
                None => (caps.get(3).unwrap().as_str(), None),
            };
            if let Some(fixed) = self.fixed.get(name) {
                pattern.push_str(&regex::escape(fixed));
            } else {
                pattern.push_str(&format!("({})", shape(name)));
                names.push((name.to_owned(), n));
            }
        }
        pattern.push_str(&regex::escape(&golden[last..]));
        pattern.push('$');
        let caps = Regex::new(&pattern).unwrap().captures(actual).ok_or("differs")?;
        for (i, (name, n)) in names.iter().enumerate() {
            if let Some(n) = n {
                self.bind(name, *n, &caps[i + 1])?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, kind: &str, n: u64, value: &str) -> Result<(), String> {
        match kind {
            "rv" => self.bind_version(n, value),
            "lrv" => self.bind_list_version(n, value),
            _ => self.bind_unique(kind, n, value),
        }
    }

    fn bind_unique(&mut self, kind: &str, n: u64, value: &str) -> Result<(), String> {
        // A token is opaque and may be minted anew for the same position.
        if kind == "continue" {
            self.values.insert((kind.into(), n), value.into());
            return Ok(());
        }
        for ((k, m), bound) in &self.values {
            if k != kind {
                continue;
            }
            if *m == n && bound != value {
                return Err(format!("<{kind}:{n}> is {bound}"));
            }
            if *m != n && bound == value && kind != "suffix" {
                return Err(format!("the same value as <{kind}:{m}>"));
            }
        }
        self.values.insert((kind.into(), n), value.into());
        Ok(())
    }

    fn bind_version(&mut self, n: u64, value: &str) -> Result<(), String> {
        let v: u64 = value.parse().map_err(|_| "not a number".to_owned())?;
        for ((kind, m), bound) in &self.values {
            let b: u64 = bound.parse().unwrap_or(0);
            let broken = match kind.as_str() {
                "rv" if *m == n => (b != v).then(|| format!("<rv:{n}> is {b}")),
                "rv" if *m < n => (b >= v).then(|| format!("not above <rv:{m}> = {b}")),
                "rv" => (b <= v).then(|| format!("not below <rv:{m}> = {b}")),
                "lrv" if *m < n => (b >= v).then(|| format!("not above <lrv:{m}> = {b}")),
                _ => None,
            };
            if let Some(why) = broken {
                return Err(why);
            }
        }
        self.values.insert(("rv".into(), n), value.into());
        Ok(())
    }

    fn bind_list_version(&mut self, n: u64, value: &str) -> Result<(), String> {
        let v: u64 = value.parse().map_err(|_| "not a number".to_owned())?;
        for ((kind, m), bound) in &self.values {
            let b: u64 = bound.parse().unwrap_or(0);
            if kind == "rv" && *m <= n && v < b {
                return Err(format!("below <rv:{m}> = {b}"));
            }
            if kind == "rv" && *m > n && v >= b {
                return Err(format!("not below <rv:{m}> = {b}"));
            }
        }
        self.values.insert(("lrv".into(), n), value.into());
        Ok(())
    }
}

fn shape(name: &str) -> &'static str {
    match name {
        "uid" => "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "rv" | "lrv" => r"\d+",
        "suffix" => "[bcdfghjklmnpqrstvwxz2456789]{5}",
        "time" => r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        "microtime" => r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z",
        "age" => r"(?:\d+[smhdy])+|<unknown>",
        "hash" => "[0-9A-F]{128}",
        "server" | "webhook-host" => r"[A-Za-z0-9.\-\[\]:]+",
        _ => ".+?",
    }
}
