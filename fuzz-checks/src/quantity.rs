//! Amounts: whatever text is one is rounded up to billionths, reads back from what it is shown as, and adds up.

use crate::cost::{Bound, within};
use caldera_core::quantity::Quantity;

const BOUND: Bound = Bound { ms: 20, ns_per_byte: 200, kib: 64, bytes_per_byte: 16 };

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (one, two) = text.split_once('\n').unwrap_or((text, "1500m"));
    let Ok(a) = within("parse", BOUND, one.len(), || one.parse::<Quantity>()) else { return };
    assert_eq!(a.to_string().parse(), Ok(a), "{one:?} is shown as {a}");
    assert_eq!(a.in_binary().to_string().parse(), Ok(a), "{one:?} is shown as {}", a.in_binary());
    let json = serde_json::to_string(&a).expect("a text");
    assert_eq!(serde_json::from_str::<Quantity>(&json).expect("as it was written"), a);
    if let Some(exact) = work_out(one) {
        assert_eq!(a.as_nano(), exact, "{one:?}");
    }
    assert!(a.is_negative() || a.in_few_digits() <= a);
    assert!(a.milli_ceil() * 1_000_000 >= a.as_nano() && a.units_ceil() * 1_000_000_000 >= a.as_nano());
    let Ok(b) = two.parse::<Quantity>() else { return };
    assert_eq!(a.saturating_add(b), b.saturating_add(a));
    assert_eq!(a.saturating_sub(b).is_zero(), a <= b);
    assert_eq!(a.signed_sub(b).is_negative(), a < b);
    assert!(a.is_negative() || a.times(2) >= a);
    assert_eq!(a.times(2), a.saturating_add(a));
}

/// The same by the rule, where numbers are small: digits, a point, a suffix; what is below a billionth rounds away from
/// zero.
fn work_out(text: &str) -> Option<i128> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 8 || fraction.len() > 8 {
        return None;
    }
    let (up, down): (i128, i128) = match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "" => (1, 1),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        _ => return None,
    };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (dividend, divisor) = (digits * up * 1_000_000_000, down * 10_i128.pow(u32::try_from(fraction.len()).ok()?));
    Some(sign * (dividend / divisor + i128::from(dividend % divisor != 0)))
}
