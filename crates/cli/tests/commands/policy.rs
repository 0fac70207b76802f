//! The command line of `elastin policy`.

use std::path::Path;
use std::process::{Command, Output};

const SCHEMA: &str = r#"{
  "Folder": { "functions": ["open"], "properties": { "files": "File" } },
  "File": { "functions": ["stat"] }
}"#;

fn elastin(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elastin"));
    command
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    directory
}

fn output_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_misspelt_policy_is_reported_with_place_and_suggestion() {
    let policy = "server.cpu.perc > 80 and client.call(Folder(fo).opn).perc > 40 => reserve(fo, cpu);\n";
    let directory = files(&[("schema.json", SCHEMA), ("wrong.epl", policy)]);
    let output = elastin(
        directory.path(),
        &["policy", "check", "wrong.epl", "--schema", "schema.json"],
    );
    assert_eq!(output.status.code(), Some(1));
    let printed = output_of(&output);
    for part in ["wrong.epl:1:49", "^^^", "did you mean `open`?"] {
        assert!(printed.contains(part), "no {part:?} in:\n{printed}");
    }
}

#[test]
fn a_valid_policy_passes_the_check_and_compiles() {
    let policy = "server.cpu.perc > 80 or server.cpu.perc < 60 => balance({Folder}, cpu);\n";
    let directory = files(&[("schema.json", SCHEMA), ("good.epl", policy)]);
    let output = elastin(
        directory.path(),
        &["policy", "check", "good.epl", "--schema", "schema.json"],
    );
    assert!(output.status.success(), "{}", output_of(&output));
    let output = elastin(
        directory.path(),
        &[
            "policy",
            "compile",
            "good.epl",
            "--schema",
            "schema.json",
            "-o",
            "good.json",
        ],
    );
    assert!(output.status.success(), "{}", output_of(&output));
    let compiled = std::fs::read_to_string(directory.path().join("good.json")).expect("the compiled policy");
    elastin_policy::Policy::from_file(&compiled).expect("a node loads it");
}

#[test]
fn formatting_is_idempotent() {
    let directory = files(&[("p.epl", "true=>pin(  Folder(f) ) ;")]);
    let check = |code| {
        let output = elastin(directory.path(), &["policy", "fmt", "--check", "p.epl"]);
        assert_eq!(output.status.code(), Some(code), "{}", output_of(&output));
    };
    check(1);
    assert!(elastin(directory.path(), &["policy", "fmt", "p.epl"]).status.success());
    check(0);
}

#[test]
fn a_failed_case_fails_the_command() {
    let cases = r#"{
      "schema": { "Folder": { "functions": ["open"] } },
      "cases": [
        { "name": "pins", "servers": { "n1": {} }, "actors": { "Folder/1": { "on": "n1" } }, "expect": ["pin(Folder/1)"] },
        { "name": "wrong", "servers": { "n1": {} }, "actors": { "Folder/1": { "on": "n1" } }, "expect": [] }
      ]
    }"#;
    let directory = files(&[("p.epl", "true => pin(Folder(f));\n"), ("cases.json", cases)]);
    let output = elastin(directory.path(), &["policy", "test", "p.epl", "cases.json"]);
    assert_eq!(output.status.code(), Some(1), "{}", output_of(&output));
    assert!(
        output_of(&output).contains("1 passed, 1 failed"),
        "{}",
        output_of(&output)
    );
    let output = elastin(directory.path(), &["policy", "explain", "p.epl", "cases.json"]);
    assert!(output.status.success(), "{}", output_of(&output));
    assert!(output_of(&output).contains("Folder/1"), "{}", output_of(&output));
}

#[test]
fn a_missing_file_is_named() {
    let directory = files(&[("schema.json", SCHEMA)]);
    let output = elastin(
        directory.path(),
        &["policy", "check", "nowhere.epl", "--schema", "schema.json"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(output_of(&output).contains("nowhere.epl"), "{}", output_of(&output));
}
