//! The checker: resolves a policy's names in the schema of an application, and checks each rule.
//!
//! All mistakes are reported in one run. A rule with a syntax error is skipped, because messages about the rest of it
//! could be wrong.

mod behaviour;
mod condition;
mod connect;
mod features;
mod names;
mod rule;
mod settings;
mod suggest;

use std::collections::BTreeMap;

use elastin_types::Schema;

pub(crate) use connect::between_types;
pub(crate) use features::is_behaviour;
pub(crate) use names::SchemaNames;
pub(crate) use rule::subject;

use crate::ast::{Ast, RuleAst};
use crate::diagnostic::FOUND_MAX;
use crate::{Diagnostic, Diagnostics, Interest, Policy, Span, Syntax, analysis};

/// Maximum number of variables of a rule. Each one is a join; real rules have two or three.
pub const VARIABLES_MAX: usize = 8;

/// Maximum number of comparisons and references in a condition. The analysis compares all pairs; real rules have five.
pub const ATOMS_MAX: usize = 256;

/// A policy that compiled, with the warnings about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// Warnings.
    pub warnings: Diagnostics,
}

/// Compiles a policy for an application. The file name appears only in diagnostics.
///
/// # Errors
/// All mistakes found.
pub fn compile(file_name: &str, source: &str, schema: &Schema) -> Result<Compiled, Diagnostics> {
    let syntax = Syntax::parse(source);
    let mut diagnostics = syntax.diagnostics().to_vec();
    let ast = syntax.ast();
    let policy = check(&syntax, &ast, schema, &mut diagnostics);
    match policy {
        Some(policy) if diagnostics.is_empty() => {
            let warnings = analysis::warnings(&policy, &ast, schema);
            Ok(Compiled {
                policy,
                warnings: Diagnostics::new(file_name, syntax.source(), warnings),
            })
        }
        _ => Err(Diagnostics::new(file_name, syntax.source(), diagnostics)),
    }
}

/// Turns the bytes of a policy file into text.
///
/// # Errors
/// The position of the first byte that is not UTF-8.
pub fn decode(file_name: &str, bytes: &[u8]) -> Result<String, Diagnostics> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| {
        let readable = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
        let end = Span::new(readable.len(), readable.len());
        let message = format!("byte {} is not UTF-8 text", error.valid_up_to());
        let diagnostic = Diagnostic::error("not-text", end, message).help("a policy is a text file in UTF-8");
        Diagnostics::new(file_name, &readable, vec![diagnostic])
    })
}

/// The policy; `None` if any rule or setting has a mistake, which is then among the diagnostics.
fn check(syntax: &Syntax, ast: &Ast, schema: &Schema, diagnostics: &mut Vec<Diagnostic>) -> Option<Policy> {
    let syntax_errors = syntax.diagnostics();
    let names = SchemaNames::new(schema);
    let settings = settings::check(&ast.settings, diagnostics);
    let mut interest = Interest::default();
    let mut rules = Vec::with_capacity(ast.rules.len());
    let mut lines = LineCounter::new(syntax.source());
    let mut rule_names: BTreeMap<&str, Span> = BTreeMap::new();
    for rule_ast in &ast.rules {
        let line = lines.line_of(rule_ast.span.start);
        if diagnostics.len() >= FOUND_MAX {
            break;
        }
        if has_syntax_error(rule_ast, syntax_errors) {
            continue;
        }
        if let Some(name) = &rule_ast.name
            && let Some(first) = rule_names.insert(&name.text, name.span)
        {
            let message = format!("two rules have the name `{}`", name.text);
            diagnostics.push(Diagnostic::error("duplicate-name", name.span, message).also(first, "the first one"));
        }
        rules.extend(rule::check(
            rule_ast,
            syntax.source(),
            line,
            &names,
            &mut interest,
            diagnostics,
        ));
    }
    (rules.len() == ast.rules.len() && diagnostics.is_empty()).then(|| Policy::new(settings, rules, interest))
}

fn has_syntax_error(rule: &RuleAst, errors: &[Diagnostic]) -> bool {
    // Rules are checked only while there are few errors, so the first ones are enough.
    errors
        .iter()
        .take(crate::DIAGNOSTICS_MAX)
        .any(|error| rule.span.start <= error.span().start && error.span().start <= rule.span.end)
}

/// Counts lines incrementally: counting from the start for each rule would take quadratic time.
struct LineCounter<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> LineCounter<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0, line: 1 }
    }

    /// The line of a byte. Bytes are queried in ascending order.
    fn line_of(&mut self, byte: usize) -> usize {
        self.line += self.source[self.at..byte].bytes().filter(|byte| *byte == b'\n').count();
        self.at = byte;
        self.line
    }
}
