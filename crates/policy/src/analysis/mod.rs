//! Sense: what a policy that compiles probably does not mean.
//!
//! Conditions are compared by the ranges of values for which they hold. Rules that can't hold together are not warned
//! about; those that can come with a witness, a snapshot in which they do.

mod conflict;
mod interval;
mod sense;
mod shadow;
mod sight;
mod witness;
mod world;

use elastin_types::Schema;

use crate::ast::{Ast, RuleAst};
use crate::{Diagnostic, Policy, Span};
use world::{Together, World};

/// How many combinations of rules are looked at. Rules are only compared where they speak of the same types, so that a
/// policy comes near this only if hundreds of rules are about one type.
const QUESTIONS_MAX: usize = 20_000;

/// The warnings about a policy.
pub(crate) fn warnings(policy: &Policy, ast: &Ast, schema: &Schema) -> Vec<Diagnostic> {
    let mut report = Report {
        policy,
        ast,
        schema,
        warnings: Vec::new(),
        questions: 0,
    };
    for (index, rule) in ast.rules.iter().enumerate() {
        sense::check(policy, index, rule, &mut report);
    }
    conflict::check(&mut report);
    shadow::check(&mut report);
    sight::check(&mut report);
    if report.questions >= QUESTIONS_MAX {
        let message = format!("only the first {QUESTIONS_MAX} combinations of rules were searched for conflicts");
        report.add(Diagnostic::warning("many-rules", Span::default(), message));
    }
    report.warnings
}

/// What has been found out so far.
struct Report<'a> {
    policy: &'a Policy,
    ast: &'a Ast,
    schema: &'a Schema,
    warnings: Vec<Diagnostic>,
    questions: usize,
}

/// An answer to whether rules can hold together, with a part of a sentence.
struct Answer {
    /// `can` if that was shown, else `may`.
    can: &'static str,
    example: Option<String>,
    witness: Option<elastin_types::Snapshot>,
}

impl<'a> Report<'a> {
    fn add(&mut self, warning: Diagnostic) {
        self.warnings.push(warning);
    }

    fn rule(&self, rule: usize) -> &'a RuleAst {
        &self.ast.rules[rule]
    }

    /// Where a behaviour stands, its `;` left out.
    fn behaviour_span(&self, (rule, behaviour): (usize, usize)) -> Span {
        let span = self.ast.rules[rule].behaviours[behaviour].span;
        Span::new(span.start, span.end.saturating_sub(1).max(span.start))
    }

    /// A behaviour as written.
    fn behaviour_text(&self, at: (usize, usize)) -> String {
        let rule = &self.policy.rules[at.0];
        let span = self.behaviour_span(at);
        let within = span.start - rule.span.start..span.end - rule.span.start;
        let text = rule.text.get(within).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn priority(&self, (rule, behaviour): (usize, usize)) -> i32 {
        let rule = &self.policy.rules[rule];
        rule.priority_of(&rule.behaviours[behaviour])
    }

    /// Whether the rules of a world can hold together; `None` if they can't, or no more questions are answered.
    fn can_hold(&mut self, world: &World) -> Option<Answer> {
        if self.questions >= QUESTIONS_MAX {
            return None;
        }
        self.questions += 1;
        let open = Answer {
            can: "may",
            example: None,
            witness: None,
        };
        match world.together(self.policy) {
            Together::Never => None,
            Together::May => Some(open),
            Together::With(space) => {
                let witness = witness::witness(self.policy, self.schema, world, &space);
                let shown = space.describe();
                Some(Answer {
                    can: if witness.is_some() { "can" } else { "may" },
                    example: (!shown.is_empty()).then_some(shown),
                    witness,
                })
            }
        }
    }
}
