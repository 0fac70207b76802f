//! Evaluation of the rules on a period's statistics.

use std::collections::BTreeSet;

use elastin_policy::{Fired, Index, Scope};
use elastin_types::ActorId;

use super::companions::{companions, is_still_needed};
use crate::context::Context;
use crate::local::LemCommand;
use crate::local::server::{OwnServer, Reviewed};
use crate::record::record;
use crate::{Change, Outcome};

/// Evaluates the rules, and renews or ends their relations and reservations.
pub(crate) fn evaluate(context: &mut Context, server: &mut OwnServer, out: &mut Vec<LemCommand>) -> Vec<Fired> {
    let OwnServer {
        statistics,
        relations,
        reservations,
        ..
    } = server;
    let policy = &context.policy;
    let facts = Index::new(statistics.snapshot());
    let fired = policy.evaluate(&facts, Scope::Local(context.node));
    let needed: BTreeSet<ActorId> = reservations
        .iter()
        .filter(|reservation| is_still_needed(policy, &facts, reservation))
        .map(|reservation| reservation.actor.clone())
        .collect();
    // The relations of a reservation's rule hold as long as it does, so that companions do not drift off. The load
    // of the server that the actor left no longer matters.
    let companions: Vec<Fired> = reservations
        .iter()
        .flat_map(|reservation| companions(policy, &facts, statistics.snapshot(), reservation))
        .collect();

    relations.age(|actor| statistics.actor(actor).is_some());
    for firing in fired.iter().chain(&companions) {
        relations.refresh(policy, firing);
    }

    let ended = reservations.review(context.now, |reservation| Reviewed {
        used: statistics
            .actor(&reservation.actor)
            .map(|stats| stats.used[reservation.resource]),
        holds: needed.contains(&reservation.actor),
    });
    for (reservation, reason) in ended {
        let change = Change::Release {
            actor: reservation.actor,
            node: context.node,
            reason,
        };
        let decision = context.decision(Some(reservation.cause), change, Vec::new());
        record(decision, Outcome::Done, out);
    }
    fired
}
