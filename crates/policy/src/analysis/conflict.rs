//! Conflicts between rules: behaviours that exclude each other for the same actors.

use std::collections::BTreeMap;

use elastin_types::ActorType;

use super::joint::World;
use super::{Claim, Report, Shared, satisfiability};
use crate::{Balance, Behaviour, Diagnostic};

/// A behaviour: the indices of its rule and of the behaviour in the rule.
type At = (usize, usize);

/// A behaviour with one of the actors that it names.
#[derive(Clone, Copy)]
struct Place {
    at: At,
    variable: usize,
}

/// Places by the actor's type; `None` is `any`.
type Places = BTreeMap<Option<ActorType>, Vec<Place>>;

pub(super) fn check(report: &mut Report<'_>) {
    let rules = &report.policy.rules;
    let mut pins = Places::new();
    let mut reserves = Places::new();
    let mut separates = Places::new();
    let mut colocates: Vec<(At, usize, usize)> = Vec::new();
    let mut balances: Vec<(At, &Balance)> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        for (number, behaviour) in rule.behaviours.iter().enumerate() {
            let at = (index, number);
            let put = |places: &mut Places, variable: usize| {
                let kind = rule.variables[variable].kind;
                places.entry(kind).or_default().push(Place { at, variable });
            };
            match behaviour {
                Behaviour::Pin(actor) => put(&mut pins, *actor),
                Behaviour::Reserve { actor, .. } => put(&mut reserves, *actor),
                Behaviour::Colocate(one, other) => colocates.push((at, *one, *other)),
                Behaviour::Separate(one, other) => {
                    put(&mut separates, *one);
                    put(&mut separates, *other);
                }
                Behaviour::Balance(balance) => balances.push((at, balance)),
            }
        }
    }
    pins_against_balances(report, &pins, &balances);
    pins_against_reserves(report, &pins, &reserves);
    for colocate in &colocates {
        both_ends(
            report,
            *colocate,
            &pins,
            "pinned-apart",
            "pinned",
            "where they are, together or not",
        );
        both_ends(
            report,
            *colocate,
            &reserves,
            "reserved-apart",
            "reserved",
            "on servers of their own",
        );
    }
    colocates_against_separates(report, &colocates, &separates);
    reserves_for_two_resources(report, &reserves);
    bounds_of_two_rules(report, &balances);
}

/// The places for actors of a type.
fn of_kind(places: &Places, kind: Option<ActorType>) -> Vec<Place> {
    match kind {
        None => places.values().flatten().copied().collect(),
        Some(_) => [places.get(&kind), places.get(&None)]
            .into_iter()
            .flatten()
            .flatten()
            .copied()
            .collect(),
    }
}

/// A world in which two behaviours are about the same actor.
fn same_actor(report: &Report<'_>, one: Place, other: Place) -> Option<World> {
    let rules = &report.policy.rules;
    let mut world = World::default();
    let actor = world.actor(rules[one.at.0].variables[one.variable].kind);
    if one.at.0 == other.at.0 && one.variable == other.variable {
        return world.add(rules, one.at.0, &[(one.variable, actor)]).then_some(world);
    }
    let fits = world.add(rules, one.at.0, &[(one.variable, actor)])
        && world.add(rules, other.at.0, &[(other.variable, actor)]);
    fits.then_some(world)
}

/// The claim that two behaviours can be about the same actor.
fn about_same_actors(report: &Report<'_>, one: At, other: At, shared: Shared) -> Claim {
    let texts = (report.behaviour_text(one), report.behaviour_text(other));
    Claim {
        subject: format!("`{}` and `{}`", texts.0, texts.1),
        what: "be about the same actor".into(),
        resolution: "the one with the higher priority wins".into(),
        shared,
    }
}

/// Warns that two behaviours conflict.
fn warn(report: &mut Report<'_>, code: &str, one: At, other: At, mut claim: Claim) {
    if report.priority(one) == report.priority(other) && one.0 != other.0 {
        claim.resolution = format!("both have priority {}: the earlier rule wins", report.priority(one));
    }
    let mut warning = Diagnostic::warning(code, report.behaviour_span(other), "");
    if one != other {
        warning = warning.also(report.behaviour_span(one), "against this");
    }
    report.claim(warning, claim);
}

