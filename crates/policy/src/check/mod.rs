//! Meaning: a policy's names against the schema of an application, and its rules against the decisions of the language.
//!
//! All mistakes are reported in one run. A rule with a mistake in its syntax is not looked at here: what the checker
//! would say about the rest of it could be wrong.

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

/// How many actors a rule may speak of. Every one of them is a join; people use two or three.
pub const VARIABLES_MAX: usize = 8;

/// How many comparisons and references a condition may have. People write five; each may have to be compared with each.
pub const ATOMS_MAX: usize = 256;

/// A policy that compiled, with what is to be said about it nevertheless.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// Warnings.
    pub warnings: Diagnostics,
}

/// Compiles a policy for an application. The file name only serves to say where mistakes are.
///
/// # Errors
/// All mistakes that were found, with the warnings.
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
/// Where the first byte stands that is not UTF-8.
pub fn decode(file_name: &str, bytes: &[u8]) -> Result<String, Diagnostics> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| {
        let readable = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
        let end = Span::new(readable.len(), readable.len());
        let message = format!("byte {} is not UTF-8 text", error.valid_up_to());
        let diagnostic = Diagnostic::error("not-text", end, message).help("a policy is a text file in UTF-8");
        Diagnostics::new(file_name, &readable, vec![diagnostic])
    })
}

/// The policy, if every rule could be made out. There is one also where diagnostics were added that leave its rules
/// whole; it must not be used then.
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
    // The errors are few or many, but rules are looked at only as long as there are few.
    errors
        .iter()
        .take(crate::DIAGNOSTICS_MAX)
        .any(|error| rule.span.start <= error.span().start && error.span().start <= rule.span.end)
}

/// Counts lines once over the whole text, because asking for each rule anew would take quadratic time.
struct LineCounter<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> LineCounter<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0, line: 1 }
    }

    /// The line of a byte that is not before the last one asked for.
    fn line_of(&mut self, byte: usize) -> usize {
        self.line += self.source[self.at..byte].bytes().filter(|byte| *byte == b'\n').count();
        self.at = byte;
        self.line
    }
}
