//! What is measured of one activation in a period.

use std::time::Duration;

use elastin_actor::TurnMeasure;
use elastin_types::{ActorId, CallIn, CallOut, Caller, Method, NodeId, References};

use crate::heavy::HeavyHitters;

/// How many turns in a period are measured one by one before only some are.
const EXACT_TURNS: u64 = 64;

/// How many turns one measured turn stands for when there are many.
const STRIDE: u32 = 16;

/// What is measured of one activation in a period. Only there for actors that did something.
#[derive(Default)]
pub(crate) struct Profile {
    pub(crate) turns: u64,
    pub(crate) busy: Duration,
    /// What was last seen of the state.
    pub(crate) noted: Option<Noted>,
    calls_in: HeavyHitters<(Caller, Method), NodeId>,
    calls_out: HeavyHitters<(ActorId, Method), ()>,
}

/// What was seen of an actor's state between two turns.
#[derive(Clone, Default)]
pub(crate) struct Noted {
    pub(crate) state_bytes: u64,
    pub(crate) references: Vec<References>,
}

impl Profile {
    /// Takes in a measured turn; says how many turns the next measured one stands for.
    pub(crate) fn turn(&mut self, turn: &TurnMeasure) -> u32 {
        let weight = u64::from(turn.weight);
        self.turns += weight;
        self.busy += turn.busy * turn.weight;
        self.calls_in.add(
            |(caller, method)| *method == turn.method && *caller == turn.caller,
            || (turn.caller.clone(), turn.method),
            weight,
            turn.bytes * weight,
            turn.from,
        );
        if self.turns < EXACT_TURNS { 1 } else { STRIDE }
    }

    /// Takes in a call that a measured turn made.
    pub(crate) fn call(&mut self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        let weight = u64::from(weight);
        self.calls_out.add(
            |(known, known_method)| *known_method == method && known == callee,
            || (callee.clone(), method),
            weight,
            bytes * weight,
            (),
        );
    }

    /// The heaviest callers and callees, heaviest first. `node_of` says where a callee is.
    pub(crate) fn edges(self, node_of: impl Fn(&ActorId) -> Option<NodeId>) -> (Vec<CallIn>, Vec<CallOut>) {
        let mut calls_in: Vec<_> = self
            .calls_in
            .into_entries()
            .into_iter()
            .map(|entry| CallIn {
                caller: entry.key.0,
                method: entry.key.1,
                count: entry.count,
                bytes: entry.bytes,
                node: Some(entry.tag),
            })
            .collect();
        calls_in.sort_by(|one, other| (other.count, &one.caller).cmp(&(one.count, &other.caller)));
        let mut calls_out: Vec<_> = self
            .calls_out
            .into_entries()
            .into_iter()
            .map(|entry| CallOut {
                node: node_of(&entry.key.0),
                callee: entry.key.0,
                method: entry.key.1,
                count: entry.count,
                bytes: entry.bytes,
            })
            .collect();
        calls_out.sort_by(|one, other| (other.count, &one.callee).cmp(&(one.count, &other.callee)));
        (calls_in, calls_out)
    }
}
