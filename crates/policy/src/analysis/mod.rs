//! Static analysis: warnings about policies that compile but are probably not as intended.
//!
//! Conditions are compared by the ranges of values for which they hold. A warning about two rules requires that both
//! can hold together. Its witness is a snapshot in which they do.

mod conflict;
mod interval;
mod joint;
mod satisfiability;
mod shadow;
mod visibility;
mod witness;

use elastin_types::Schema;

use crate::ast::{Ast, RuleAst};
use crate::diagnostic::FOUND_MAX;
use crate::{DIAGNOSTICS_MAX, Diagnostic, Policy, Span};
use joint::{Space, Together, World};

/// Maximum number of examined combinations of alternatives. Only rules about the same types are compared, so that a
/// policy comes near this only with hundreds of rules about one type.
const EFFORT_MAX: usize = 200_000;

/// The warnings about a policy.
pub(crate) fn warnings(policy: &Policy, ast: &Ast, schema: &Schema) -> Vec<Diagnostic> {
    let mut report = Report {
        policy,
        ast,
        findings: Vec::new(),
        effort: 0,
    };
    for (index, rule) in ast.rules.iter().enumerate() {
        satisfiability::check(policy, index, rule, &mut report);
    }
    conflict::check(&mut report);
    shadow::check(&mut report);
    visibility::check(&mut report);
    if report.is_exhausted() {
        let message = "so many rules are about the same types that not all of them were searched for conflicts";
        report.add(Diagnostic::warning("many-rules", Span::default(), message));
    }
    let mut findings = report.findings;
    findings.sort_by_key(|finding| (finding.warning.span().start, finding.warning.span().end));
    let findings = findings.into_iter().enumerate();
    findings
        // Witnesses take most of the time, and warnings beyond the maximum are not shown.
        .map(|(place, finding)| finding.finish(policy, schema, place < DIAGNOSTICS_MAX))
        .collect()
}

/// The findings so far, and the effort spent.
struct Report<'a> {
    policy: &'a Policy,
    ast: &'a Ast,
    findings: Vec<Finding>,
    effort: usize,
}

/// A warning, and the claim behind it.
struct Finding {
    warning: Diagnostic,
    claim: Option<Claim>,
}

/// The claim that some rules can conflict. The witness decides whether the message says "can" or "may".
struct Claim {
    subject: String,
    what: String,
    resolution: String,
    shared: Shared,
}

/// Rules that can hold together with these values; without values if there were too many alternatives to tell.
struct Shared {
    world: World,
    space: Option<Space>,
}

impl Finding {
    fn finish(self, policy: &Policy, schema: &Schema, with_witness: bool) -> Diagnostic {
        let mut warning = self.warning;
        let Some(claim) = self.claim else {
            return warning;
        };
        let Shared { world, space } = &claim.shared;
        if let Some(space) = space.as_ref().filter(|_| with_witness) {
            warning.witness = witness::witness(policy, schema, world, space);
        }
        let can = if warning.witness.is_some() { "can" } else { "may" };
        warning.message = format!("{} {can} {}", claim.subject, claim.what);
        let example = space.as_ref().map(Space::describe).unwrap_or_default();
        warning.help = Some(match example.as_str() {
            "" => claim.resolution,
            example => format!("{}; for example with {example}", claim.resolution),
        });
        warning
    }
}

impl<'a> Report<'a> {
    fn add(&mut self, warning: Diagnostic) {
        self.findings.push(Finding { warning, claim: None });
    }

    fn claim(&mut self, warning: Diagnostic, claim: Claim) {
        let claim = Some(claim);
        self.findings.push(Finding { warning, claim });
    }

    /// Whether the analysis ends: the effort is spent, or there are enough findings.
    fn is_exhausted(&self) -> bool {
        self.effort >= EFFORT_MAX || self.findings.len() >= FOUND_MAX
    }

    fn rule(&self, rule: usize) -> &'a RuleAst {
        &self.ast.rules[rule]
    }

    /// The span of a behaviour, without its `;`.
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

    /// The rules of a world if they can hold together; `None` if they cannot, or the effort is spent.
    fn can_hold(&mut self, world: World) -> Option<Shared> {
        if self.is_exhausted() {
            return None;
        }
        let (answer, tried) = world.together(self.policy);
        self.effort += tried.max(1);
        match answer {
            Together::Never => None,
            Together::May => Some(Shared { world, space: None }),
            Together::With(space) => Some(Shared {
                world,
                space: Some(space),
            }),
        }
    }
}
