//! Go's durations (`1h2m3.5s`): which of two is longer, and whole seconds of one. Texts that are no durations count as
//! zero when compared, and give no seconds.

/// The longest of these texts; unreadable ones count as zero. Of equals the smaller text, whatever their order.
pub(super) fn find_longest_duration<'a>(texts: impl Iterator<Item = &'a str>) -> Option<String> {
    texts.max_by(|a, b| total_nanos(a).cmp(&total_nanos(b)).then_with(|| b.cmp(a))).map(str::to_owned)
}

/// Whole seconds of a duration that is at least one; `None` for what is shorter, negative or no duration.
#[must_use]
pub fn parse_whole_seconds(text: &str) -> Option<i64> {
    let nanos = parse_duration(text.strip_prefix('+').unwrap_or(text))?;
    i64::try_from(nanos / 1_000_000_000).ok().filter(|seconds| *seconds > 0)
}

fn total_nanos(text: &str) -> u128 {
    parse_duration(text).unwrap_or(0)
}

fn parse_duration(text: &str) -> Option<u128> {
    let mut rest = text;
    let mut total = 0u128;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit: u128 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut place = unit;
        for digit in fraction.bytes() {
            place /= 10;
            total = total.checked_add(u128::from(digit.checked_sub(b'0')?) * place)?;
        }
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_compare_by_length_not_by_text() {
        let longest_of = |texts: &[&str]| find_longest_duration(texts.iter().copied());
        assert_eq!(longest_of(&["9s", "1m5s", "59.9s"]).as_deref(), Some("1m5s"));
        assert_eq!(longest_of(&["90m", "1h29m59.999s"]).as_deref(), Some("90m"));
        assert_eq!(longest_of(&["60s", "1m"]).as_deref(), Some("1m"));
        assert_eq!(longest_of(&["1m", "60s"]).as_deref(), Some("1m"));
        assert_eq!(longest_of(&["nonsense", "1ns"]).as_deref(), Some("1ns"));
        assert_eq!(longest_of(&[]), None);
    }

    #[test]
    fn seconds_are_whole_and_at_least_one() {
        assert_eq!(["1h1s", "+90s", "1500ms"].map(parse_whole_seconds), [Some(3601), Some(90), Some(1)]);
        assert_eq!(["", "0", "-1h", "999ms", "soon", "3"].map(parse_whole_seconds), [None; 6]);
        assert_eq!(parse_whole_seconds("99999999999999999999h"), None);
    }
}
