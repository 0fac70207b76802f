//! Leaving a cluster: a server stops accepting actors, drains, announces that it is empty, and leaves once no member
//! routes to it.

use std::time::Duration;

use elastin_cluster::Role;
use elastin_control::NewActor;
use elastin_protocol::View;
use elastin_types::{ActorId, Time};

use super::evacuation::Evacuation;
use super::event_loop::{MoveOrigin, Server};
use crate::wire::ControlFrame;

/// The longest drain without a successful move. Then the server leaves with the actors that it still has.
const STUCK_TIME_MAX: Duration = Duration::from_secs(60);
/// The time that a server which must end waits for a successor to become known.
const ALONE_TIME_MAX: Duration = Duration::from_secs(1);
/// The interval at which a draining server checks its progress.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The state of a server that is leaving.
pub(super) struct Leaving {
    evacuation: Evacuation,
    /// When the server leaves in any case; extended by every successful move.
    deadline: Time,
    /// Whether it stays until another server can take over.
    needs_successor: bool,
    /// When a server that can take over was last known.
    successor_seen_at: Time,
}

impl Server {
    /// Drains this server, which leaves then. The last server stays until there is another.
    pub(super) fn drain(&mut self) {
        self.begin_to_leave(true);
    }

    /// Ends this server: drains it if another one can take over, and leaves.
    pub(super) fn end(&mut self) {
        self.begin_to_leave(false);
    }

    fn begin_to_leave(&mut self, needs_successor: bool) {
        if let Some(leaving) = &mut self.leaving {
            leaving.needs_successor &= needs_successor;
        } else {
            tracing::info!("draining this server before it leaves");
            self.member.membership.drain(self.member.me, true);
            let now = self.member.runtime.now();
            self.leaving = Some(Leaving {
                evacuation: Evacuation::default(),
                deadline: now + STUCK_TIME_MAX,
                needs_successor,
                successor_seen_at: now,
            });
        }
        self.advance_drain();
    }

    /// Starts the next moves, and leaves once the server is empty and no member routes to it.
    pub(super) fn advance_drain(&mut self) {
        self.evacuate();
        let is_empty = self.is_empty();
        if is_empty {
            self.member.driver.part();
        }
        let (now, has_successor) = (self.member.runtime.now(), self.has_successor());
        let Some(leaving) = &mut self.leaving else { return };
        if has_successor {
            leaving.successor_seen_at = now;
        } else if leaving.needs_successor {
            leaving.deadline = now + STUCK_TIME_MAX;
        }
        if is_empty && self.member.driver.may_go() {
            self.leave();
        } else if !leaving.needs_successor && now >= leaving.successor_seen_at + ALONE_TIME_MAX {
            tracing::info!("leaving without a successor: state that is not in a store is lost");
            self.leave();
        } else if now >= leaving.deadline {
            tracing::warn!(is_empty, "leaving before the drain completed");
            self.leave();
        }
    }

    /// Whether this server hosts no actors, owns no directory slots, and accepts no more actors.
    fn is_empty(&self) -> bool {
        let me = self.member.me;
        let evacuated = self.leaving.as_ref().is_none_or(|leaving| leaving.evacuation.is_done());
        let is_released = |view: View| !view.slots.is_owner(me) && !view.takes_actors(me);
        evacuated && self.member.runtime.activations().is_empty() && self.member.driver.view().is_some_and(is_released)
    }

    /// Whether another member can take over from this server.
    fn has_successor(&self) -> bool {
        let me = self.member.me;
        let mut others = self.roster.members.iter().filter(|(node, _)| **node != me);
        others.any(|(_, record)| record.role == Role::Server && !record.draining)
    }

    /// A move away from here has ended.
    pub(super) fn evacuated(&mut self, actor: &ActorId, moved: bool) {
        if let Some(leaving) = &mut self.leaving {
            leaving.evacuation.ended(actor);
            if moved {
                leaving.deadline = self.member.runtime.now() + STUCK_TIME_MAX;
            }
        }
        self.evacuate();
    }

    /// Starts as many moves as may be in flight. The local manager chooses their targets, as for new actors.
    fn evacuate(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        let runtime = &self.member.runtime;
        let hosted = || runtime.activations().into_iter().map(|(actor, _)| actor).collect();
        for actor in leaving.evacuation.next(hosted) {
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
                    let id = self.moves.begin(MoveOrigin::Evacuation(actor.clone()));
                    self.member.driver.move_actor(id, actor, placement.node);
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
