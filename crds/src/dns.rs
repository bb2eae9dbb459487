//! Names as Kubernetes takes them in paths (`apimachinery/pkg/util/validation`). What comes from outside and becomes
//! part of a path is checked by these first: `default/secrets?x=` would lead elsewhere.

/// Bytes of a label.
pub const LONGEST_LABEL: usize = 63;
/// Bytes of a subdomain.
pub const LONGEST_SUBDOMAIN: usize = 253;

/// Whether it is a DNS label (RFC 1123), as a namespace's name is.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= LONGEST_LABEL && is_part(name)
}

/// Whether it is a DNS subdomain, as most objects' names are.
#[must_use]
pub fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= LONGEST_SUBDOMAIN && name.split('.').all(is_part)
}

fn is_part(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_lead_elsewhere_is_no_name() {
        for good in ["a", "a-b", "0", &"x".repeat(63)] {
            assert!(is_dns_label(good) && is_dns_subdomain(good), "{good}");
        }
        for bad in
            ["", "default/secrets?x=", "..", ".", "a/b", "a%2fb", "A", "-a", "a-", "a b", "a#", "\u{e4}", "a.", "a..b"]
        {
            assert!(!is_dns_label(bad) && !is_dns_subdomain(bad), "{bad}");
        }
        assert!(is_dns_subdomain("a.b-c.d") && !is_dns_label("a.b"));
        assert!(
            !is_dns_label(&"x".repeat(64)) && is_dns_subdomain(&"x".repeat(253)) && !is_dns_subdomain(&"x".repeat(254))
        );
    }
}
