//! Joint satisfiability: whether the conditions of several rules can hold together for shared actors.
//!
//! Each rule is bound to actors of a hypothetical world. Variables bound to the same actor share its features. All
//! other features are assumed to be independent.

use std::collections::BTreeMap;

use elastin_types::{ActorType, Method, Resource};

use super::interval::Interval;
use crate::{Atom, CallerClass, Feature, Policy, Rule, Statistic};

/// Maximum number of combinations of alternatives per question. Beyond it, the answer is "may".
pub(super) const COMBINATIONS_MAX: usize = 4096;

/// Hypothetical actors, and the rules bound to them.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) kinds: Vec<Option<ActorType>>,
    pub(super) instances: Vec<Instance>,
}

/// A rule with its variables bound.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) rule: usize,
    /// The actor of each variable.
    pub(super) actors: Vec<usize>,
    /// The actor whose server `server` stands for; `None` for a server without actors.
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

/// The values that the features must have, each with its text in the first rule about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub(super) ranges: BTreeMap<Key, (Interval, String)>,
    /// The required references, as (instance, atom).
    pub(super) references: Vec<(usize, usize)>,
}

/// Whether conditions can hold together.
#[derive(Clone, Debug)]
pub(super) enum Together {
    /// They cannot.
    Never,
    /// They can, with these values.
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

    /// Adds a rule with some of its variables bound to existing actors; the others get new ones. False if a variable
    /// does not admit its actor, or two variables have the same.
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

    /// Whether the conditions of all rules can hold together, and the number of combinations tried.
    pub(super) fn together(&self, policy: &Policy) -> (Together, usize) {
        let mut tried = 0;
        let answer = self.extend(policy, 0, &Space::default(), &mut tried);
        (answer, tried)
    }

    /// Recursion is as deep as the world has rules: two or three.
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
    /// Adds the atoms of an alternative. False if some feature has no possible value left.
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
            // Two instances of the same rule have the same text.
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
