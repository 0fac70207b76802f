//! The measurements that profiling must collect to evaluate a policy.

use std::collections::BTreeSet;

use elastin_types::{ActorType, Method, Property, Resource};
use serde::{Deserialize, Serialize};

use crate::disjunct::Disjunct;
use crate::{Atom, Behaviour, CallerClass, Feature, Policy, Rule};

/// The types, functions and properties that a policy's rules refer to; `any` expands to every type of the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interest {
    /// The types whose actors must be listed.
    pub kinds: BTreeSet<ActorType>,
    /// The functions whose calls must be counted, with the type that is called.
    pub methods: BTreeSet<(ActorType, Method)>,
    /// The properties whose references must be collected, with the type that holds them.
    pub properties: BTreeSet<(ActorType, Property)>,
}

impl Policy {
    /// The types of interest whose actors must be listed even if they were idle in a period. Idle actors of other types
    /// affect no rule, and there may be very many.
    pub fn kinds_while_idle(&self) -> BTreeSet<ActorType> {
        let mut kinds = BTreeSet::new();
        for (rule, alternatives) in self.rules.iter().zip(&self.alternatives) {
            for (variable, known) in rule.variables.iter().enumerate() {
                if alternatives.iter().any(|all| !needs_activity(rule, all, variable)) {
                    self.add(known.kind, &mut kinds);
                }
            }
            for behaviour in &rule.behaviours {
                // An idle actor uses memory but no CPU or network, so moving it balances neither.
                if let Behaviour::Balance(balance) = behaviour
                    && balance.resource == Resource::Mem
                {
                    match balance.kinds[..] {
                        [] => self.add(None, &mut kinds),
                        _ => kinds.extend(&balance.kinds),
                    }
                }
            }
        }
        kinds
    }

    /// Adds a type, or all that are of interest.
    fn add(&self, kind: Option<ActorType>, kinds: &mut BTreeSet<ActorType>) {
        match kind {
            Some(kind) => _ = kinds.insert(kind),
            None => kinds.extend(&self.interest.kinds),
        }
    }
}

/// Whether atoms that must all hold can't hold unless the variable's actor has done something.
fn needs_activity(rule: &Rule, all: &Disjunct, variable: usize) -> bool {
    all.iter().any(|atom| match &rule.atoms[*atom] {
        Atom::Refers { .. } => false,
        Atom::Compare(comparison) => match comparison.feature {
            Feature::Server(_) | Feature::Actor(_, Resource::Mem) => false,
            Feature::Actor(actor, Resource::Cpu | Resource::Net) => {
                actor == variable && !comparison.comparator.holds(0.0, comparison.value)
            }
            Feature::Calls { caller, callee, .. } => {
                (callee == variable || caller == CallerClass::Variable(variable)) && comparison.fails_without_calls()
            }
        },
    })
}
