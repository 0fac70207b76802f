//! Short runs of the demos.

use std::process::{Command, Output};

#[test]
fn chaos_loses_nothing() {
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_elastin"));
    chaos.args(["demo", "chaos", "--seconds", "5", "--kills", "1"]);
    let Output { status, stdout, stderr } = chaos.output().expect("it runs");
    let printed = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{printed}\n{}", String::from_utf8_lossy(&stderr));
    let killed = printed
        .lines()
        .find_map(|line| line.trim().strip_prefix("servers killed"));
    assert_eq!(killed.map(str::trim), Some("1"), "{printed}");
}
