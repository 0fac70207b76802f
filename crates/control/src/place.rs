//! Placement of new actors (EPL, "New actors"). A global manager applies it to its whole view, a node without one to
//! the digests it received last.

use std::collections::BTreeMap;

use elastin_policy::{Atom, Feature, Policy, Statistic};
use elastin_types::{ActorType, NodeId, Resource, ServerState};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::random::Random;
use crate::{Member, NewActor, ServerDigest};

/// The server chosen for a new actor, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// The server.
    pub node: NodeId,
    /// The reason for the choice.
    pub reason: PlaceReason,
}

/// Why a server was chosen for a new actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceReason {
    /// The rule with this index colocates it with its caller.
    Beside(usize),
    /// The rule with this index would reserve a server for it immediately, and this server is empty.
    Reserved(usize),
    /// The rule with this index balances actors of its type, and this server has most room.
    Balanced(usize),
    /// The rule with this index pins all actors of its type, and pinned actors are kept together.
    Pinned(usize),
    /// No rule applies.
    Random,
}

/// Load assumed for a new actor until a report shows it, in percentage points. It keeps a burst of new actors from all
/// going to the server that was emptiest.
const ASSUMED_POINTS: f64 = 1.0;

/// Number of actors placed on each server since its last report.
type Placed = BTreeMap<NodeId, u32>;

/// Places new actors, and counts them until reports show them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placer {
    placed: Placed,
}

impl Placer {
    /// Forgets the actors placed on a server: it has reported since.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.placed.remove(&node);
    }

    /// Chooses a server for a new actor; `None` if no server that accepts actors is known.
    pub(crate) fn place(
        &mut self,
        context: &mut Context,
        servers: &[ServerDigest],
        new: &NewActor,
    ) -> Option<Placement> {
        let Context {
            policy,
            members,
            random,
            ..
        } = context;
        let placement =
            place(policy, servers, &self.placed, random, new).or_else(|| place_blindly(members, servers, random))?;
        *self.placed.entry(placement.node).or_default() += 1;
        Some(placement)
    }
}

fn place(
    policy: &Policy,
    servers: &[ServerDigest],
    placed: &Placed,
    random: &mut Random,
    new: &NewActor,
) -> Option<Placement> {
    let kind = new.actor.kind;
    let active: Vec<&ServerDigest> = servers
        .iter()
        .filter(|digest| digest.server.state == ServerState::Active)
        .collect();
    let decided = |node, reason| Some(Placement { node, reason });
    if let Some((node, rule)) = beside_caller(policy, &active, new) {
        return decided(node, PlaceReason::Beside(rule));
    }
    // INVARIANT: a new actor never goes to a reserved server, except beside an actor there.
    let all_open: Vec<&ServerDigest> = active.into_iter().filter(|digest| digest.reserved.is_empty()).collect();
    // `separate` is respected while some server can take the actor.
    let apart: Vec<&ServerDigest> = all_open
        .iter()
        .copied()
        .filter(|digest| !is_separated(policy, kind, &digest.separated_kinds))
        .collect();
    let open = if apart.is_empty() { all_open } else { apart };

    if let Some((node, rule)) = as_reserved(policy, &open, kind) {
        return decided(node, PlaceReason::Reserved(rule));
    }
    if let Some((rule, balance)) = policy.balances_of(kind).next()
        && let Some(node) = most_room(&open, placed, balance.resource)
    {
        return decided(node, PlaceReason::Balanced(rule));
    }
    if let Some(rule) = policy.always_pinned(kind)
        && let Some(node) = among_pinned(policy, &open, placed, kind)
    {
        return decided(node, PlaceReason::Pinned(rule));
    }
    random
        .pick(&open)
        .and_then(|digest| decided(digest.server.node, PlaceReason::Random))
}

/// Places a new actor while few servers have reported: a random member that hosts actors and has not reported.
fn place_blindly(members: &[Member], known: &[ServerDigest], random: &mut Random) -> Option<Placement> {
    let is_known = |node: NodeId| known.iter().any(|digest| digest.server.node == node);
    let takes = |member: &&Member| member.hosts && member.state == ServerState::Active && !is_known(member.node);
    let open: Vec<NodeId> = members.iter().filter(takes).map(|member| member.node).collect();
    random.pick(&open).map(|node| Placement {
        node: *node,
        reason: PlaceReason::Random,
    })
}

