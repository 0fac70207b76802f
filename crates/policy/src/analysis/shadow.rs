//! Shadowed rules: whenever one fires, another rule proposes the same.

use std::collections::BTreeMap;

use elastin_types::ActorType;

use super::Report;
use super::joint::{Instance, Space};
use crate::{Atom, Behaviour, Diagnostic, Policy, Rule};

pub(super) fn check(report: &mut Report<'_>) {
    let policy = report.policy;
    // Only rules that share a behaviour for the same type can shadow each other.
    let mut alike: BTreeMap<(&str, Option<ActorType>), Vec<usize>> = BTreeMap::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        for behaviour in &rule.behaviours {
            let group = alike.entry(group_of(rule, behaviour)).or_default();
            if group.last() != Some(&index) {
                group.push(index);
            }
        }
    }
    for (index, rule) in policy.rules.iter().enumerate() {
        let Some(first) = rule.behaviours.first() else {
            continue;
        };
        let (name, kind) = group_of(rule, first);
        let same = alike.get(&(name, kind)).into_iter().flatten();
        let any = alike
            .get(&(name, None))
            .filter(|_| kind.is_some())
            .into_iter()
            .flatten();
        for other in same.chain(any) {
            if report.is_exhausted() {
                return;
            }
            if *other == index {
                continue;
            }
            let pairs = policy.alternatives[index].len() * policy.alternatives[*other].len();
            report.effort += pairs.max(1);
            // Of two equivalent rules, the later one is shadowed.
            let both_ways = || covers(policy, index, *other) && index < *other;
            if covers(policy, *other, index) && !both_ways() {
                let label = policy.rules[*other].label(*other);
                let message = format!("this rule adds nothing: whenever it fires, {label} proposes the same");
                let warning = Diagnostic::warning("shadowed", report.rule(index).span, message)
                    .also(report.rule(*other).span, "this one is enough");
                report.add(warning);
                break;
            }
        }
    }
}

fn group_of(rule: &Rule, behaviour: &Behaviour) -> (&'static str, Option<ActorType>) {
    let kind = match behaviour {
        Behaviour::Balance(balance) => balance.kinds.first().copied(),
        other => other
            .variables()
            .next()
            .and_then(|variable| rule.variables[variable].kind),
    };
    (behaviour.name(), kind)
}

/// Whether one rule, whenever another fires, proposes all its actions with at least its priority.
fn covers(policy: &Policy, general: usize, special: usize) -> bool {
    let (wide, narrow) = (&policy.rules[general], &policy.rules[special]);
    if wide.between_types != narrow.between_types || wide.is_global() != narrow.is_global() {
        return false;
    }
    let mut mapping: Vec<Option<usize>> = vec![None; wide.variables.len()];
    let proposed = narrow.behaviours.iter().all(|behaviour| {
        wide.behaviours.iter().any(|own| {
            wide.priority_of(own) >= narrow.priority_of(behaviour) && unify(wide, narrow, own, behaviour, &mut mapping)
        })
    });
    // A rule about servers has no actors to map; in any other, the behaviours map the subject.
    let mapped: Option<Vec<usize>> = mapping.into_iter().collect();
    let Some(mapped) = mapped.filter(|_| proposed) else {
        return false;
    };
    if wide.subject.map(|subject| mapped[subject]) != narrow.subject && !wide.is_global() {
        return false;
    }
    implies(policy, special, general, &mapped)
}

/// Whether two behaviours are the same under a mapping of variables, which is extended if needed.
fn unify(wide: &Rule, narrow: &Rule, own: &Behaviour, other: &Behaviour, mapping: &mut [Option<usize>]) -> bool {
    let same = match (own, other) {
        (Behaviour::Balance(own), Behaviour::Balance(other)) => {
            let all_kinds = other.kinds.iter().all(|kind| own.moves(*kind));
            own.resource == other.resource && all_kinds && (own.kinds.is_empty() || !other.kinds.is_empty())
        }
        (Behaviour::Reserve { resource: own, .. }, Behaviour::Reserve { resource: other, .. }) => own == other,
        _ => own.name() == other.name(),
    };
    if !same {
        return false;
    }
    let mut grown = mapping.to_vec();
    for (from, to) in own.variables().zip(other.variables()) {
        let kinds_fit = wide.variables[from].kind.is_none() || wide.variables[from].kind == narrow.variables[to].kind;
        if !kinds_fit || grown[from].is_some_and(|known| known != to) {
            return false;
        }
        grown[from] = Some(to);
    }
    mapping.copy_from_slice(&grown);
    true
}

/// Whether the general rule's condition holds whenever that of the special one does: each alternative of the special
/// one makes some alternative of the general one true.
fn implies(policy: &Policy, special: usize, general: usize, mapped: &[usize]) -> bool {
    let narrow = &policy.rules[special];
    let as_narrow = Instance {
        rule: special,
        actors: (0..narrow.variables.len()).collect(),
        server: narrow.subject,
    };
    let as_wide = Instance {
        rule: general,
        actors: mapped.to_vec(),
        server: narrow.subject,
    };
    policy.alternatives[special].iter().all(|alternative| {
        let mut space = Space::default();
        if !space.add(policy, 0, &as_narrow, alternative) {
            // An alternative that never holds implies everything.
            return true;
        }
        policy.alternatives[general].iter().any(|wide| {
            wide.iter()
                .all(|atom| follows(policy, &as_wide, *atom, &space, alternative, narrow))
        })
    })
}

fn follows(policy: &Policy, wide: &Instance, atom: usize, space: &Space, alternative: &[usize], narrow: &Rule) -> bool {
    match &policy.rules[wide.rule].atoms[atom] {
        Atom::Compare(comparison) => {
            let key = wide.key(comparison.feature, comparison.statistic);
            let range = space.ranges.get(&key).map(|(range, _)| *range);
            range.is_some_and(|range| range.where_fails(comparison.comparator, comparison.value).is_empty())
        }
        Atom::Refers {
            target,
            holder,
            property,
            ..
        } => alternative.iter().any(|own| {
            matches!(&narrow.atoms[*own], Atom::Refers { target: own_target, holder: own_holder, property: own_property, .. }
                if own_property == property
                    && *own_target == wide.actors[*target]
                    && *own_holder == wide.actors[*holder])
        }),
    }
}
