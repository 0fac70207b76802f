//! Short runs of the demos.

use std::process::{Command, Output};

#[test]
fn chaos_loses_nothing() {
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_elastin"));
    chaos.args(["demo", "chaos", "--seconds", "5", "--kills", "1"]);
    let Output { status, stdout, stderr } = chaos.output().expect("it runs");
    let printed = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{printed}\n{}", String::from_utf8_lossy(&stderr));
    assert!(printed.contains("and 1 servers were killed meanwhile"), "{printed}");
}
