//! Warnings about single rules: conditions that never or always hold, and bounds too close to each other.

use super::Report;
use super::interval::Interval;
use super::joint::{Space, World};
use crate::ast::{CompareAst, ConditionAst, RuleAst};
use crate::disjunct::disjuncts;
use crate::{Atom, Behaviour, Comparison, Condition, Diagnostic, Policy, Rule, Span};

/// Minimum distance between the bounds of a `balance`, in percentage points: the noise of measurements. With less, a
/// server that gave an actor away may need it back in the next period.
const ROOM_MIN: f64 = 5.0;

pub(super) fn check(policy: &Policy, index: usize, ast: &RuleAst, report: &mut Report<'_>) {
    let rule = &policy.rules[index];
    let mut decided = single_comparisons(rule, ast, report);
    decided |= alternatives(policy, index, ast, report);
    if !decided && always(rule) && !matches!(rule.condition, Condition::True) {
        let warning = Diagnostic::warning(
            "always-holds",
            ast.condition.span(),
            "this condition always holds, whatever is measured",
        );
        report.add(warning.help("write `true` if that is meant"));
    }
    bounds(rule, ast, report);
}

/// Warns about comparisons that hold for all values or for none. True if there is one.
fn single_comparisons(rule: &Rule, ast: &RuleAst, report: &mut Report<'_>) -> bool {
    let mut found = false;
    for comparison in comparisons(rule) {
        let whole = Interval::whole(comparison.statistic);
        let (code, what) = if whole.where_holds(comparison.comparator, comparison.value).is_empty() {
            ("never-holds", "never")
        } else if whole.where_fails(comparison.comparator, comparison.value).is_empty() {
            ("always-holds", "always")
        } else {
            continue;
        };
        found = true;
        let message = format!("`{}` {what} holds", comparison.text);
        let help = match comparison.statistic {
            crate::Statistic::Perc => "a percentage is between 0 and 100",
            _ => "what is measured is never negative",
        };
        report.add(Diagnostic::warning(code, span_of(&ast.condition, &comparison.text), message).help(help));
    }
    found
}

fn comparisons(rule: &Rule) -> impl Iterator<Item = &Comparison> {
    rule.atoms.iter().filter_map(|atom| match atom {
        Atom::Compare(comparison) => Some(comparison),
        Atom::Refers { .. } => None,
    })
}

/// Warns about alternatives that contradict themselves. True if there is one.
fn alternatives(policy: &Policy, index: usize, ast: &RuleAst, report: &mut Report<'_>) -> bool {
    let rule = &policy.rules[index];
    let mut world = World::default();
    world.add(&policy.rules, index, &[]);
    let instance = &world.instances[0];
    let all = &policy.alternatives[index];
    let never = all
        .iter()
        .all(|alternative| !Space::default().add(policy, 0, instance, alternative));
    let mut reported: Vec<(usize, usize)> = Vec::new();
    for alternative in all {
        // Comparing a pair of atoms takes much less time than a combination of rules.
        report.effort += alternative.len() * alternative.len() / 64;
        if report.is_exhausted() {
            break;
        }
        let Some((one, other)) = contradiction(rule, alternative) else {
            continue;
        };
        if reported.contains(&(one, other)) {
            continue;
        }
        reported.push((one, other));
        let texts = (rule.atoms[one].text(), rule.atoms[other].text());
        let message = if never {
            format!("this condition never holds: `{}` contradicts `{}`", texts.1, texts.0)
        } else {
            format!("this alternative never holds: `{}` contradicts `{}`", texts.1, texts.0)
        };
        let warning = Diagnostic::warning("never-holds", span_of(&ast.condition, texts.1), message)
            .also(span_of(&ast.condition, texts.0), "contradicts this");
        report.add(warning);
    }
    !reported.is_empty()
}

