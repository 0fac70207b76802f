//! The embedded stores in processes that are killed or run out of disk space.
//!
//! `cargo test -p elastin-stores --test processes` kills 10 times; for more:
//! `cargo test -p elastin-stores --test processes -- --kills 200 --seed 7`.

// A program without the test harness, because it starts itself as the processes under test. It reports on standard
// output.
#![allow(clippy::print_stdout)]

mod full_disk;
mod kill_sweep;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["kill-sweep-child", directory] => kill_sweep::child(Path::new(directory)),
        ["full-disk-child", directory] => full_disk::child(Path::new(directory)),
        ["--list", ..] => println!("processes: test"),
        words => {
            full_disk::check();
            kill_sweep::sweep(
                option(words, "--kills").unwrap_or(10),
                option(words, "--seed").unwrap_or(1),
            );
        }
    }
}

fn option(words: &[&str], name: &str) -> Option<u64> {
    let at = words.iter().position(|word| *word == name)?;
    let value = words.get(at + 1).and_then(|value| value.parse().ok());
    Some(value.unwrap_or_else(|| panic!("{name} needs a number")))
}
