//! Every input that fuzzing kept, once: what was found stays mended. One test, since memory is counted by process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use caldera_fuzz_checks::CHECKS;

#[test]
fn every_input_that_fuzzing_kept_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let folders: BTreeSet<String> =
        fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, CHECKS.map(|(target, _)| target.to_owned()).into(), "a target has a folder of inputs");
    for (target, check) in CHECKS {
        let mut inputs: Vec<_> =
            fs::read_dir(corpus.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(inputs.len() > 2, "{target} has inputs");
        for input in inputs {
            println!("{}", input.display());
            check(&fs::read(&input).unwrap());
        }
    }
}
