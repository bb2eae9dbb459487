//! The string and number formats a CRD schema may name (`apiserver/validation/formats.go`,
//! kube-openapi `strfmt`). Other formats are ignored.

use std::net::IpAddr;
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use super::node::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Int32,
    Int64,
    Float,
    Double,
    /// A string format, by its name as written.
    Text(&'static str),
}

const TEXT_FORMATS: [&str; 27] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "k8s-short-name",
    "k8s-long-name",
];

impl Format {
    /// The format as far as it means something for these types.
    pub fn parse(text: &str, types: &[Kind]) -> Option<Self> {
        match types {
            [] | [Kind::String] => {
                let plain = text.replace('-', "");
                // The name is kept as written, since errors repeat it.
                TEXT_FORMATS
                    .iter()
                    .find(|known| **known == text)
                    .or_else(|| TEXT_FORMATS.iter().find(|known| known.replace('-', "") == plain))
                    .map(|known| Self::Text(known))
            }
            [Kind::Integer] if text == "int32" => Some(Self::Int32),
            [Kind::Integer] if text == "int64" => Some(Self::Int64),
            [Kind::Number] if text == "float" => Some(Self::Float),
            [Kind::Number] if text == "double" => Some(Self::Double),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float",
            Self::Double => "double",
            Self::Text(name) => name,
        }
    }

    /// Whether a string has this format. Number formats say yes.
    pub fn accepts(self, text: &str) -> bool {
        let Self::Text(name) = self else { return true };
        match name {
            "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            "uri" => is_request_uri(text),
            "email" => EMAIL.is_match(text),
            "hostname" => is_hostname(text),
            "ipv4" => text.contains('.') && sloppy_ip(text).is_some(),
            "ipv6" => text.contains(':') && text.parse::<IpAddr>().is_ok(),
            "cidr" => is_cidr(text),
            "mac" => MAC.is_match(text),
            "uuid" => UUID.is_match(text),
            "uuid3" => UUID.is_match(text) && version_digit(text) == Some('3'),
            "uuid4" => UUID.is_match(text) && version_digit(text) == Some('4') && variant_ok(text),
            "uuid5" => UUID.is_match(text) && version_digit(text) == Some('5') && variant_ok(text),
            "isbn" => is_isbn10(text) || is_isbn13(text),
            "isbn10" => is_isbn10(text),
            "isbn13" => is_isbn13(text),
            "creditcard" => is_credit_card(text),
            "ssn" => SSN.is_match(text),
            "hexcolor" => HEX_COLOR.is_match(text),
            "rgbcolor" => RGB_COLOR.is_match(text),
            "byte" => is_base64(text),
            "date" => is_date(text),
            "duration" => is_duration(text),
            "datetime" | "date-time" => is_date_time(text),
            "k8s-short-name" => text.len() <= 63 && SHORT_NAME.is_match(text),
            "k8s-long-name" => text.len() <= 253 && LONG_NAME.is_match(text),
            _ => true,
        }
    }
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        // The patterns are literals below; one that does not compile fails the test of this module.
        #[allow(clippy::expect_used)]
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("literal pattern"));
    };
}

pattern!(EMAIL, r"^[^@\s<>]+@[^@\s<>]+$|^[^<>]*<[^@\s<>]+@[^@\s<>]+>$");
pattern!(
    HOSTNAME,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
pattern!(
    MAC,
    r"^(?i)(([0-9a-f]{2}:){5}[0-9a-f]{2}|([0-9a-f]{2}-){5}[0-9a-f]{2}|([0-9a-f]{2}:){7}[0-9a-f]{2}|([0-9a-f]{2}-){7}[0-9a-f]{2}|([0-9a-f]{2}:){19}[0-9a-f]{2}|([0-9a-f]{2}-){19}[0-9a-f]{2}|([0-9a-f]{4}\.){2}[0-9a-f]{4}|([0-9a-f]{4}\.){3}[0-9a-f]{4})$"
);
pattern!(UUID, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    RGB_COLOR,
    r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$"
);
pattern!(CLOCK, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
pattern!(
    GO_DURATION,
    r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$"
);
pattern!(
    GO_TIMESTAMP,
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,][0-9]+)?(?:Z|[+-]([0-9]{2}):([0-9]{2}))$"
);
pattern!(SCALA_DURATION, r"(\d+)\s*([A-Za-zµ]+)");
pattern!(SHORT_NAME, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
pattern!(LONG_NAME, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$");
pattern!(
    CREDIT_CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
);

fn hex_digits(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| *c != '-')
}

fn version_digit(text: &str) -> Option<char> {
    hex_digits(text).nth(12)
}

fn variant_ok(text: &str) -> bool {
    hex_digits(text).nth(16).is_some_and(|c| matches!(c.to_ascii_lowercase(), '8' | '9' | 'a' | 'b'))
}

fn is_hostname(text: &str) -> bool {
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

/// Decimal parts may have leading zeros, as Go allowed before 1.17.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))?;
        *octet = part.parse::<u32>().ok().and_then(|number| u8::try_from(number).ok())?;
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let (Some(address), Ok(length)) = (sloppy_ip(address), length.parse::<u8>()) else { return false };
    length <= if address.is_ipv4() { 32 } else { 128 }
}

fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b <= 0x20 || b == 0x7f) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let time = time.split('t').next().unwrap_or(time);
    is_date(date)
        && CLOCK.captures(time).is_some_and(|parts| {
            let part = |i: usize| parts.get(i).map_or("", |m| m.as_str());
            part(1) <= "23" && part(2) <= "59" && part(3) <= "59"
        })
}

