//! From when to when a certificate serves, read from its PEM.
//!
//! Rule (RFC 5280, 4.1): a certificate is a sequence, its first part is one too, and in that the validity is the fifth
//! field, or the fourth where the version is left out. Its two times are in UTC. A `UTCTime` has two digits of the
//! year, of which 50 to 99 are of the last century; a `GeneralizedTime` has four. One that never ends says so by
//! 99991231235959Z (4.1.2.5), which is more than a [`Timestamp`] can be: its largest value stands for that. Beside it
//! the issuer is read, the field before, and nothing else, so that no ASN.1 library is wanted.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::{TlsError, parse_certificates};

/// From when to when a certificate serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Not before this time.
    pub begins: Timestamp,
    /// Not after this time.
    pub ends: Timestamp,
}

/// The validity of the first certificate of a PEM.
///
/// # Errors
/// If there is none, or it is no certificate.
pub fn read_validity(pem: &str) -> Result<Validity, TlsError> {
    let certificates = parse_certificates("certificate", pem)?;
    certificates.first().and_then(|der| find_validity(der)).ok_or_else(make_unreadable)
}

/// The validity of each certificate of a PEM.
///
/// # Errors
/// If there is none, or one is no certificate.
pub fn read_validities(pem: &str) -> Result<Vec<Validity>, TlsError> {
    let certificates = parse_certificates("certificate", pem)?;
    certificates.iter().map(|der| find_validity(der).ok_or_else(make_unreadable)).collect()
}

fn make_unreadable() -> TlsError {
    TlsError::Pem { what: "certificate", message: "it has no validity".to_owned() }
}

/// Whether two certificates say that an authority of the same name signed them, of whatever key.
///
/// # Errors
/// If one is no certificate.
pub fn have_same_issuer(pem: &str, other: &str) -> Result<bool, TlsError> {
    let unreadable = || TlsError::Pem { what: "certificate", message: "it has no issuer".to_owned() };
    let issuer_of = |pem: &str| -> Result<Vec<u8>, TlsError> {
        let certificates = parse_certificates("certificate", pem)?;
        let issuer = certificates.first().and_then(|der| Some(split_value(skip_to_issuer(der)?)?.0.content.to_vec()));
        issuer.ok_or_else(unreadable)
    };
    Ok(issuer_of(pem)? == issuer_of(other)?)
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A certificate from its issuer on.
fn skip_to_issuer(der: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = split_value(der).filter(|(value, _)| value.tag == SEQUENCE)?;
    let (signed, _) = split_value(certificate.content)?;
    let (first, rest) = split_value(signed.content)?;
    // Version, serial number, algorithm.
    let before = if first.tag == VERSION { 2 } else { 1 };
    (0..before).try_fold(rest, |rest, _| Some(split_value(rest)?.1))
}

fn find_validity(der: &[u8]) -> Option<Validity> {
    let (_, rest) = split_value(skip_to_issuer(der)?)?;
    let (validity, _) = split_value(rest).filter(|(value, _)| value.tag == SEQUENCE)?;
    let (begins, rest) = split_value(validity.content)?;
    let (ends, _) = split_value(rest)?;
    Some(Validity { begins: begins.to_time()?, ends: ends.to_time()? })
}

struct Value<'a> {
    tag: u8,
    content: &'a [u8],
}

/// The first value (DER), and what follows it.
fn split_value(der: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // The length of the length; certificates are far smaller than what four octets say.
        0x81..=0x84 => {
            let (octets, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (octets.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((Value { tag, content }, rest))
}

impl Value<'_> {
    fn to_time(&self) -> Option<Timestamp> {
        let text = std::str::from_utf8(self.content).ok()?;
        let text = match self.tag {
            UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
            UTC_TIME => format!("19{text}"),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
        // What it can not be is later than its largest value: no year of four digits is before its smallest.
        Some(time.to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |time| time.timestamp()))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_validity_of_an_authority_and_of_what_it_signs_is_as_it_was_asked_for() {
        let validity = Validity { begins: at("2026-01-02T03:04:05Z"), ends: at("2049-12-31T23:59:59Z") };
        let authority = Authority::with_validity("test", validity).unwrap();
        let authority_pem = authority.cert_pem.clone();
        assert_eq!(read_validity(&authority_pem).unwrap(), validity);
        // From 2050 on times have another form.
        let later = Validity { begins: at("2049-12-31T23:59:59Z"), ends: at("2050-01-01T00:00:00Z") };
        let identity = authority.with_leaves_of(later).issue_server_identity("s", &["s"], &[]).unwrap();
        assert_eq!(read_validity(&identity.cert_pem).unwrap(), later);
        let both = format!("{}{}", authority_pem, identity.cert_pem);
        assert_eq!(read_validities(&both).unwrap(), [validity, later]);
        let unlimited = read_validity(&Authority::new("test").unwrap().cert_pem).unwrap();
        assert!(unlimited.begins < at("2000-01-01T00:00:00Z") && unlimited.ends > at("4000-01-01T00:00:00Z"));
    }

    #[test]
    fn a_certificate_that_never_ends_ends_as_late_as_can_be() {
        let validity = Validity { begins: at("2026-01-01T00:00:00Z"), ends: at("9999-12-30T21:00:00Z") };
        let authority = Authority::with_validity("test", validity).unwrap();
        let mut der = parse_certificates("certificate", &authority.cert_pem).unwrap().remove(0).to_vec();
        assert_eq!(find_validity(&der), Some(validity));
        let [said, never] = [b"99991230210000Z", b"99991231235959Z"];
        let place = der.windows(said.len()).position(|part| part == said).unwrap();
        der[place..place + never.len()].copy_from_slice(never);
        assert_eq!(find_validity(&der), Some(Validity { ends: Timestamp::MAX, ..validity }));
        // And what is computed with it overflows nothing.
        assert!(Timestamp::MAX.duration_since(Timestamp::MIN).as_secs() > 0);
    }

    #[test]
    fn the_issuer_is_compared_by_name_and_not_by_key() {
        let [old, new, other] = ["ours", "ours", "others"].map(|name| Authority::new(name).unwrap());
        let leaf = old.issue_server_identity("s", &["s"], &[]).unwrap().cert_pem;
        assert!(have_same_issuer(&leaf, &old.cert_pem).unwrap() && have_same_issuer(&leaf, &new.cert_pem).unwrap());
        assert!(!have_same_issuer(&leaf, &other.cert_pem).unwrap());
        assert!(have_same_issuer("", &other.cert_pem).is_err());
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_has_no_validity() {
        let authority = Authority::new("test").unwrap();
        let der = parse_certificates("certificate", &authority.cert_pem).unwrap().remove(0);
        assert!(find_validity(&der).is_some());
        for length in 0..der.len() {
            assert!(find_validity(&der[..length]).is_none(), "{length}");
        }
        for garbage in [&[0x30][..], &[0x30, 0x85, 1], &[0x30, 0x84, 255, 255, 255, 255], &[0x30, 2, 0x30, 0]] {
            assert!(find_validity(garbage).is_none());
        }
        assert!(read_validity("").unwrap_err().to_string().contains("there is none"));
    }
}
