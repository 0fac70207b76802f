//! The relations between actors that rules keep in force: pins, pairs to keep together, pairs to keep apart.

use std::collections::{BTreeMap, BTreeSet};

use elastin_policy::{Action, Fired, Policy};
use elastin_types::ActorId;

use crate::Cause;
use crate::settings::RELATION_PERIODS;

/// Maximum number of relations of each kind on a server. Beyond it, rules apply only to the actors that fired first.
const RELATIONS_MAX: usize = 65_536;

/// Two actors, the lower id first.
pub(crate) type Pair = (ActorId, ActorId);

fn pair(one: &ActorId, other: &ActorId) -> Pair {
    if one <= other {
        (one.clone(), other.clone())
    } else {
        (other.clone(), one.clone())
    }
}

/// The other actor of the pair; `None` if this one is not in it.
pub(crate) fn partner<'a>((one, other): &'a Pair, actor: &ActorId) -> Option<&'a ActorId> {
    if one == actor {
        Some(other)
    } else {
        (other == actor).then_some(one)
    }
}

/// One relation in force.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub(crate) cause: Cause,
    pub(crate) priority: i32,
    /// Periods since it last fired.
    age: u32,
}

/// All relations that a local manager keeps in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relations {
    pins: BTreeMap<ActorId, Relation>,
    together: BTreeMap<Pair, Relation>,
    apart: BTreeMap<Pair, Relation>,
    /// Pairs that are not kept together despite a rule, because their group was too large for any server.
    given_up: BTreeSet<Pair>,
}

impl Relations {
    /// Ages all relations by one period. Relations end when they have not fired for too long or an actor is gone.
    pub(crate) fn age(&mut self, is_here: impl Fn(&ActorId) -> bool) {
        let lives = |relation: &mut Relation| {
            relation.age += 1;
            relation.age <= RELATION_PERIODS
        };
        self.pins.retain(|actor, relation| lives(relation) && is_here(actor));
        let one_is_here = |pair: &Pair| is_here(&pair.0) || is_here(&pair.1);
        self.together
            .retain(|pair, relation| lives(relation) && one_is_here(pair));
        self.apart.retain(|pair, relation| lives(relation) && one_is_here(pair));
        self.given_up.retain(|pair| self.together.contains_key(pair));
    }

    /// Puts the interaction behaviours of a fired rule in force.
    pub(crate) fn refresh(&mut self, policy: &Policy, fired: &Fired) {
        for action in &fired.actions {
            let relation = || Relation {
                cause: Cause::new(policy, fired),
                priority: policy.priority(fired.rule, action),
                age: 0,
            };
            match action {
                Action::Pin(actor) => put(&mut self.pins, actor.clone(), relation),
                Action::Colocate(one, other) => put(&mut self.together, pair(one, other), relation),
                Action::Separate(one, other) => put(&mut self.apart, pair(one, other), relation),
                Action::Reserve { .. } | Action::Balance(_) => {}
            }
        }
    }

    /// The pairs to keep together, except those given up.
    pub(crate) fn pairs_together(&self) -> impl Iterator<Item = (&Pair, &Relation)> {
        self.together.iter().filter(|(pair, _)| !self.given_up.contains(*pair))
    }

    /// The pairs to keep apart.
    pub(crate) fn pairs_apart(&self) -> impl Iterator<Item = (&Pair, &Relation)> {
        self.apart.iter()
    }

    /// Stops keeping a pair together until its rule has not fired for long enough to be forgotten. Returns the cause of
    /// the relation.
    pub(crate) fn give_up(&mut self, pair: Pair) -> Option<Cause> {
        let cause = self.together.get(&pair).map(|relation| relation.cause.clone());
        self.given_up.insert(pair);
        cause
    }

    /// Number of pinned actors.
    pub(crate) fn pinned_count(&self) -> u32 {
        u32::try_from(self.pins.len()).unwrap_or(u32::MAX)
    }

    /// The priority of the rule that pins an actor.
    pub(crate) fn pinned(&self, actor: &ActorId) -> Option<i32> {
        self.pins.get(actor).map(|relation| relation.priority)
    }

    /// The actors that a rule keeps apart from this one.
    pub(crate) fn apart_from<'a>(&'a self, actor: &'a ActorId) -> impl Iterator<Item = &'a ActorId> {
        self.apart.keys().filter_map(move |pair| partner(pair, actor))
    }

    /// Like [`Relations::apart_from`], for all actors at once.
    pub(crate) fn apart_by_actor(&self) -> BTreeMap<&ActorId, Vec<&ActorId>> {
        let mut by_actor: BTreeMap<&ActorId, Vec<&ActorId>> = BTreeMap::new();
        for (one, other) in self.apart.keys() {
            by_actor.entry(one).or_default().push(other);
            by_actor.entry(other).or_default().push(one);
        }
        by_actor
    }
}

/// If several rules ask for the same relation, the highest priority counts, then the earlier rule.
fn put<K: Ord>(relations: &mut BTreeMap<K, Relation>, key: K, relation: impl FnOnce() -> Relation) {
    let full = relations.len() >= RELATIONS_MAX;
    match relations.get_mut(&key) {
        Some(old) => {
            let new = relation();
            let outranked =
                (old.priority, std::cmp::Reverse(old.cause.rule)) > (new.priority, std::cmp::Reverse(new.cause.rule));
            if outranked && old.age == 0 {
                return;
            }
            *old = new;
        }
        None if !full => {
            relations.insert(key, relation());
        }
        None => {}
    }
}
