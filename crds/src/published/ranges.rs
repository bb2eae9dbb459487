//! Short forms of consecutive numbers and of numbered names: `0-7,9` and `node-[00-31]`.

use std::ops::RangeInclusive;

use super::Malformed;

/// Numbers or names that a text may stand for at most; more is refused before it is expanded.
const MOST_EXPANDED: usize = 200_000;

/// Ascending numbers as ranges.
pub(super) fn format_ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// The numbers of ranges.
pub(super) fn parse_ranges(text: &str) -> Result<Vec<u32>, Malformed> {
    let mut numbers = Vec::with_capacity(count_numbers(text)?);
    for range in text.split(',') {
        numbers.extend(parse_range(range).ok_or_else(|| Malformed::Range(text.to_owned()))?);
    }
    Ok(numbers)
}

/// The name of the node with this number in a part.
pub(super) fn node_name(names: &[String], number: u32) -> Result<&str, Malformed> {
    names.get(number as usize).map(String::as_str).ok_or(Malformed::NoNode(number))
}

/// How many numbers there are.
pub(super) fn count_numbers(text: &str) -> Result<usize, Malformed> {
    let malformed = || Malformed::Range(text.to_owned());
    let mut count = 0;
    for range in text.split(',') {
        let range = parse_range(range).ok_or_else(malformed)?;
        count += (range.end() - range.start()) as usize + 1;
        if count > MOST_EXPANDED {
            return Err(malformed());
        }
    }
    Ok(count)
}

fn parse_range(range: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last - first < MOST_EXPANDED as u32).then_some(first..=last)
}

/// Splits a name at the last number of its first DNS label: the text before, the digits, and the text after.
fn split_at_last_number(name: &str) -> Option<(&str, &str, &str)> {
    let label = name.split('.').next().unwrap_or(name);
    let end = label.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = label[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    // A longer run of digits is an identifier and not a number.
    (end - start <= 6).then(|| (&name[..start], &name[start..end], &name[end..]))
}

/// Sorts names and writes consecutive ones as one pattern; [`unfold_names`] returns them in this order.
pub(super) fn fold_names(names: &[&str]) -> Vec<String> {
    let mut keyed: Vec<(&str, &str, usize, u32, &str)> = names
        .iter()
        .map(|name| match split_at_last_number(name) {
            Some((before, digits, after)) => (before, after, digits.len(), digits.parse().unwrap_or(0), *name),
            None => (*name, "", 0, 0, *name),
        })
        .collect();
    keyed.sort_unstable();
    let in_a_row = |a: &(&str, &str, usize, u32, &str), b: &(&str, &str, usize, u32, &str)| {
        (a.0, a.1, a.2) == (b.0, b.1, b.2) && a.2 > 0 && a.3 + 1 == b.3
    };
    keyed
        .chunk_by(in_a_row)
        .map(|row| match row {
            [(.., name)] => (*name).to_owned(),
            [(before, after, width, first, _), .., (.., last, _)] => {
                format!("{before}[{first:0width$}-{last:0width$}]{after}")
            }
            [] => String::new(),
        })
        .collect()
}

/// The names that were folded.
pub(super) fn unfold_names(folded: &[String]) -> Result<Vec<String>, Malformed> {
    let mut names = Vec::with_capacity(measure_names(folded)?.count);
    for text in folded {
        match parse_names(text)? {
            None => names.push(text.clone()),
            Some(Row { before, range, width, after }) => {
                names.extend(range.map(|number| format!("{before}{number:0width$}{after}")));
            }
        }
    }
    Ok(names)
}

/// How many names were folded, and how long they are at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) count: usize,
    pub(super) longest: usize,
}

/// Measures names that were folded.
pub(super) fn measure_names(folded: &[String]) -> Result<Measured, Malformed> {
    let mut measured = Measured::default();
    for text in folded {
        measured.count += match parse_names(text)? {
            None => 1,
            Some(row) => (row.range.end() - row.range.start()) as usize + 1,
        };
        measured.longest = measured.longest.max(text.len());
        if measured.count > MOST_EXPANDED {
            return Err(Malformed::Range(text.clone()));
        }
    }
    Ok(measured)
}

/// Names in a row.
struct Row<'a> {
    before: &'a str,
    range: RangeInclusive<u32>,
    width: usize,
    after: &'a str,
}

/// A text as names in a row; `None` for one that is a name itself.
fn parse_names(text: &str) -> Result<Option<Row<'_>>, Malformed> {
    let malformed = || Malformed::Range(text.to_owned());
    let Some((before, rest)) = text.split_once('[') else { return Ok(None) };
    let (range, after) = rest.split_once(']').ok_or_else(malformed)?;
    let width = range.split_once('-').ok_or_else(malformed)?.0.len();
    let range = parse_range(range).filter(|_| width <= 6).ok_or_else(malformed)?;
    Ok(Some(Row { before, range, width, after }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_one() {
        assert_eq!(format_ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        let names = ["a", "ip-10-0-0-7.ec2.internal", "n8", "n9", "n10", "n11", "x-01", "x-02"];
        let folded = fold_names(&names);
        assert_eq!(folded, ["a", "ip-10-0-0-7.ec2.internal", "n[8-9]", "n[10-11]", "x-[01-02]"]);
        assert_eq!(unfold_names(&folded).unwrap(), names);
    }

    #[test]
    fn nonsense_is_refused_before_it_is_unfolded() {
        for text in ["", "1-", "a", "5-4", "0-4294967295", "1,,2"] {
            assert!(parse_ranges(text).is_err(), "{text}");
        }
        for text in ["n[0-4294967295]", "n[", "n[1]", "n[2-1]", "n[a-b]"] {
            assert!(unfold_names(&[text.to_owned()]).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn names_and_numbers_come_back(
            names in prop::collection::btree_set("[a-b]{0,2}-?[0-3]{1,3}(\\.x[0-9])?", 0..40),
            numbers in prop::collection::btree_set(0u32..60, 1..40),
        ) {
            let given: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut back = unfold_names(&fold_names(&given)).unwrap();
            back.sort();
            prop_assert_eq!(back, names.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(parse_ranges(&format_ranges(numbers.clone())).unwrap(), numbers.into_iter().collect::<Vec<_>>());
        }
    }
}
