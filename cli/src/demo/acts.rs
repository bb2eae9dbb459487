//! What the demo shows, in its order: acts, each with a headline, and what to try after them. No I/O.

use serde::Serialize;

/// A part of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DemoAct {
    Gangs,
    Line,
    Start,
    Lent,
    Lost,
}

impl DemoAct {
    pub const ALL: [Self; 5] = [Self::Gangs, Self::Line, Self::Start, Self::Lent, Self::Lost];

    /// From 1 on.
    pub const fn number(self) -> usize {
        self as usize + 1
    }

    pub const fn headline(self) -> &'static str {
        match self {
            Self::Gangs => "Gangs are placed whole: one is split over two clusters, one stays together",
            Self::Line => "The gate and the line: what must wait says why, and the urgent one goes first",
            Self::Start => "Why does it wait, and when will it start?",
            Self::Lent => "Lent quota comes back to its owner",
            Self::Lost => "A drained cluster's gang runs whole elsewhere, a lost one's does not run twice",
        }
    }
}

/// What is tried next: a command, and what it shows. README says the same.
pub const NEXT: [(&str, &str); 6] = [
    ("cargo run --release -- sandbox --dir /tmp/caldera", "the same fleet, until Ctrl-C; then in another terminal"),
    ("export KUBECONFIG=/tmp/caldera/host.kubeconfig", ""),
    ("kubectl apply -f manifests/examples/00-queues.yaml -f manifests/examples/10-mindspore-cpu.yaml", ""),
    ("cargo run --release -- why mindspore-cpu -n default", "position, reason, what is ahead, where it runs"),
    ("cargo run --release -- queue tree", "used, deserved, borrowed and waiting"),
    ("cargo run --release -- top", "all of it on one screen; `console` is the same in a browser"),
];

/// Where it goes on in words.
pub const NEXT_PAGE: &str = "docs/tutorial.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_next_is_what_the_readme_says() {
        let readme = include_str!("../../../README.md");
        for (command, _) in NEXT {
            assert!(readme.contains(command), "{command}");
        }
        assert!(readme.contains(NEXT_PAGE));
    }

    #[test]
    fn acts_are_numbered_from_one_on_and_a_headline_fits_a_narrow_terminal() {
        let numbers: Vec<usize> = DemoAct::ALL.into_iter().map(DemoAct::number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        assert!(DemoAct::ALL.into_iter().all(|act| act.headline().len() < 80));
    }
}