/// Two comparisons of an alternative that cannot hold together, although each of them can.
fn contradiction(rule: &Rule, alternative: &[usize]) -> Option<(usize, usize)> {
    let range = |comparison: &Comparison| {
        Interval::whole(comparison.statistic).where_holds(comparison.comparator, comparison.value)
    };
    for (position, one) in alternative.iter().enumerate() {
        for other in &alternative[position + 1..] {
            let (Atom::Compare(first), Atom::Compare(second)) = (&rule.atoms[*one], &rule.atoms[*other]) else {
                continue;
            };
            let same = first.feature == second.feature && first.statistic == second.statistic;
            let both = range(first).where_holds(second.comparator, second.value);
            if same && !range(first).is_empty() && !range(second).is_empty() && both.is_empty() {
                return Some((*one, *other));
            }
        }
    }
    None
}

/// Whether the condition holds for all values, that is, its opposite holds for none. False if that is unknown.
fn always(rule: &Rule) -> bool {
    let Ok(opposite) = disjuncts(&opposite(&rule.condition)) else {
        return false;
    };
    opposite.iter().all(|alternative| {
        let mut ranges: Vec<(&Comparison, Interval)> = Vec::new();
        alternative.iter().any(|atom| {
            let Atom::Compare(comparison) = &rule.atoms[*atom] else {
                return false;
            };
            let same =
                |other: &Comparison| other.feature == comparison.feature && other.statistic == comparison.statistic;
            let known = ranges.iter().position(|(other, _)| same(other)).unwrap_or_else(|| {
                ranges.push((comparison, Interval::whole(comparison.statistic)));
                ranges.len() - 1
            });
            ranges[known].1 = ranges[known].1.where_fails(comparison.comparator, comparison.value);
            ranges[known].1.is_empty()
        })
    })
}

/// The opposite condition. Its atoms stand for comparisons that fail.
fn opposite(condition: &Condition) -> Condition {
    match condition {
        // `true` never fails, so its opposite has no alternative.
        Condition::True => Condition::Any(Vec::new()),
        Condition::Atom(atom) => Condition::Atom(*atom),
        Condition::All(parts) => Condition::Any(parts.iter().map(opposite).collect()),
        Condition::Any(parts) => Condition::All(parts.iter().map(opposite).collect()),
    }
}

fn bounds(rule: &Rule, ast: &RuleAst, report: &mut Report<'_>) {
    for (behaviour, behaviour_ast) in rule.behaviours.iter().zip(&ast.behaviours) {
        let Behaviour::Balance(balance) = behaviour else {
            continue;
        };
        if let (Some(upper), Some(lower)) = (balance.upper, balance.lower)
            && upper - lower < ROOM_MIN
        {
            report.add(no_room(upper, lower, behaviour_ast.span, balance.resource.name()));
        }
    }
}

/// The warning about bounds that are too close.
pub(super) fn no_room(upper: f64, lower: f64, span: Span, resource: &str) -> Diagnostic {
    let message = format!("between the bounds {lower} and {upper} of `{resource}` is no room, so actors would bounce");
    Diagnostic::warning("no-room", span, message).help(format!(
        "leave at least {ROOM_MIN} points between the lower and the upper bound"
    ))
}

/// Whether bounds of two rules are too close.
pub(super) fn too_close(upper: Option<f64>, lower: Option<f64>) -> Option<(f64, f64)> {
    let (upper, lower) = (upper?, lower?);
    (upper - lower < ROOM_MIN).then_some((upper, lower))
}

/// The span of a comparison in a condition; that of the whole condition if it is not found.
fn span_of(condition: &ConditionAst, text: &str) -> Span {
    fn find(condition: &ConditionAst, text: &str) -> Option<Span> {
        match condition {
            ConditionAst::Any(parts) | ConditionAst::All(parts) => parts.iter().find_map(|part| find(part, text)),
            ConditionAst::Compare(compare) => is(compare, text).then_some(compare.span),
            ConditionAst::True(_) | ConditionAst::Refers(_) => None,
        }
    }
    fn is(compare: &CompareAst, text: &str) -> bool {
        compare.to_string() == text
    }
    find(condition, text).unwrap_or(condition.span())
}