fn beside_caller(policy: &Policy, active: &[&ServerDigest], new: &NewActor) -> Option<(NodeId, usize)> {
    let rule = policy.colocates(new.caller.as_ref()?.kind, new.actor.kind)?;
    let node = new.caller_node?;
    let digest = active.iter().find(|digest| digest.server.node == node)?;
    (!is_separated(policy, new.actor.kind, &digest.separated_kinds)).then_some((node, rule))
}

/// Whether a rule separates actors of this type from one of the others.
pub(crate) fn is_separated(policy: &Policy, kind: ActorType, others: &[ActorType]) -> bool {
    others.iter().any(|other| separates_kinds(policy, kind, *other))
}

/// Whether a rule unconditionally separates all actors of these two types. A rule with a condition is ignored: its
/// condition may not hold on the target, and if it does, the actors are separated later.
fn separates_kinds(policy: &Policy, one: ActorType, other: ActorType) -> bool {
    policy.type_separations().any(|rule| {
        let rule = &policy.rules()[rule];
        let [first, second] = &rule.variables[..] else {
            return false;
        };
        let applies = rule.condition.is_trivial();
        applies && ((first.admits(one) && second.admits(other)) || (first.admits(other) && second.admits(one)))
    })
}

/// An empty server, if a `reserve` rule covers the type and every other server is already beyond the rule's bound on
/// `server`.
fn as_reserved(policy: &Policy, open: &[&ServerDigest], kind: ActorType) -> Option<(NodeId, usize)> {
    policy.reserves_of(kind).find_map(|(rule, _)| {
        let (resource, bound) = server_bound(policy, rule)?;
        let would_fire = |digest: &&&ServerDigest| {
            let percent = digest.server.usage[resource].percent();
            digest.server.actors > 0 && percent.is_some_and(|percent| percent + ASSUMED_POINTS > bound)
        };
        let empty = open.iter().find(|digest| digest.server.actors == 0)?;
        let others = open.iter().filter(|digest| digest.server.actors > 0).count();
        (others > 0 && open.iter().filter(would_fire).count() == others).then_some((empty.server.node, rule))
    })
}

/// The bound of a rule's condition on its server, such as `server.cpu.perc > 50`.
fn server_bound(policy: &Policy, rule: usize) -> Option<(Resource, f64)> {
    policy.rules()[rule].atoms.iter().find_map(|atom| match atom {
        Atom::Compare(comparison) if comparison.statistic == Statistic::Perc && comparison.comparator.wants_more() => {
            match comparison.feature {
                Feature::Server(resource) => Some((resource, comparison.value)),
                _ => None,
            }
        }
        _ => None,
    })
}

/// The server's use, including actors placed since its last report.
fn expected_percent(digest: &ServerDigest, placed: &Placed, resource: Resource) -> Option<f64> {
    let since = placed.get(&digest.server.node).copied().unwrap_or(0);
    let percent = digest.server.usage[resource].percent()?;
    Some(percent + f64::from(since) * ASSUMED_POINTS)
}

fn most_room(open: &[&ServerDigest], placed: &Placed, resource: Resource) -> Option<NodeId> {
    open.iter()
        .filter_map(|digest| Some((expected_percent(digest, placed, resource)?, digest.server.node)))
        .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)))
        .map(|(_, node)| node)
}

fn among_pinned(policy: &Policy, open: &[&ServerDigest], placed: &Placed, kind: ActorType) -> Option<NodeId> {
    let resource = policy.critical_resource(kind).unwrap_or(Resource::Mem);
    let limit = policy.lowest_upper_bound(resource).unwrap_or(100.0);
    let has_room = |digest: &&&ServerDigest| {
        digest.pinned > 0 && expected_percent(digest, placed, resource).is_none_or(|percent| percent < limit)
    };
    open.iter()
        .filter(has_room)
        .max_by_key(|digest| (digest.pinned, std::cmp::Reverse(digest.server.node)))
        .map(|digest| digest.server.node)
}
