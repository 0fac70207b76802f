//! Reports of other nodes about messages of local callers: forwarded, landed, kept, returned or rejected.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Caller, Message, NodeId, NotDelivered};

use super::{Leaving, Path, PathChange, Place, Route, Routing};
use crate::node::calls::Calls;
use crate::node::env::Env;

/// Bound on the returns of one message sent through the directory. Several are normal until the directory learns that
/// an activation is over.
const RETURNS_MAX: u32 = 1000;

impl Routing {
    /// Records that a message was forwarded from one node to another.
    pub(in crate::node) fn on_passed_on(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        actor: ActorId,
        call: CallId,
        to: NodeId,
    ) -> Option<PathChange> {
        env.notice(to);
        let dead = env.is_dead(to);
        if dead {
            calls.fail_lost(env, call);
        } else {
            calls.record_maybe_at(call, to);
        }
        let Path::Asking(asking) = &mut self.routes.get_mut(&actor)?.path else {
            return None;
        };
        if asking.call != call {
            return None;
        }
        if !asking.at.contains(&to) {
            asking.at.push(to);
        }
        dead.then(|| self.drop_path(&actor))
    }

    /// Handles the report that a forwarded message has its place in the actor's queue.
    pub(in crate::node) fn on_landed(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        from: NodeId,
        actor: ActorId,
        call: CallId,
        epoch: ActivationEpoch,
    ) -> Option<PathChange> {
        calls.record_at(call, from);
        let route = self.routes.get_mut(&actor)?;
        match &mut route.path {
            Path::Asking(asking) if asking.call == call => {}
            Path::Direct { kept, .. } => {
                kept.remove(&call);
                return Some(self.kept_message_gone(env, actor));
            }
            _ => return None,
        }
        let messages = std::mem::take(&mut route.held);
        if from == env.me {
            self.remove(&actor);
        } else {
            self.follow(&actor, from, epoch);
        }
        Some(PathChange { actor, messages })
    }

    /// Re-checks a path after a message kept at its node is accounted for.
    fn kept_message_gone(&mut self, env: &mut Env, actor: ActorId) -> PathChange {
        if self.routes.get(&actor).is_some_and(Route::is_quiet) {
            self.busy.remove(&actor);
        }
        let messages = VecDeque::new();
        let change = self.settle(env, &actor);
        change.unwrap_or(PathChange { actor, messages })
    }

    /// Handles the report that a message is kept at its receiver's next host.
    pub(in crate::node) fn on_kept(&mut self, actor: &ActorId, call: CallId, caller: Caller) {
        if let Some(route) = self.routes.get_mut(actor)
            && let Path::Direct { kept, .. } = &mut route.path
        {
            kept.insert(call, caller);
            self.busy.insert(actor.clone());
        }
    }

    /// Handles a returned message: the activation that it was meant for is not there.
    pub(in crate::node) fn on_returned(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        from: NodeId,
        message: Arc<Message>,
        place: Option<(NodeId, ActivationEpoch)>,
    ) -> Option<PathChange> {
        let call = message.header.call;
        if call.origin != env.me {
            return None;
        }
        if !message.header.one_way && !calls.is_pending(call) {
            // The call is no longer pending, so it is dropped; later messages may still wait for it to be accounted
            // for.
            return self.message_gone(env, &message.target, call);
        }
        calls.record_at(call, env.me);
        let place = match place {
            Some((node, epoch)) if !env.is_dead(node) && !self.leaving_peers.contains(&node) => {
                env.notice(node);
                Place::Host(node, epoch)
            }
            _ => Place::Directory,
        };
        let route = self.routes.get_mut(&message.target)?;
        match &mut route.path {
            Path::Asking(asking) if asking.call == call => {
                let returns = asking.returns + 1;
                if returns >= RETURNS_MAX {
                    let error = CallError::NotDelivered(NotDelivered::NotHere);
                    calls.reject(env, &message, error);
                    return Some(self.drop_path(&message.target));
                }
                let held = std::mem::take(&mut route.held);
                self.ask(env, calls, message, held, returns);
                None
            }
            Path::Direct {
                node,
                epoch,
                leaving,
                kept,
                ..
            } if *node == from => {
                kept.remove(&call);
                let leaving = leaving.get_or_insert_with(|| Box::new(Leaving::to(Place::Directory)));
                if !matches!(place, Place::Host(_, later) if later <= *epoch) {
                    leaving.learn(place);
                }
                leaving.returned.push_back(message.clone());
                self.busy.insert(message.target.clone());
                self.settle(env, &message.target)
            }
            // This node has given up the message already, as lost with a node.
            _ => None,
        }
    }

    /// Stops waiting for a message that will not run.
    pub(in crate::node) fn message_gone(&mut self, env: &mut Env, actor: &ActorId, call: CallId) -> Option<PathChange> {
        match &mut self.routes.get_mut(actor)?.path {
            Path::Asking(asking) if asking.call == call => Some(self.drop_path(actor)),
            Path::Direct { kept, .. } => {
                kept.remove(&call)?;
                Some(self.kept_message_gone(env, actor.clone()))
            }
            Path::Asking(_) | Path::Blocked => None,
        }
    }
}
