//! Prints the bill of materials of the `caldera` binary for a target: `sbom x86_64-unknown-linux-gnu`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use caldera_architecture::build_sbom;

fn main() -> ExitCode {
    let Some(target) = std::env::args().nth(1) else {
        eprintln!("say for which target, such as x86_64-unknown-linux-gnu");
        return ExitCode::from(2);
    };
    match build_sbom(&target) {
        Ok(bill) => {
            println!("{bill:#}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
