//! When the certificates end that a process serves with, as a gauge: somebody has to know before callers refuse them.

use std::sync::Arc;

use prometheus_client::metrics::{family::Family, gauge::Gauge};

use super::read_validity;
use crate::metric::{Kind, Labels, Metric, SharedRegistry};

/// When a certificate ends.
pub const CERTIFICATE_EXPIRY: Metric = Metric {
    name: "caldera_certificate_expiry_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["certificate"],
    help: "When a certificate ends that is served with (`serving`) or that callers are told to trust (`authority`), as \
           seconds since 1970",
};
/// What is served with.
pub const SERVING: &str = "serving";
/// What callers are told to trust.
pub const AUTHORITY: &str = "authority";

/// The gauges of [`CERTIFICATE_EXPIRY`]. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CertificateExpiry(Arc<Family<Labels, Gauge>>);

impl CertificateExpiry {
    /// Shows them.
    #[must_use]
    pub fn register(registry: &SharedRegistry) -> Self {
        let family = Family::default();
        CERTIFICATE_EXPIRY.register(registry, family.clone());
        Self(Arc::new(family))
    }

    /// From now on the certificate of this role is the first one of `pem`. What can not be read is not shown.
    pub fn show_certificate(&self, role: &str, pem: &str) {
        let labels = CERTIFICATE_EXPIRY.build_labels([role]);
        match read_validity(pem) {
            Ok(validity) => {
                self.0.get_or_create(&labels).set(validity.ends.as_second());
            }
            Err(_) => {
                self.0.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use crate::metric::{encode, find_undeclared};

    #[test]
    fn the_end_of_the_certificate_that_was_shown_last_is_what_is_shown() {
        let registry = SharedRegistry::default();
        let expiry = CertificateExpiry::register(&registry);
        let ends = |second: i64| {
            let time = |second| jiff::Timestamp::from_second(second).unwrap();
            let validity = Validity { begins: time(1_000_000_000), ends: time(second) };
            Authority::with_validity("test", validity).unwrap().cert_pem
        };
        expiry.show_certificate(SERVING, &ends(1_800_000_000));
        expiry.show_certificate(SERVING, &ends(1_900_000_000));
        let text = encode(&registry).unwrap();
        let line = "caldera_certificate_expiry_timestamp_seconds{certificate=\"serving\"} 1900000000\n";
        assert!(text.contains(line) && find_undeclared(&text, &[CERTIFICATE_EXPIRY]).is_empty(), "{text}");
        expiry.show_certificate(SERVING, "no certificate");
        assert!(!encode(&registry).unwrap().contains("serving"));
    }
}
