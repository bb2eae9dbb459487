//! The unified difference of two texts (`github.com/pmezard/go-difflib`, a port of Python's difflib): the longest run
//! of equal lines first, then what is before and after it.

use std::collections::HashMap;

/// How many equal lines are shown around a change.
const CONTEXT: usize = 3;

/// A run of lines that both texts have.
#[derive(Clone, Copy)]
struct Run {
    a: usize,
    b: usize,
    size: usize,
}

/// Lines of the old text that become lines of the new one.
#[derive(Clone, Copy)]
struct Change {
    same: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// The difference, or nothing for equal texts.
pub fn unified_diff(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    for group in group_changes(changes_of(&a, &b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (show_range(first.a.0, last.a.1), show_range(first.b.0, last.b.1));
        out.push_str(&format!("@@ -{from} +{to} @@\n"));
        for change in &group {
            let mut show = |sign: char, lines: &[&str]| {
                lines.iter().for_each(|line| out.push_str(&format!("{sign}{line}\n")));
            };
            if change.same {
                show(' ', &a[change.a.0..change.a.1]);
            } else {
                show('-', &a[change.a.0..change.a.1]);
                show('+', &b[change.b.0..change.b.1]);
            }
        }
    }
    out
}

fn show_range(start: usize, stop: usize) -> String {
    match stop - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

fn changes_of(a: &[&str], b: &[&str]) -> Vec<Change> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    b.iter().enumerate().for_each(|(index, line)| places.entry(line).or_default().push(index));
    // In a long text, lines that are everywhere say nothing (`autojunk`).
    if b.len() >= 200 {
        places.retain(|_, found| found.len() <= b.len() / 100 + 1);
    }
    let mut runs = Vec::new();
    let mut open = vec![((0, a.len()), (0, b.len()))];
    while let Some((within_a, within_b)) = open.pop() {
        let run = longest_run(a, b, &places, within_a, within_b);
        if run.size > 0 {
            runs.push(run);
            open.push(((within_a.0, run.a), (within_b.0, run.b)));
            open.push(((run.a + run.size, within_a.1), (run.b + run.size, within_b.1)));
        }
    }
    runs.sort_by_key(|run| run.a);
    runs.push(Run { a: a.len(), b: b.len(), size: 0 });
    let (mut at_a, mut at_b) = (0, 0);
    let mut changes = Vec::new();
    for run in runs {
        if run.a > at_a || run.b > at_b {
            changes.push(Change { same: false, a: (at_a, run.a), b: (at_b, run.b) });
        }
        (at_a, at_b) = (run.a + run.size, run.b + run.size);
        if run.size > 0 {
            changes.push(Change { same: true, a: (run.a, at_a), b: (run.b, at_b) });
        }
    }
    changes
}

fn longest_run(
    a: &[&str],
    b: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    within_a: (usize, usize),
    within_b: (usize, usize),
) -> Run {
    let mut best = Run { a: within_a.0, b: within_b.0, size: 0 };
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(within_a.1).skip(within_a.0) {
        let mut next = HashMap::new();
        let found = places.get(line).into_iter().flatten();
        for j in found.copied().filter(|j| (within_b.0..within_b.1).contains(j)) {
            let length = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or_default() + 1;
            next.insert(j, length);
            if length > best.size {
                best = Run { a: i + 1 - length, b: j + 1 - length, size: length };
            }
        }
        lengths = next;
    }
    // Lines that are everywhere extend a run.
    while best.a > within_a.0 && best.b > within_b.0 && a[best.a - 1] == b[best.b - 1] {
        best = Run { a: best.a - 1, b: best.b - 1, size: best.size + 1 };
    }
    let end = |run: &Run| (run.a + run.size, run.b + run.size);
    while end(&best).0 < within_a.1 && end(&best).1 < within_b.1 && a[end(&best).0] == b[end(&best).1] {
        best.size += 1;
    }
    best
}

/// Changes with the equal lines around them.
fn group_changes(mut changes: Vec<Change>) -> Vec<Vec<Change>> {
    if let Some(first) = changes.first_mut().filter(|first| first.same) {
        first.a.0 = first.a.0.max(first.a.1.saturating_sub(CONTEXT));
        first.b.0 = first.b.0.max(first.b.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = changes.last_mut().filter(|last| last.same) {
        last.a.1 = last.a.1.min(last.a.0 + CONTEXT);
        last.b.1 = last.b.1.min(last.b.0 + CONTEXT);
    }
    let mut groups = Vec::new();
    let mut group: Vec<Change> = Vec::new();
    for change in changes {
        let (a, b) = (change.a, change.b);
        if change.same && a.1 - a.0 > 2 * CONTEXT {
            group.push(Change { same: true, a: (a.0, a.0 + CONTEXT), b: (b.0, b.0 + CONTEXT) });
            groups.push(std::mem::take(&mut group));
            group.push(Change { same: true, a: (a.1 - CONTEXT, a.1), b: (b.1 - CONTEXT, b.1) });
        } else {
            group.push(change);
        }
    }
    if group.iter().any(|change| !change.same) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\ni\nj\nk\nl\nm";
        let wanted = "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n@@ -10,3 +10,4 @@\n j\n k\n l\n+m\n";
        assert_eq!(unified_diff(old, new), wanted);
        assert_eq!(unified_diff(old, old), "");
    }

    #[test]
    fn a_lone_line_has_no_length() {
        assert_eq!(unified_diff("a", "b"), "@@ -1 +1 @@\n-a\n+b\n");
    }
}
