//! Rules that need values which their manager does not know.
//!
//! The manager of the subject's server evaluates a rule. Of an actor on another server, it knows only calls and
//! references to or from its own actors. A rule that needs more fires only while that actor is on the same server,
//! which makes a `colocate` useless.

use super::Report;
use crate::{Atom, CallerClass, Diagnostic, Feature, Rule, Span, Statistic};

pub(super) fn check(report: &mut Report<'_>) {
    for (index, rule) in report.policy.rules.iter().enumerate() {
        let Some(subject) = rule.subject.filter(|_| !rule.between_types) else {
            continue;
        };
        let hidden = |alternative: &Vec<usize>| {
            let mut atoms = alternative.iter();
            atoms.find_map(|atom| Some((*atom, needs(&rule.atoms[*atom], subject)?)))
        };
        // One alternative with known values is enough for the rule to be useful.
        let found: Option<Vec<(usize, usize)>> = report.policy.alternatives[index].iter().map(hidden).collect();
        if let Some((atom, other)) = found.and_then(|found| found.first().copied()) {
            let alternative = &report.policy.alternatives[index][0];
            let sees_all = (0..rule.variables.len()).find(|actor| {
                alternative
                    .iter()
                    .all(|atom| needs(&rule.atoms[*atom], *actor).is_none())
            });
            let help = match sees_all {
                Some(actor) => format!(
                    "the server of the first actor that the behaviours name evaluates the rule: name `{}` first",
                    rule.variables[actor].name
                ),
                None => "no single server knows all that the condition asks for: ask for less".into(),
            };
            let span = report.rule(index).condition.span();
            let warning = out_of_sight(rule, span, atom, subject, other).help(help);
            report.add(warning);
        }
    }
}

/// An actor other than the subject whose statistics an atom needs.
fn needs(atom: &Atom, subject: usize) -> Option<usize> {
    let needed = match atom {
        Atom::Refers { holder, .. } => *holder,
        Atom::Compare(comparison) => match comparison.feature {
            Feature::Server(_) => return None,
            Feature::Actor(actor, _) => actor,
            Feature::Calls { caller, callee, .. } => match caller {
                // The caller's side knows the number of its calls, but not their share of all calls.
                CallerClass::Variable(caller) if caller == subject && comparison.statistic != Statistic::Perc => caller,
                _ => callee,
            },
        },
    };
    (needed != subject).then_some(needed)
}

fn out_of_sight(rule: &Rule, span: Span, atom: usize, subject: usize, other: usize) -> Diagnostic {
    let (subject, other) = (&rule.variables[subject].name, &rule.variables[other].name);
    let message = format!(
        "this rule fires only while `{other}` is on the server of `{subject}`: `{}` is not known elsewhere",
        rule.atoms[atom].text()
    );
    Diagnostic::warning("out-of-sight", span, message)
}
