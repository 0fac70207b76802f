//! What must hold in every run: one checker per invariant, each fed with what really happens in the world.

mod activation;
mod order;
mod outcome;
mod state;

use elastin_types::{ActivationEpoch, ActorId, CallId, Caller, NodeId, Outcome};

use crate::host::State;

pub(crate) use activation::OneActivation;
pub(crate) use order::OrderPerPair;
pub(crate) use outcome::TrueOutcomes;
pub(crate) use state::StateMoves;

/// A broken promise: which, and what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// What happened, for people.
    pub what: String,
}

/// A message begins to run.
#[derive(Clone, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) node: NodeId,
    pub(crate) actor: &'a ActorId,
    pub(crate) epoch: ActivationEpoch,
    pub(crate) call: CallId,
    pub(crate) caller: &'a Caller,
    /// The sender's life, and the number of this message from it to this actor.
    pub(crate) sender_life: u64,
    pub(crate) number: u64,
    /// The actor's state, this turn counted.
    pub(crate) state: State,
}

/// All checkers.
#[derive(Debug, Default)]
pub(crate) struct Checkers {
    pub(crate) activation: OneActivation,
    pub(crate) order: OrderPerPair,
    pub(crate) outcome: TrueOutcomes,
    pub(crate) state: StateMoves,
    /// What was broken, in order.
    pub(crate) violations: Vec<Violation>,
}

impl Checkers {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) {
        let results = [
            self.activation.turn_starts(turn),
            self.order.turn_starts(turn),
            self.outcome.turn_starts(turn),
            self.state.turn_starts(turn),
        ];
        for result in results {
            self.note(result);
        }
    }

    pub(crate) fn turn_ends(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        self.activation.turn_ends(actor, epoch);
    }

    pub(crate) fn call_ends(&mut self, call: CallId, outcome: &Outcome) {
        let result = self.outcome.call_ends(call, outcome);
        self.note(result);
    }

    pub(crate) fn note(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.violations.push(violation);
        }
    }
}
