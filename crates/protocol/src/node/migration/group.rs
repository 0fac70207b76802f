//! Groups of actors that move away together.
//!
//! No member is frozen before all are accepted, and no image leaves before all are frozen. If either fails, all members
//! stay. From then on each move is decided independently, because each actor has its own directory slot.

use elastin_types::ActorId;

use super::MovesOut;
use super::stage::freeze;
use crate::bug::Bug;
use crate::node::env::Env;
use crate::node::hosting::{Hosting, MoveOut, OutStep};
use crate::{Command, MoveError, MoveId, PlannedMove};

impl MovesOut {
    /// Starts the moves of a group.
    pub(in crate::node) fn on_move_together(&mut self, env: &mut Env, hosting: &mut Hosting, moves: Vec<PlannedMove>) {
        let Some(group) = moves.first().map(|first| first.id) else {
            return;
        };
        if env.planted.is(Bug::SplitGroup) {
            return self.on_moves(env, moves);
        }
        let mut begun = Vec::new();
        let mut failed = None;
        for PlannedMove { id, actor, to } in moves {
            let began = match failed {
                None => self.begin(env, hosting, id, &actor, to, None),
                Some(reason) => Err(reason),
            };
            match began {
                Ok(()) => begun.push(actor),
                Err(reason) => {
                    failed = Some(reason);
                    env.command(Command::MoveEnded {
                        id,
                        result: Err(reason),
                    });
                }
            }
        }
        for actor in &begun {
            moving_of(hosting, actor).group = Some(group);
        }
        self.groups.insert(group, begun);
        if let Some(reason) = failed {
            self.group_fails(env, hosting, group, reason);
        }
    }

    /// Freezes a group if all its members have been accepted by their targets.
    pub(super) fn freeze_group(&mut self, env: &mut Env, hosting: &mut Hosting, group: MoveId) {
        let actors = self.groups[&group].clone();
        if actors
            .iter()
            .all(|actor| matches!(moving_of(hosting, actor).step, OutStep::Taken))
        {
            for actor in &actors {
                freeze(env, hosting, actor);
            }
        }
    }

    /// Dissolves a group if all its members are frozen, and begins to send their images.
    pub(super) fn stage_group(&mut self, env: &mut Env, hosting: &mut Hosting, group: MoveId) {
        let actors = self.groups[&group].clone();
        if actors
            .iter()
            .any(|actor| !matches!(moving_of(hosting, actor).step, OutStep::Frozen(_)))
        {
            return;
        }
        self.groups.remove(&group);
        for actor in &actors {
            moving_of(hosting, actor).group = None;
        }
        for actor in &actors {
            self.begin_staging(env, hosting, actor);
        }
    }

    /// Cancels the moves of a group because one member cannot move. Members that are being frozen resume afterwards.
    pub(super) fn group_fails(&mut self, env: &mut Env, hosting: &mut Hosting, group: MoveId, reason: MoveError) {
        for actor in self.groups.remove(&group).unwrap_or_default() {
            // The failed member has been handled, and is in no group any more.
            let Some(out) = hosting.moving_out_mut(&actor) else {
                continue;
            };
            if out.group.take() != Some(group) {
                continue;
            }
            match &mut out.step {
                OutStep::Freezing(given_up) => {
                    given_up.get_or_insert(reason);
                }
                OutStep::Frozen(_) => self.abort(env, hosting, &actor, true, reason),
                OutStep::Offered | OutStep::Taken => self.abort(env, hosting, &actor, false, reason),
                OutStep::Staging { .. } | OutStep::Deciding | OutStep::Aborting(_) => {
                    unreachable!("the group is dissolved before images leave")
                }
            }
        }
    }
}

fn moving_of<'a>(hosting: &'a mut Hosting, actor: &ActorId) -> &'a mut MoveOut {
    let out = hosting.moving_out_mut(actor);
    out.expect("members of a group are moving out")
}
