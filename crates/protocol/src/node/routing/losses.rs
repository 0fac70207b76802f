//! Changes of paths when nodes die, leave, or take over directory slots.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActorId, Message, NodeId};

use super::{Path, PathChange, Place, Routing};

impl Routing {
    /// Handles the death of a node. `never_sent` are messages of local callers that were never transmitted to it.
    pub(in crate::node) fn on_death(&mut self, dead: NodeId, never_sent: &[Arc<Message>]) -> Vec<PathChange> {
        self.waiting.remove(&dead);
        self.leaving_peers.remove(&dead);
        let mut concerned: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let concerns = match &mut route.path {
                Path::Blocked => false,
                Path::Asking(asking) => asking.at.contains(&dead),
                Path::Direct { node, leaving, .. } => {
                    if let Some(leaving) = leaving
                        && matches!(leaving.next, Place::Host(next, _) if next == dead)
                    {
                        leaving.next = Place::Directory;
                    }
                    *node == dead
                }
            };
            if concerns {
                concerned.push(actor.clone());
            }
        }
        concerned.sort_unstable();
        let change = |actor: ActorId| {
            let route = self.remove(&actor).expect("the route was found above");
            let mut messages = match route.path {
                Path::Direct {
                    leaving: Some(leaving), ..
                } => leaving.returned,
                _ => VecDeque::new(),
            };
            messages.extend(never_sent.iter().filter(|message| message.target == actor).cloned());
            messages.extend(route.held);
            PathChange { actor, messages }
        };
        concerned.into_iter().map(change).collect()
    }

    /// Handles a peer's announcement that it is leaving. Returns the actors whose paths must lead elsewhere.
    pub(in crate::node) fn on_leaving(&mut self, peer: NodeId) -> Vec<ActorId> {
        self.leaving_peers.insert(peer);
        let mut concerned: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let Path::Direct { node, leaving, .. } = &mut route.path else {
                continue;
            };
            if let Some(leaving) = leaving
                && matches!(leaving.next, Place::Host(next, _) if next == peer)
            {
                leaving.next = Place::Directory;
            }
            if *node == peer && leaving.is_none() {
                concerned.push(actor.clone());
            }
        }
        concerned.sort_unstable();
        concerned
    }

    /// Handles a peer's announcement that all messages it forwarded have arrived: no message is at that peer any more.
    pub(in crate::node) fn on_parted(&mut self, peer: NodeId) {
        for route in self.routes.values_mut() {
            if let Path::Asking(asking) = &mut route.path {
                asking.at.retain(|node| *node != peer);
            }
        }
    }

    /// Takes the actors whose paths may be blocked by a dead slot owner.
    pub(in crate::node) fn take_blocked(&mut self) -> BTreeSet<ActorId> {
        std::mem::take(&mut self.blocked)
    }

    /// Retries a path that was blocked by a dead slot owner.
    pub(in crate::node) fn unblock(&mut self, actor: &ActorId) -> Option<PathChange> {
        matches!(self.routes.get(actor)?.path, Path::Blocked).then(|| self.drop_path(actor))
    }
}
