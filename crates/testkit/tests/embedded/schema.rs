//! `schema`: the actor types that an application's program prints.

use std::process::Command;

use elastin::types::Schema;
use elastin_testkit::app;

#[test]
fn the_printed_schema_can_be_read_back() {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let printed = Command::new(program).arg("schema").output().expect("the program runs");
    assert!(printed.status.success());
    let schema: Schema = serde_json::from_slice(&printed.stdout).expect("it is JSON");
    assert_eq!(&schema, app().schema());
    let feed = schema
        .actor("Feeder")
        .and_then(|feeder| feeder.function("feed"))
        .expect("the schema has the function");
    let parameters: Vec<_> = feed
        .parameters
        .iter()
        .map(|parameter| format!("{}: {}", parameter.name, parameter.type_name))
        .collect();
    assert_eq!(parameters, ["sender: u32", "journal: u64", "count: u32"]);
    assert_eq!(feed.reply, "Result<u64, CallError>");
}
