//! The lasting effects of a reservation: whether it is still needed, and which actors belong to it.

use std::collections::BTreeSet;

use elastin_policy::{Action, Behaviour, Bound, Facts, Fired, Part, Policy, Rule};
use elastin_types::{ActorId, Caller, Snapshot};

use crate::Reservation;

/// Maximum number of companions of one reserved actor.
const COMPANIONS_MAX: usize = 4_096;

/// Whether the part of the rule's condition that does not mention `server` holds for the reserved actor.
pub(crate) fn is_still_needed(policy: &Policy, facts: &impl Facts, reservation: &Reservation) -> bool {
    let own = own_binding(reservation);
    own.is_some_and(|own| policy.holds(facts, reservation.cause.rule, &[own], Part::WithoutServer))
}

/// The actors that the reservation's rule colocates with the reserved one, as firings of that rule. Conditions on
/// `server` are ignored: they only decide when to reserve.
pub(crate) fn companions(
    policy: &Policy,
    facts: &impl Facts,
    snapshot: &Snapshot,
    reservation: &Reservation,
) -> Vec<Fired> {
    let Some(own) = own_binding(reservation) else {
        return Vec::new();
    };
    let rule = &policy.rules()[reservation.cause.rule];
    let partners = partner_variables(rule, &own);
    let mut fired = Vec::new();
    for actor in neighbours(snapshot, &reservation.actor) {
        for partner in &partners {
            let variable = &rule.variables[*partner];
            let other = Bound {
                variable: variable.name.clone(),
                actor: actor.clone(),
            };
            let binding = vec![own.clone(), other];
            let fits = variable.admits(actor.kind);
            if fits && policy.holds(facts, reservation.cause.rule, &binding, Part::WithoutServer) {
                fired.push(Fired {
                    rule: reservation.cause.rule,
                    binding,
                    server: None,
                    values: Vec::new(),
                    actions: vec![Action::Colocate(reservation.actor.clone(), actor.clone())],
                });
            }
        }
    }
    fired
}

fn own_binding(reservation: &Reservation) -> Option<Bound> {
    let bound = reservation.cause.binding.iter();
    bound
        .into_iter()
        .find(|bound| bound.actor == reservation.actor)
        .cloned()
}

/// The variables that the rule colocates with the reserved actor's.
fn partner_variables(rule: &Rule, own: &Bound) -> Vec<usize> {
    let is_own = |variable: usize| rule.variables[variable].name == own.variable;
    let partner = |behaviour: &Behaviour| match behaviour {
        Behaviour::Colocate(one, other) if is_own(*one) => Some(*other),
        Behaviour::Colocate(one, other) if is_own(*other) => Some(*one),
        _ => None,
    };
    rule.behaviours.iter().filter_map(partner).collect()
}

/// The actors on this server, and those that the actor references, calls or is called by.
fn neighbours(snapshot: &Snapshot, actor: &ActorId) -> BTreeSet<ActorId> {
    let local = snapshot.actors.iter().map(|stats| &stats.actor);
    let own = snapshot.actors.iter().filter(|stats| stats.actor == *actor);
    let linked = own.flat_map(|stats| {
        let referred = stats.references.iter().flat_map(|references| &references.actors);
        let called = stats.calls_out.iter().map(|call| &call.callee);
        let callers = stats.calls_in.iter().filter_map(|call| match &call.caller {
            Caller::Actor(caller) => Some(caller),
            Caller::Client(_) => None,
        });
        referred.chain(called).chain(callers)
    });
    let others = local.chain(linked).filter(|other| *other != actor);
    others.take(COMPANIONS_MAX).cloned().collect()
}
