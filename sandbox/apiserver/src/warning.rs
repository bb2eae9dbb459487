//! `Warning` headers (`apiserver/pkg/endpoints/filters/warning.go`): each text once, cut short when there is too much.

use std::collections::BTreeSet;

const MOST_CHARACTERS: usize = 4 * 1024;
const MOST_OF_ONE: usize = 256;

/// The headers of these texts, in order. Texts with control characters cannot be told.
pub fn warning_headers(texts: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let told: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty() && !text.contains(char::is_control) && seen.insert(*text))
        .collect();
    let length = |text: &str| text.chars().count();
    if told.iter().map(|text| length(text)).sum::<usize>() <= MOST_CHARACTERS {
        return told.iter().map(|text| quote_warning(text)).collect();
    }
    // Those that made the limit overflow are still told; the ones after them while there is room.
    let mut written = 0;
    let mut overflown = false;
    let mut headers = Vec::new();
    let mut whole = 0;
    for text in told {
        if overflown && written >= MOST_CHARACTERS {
            break;
        }
        whole += length(text);
        overflown |= whole > MOST_CHARACTERS;
        let short: String = text.chars().take(MOST_OF_ONE).collect();
        written += length(&short);
        headers.push(quote_warning(&short));
    }
    headers
}

fn quote_warning(text: &str) -> String {
    format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(texts: &[&str]) -> Vec<String> {
        warning_headers(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_text_is_told_once_and_an_empty_one_or_one_with_controls_not_at_all() {
        assert_eq!(headers(&["a", "", "b\nc", "a", "\"\\"]), ["299 - \"a\"", "299 - \"\\\"\\\\\""]);
    }

    #[test]
    fn too_much_text_is_cut_short() {
        let (long, longer) = ("x".repeat(3000), "y".repeat(3000));
        assert_eq!(headers(&[&long])[0].len(), 3000 + 8);
        let cut = headers(&[&long, &longer]);
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [MOST_OF_ONE + 8, MOST_OF_ONE + 8]);
        let many: Vec<String> = (0..40).map(|n| format!("{n:0300}")).collect();
        assert_eq!(warning_headers(&many).len(), MOST_CHARACTERS / MOST_OF_ONE);
    }
}
