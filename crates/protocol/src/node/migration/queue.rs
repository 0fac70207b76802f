//! Queue of moves away from this node. Each of them ends independently.

use std::collections::VecDeque;
use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::MovesOut;
use crate::node::env::{Due, Env};
use crate::node::hosting::Hosting;
use crate::{Command, MoveError, PlannedMove};

/// Delay before an overloaded target is asked again: roughly the duration of some moves.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Moves queued to begin.
#[derive(Debug, Default)]
pub(super) struct MoveQueue {
    /// Bounded by [`Limits::moves_waiting`](crate::Limits).
    waiting: VecDeque<WaitingMove>,
    /// No move begins before this time, because a target was overloaded.
    paused_until: Option<Time>,
}

#[derive(Debug)]
struct WaitingMove {
    planned: PlannedMove,
    tries: u32,
}

impl MoveQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Requeues a move whose target is overloaded.
    pub(super) fn push_again(&mut self, env: &mut Env, planned: PlannedMove, tries: u32) {
        self.waiting.push_back(WaitingMove { planned, tries });
        let paused_until = env.now + AGAIN_AFTER;
        self.paused_until = Some(paused_until);
        env.timers.set(paused_until, Due::MovesAgain);
    }

    /// Fails the queued moves to a node that died.
    pub(super) fn lost_with(&mut self, env: &mut Env, node: NodeId) {
        self.waiting.retain(|waiting| {
            let is_lost = waiting.planned.to == node;
            if is_lost {
                let (id, result) = (waiting.planned.id, Err(MoveError::TargetLost));
                env.command(Command::MoveEnded { id, result });
            }
            !is_lost
        });
    }
}

impl MovesOut {
    /// Queues moves.
    pub(in crate::node) fn on_moves(&mut self, env: &mut Env, moves: Vec<PlannedMove>) {
        for planned in moves {
            if self.queue.len() < env.limits.moves_waiting {
                self.queue.waiting.push_back(WaitingMove { planned, tries: 0 });
            } else {
                let result = Err(MoveError::TooMany(env.me));
                env.command(Command::MoveEnded { id: planned.id, result });
            }
        }
    }

    /// Begins as many queued moves as the limits allow. A move that cannot begin ends with an error.
    pub(in crate::node) fn begin_waiting(&mut self, env: &mut Env, hosting: &mut Hosting) {
        if self.queue.paused_until.is_some_and(|until| env.now < until) {
            return;
        }
        self.queue.paused_until = None;
        while self.may_begin(env, hosting)
            && let Some(WaitingMove { planned, tries }) = self.queue.waiting.pop_front()
        {
            let PlannedMove { id, actor, to } = planned;
            if let Err(error) = self.begin(env, hosting, id, &actor, to, Some(tries + 1)) {
                env.command(Command::MoveEnded { id, result: Err(error) });
            }
        }
    }

    fn may_begin(&self, env: &Env, hosting: &Hosting) -> bool {
        self.moving.len() < env.limits.moves_out && self.bytes_in_flight(hosting) < env.limits.move_bytes
    }

    /// Image bytes in flight from this node.
    fn bytes_in_flight(&self, hosting: &Hosting) -> usize {
        let moves = self.moving.iter().filter_map(|actor| hosting.moving_out(actor));
        moves.map(|out| out.image_bytes).sum()
    }
}