fn pins_against_balances(report: &mut Report<'_>, pins: &Places, balances: &[(At, &Balance)]) {
    for (at, balance) in balances {
        let kinds: Vec<Option<ActorType>> = match &balance.kinds[..] {
            [] => pins.keys().copied().collect(),
            kinds => kinds.iter().copied().map(Some).chain([None]).collect(),
        };
        for pin in kinds.iter().filter_map(|kind| pins.get(kind)).flatten() {
            if report.is_exhausted() {
                return;
            }
            let rules = &report.policy.rules;
            let mut world = World::default();
            let actor = world.actor(rules[pin.at.0].variables[pin.variable].kind);
            world.add(rules, pin.at.0, &[(pin.variable, actor)]);
            if at.0 != pin.at.0 {
                world.add(rules, at.0, &[]);
                // The conflict arises on the actor's own server.
                let instance = world.instances.last_mut().expect("it was just added");
                if report.policy.rules[at.0].variables.is_empty() {
                    instance.server = Some(actor);
                }
            }
            if let Some(shared) = report.can_hold(world) {
                let claim = Claim {
                    subject: format!("`{}`", report.behaviour_text(*at)),
                    what: format!("want to move actors that `{}` keeps", report.behaviour_text(pin.at)),
                    resolution: "the one with the higher priority wins".into(),
                    shared,
                };
                warn(report, "pin-against-balance", pin.at, *at, claim);
            }
        }
    }
}

fn pins_against_reserves(report: &mut Report<'_>, pins: &Places, reserves: &Places) {
    for (kind, places) in reserves {
        for reserve in places {
            for pin in of_kind(pins, *kind) {
                if report.is_exhausted() {
                    return;
                }
                let Some(world) = same_actor(report, pin, *reserve) else {
                    continue;
                };
                if let Some(shared) = report.can_hold(world) {
                    let mut claim = about_same_actors(report, reserve.at, pin.at, shared);
                    claim.resolution = "it then stays, and the others leave its server".into();
                    warn(report, "pin-against-reserve", pin.at, reserve.at, claim);
                }
            }
        }
    }
}

/// A `colocate` whose two ends are both pinned or both reserved.
fn both_ends(
    report: &mut Report<'_>,
    (at, one, other): (At, usize, usize),
    places: &Places,
    code: &str,
    participle: &str,
    stay: &str,
) {
    if report.is_exhausted() {
        return;
    }
    let rules = &report.policy.rules;
    let rule = &rules[at.0];
    let first_places = of_kind(places, rule.variables[one].kind);
    let second_places = of_kind(places, rule.variables[other].kind);
    for first in &first_places {
        for second in &second_places {
            if report.is_exhausted() {
                return;
            }
            let mut world = World::default();
            let left = world.actor(rule.variables[one].kind);
            let right = world.actor(rule.variables[other].kind);
            let mut fits = world.add(rules, at.0, &[(one, left), (other, right)]);
            for (place, variable, actor) in [(first, one, left), (second, other, right)] {
                // The world has this rule with the same actors already.
                if place.at.0 != at.0 || place.variable != variable {
                    fits &= world.add(rules, place.at.0, &[(place.variable, actor)]);
                }
            }
            if !fits {
                continue;
            }
            if let Some(shared) = report.can_hold(world) {
                let mut warning = Diagnostic::warning(code, report.behaviour_span(at), "")
                    .also(report.behaviour_span(first.at), "one end");
                if first.at != second.at {
                    warning = warning.also(report.behaviour_span(second.at), "the other end");
                }
                let claim = Claim {
                    subject: format!("both ends of `{}`", report.behaviour_text(at)),
                    what: format!("be {participle}"),
                    resolution: format!("both then stay {stay}"),
                    shared,
                };
                report.claim(warning, claim);
                // One pair of rules is enough as an example.
                return;
            }
        }
    }
}

