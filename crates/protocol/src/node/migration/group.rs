//! Groups of actors that move away together.
//!
//! No member is frozen before all are accepted, and no image leaves before all are frozen. If either fails, all members
//! stay. From then on each move is decided independently, because each actor has its own directory slot.

use elastin_types::ActorId;

use crate::bug::Bug;
use crate::hosted::{Hosted, MoveOut, OutStep, Phase};
use crate::node::Node;
use crate::{Command, MoveError, MoveId, PlannedMove};

impl Node {
    /// Starts the moves of a group.
    pub(in crate::node) fn on_move_together(&mut self, moves: Vec<PlannedMove>) {
        let Some(group) = moves.first().map(|first| first.id) else {
            return;
        };
        if self.sessions.planted.is(Bug::SplitGroup) {
            return self.on_moves(moves);
        }
        let mut begun = Vec::new();
        let mut failed = None;
        for PlannedMove { id, actor, to } in moves {
            let began = match failed {
                None => self.begin_move(id, &actor, to, None),
                Some(reason) => Err(reason),
            };
            match began {
                Ok(()) => begun.push(actor),
                Err(reason) => {
                    failed = Some(reason);
                    self.sessions.command(Command::MoveEnded {
                        id,
                        result: Err(reason),
                    });
                }
            }
        }
        for actor in &begun {
            self.moving_of(actor).group = Some(group);
        }
        self.groups.insert(group, begun);
        if let Some(reason) = failed {
            self.group_fails(group, reason);
        }
    }

    fn moving_of(&mut self, actor: &ActorId) -> &mut MoveOut {
        match self.hosted.get_mut(actor).and_then(Hosted::phase_mut) {
            Some(Phase::MovingOut(out)) => out,
            _ => unreachable!("members of a group are moving out"),
        }
    }

    /// Freezes a group if all its members have been accepted by their targets.
    pub(in crate::node) fn freeze_group(&mut self, group: MoveId) {
        let actors = self.groups[&group].clone();
        if actors
            .iter()
            .all(|actor| matches!(self.moving_of(actor).step, OutStep::Taken))
        {
            for actor in &actors {
                self.freeze(actor);
            }
        }
    }

    /// Dissolves a group if all its members are frozen, and begins to send their images.
    pub(in crate::node) fn stage_group(&mut self, group: MoveId) {
        let actors = self.groups[&group].clone();
        if actors
            .iter()
            .any(|actor| !matches!(self.moving_of(actor).step, OutStep::Frozen(_)))
        {
            return;
        }
        self.groups.remove(&group);
        for actor in &actors {
            self.moving_of(actor).group = None;
        }
        for actor in &actors {
            self.begin_staging(actor);
        }
    }

    pub(in crate::node) fn group_fails_if_any(&mut self, group: Option<MoveId>, reason: MoveError) {
        if let Some(group) = group {
            self.group_fails(group, reason);
        }
    }

    /// Cancels the moves of a group because one member cannot move. Members that are being frozen resume afterwards.
    pub(in crate::node) fn group_fails(&mut self, group: MoveId, reason: MoveError) {
        for actor in self.groups.remove(&group).unwrap_or_default() {
            // The failed member has been handled, and is in no group any more.
            let Some(Phase::MovingOut(out)) = self.hosted.get_mut(&actor).and_then(Hosted::phase_mut) else {
                continue;
            };
            if out.group.take() != Some(group) {
                continue;
            }
            match &mut out.step {
                OutStep::Freezing(given_up) => {
                    given_up.get_or_insert(reason);
                }
                OutStep::Frozen(_) => self.call_off(&actor, true, reason),
                OutStep::Offered | OutStep::Taken => self.call_off(&actor, false, reason),
                OutStep::Staging { .. } | OutStep::Deciding | OutStep::Aborting(_) => {
                    unreachable!("the group is dissolved before images leave")
                }
            }
        }
    }
}
