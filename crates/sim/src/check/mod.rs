//! Invariants of every run: one checker each, fed with the real events of the world.

mod activation;
mod groups;
mod lease;
mod memory;
mod moves;
mod order;
mod outcome;
mod requests;
mod service;
mod state;
mod stored;

use elastin_protocol::RequestId;
use elastin_types::{ActivationEpoch, ActorId, CallId, Caller, NodeId, Outcome, Time};

use crate::host::State;

pub(crate) use activation::OneActivation;
pub(crate) use groups::WholeGroups;
pub(crate) use lease::NothingAfterTheLease;
pub(crate) use memory::check_bounds;
pub(crate) use moves::check_moves;
pub(crate) use order::OrderPerPair;
pub(crate) use outcome::TrueOutcomes;
pub(crate) use requests::OncePerRequest;
pub(crate) use service::check_at_rest;
pub(crate) use state::StateMoves;
pub(crate) use stored::StoredStates;

/// A broken invariant, with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// A description of the violation.
    pub what: String,
    /// The affected actor, if there is one.
    pub actor: Option<ActorId>,
}

impl Violation {
    fn of(invariant: &'static str, actor: Option<&ActorId>, description: String) -> Result<(), Violation> {
        let (actor, what) = (actor.cloned(), description);
        Err(Violation { invariant, what, actor })
    }
}

/// The start of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) node: NodeId,
    pub(crate) actor: &'a ActorId,
    pub(crate) epoch: ActivationEpoch,
    pub(crate) call: CallId,
    /// The request that this call belongs to.
    pub(crate) request: Option<RequestId>,
    pub(crate) caller: &'a Caller,
    /// The sender's incarnation, and the number of this message from it to this actor.
    pub(crate) sender_incarnation: u64,
    pub(crate) number: u64,
    /// The actor's state, including this turn.
    pub(crate) state: State,
}

/// All checkers.
#[derive(Debug, Default)]
pub(crate) struct Checkers {
    pub(crate) activation: OneActivation,
    pub(crate) groups: WholeGroups,
    pub(crate) lease: NothingAfterTheLease,
    pub(crate) order: OrderPerPair,
    pub(crate) outcome: TrueOutcomes,
    pub(crate) requests: OncePerRequest,
    pub(crate) state: StateMoves,
    pub(crate) stored: StoredStates,
    /// The violations, in order.
    pub(crate) violations: Vec<Violation>,
}

impl Checkers {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>, now: Time) {
        self.stored.turn_starts(turn);
        let results = [
            self.lease.acts(turn.node, now, "starts a turn"),
            self.activation.turn_starts(turn),
            self.order.turn_starts(turn),
            self.outcome.turn_starts(turn),
            self.requests.turn_starts(turn),
            self.state.turn_starts(turn),
        ];
        for result in results {
            self.note(result);
        }
    }

    pub(crate) fn turn_ends(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        self.activation.turn_ends(actor, epoch);
    }

    pub(crate) fn frame_leaves(&mut self, node: NodeId, now: Time) {
        let result = self.lease.acts(node, now, "lets a frame leave");
        self.note(result);
    }

    pub(crate) fn save_leaves(&mut self, node: NodeId, now: Time) {
        let result = self.lease.acts(node, now, "saves");
        self.note(result);
    }

    /// A node refused a frame of another. All nodes are honest here.
    pub(crate) fn refused(&mut self, node: NodeId, from: NodeId) {
        let description = format!("{node} refuses a frame of {from}");
        self.note(Violation::of("no frame is refused", None, description));
    }

    /// Some node has a view in which this node has stopped: the end of a running turn may never be seen.
    pub(crate) fn taken_over(&mut self, node: NodeId, now: Time) {
        if self.lease.taken_over(node, now) {
            self.activation.node_stops(node);
        }
    }

    /// A process has stopped, for whatever reason.
    pub(crate) fn node_stops(&mut self, node: NodeId) {
        self.activation.node_stops(node);
    }

    pub(crate) fn call_ends(&mut self, call: CallId, outcome: &Outcome) {
        let result = self.outcome.call_ends(call, outcome);
        self.note(result);
        if outcome.is_ok() {
            self.stored.acknowledged(call);
        }
    }

    pub(crate) fn note(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.violations.push(violation);
        }
    }
}

#[cfg(test)]
mod tests;