fn colocates_against_separates(report: &mut Report<'_>, colocates: &[(At, usize, usize)], separates: &Places) {
    for (at, one, other) in colocates {
        let rules = &report.policy.rules;
        let kind = |variable: usize| rules[at.0].variables[variable].kind;
        let mut warned: Vec<At> = Vec::new();
        // Either end of a `separate` can be the first actor of the `colocate`; the other end is then the second.
        for place in of_kind(separates, kind(*one)) {
            if report.is_exhausted() {
                return;
            }
            let Behaviour::Separate(left, right) = rules[place.at.0].behaviours[place.at.1] else {
                unreachable!("the list contains only `separate` behaviours");
            };
            let opposite = if place.variable == left { right } else { left };
            let mut world = World::default();
            let (first, second) = (world.actor(kind(*one)), world.actor(kind(*other)));
            let mut fits = world.add(rules, at.0, &[(*one, first), (*other, second)]);
            if at.0 != place.at.0 {
                fits &= world.add(rules, place.at.0, &[(place.variable, first), (opposite, second)]);
            } else {
                fits &= (place.variable, opposite) == (*one, *other);
            }
            if !fits || warned.contains(&place.at) {
                continue;
            }
            if let Some(shared) = report.can_hold(world) {
                warned.push(place.at);
                let mut claim = about_same_actors(report, *at, place.at, shared);
                claim.what = "be about the same actors".into();
                warn(report, "colocate-against-separate", place.at, *at, claim);
            }
        }
    }
}

/// Reservations of one actor for different resources with the same priority.
fn reserves_for_two_resources(report: &mut Report<'_>, reserves: &Places) {
    let resource = |report: &Report<'_>, place: &Place| match report.policy.rules[place.at.0].behaviours[place.at.1] {
        Behaviour::Reserve { resource, .. } => Some(resource),
        _ => None,
    };
    for (kind, places) in reserves {
        for one in places {
            for other in of_kind(reserves, *kind) {
                if report.is_exhausted() {
                    return;
                }
                report.effort += 1;
                if one.at >= other.at
                    || resource(report, one) == resource(report, &other)
                    || report.priority(one.at) != report.priority(other.at)
                {
                    continue;
                }
                let Some(world) = same_actor(report, *one, other) else {
                    continue;
                };
                if let Some(shared) = report.can_hold(world) {
                    let mut claim = about_same_actors(report, one.at, other.at, shared);
                    claim.resolution = "the earlier one wins".into();
                    warn(report, "priority-tie", one.at, other.at, claim);
                }
            }
        }
    }
}

/// Bounds of two `balance` rules about the same actors that are too close to each other.
fn bounds_of_two_rules(report: &mut Report<'_>, balances: &[(At, &Balance)]) {
    let mut by_kind: BTreeMap<Option<ActorType>, Vec<(At, &Balance)>> = BTreeMap::new();
    for (at, balance) in balances {
        let kinds: Vec<Option<ActorType>> = match &balance.kinds[..] {
            [] => vec![None],
            kinds => kinds.iter().copied().map(Some).collect(),
        };
        for kind in kinds {
            by_kind.entry(kind).or_default().push((*at, balance));
        }
    }
    let mut reported = std::collections::BTreeSet::new();
    for (kind, own) in &by_kind {
        let others = by_kind.get(&None).filter(|_| kind.is_some()).into_iter().flatten();
        for (at, balance) in own {
            for (other_at, other) in own.iter().chain(others.clone()) {
                if report.is_exhausted() {
                    return;
                }
                report.effort += 1;
                if at.0 == other_at.0 || balance.resource != other.resource {
                    continue;
                }
                let Some((upper, lower)) = satisfiability::too_close(balance.upper, other.lower) else {
                    continue;
                };
                if reported.insert((*at, *other_at)) && reported.len() <= crate::DIAGNOSTICS_MAX {
                    let span = report.behaviour_span(*at);
                    let warning = satisfiability::no_room(upper, lower, span, balance.resource.name())
                        .also(report.behaviour_span(*other_at), "with the lower bound of this");
                    report.add(warning);
                }
            }
        }
    }
}
