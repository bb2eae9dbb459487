//! The parts of a webhook's URL, with the complaints of Go's `net/url` about a text that is none (`Parse`).

use crate::error::go_quote;

/// The parts of a URL, as they were written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UrlParts<'a> {
    pub scheme: &'a str,
    pub user: Option<&'a str>,
    pub host: &'a str,
    pub query: &'a str,
    pub fragment: &'a str,
}

/// Splits a URL.
///
/// # Errors
///
/// `parse "url": why`, as Go says it.
pub fn split_url(url: &str) -> Result<UrlParts<'_>, String> {
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let trouble = |of: &str, why: String| format!("parse {}: {why}", go_quote(of));
    let parts = split_before_fragment(before).map_err(|why| trouble(before, why))?;
    check_escapes(fragment).map_err(|why| trouble(url, why))?;
    Ok(UrlParts { fragment, ..parts })
}

fn split_before_fragment(url: &str) -> Result<UrlParts<'_>, String> {
    if url.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = split_scheme(url)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parts = UrlParts { scheme, query, ..UrlParts::default() };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(parts);
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let path = match rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (parts.user, parts.host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            check_host(parts.host)?;
            check_user(parts.user.unwrap_or_default())?;
            path
        }
        None => rest,
    };
    check_escapes(path)?;
    Ok(parts)
}

/// The scheme, empty when there is none, and what follows it (`getScheme`).
fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    let end = url.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(url.len());
    let (scheme, rest) = url.split_at(end);
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => Err("missing protocol scheme".to_owned()),
        Some(rest) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok((scheme, rest)),
        _ => Ok(("", url)),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        host.get(end + 1..).unwrap_or_default()
    } else {
        host.rfind(':').and_then(|colon| host.get(colon..)).unwrap_or_default()
    };
    let digits = port.strip_prefix(':');
    if !port.is_empty() && !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", go_quote(port)));
    }
    check_escapes(host)?;
    let mut rest = host;
    while let Some(next) = rest.chars().next() {
        if next == '%' {
            // Only what is no ASCII may be escaped in a host, and the percent sign itself.
            let escape = rest.get(..3).unwrap_or(rest);
            if escape != "%25" && matches!(escape.as_bytes().get(1), Some(b'0'..=b'7')) {
                return Err(invalid_escape(escape));
            }
        } else if next.is_ascii() && !next.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"".contains(next) {
            return Err(format!("invalid character {} in host name", go_quote(&next.to_string())));
        }
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    Ok(())
}

fn check_user(user: &str) -> Result<(), String> {
    if user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
        return check_escapes(user);
    }
    Err("net/url: invalid userinfo".to_owned())
}

/// A percent sign stands before two hexadecimal digits.
fn check_escapes(text: &str) -> Result<(), String> {
    let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bad = text.match_indices('%').map(|(at, _)| text.split_at(at).1).find(|rest| {
        let bytes = rest.as_bytes();
        !hex(bytes.get(1)) || !hex(bytes.get(2))
    });
    bad.map_or(Ok(()), |rest| Err(invalid_escape(&rest.chars().take(3).collect::<String>())))
}

fn invalid_escape(escape: &str) -> String {
    format!("invalid URL escape {}", go_quote(escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of kube-apiserver 1.36 to webhook configurations with these URLs.
    #[test]
    fn what_is_no_url_is_refused_in_the_words_of_go() {
        let told = |url: &str| split_url(url).unwrap_err();
        for (url, why) in [
            ("https://x/%zz", "invalid URL escape \"%zz\""),
            ("https://x/%", "invalid URL escape \"%\""),
            ("https://x/%4", "invalid URL escape \"%4\""),
            ("https://x y", "invalid character \" \" in host name"),
            ("https://[::1", "missing ']' in host"),
            ("https://x:abc/", "invalid port \":abc\" after host"),
            ("https://x%41/", "invalid URL escape \"%41\""),
            ("https://x{/", "invalid character \"{\" in host name"),
            ("1https://x", "first path segment in URL cannot contain colon"),
            ("ht tp://x", "first path segment in URL cannot contain colon"),
            ("https://u ser@x/", "net/url: invalid userinfo"),
            ("%zz", "invalid URL escape \"%zz\""),
            ("https://x/#%zz", "invalid URL escape \"%zz\""),
            (":", "missing protocol scheme"),
        ] {
            assert_eq!(told(url), format!("parse \"{url}\": {why}"));
        }
        assert_eq!(told("https://x/\t"), "parse \"https://x/\\t\": net/url: invalid control character in URL");
    }

    #[test]
    fn a_url_has_its_parts_where_go_finds_them() {
        let found = |url| split_url(url).map(|parts| (parts.scheme, parts.host));
        assert_eq!(found("https://x<y/a b"), Ok(("https", "x<y")));
        assert_eq!(found("//x"), Ok(("", "x")));
        assert_eq!(found("https:/x"), Ok(("https", "")));
        assert_eq!(found("https:x"), Ok(("https", "")));
        assert_eq!(found("/a:b"), Ok(("", "")));
        assert_eq!(split_url("https://x/?%zz").map(|parts| parts.query), Ok("%zz"));
    }
}
