//! The elasticity policy language (EPL): parser, checker, evaluation.
//!
//! ```text
//! text ── Syntax::parse ──► lossless tree ──► Ast ── compile(schema) ──► Policy ── evaluate(facts) ──► Fired
//!                               │                                          │            ▲
//!                            format                              to_file, from_file   Index::new(snapshot)
//! ```
//! This crate is deterministic: it uses no clock, file, network or randomness. The same source and the same facts give the
//! same result everywhere, so recorded decisions can be replayed.

mod action;
mod analysis;
pub mod ast;
mod bounds;
mod check;
mod csr;
mod diagnostic;
mod disjunct;
mod evaluate;
mod explain;
mod facts;
mod file;
mod format;
mod index;
mod interest;
mod mentions;
mod policy;
mod rule;
mod scenario;
mod span;
mod syntax;

pub use action::{Action, Balance, Bound, Fired, Observed};
pub use check::{ATOMS_MAX, Compiled, VARIABLES_MAX, compile, decode};
pub use diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Label, Located, Severity};
pub use disjunct::ALTERNATIVES_MAX;
pub use evaluate::{Part, Scope};
pub use explain::{Explanation, Miss, RuleExplanation};
pub use facts::{ActorIndex, Calls, Edge, Facts};
pub use file::{POLICY_VERSION, PolicyFileError};
pub use format::format;
pub use index::Index;
pub use interest::Interest;
pub use mentions::{Mention, Mentioned};
pub use policy::{ColocatedKind, CountUnit, Policy};
pub use rule::{Atom, Behaviour, CallerClass, Comparator, Comparison, Condition, Feature, Rule, Statistic, Variable};
pub use scenario::{
    Scenario, ScenarioActor, ScenarioCalled, ScenarioCalls, ScenarioError, ScenarioResult, ScenarioServer,
    ScenarioType, ScenarioUsage, Scenarios, distinct_actions, parse_actor, parse_schema, show_action,
};
pub use span::Span;
pub use syntax::{Element, NESTING_MAX, SOURCE_BYTES_MAX, Syntax, SyntaxKind, SyntaxNode, Token};