/// Whether Go reads a span of time in it, as CEL does (`time.ParseDuration`), but for one of more than 292 years.
pub fn is_go_duration(text: &str) -> bool {
    matches!(text, "0" | "+0" | "-0") || GO_DURATION.is_match(text)
}

/// Whether Go reads an instant of RFC 3339 in it, of the years that CEL knows (`time.Parse`, `minUnixTime`).
pub fn is_go_timestamp(text: &str) -> bool {
    let Some(parts) = GO_TIMESTAMP.captures(text) else { return false };
    let date = parts.get(1).map_or("", |date| date.as_str());
    let at_most = |part: usize, most: u8| {
        parts.get(part).is_none_or(|number| number.as_str().parse::<u8>().is_ok_and(|number| number <= most))
    };
    let offset = at_most(5, 24) && at_most(6, 60);
    is_date(date) && !date.starts_with("0000") && at_most(2, 23) && at_most(3, 59) && at_most(4, 59) && offset
}

fn is_duration(text: &str) -> bool {
    if is_go_duration(text) {
        return true;
    }
    // Scala's notation: the last name of each unit may be continued ("minutes").
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    SCALA_DURATION.captures_iter(text).any(|found| {
        let unit = found.get(2).map_or("", |m| m.as_str()).to_lowercase();
        UNITS
            .iter()
            .any(|names| names.contains(&unit.as_str()) || names.last().is_some_and(|last| unit.starts_with(last)))
    })
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .enumerate()
        .map(|(i, c)| if i == 9 && matches!(c, 'X' | 'x') { 10 } else { c.to_digit(10).unwrap_or(99) })
        .collect();
    digits.len() == 10
        && digits.iter().all(|d| *d <= 10)
        && digits.iter().zip((1..=10).rev()).map(|(d, weight)| d * weight).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits: Vec<u32> =
        text.chars().filter(|c| !matches!(c, '-' | ' ')).map(|c| c.to_digit(10).unwrap_or(99)).collect();
    digits.len() == 13
        && digits.iter().all(|d| *d <= 9)
        && digits.iter().enumerate().map(|(i, d)| if i % 2 == 0 { *d } else { d * 3 }).sum::<u32>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(i, d)| match (i % 2, d * 2) {
            (0, _) => d,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_tells_its_own_from_others() {
        let cases: [(&str, &[&str], &[&str]); 17] = [
            (
                "date-time",
                &["2024-01-01T00:00:00Z", "2024-01-01t01:02:03.5+02:00"],
                &["2024-01-01", "2024-01-01T25:00:00Z"],
            ),
            ("date", &["2024-02-29"], &["2024-13-01", "2024-1-1", "2023-02-29"]),
            ("ipv4", &["10.0.0.1", "010.0.0.1"], &["300.1.1.1", "::1", "1.2.3"]),
            ("ipv6", &["::1", "2001:db8::1"], &["10.0.0.1", ":::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("byte", &["aGk="], &["", "***", "a"]),
            ("uuid", &["11111111-2222-3333-4444-555555555555"], &["x"]),
            ("uuid4", &["11111111-2222-4333-8444-555555555555"], &["11111111-2222-3333-4444-555555555555"]),
            ("duration", &["5m", "1h30m", "P1D", "5 minutes", "-1.5h"], &["5x", "", "five"]),
            ("hostname", &["a.example.com", "host"], &["-a", "a_b"]),
            ("mac", &["01:23:45:67:89:ab"], &["01:23"]),
            ("uri", &["https://a/b", "/path", "urn:x"], &["no", ""]),
            ("email", &["a@b.c"], &["a"]),
            ("hexcolor", &["#FFF", "ffffff"], &["#ff"]),
            ("rgbcolor", &["rgb(1,2,255)"], &["rgb(1,2,256)"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044"]),
        ];
        for (name, good, bad) in cases {
            let format = Format::parse(name, &[Kind::String]).unwrap();
            for text in good {
                assert!(format.accepts(text), "{name} should accept {text}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{name} should refuse {text}");
            }
        }
        for name in TEXT_FORMATS {
            let _ = Format::Text(name).accepts("x");
        }
    }

    /// What Go 1.26 says of them.
    #[test]
    fn cel_reads_spans_and_instants_as_go_does() {
        for text in ["5m", "0", "+0", "1h30m", "-1.5h", ".5s", "5.s", "+5m", "1µs", "1s2h"] {
            assert!(is_go_duration(text), "{text}");
        }
        for text in ["1d", "3 days", "5 minutes", "P1D", "1h 1m", ".s", "", "1h1d"] {
            assert!(!is_go_duration(text), "{text}");
        }
        for text in [
            "2024-02-29T23:59:59Z",
            "2024-01-01T00:00:00.1234567890123Z",
            "2024-01-01T00:00:00,5-00:00",
            "2024-01-01T0:00:00Z",
            "2024-01-01T00:00:00+24:60",
        ] {
            assert!(is_go_timestamp(text), "{text}");
        }
        for text in [
            "2024-01-01",
            "2024-01-01t00:00:00Z",
            "2024-01-01T00:00:00z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00x5Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T24:00:00Z",
            "2024-02-30T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2024-01-01T00:00:00+25:00",
            "2024-01-01T00:00:00+0200",
            "2024-01-01T00:00:00",
        ] {
            assert!(!is_go_timestamp(text), "{text}");
        }
    }

    #[test]
    fn a_format_counts_only_for_its_type() {
        assert_eq!(Format::parse("int32", &[Kind::Integer]), Some(Format::Int32));
        assert_eq!(Format::parse("int32", &[Kind::Number]), None);
        assert_eq!(Format::parse("date", &[Kind::Integer]), None);
        assert_eq!(Format::parse("made-up", &[Kind::String]), None);
    }
}
