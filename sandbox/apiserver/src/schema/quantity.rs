//! The canonical text of a quantity (`resource.Quantity.String`): one of the two suffix families, the largest suffix
//! without a fraction.

/// `None` if the text is no quantity. Digits below a billionth are rounded up, as the API server does.
pub fn canonical_quantity(text: &str) -> Option<String> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) || digits.len() > 30 {
        return None;
    }
    let scale = Scale::parse(suffix)?;
    let nanos = to_nanos(whole, fraction, scale)?;
    let sign = if negative && nanos != 0 { "-" } else { "" };
    Some(format!("{sign}{}", print_quantity(nanos, scale)))
}

#[derive(Clone, Copy)]
enum Scale {
    Binary(u32),
    Decimal(i32),
    Exponent(i32),
}

const NANO: i128 = 1_000_000_000;

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            other => Self::Exponent(other.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

fn to_nanos(whole: &str, fraction: &str, scale: Scale) -> Option<i128> {
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let power = |exponent: u32| 10i128.checked_pow(exponent);
    let (mut numerator, exponent) = match scale {
        Scale::Binary(bits) => (mantissa.checked_mul(1i128 << bits)?, 9 - places),
        Scale::Decimal(exponent) | Scale::Exponent(exponent) => (mantissa, exponent.checked_add(9 - places)?),
    };
    if exponent >= 0 {
        numerator = numerator.checked_mul(power(exponent.unsigned_abs())?)?;
    } else {
        let divisor = power(exponent.unsigned_abs())?;
        numerator = numerator.div_euclid(divisor) + i128::from(numerator.rem_euclid(divisor) != 0);
    }
    Some(numerator)
}

fn print_quantity(nanos: i128, scale: Scale) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    if let Scale::Binary(_) = scale
        && nanos % NANO == 0
    {
        let value = nanos / NANO;
        // Below 1024 and for odd values there is no binary suffix.
        let steps = (0..=6).rev().find(|step| value % (1i128 << (10 * step)) == 0).unwrap_or(0);
        return format!("{}{}", value >> (10 * steps), ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps]);
    }
    let mut exponent = -9i32;
    let mut value = nanos;
    while value % 1000 == 0 && exponent < 18 {
        value /= 1000;
        exponent += 3;
    }
    if let Scale::Exponent(_) = scale {
        return if exponent == 0 { value.to_string() } else { format!("{value}e{exponent}") };
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let index = usize::try_from((exponent + 9) / 3).unwrap_or(3);
    format!("{value}{}", suffix[index.min(9)])
}

#[cfg(test)]
mod tests {
    use super::canonical_quantity;

    #[test]
    fn quantities_are_written_with_the_largest_exact_suffix() {
        for (text, wanted) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1000", "1k"),
            ("100", "100"),
            ("1.5Gi", "1536Mi"),
            ("12e6", "12e6"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1.50", "-1500m"),
            ("1025Ki", "1025Ki"),
            ("64Mi", "64Mi"),
            (".5", "500m"),
        ] {
            assert_eq!(canonical_quantity(text).as_deref(), Some(wanted), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "-"] {
            assert_eq!(canonical_quantity(text), None, "{text}");
        }
    }
}
