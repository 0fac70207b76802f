//! Tasks of this repository: `cargo xtask verify` checks everything, `cargo xtask bench SUITE` measures.

// The results of these commands go to standard output.
#![allow(clippy::print_stdout)]

mod bench;
mod dependencies;
mod layers;
mod metadata;
mod names;
mod run;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask verify [STEP …]       check everything, or only these steps
cargo xtask bench SUITE [ARG …]   run a suite of benches; without SUITE, list the suites
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["verify", steps @ ..] => verify::verify(steps),
        ["bench"] => bench::list(),
        ["bench", suite, arguments @ ..] => bench::bench(suite, arguments),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
