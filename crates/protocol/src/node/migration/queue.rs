//! Queue of moves away from this node. Each of them ends independently.

use elastin_types::NodeId;
use std::time::Duration;

use crate::hosted::Phase;
use crate::node::Node;
use crate::timers::Due;
use crate::{Command, MoveError, PlannedMove};

/// Delay before an overloaded target is asked again: roughly the duration of some moves.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A move queued to begin.
#[derive(Debug)]
pub(in crate::node) struct WaitingMove {
    planned: PlannedMove,
    tries: u32,
}

impl Node {
    /// Queues moves.
    pub(in crate::node) fn on_moves(&mut self, moves: Vec<PlannedMove>) {
        for planned in moves {
            if self.moves_waiting.len() < self.sessions.limits.moves_waiting {
                self.moves_waiting.push_back(WaitingMove { planned, tries: 0 });
            } else {
                let result = Err(MoveError::TooMany(self.sessions.me));
                self.sessions.command(Command::MoveEnded { id: planned.id, result });
            }
        }
    }

    /// Requeues a move whose target is overloaded.
    pub(in crate::node) fn requeue_move(&mut self, planned: PlannedMove, tries: u32) {
        self.moves_waiting.push_back(WaitingMove { planned, tries });
        let paused_until = self.sessions.now + AGAIN_AFTER;
        self.moves_paused_until = Some(paused_until);
        self.sessions.timers.set(paused_until, Due::MovesAgain);
    }

    /// Begins as many queued moves as the limits allow. A move that cannot begin ends with an error.
    pub(in crate::node) fn begin_waiting_moves(&mut self) {
        if self.moves_paused_until.is_some_and(|until| self.sessions.now < until) {
            return;
        }
        self.moves_paused_until = None;
        while self.may_begin_move()
            && let Some(WaitingMove { planned, tries }) = self.moves_waiting.pop_front()
        {
            let PlannedMove { id, actor, to } = planned;
            if let Err(error) = self.begin_move(id, &actor, to, Some(tries + 1)) {
                self.sessions.command(Command::MoveEnded { id, result: Err(error) });
            }
        }
    }

    fn may_begin_move(&self) -> bool {
        let limits = &self.sessions.limits;
        self.moving_out.len() < limits.moves_out && self.bytes_moving_out() < limits.move_bytes
    }

    /// Image bytes in flight from this node.
    fn bytes_moving_out(&self) -> usize {
        let bytes = self.moving_out.iter().map(|actor| match self.hosted[actor].phase() {
            Phase::MovingOut(out) => out.image_bytes,
            _ => 0,
        });
        bytes.sum()
    }

    /// Image bytes received for actors that are not active yet.
    pub(in crate::node) fn bytes_moving_in(&self) -> usize {
        let bytes = self.moving_in.iter().map(|actor| match self.hosted[actor].phase() {
            Phase::MovingIn(incoming) => incoming.image.len(),
            _ => 0,
        });
        bytes.sum()
    }

    /// Fails the queued moves to a node that died.
    pub(in crate::node) fn waiting_moves_lost_with(&mut self, node: NodeId) {
        let (lost, waiting) = std::mem::take(&mut self.moves_waiting)
            .into_iter()
            .partition(|waiting: &WaitingMove| waiting.planned.to == node);
        self.moves_waiting = waiting;
        for WaitingMove { planned, .. } in lost {
            let result = Err(MoveError::TargetLost);
            self.sessions.command(Command::MoveEnded { id: planned.id, result });
        }
    }
}
