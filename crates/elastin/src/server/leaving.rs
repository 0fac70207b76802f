//! How a server goes: it takes nobody any more, gives away what it has, says so to everybody, and leaves when nobody sends to
//! it any more.

use std::time::Duration;

use elastin_cluster::Role;
use elastin_control::NewActor;
use elastin_protocol::View;
use elastin_types::{ActorId, Time};

use super::evacuation::Evacuation;
use super::event_loop::{Asked, Server};
use crate::wire::ControlFrame;

/// How long a server that was told to end may go without a single actor leaving it. Then it leaves with what it has.
const STUCK_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a server waits for others to be known if it is told to end and nobody could take over from it.
const ALONE_TIME_MAX: Duration = Duration::from_secs(1);
/// How often a server that is being emptied looks whether it is.
pub(super) const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A server on its way out.
pub(super) struct Leaving {
    evacuation: Evacuation,
    /// When it leaves with whatever it has, unless another actor leaves before.
    at_the_latest: Time,
    /// Whether it stays while there is nobody who could take over from it.
    needs_heirs: bool,
    /// When somebody who could was last known.
    had_heirs: Time,
}

impl Server {
    /// This server is wanted no longer: it is emptied, and leaves. The last one stays until there is another.
    pub(super) fn drain(&mut self) {
        self.begin_to_leave(true);
    }

    /// This server's process is to end: it is emptied, if somebody can take over from it, and leaves.
    pub(super) fn end(&mut self) {
        self.begin_to_leave(false);
    }

    fn begin_to_leave(&mut self, needs_heirs: bool) {
        if let Some(leaving) = &mut self.leaving {
            leaving.needs_heirs &= needs_heirs;
        } else {
            tracing::info!("this server is being emptied, and leaves then");
            self.member.membership.drain(self.member.me, true);
            let now = self.member.runtime.now();
            self.leaving = Some(Leaving {
                evacuation: Evacuation::default(),
                at_the_latest: now + STUCK_TIME_MAX,
                needs_heirs,
                had_heirs: now,
            });
        }
        self.empty();
    }

    /// Moves on with emptying this server, and leaves when it is empty and nobody sends to it any more.
    pub(super) fn empty(&mut self) {
        self.evacuate();
        let is_empty = self.is_empty();
        if is_empty {
            self.member.peer.part();
        }
        let (now, has_heirs) = (self.member.runtime.now(), self.has_heirs());
        let Some(leaving) = &mut self.leaving else { return };
        if has_heirs {
            leaving.had_heirs = now;
        } else if leaving.needs_heirs {
            leaving.at_the_latest = now + STUCK_TIME_MAX;
        }
        if is_empty && self.member.peer.may_go() {
            self.leave();
        } else if !leaving.needs_heirs && now >= leaving.had_heirs + ALONE_TIME_MAX {
            tracing::info!("no other server can take over from this one: what is not kept in a store is lost");
            self.leave();
        } else if now >= leaving.at_the_latest {
            tracing::warn!(
                is_empty,
                "this server leaves although not everybody and everything is ready for it"
            );
            self.leave();
        }
    }

    /// Whether there is no actor here, no part of the directory, and nobody to come.
    fn is_empty(&self) -> bool {
        let me = self.member.me;
        let evacuated = self.leaving.as_ref().is_none_or(|leaving| leaving.evacuation.is_done());
        let is_done_with = |view: View| !view.slots.is_owner(me) && !view.takes_actors(me);
        evacuated && self.member.runtime.activations().is_empty() && self.member.peer.view().is_some_and(is_done_with)
    }

    /// Whether another server is there, or about to be, that can take over from this one.
    fn has_heirs(&self) -> bool {
        let me = self.member.me;
        let mut others = self.roster.members.iter().filter(|(node, _)| **node != me);
        others.any(|(_, record)| record.role == Role::Server && !record.draining)
    }

    /// A move away from here has ended.
    pub(super) fn evacuated(&mut self, actor: &ActorId, moved: bool) {
        if let Some(leaving) = &mut self.leaving {
            leaving.evacuation.ended(actor);
            if moved {
                leaving.at_the_latest = self.member.runtime.now() + STUCK_TIME_MAX;
            }
        }
        self.evacuate();
    }

    /// Sends away as many actors as may be under way at a time. Where to is for the local manager to say, as if they were
    /// new.
    fn evacuate(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        let runtime = &self.member.runtime;
        let everybody = || runtime.activations().into_iter().map(|(actor, _)| actor).collect();
        for actor in leaving.evacuation.next(everybody) {
            let new = NewActor {
                actor: actor.clone(),
                caller: None,
                caller_node: None,
            };
            match self
                .lem
                .place(&new)
                .filter(|placement| placement.node != self.member.me)
            {
                Some(placement) => {
                    let id = self.moves.begin(Asked::Evacuation(actor.clone()));
                    self.member.peer.move_actor(id, actor, placement.node);
                }
                None => leaving.evacuation.ended(&actor),
            }
        }
    }

    fn leave(&mut self) {
        match self.roster.supervisor() {
            Some(supervisor) => self.send_control(supervisor, &ControlFrame::Leave),
            None => self.left = true,
        }
    }
}
