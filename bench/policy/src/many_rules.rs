//! Policies of many rules over many types.

use std::fmt::Write;

use elastin_policy::{compile, parse_schema};
use elastin_types::Schema;

/// A policy with rules of every kind, and its types.
pub(crate) struct ManyRules {
    rules: usize,
    schema: Schema,
    source: String,
}

impl ManyRules {
    pub(crate) fn new(rules: usize, types: usize) -> Self {
        Self {
            rules,
            schema: schema(types),
            source: source(rules, types),
        }
    }

    /// Checks the policy.
    pub(crate) fn check(&self) {
        let compiled = compile("many.epl", &self.source, &self.schema).expect("the rules compile");
        assert_eq!(compiled.policy.rules().len(), self.rules);
    }
}

/// Types with two functions each, and a reference to the next one.
fn schema(types: usize) -> Schema {
    let mut schema = String::from("{");
    for number in 0..types {
        let comma = if number == 0 { "" } else { "," };
        let next = (number + 1) % types;
        write!(
            schema,
            r#"{comma}"T{number}": {{"functions": ["f", "g"], "properties": {{"p": "T{next}"}}}}"#
        )
        .expect("writing to a string can't fail");
    }
    parse_schema(&(schema + "}")).expect("the schema is valid")
}

fn source(rules: usize, types: usize) -> String {
    let mut source = String::new();
    for number in 0..rules {
        let (kind, next) = (number % types, (number + 1) % types);
        let rule = match (number / types) % 5 {
            0 => format!("server.cpu.perc > 80 or server.cpu.perc < 60 => balance({{T{kind}}}, cpu);\n"),
            1 => format!(
                "server.cpu.perc > 70 and client.call(T{kind}(a).f).perc > {} => reserve(a, cpu);\n",
                number % 50
            ),
            2 => format!("T{next}(b) in ref(T{kind}(a).p) => colocate(a, b);\n"),
            3 => format!("T{kind}(a).call(T{next}(b).g).count > 10 and a.cpu.perc < 5 => pin(a); colocate(a, b);\n"),
            _ => format!("T{kind}(a).mem.perc > 90 and T{kind}(a).call(T{next}(b).f).count > 3 => separate(a, b);\n"),
        };
        source.push_str(&rule);
    }
    source
}
