//! Several rules at once: whether their conditions can hold together, for actors that they share.
//!
//! Each rule takes part with a binding to actors of an imagined world. Two variables that are bound to the same actor
//! share its features; everything else is taken as independent of each other.

use std::collections::BTreeMap;

use elastin_types::{ActorType, Method, Resource};

use super::interval::Interval;
use crate::{Atom, CallerClass, Feature, Policy, Rule, Statistic};

/// How many combinations of alternatives are tried before a question is left open.
pub(super) const COMBINATIONS_MAX: usize = 4096;

/// Actors that some rules are bound to.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) kinds: Vec<Option<ActorType>>,
    pub(super) instances: Vec<Instance>,
}

/// A rule with its variables bound.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) rule: usize,
    /// For each variable, the actor.
    pub(super) actors: Vec<usize>,
    /// The actor whose server `server` stands for; `None` for a server without any.
    pub(super) server: Option<usize>,
}

/// A feature in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Server(Option<usize>, Resource, Statistic),
    Actor(usize, Resource, Statistic),
    Calls(WorldCaller, usize, Method, Statistic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldCaller {
    Client,
    Kind(Option<ActorType>),
    Actor(usize),
}

/// Values that the features must have, with the words that the first rule has for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub(super) ranges: BTreeMap<Key, (Interval, String)>,
    /// Who refers to whom: (instance, atom).
    pub(super) references: Vec<(usize, usize)>,
}

/// Whether conditions can hold together.
#[derive(Clone, Debug)]
pub(super) enum Together {
    /// They can't.
    Never,
    /// They can, with such values.
    With(Space),
    /// There were too many alternatives to tell.
    May,
}

impl World {
    /// Adds an actor.
    pub(super) fn actor(&mut self, kind: Option<ActorType>) -> usize {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    /// Adds a rule, with some of its variables bound to actors that are there; the others get actors of their own.
    /// False if a variable does not admit its actor, or two would have the same.
    pub(super) fn add(&mut self, rules: &[Rule], rule: usize, fixed: &[(usize, usize)]) -> bool {
        let variables = &rules[rule].variables;
        let mut actors = Vec::with_capacity(variables.len());
        for (index, variable) in variables.iter().enumerate() {
            match fixed.iter().find(|(fixed, _)| *fixed == index) {
                None => actors.push(self.actor(variable.kind)),
                Some((_, actor)) => {
                    match (self.kinds[*actor], variable.kind) {
                        (Some(one), Some(other)) if one != other => return false,
                        (None, kind) => self.kinds[*actor] = kind,
                        _ => {}
                    }
                    actors.push(*actor);
                }
            }
        }
        let distinct = (0..actors.len()).all(|index| !actors[index + 1..].contains(&actors[index]));
        let server = rules[rule]
            .subject
            .map(|subject| actors[subject])
            .or(actors.first().copied());
        self.instances.push(Instance { rule, actors, server });
        distinct
    }

    /// Whether the conditions of all its rules can hold together, and how many combinations were tried.
    pub(super) fn together(&self, policy: &Policy) -> (Together, usize) {
        let mut tried = 0;
        let answer = self.extend(policy, 0, &Space::default(), &mut tried);
        (answer, tried)
    }

    /// Recursion is as deep as there are rules in this world: two or three.
    fn extend(&self, policy: &Policy, instance: usize, space: &Space, tried: &mut usize) -> Together {
        let Some(bound) = self.instances.get(instance) else {
            return Together::With(space.clone());
        };
        let mut open = false;
        for alternative in &policy.alternatives[bound.rule] {
            *tried += 1;
            if *tried > COMBINATIONS_MAX {
                return Together::May;
            }
            let mut longer = space.clone();
            if !longer.add(policy, instance, bound, alternative) {
                continue;
            }
            match self.extend(policy, instance + 1, &longer, tried) {
                Together::Never => {}
                Together::May => open = true,
                found => return found,
            }
        }
        if open { Together::May } else { Together::Never }
    }
}

impl Space {
    /// Adds the atoms of an alternative. False if some feature has no value left.
    pub(super) fn add(&mut self, policy: &Policy, index: usize, instance: &Instance, alternative: &[usize]) -> bool {
        alternative
            .iter()
            .all(|atom| match &policy.rules[instance.rule].atoms[*atom] {
                Atom::Refers { .. } => {
                    self.references.push((index, *atom));
                    true
                }
                Atom::Compare(comparison) => {
                    let key = instance.key(comparison.feature, comparison.statistic);
                    let entry = self.ranges.entry(key).or_insert_with(|| {
                        let measured = comparison.text.rsplitn(3, ' ').nth(2).unwrap_or_default();
                        (Interval::whole(comparison.statistic), measured.into())
                    });
                    entry.0 = entry.0.where_holds(comparison.comparator, comparison.value);
                    !entry.0.is_empty()
                }
            })
    }

    /// An example of the values, in words.
    pub(super) fn describe(&self) -> String {
        let mut values: Vec<String> = Vec::new();
        for (range, measured) in self.ranges.values() {
            let value = format!("`{measured}` = {}", range.example());
            // The same rule for two actors has the same words for both.
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.join(", ")
    }
}

impl Instance {
    pub(super) fn key(&self, feature: Feature, statistic: Statistic) -> Key {
        match feature {
            Feature::Server(resource) => Key::Server(self.server, resource, statistic),
            Feature::Actor(variable, resource) => Key::Actor(self.actors[variable], resource, statistic),
            Feature::Calls { caller, callee, method } => {
                let caller = match caller {
                    CallerClass::Client => WorldCaller::Client,
                    CallerClass::Kind(kind) => WorldCaller::Kind(kind),
                    CallerClass::Variable(variable) => WorldCaller::Actor(self.actors[variable]),
                };
                Key::Calls(caller, self.actors[callee], method, statistic)
            }
        }
    }
}
