//! Actors that move away from here together: nothing of a group is frozen before all of it is taken, nothing leaves before
//! all of it is frozen, and if either fails all of it goes on. From then on each move is decided for itself, because each
//! actor has a directory slot of its own.

use elastin_types::ActorId;

use crate::bug::Bug;
use crate::hosted::{Hosted, MoveOut, OutStep, Phase};
use crate::node::Node;
use crate::{Command, MoveError, MoveId, PlannedMove};

impl Node {
    /// Somebody wants actors moved together.
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
                Some(why) => Err(why),
            };
            match began {
                Ok(()) => begun.push(actor),
                Err(why) => {
                    failed = Some(why);
                    self.sessions.command(Command::MoveEnded { id, result: Err(why) });
                }
            }
        }
        for actor in &begun {
            self.moving_of(actor).group = Some(group);
        }
        self.groups.insert(group, begun);
        if let Some(why) = failed {
            self.group_fails(group, why);
        }
    }

    fn moving_of(&mut self, actor: &ActorId) -> &mut MoveOut {
        match self.hosted.get_mut(actor).and_then(Hosted::phase_mut) {
            Some(Phase::MovingOut(out)) => out,
            _ => unreachable!("what is in a group moves away"),
        }
    }

    /// A target takes one of a group: if all are taken, all are frozen.
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

    /// One of a group is frozen: if all are, they are no longer held up by each other.
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

    pub(in crate::node) fn group_fails_if_any(&mut self, group: Option<MoveId>, why: MoveError) {
        if let Some(group) = group {
            self.group_fails(group, why);
        }
    }

    /// One of a group can't move, so all stay. Whoever is being frozen goes on as soon as it is.
    pub(in crate::node) fn group_fails(&mut self, group: MoveId, why: MoveError) {
        for actor in self.groups.remove(&group).unwrap_or_default() {
            // The one that failed has been dealt with, and is in no group any more.
            let Some(Phase::MovingOut(out)) = self.hosted.get_mut(&actor).and_then(Hosted::phase_mut) else {
                continue;
            };
            if out.group.take() != Some(group) {
                continue;
            }
            match &mut out.step {
                OutStep::Freezing(given_up) => {
                    given_up.get_or_insert(why);
                }
                OutStep::Frozen(_) => self.call_off(&actor, true, why),
                OutStep::Offered | OutStep::Taken => self.call_off(&actor, false, why),
                OutStep::Staging { .. } | OutStep::Deciding | OutStep::Aborting(_) => {
                    unreachable!("the group is over when images leave")
                }
            }
        }
    }
}
