//! Evaluation of one rule: its starting points, its bindings, and its firings.

use elastin_types::{ActorId, NodeId, Resource};

use super::join::Join;
use super::seen::{Mirror, Seen};
use super::{Measures, Scope};
use crate::disjunct::Disjunct;
use crate::{Action, ActorIndex, Atom, Behaviour, Bound, Condition, Facts, Fired, Observed, Rule};

/// One rule over some facts.
pub(super) struct Evaluation<'a, F> {
    pub(super) index: usize,
    pub(super) rule: &'a Rule,
    pub(super) alternatives: &'a [Disjunct],
    pub(super) facts: &'a F,
    pub(super) measures: Measures<'a, F>,
}

impl<F: Facts> Evaluation<'_, F> {
    /// The variable that is bound first: the subject, or the first variable of a `balance` rule whose condition names
    /// actors.
    fn start(&self) -> Option<usize> {
        self.rule.subject.or((!self.rule.variables.is_empty()).then_some(0))
    }

    /// The servers in scope, each with the actors that the first variable can be bound to.
    pub(super) fn starts(&self, scope: Scope) -> Vec<(NodeId, Option<ActorIndex>)> {
        let Some(start) = self.start() else {
            return self.facts.servers().map(|node| (node, None)).collect();
        };
        let listed = self.facts.listed(self.rule.variables[start].kind).iter();
        listed
            .filter_map(|actor| {
                let node = self.facts.node(*actor)?;
                let elsewhere = matches!(scope, Scope::Local(own) if own != node);
                // A global rule is evaluated for each measured server.
                let unknown = self.rule.is_global() && self.facts.usage(node, Resource::Cpu).is_none();
                (!elsewhere && !unknown).then_some((node, Some(*actor)))
            })
            .collect()
    }

    pub(super) fn start_binding(&self, actor: Option<ActorIndex>) -> Vec<Option<ActorIndex>> {
        let mut bound = vec![None; self.rule.variables.len()];
        if let Some(start) = self.start() {
            bound[start] = actor;
        }
        bound
    }

    pub(super) fn joins(&self) -> Vec<Join<'_, F>> {
        // The plan depends on the variable that is bound first, not on its actor.
        let bound = self.start_binding(Some(ActorIndex(0)));
        let alternatives = self.alternatives.iter();
        alternatives
            .map(|alternative| Join::new(self.rule, alternative, &bound, self.facts, &self.measures))
            .collect()
    }

    pub(super) fn run(&self, scope: Scope, fired: &mut Vec<Fired>) {
        let mut seen = Seen::new(self.rule, self.alternatives.len());
        let joins = self.joins();
        let rule_start = fired.len();
        for (server, actor) in self.starts(scope) {
            let bound = self.start_binding(actor);
            for join in &joins {
                join.run(Some(server), &bound, &mut |binding: &[ActorIndex]| {
                    self.fire(server, binding, rule_start, &mut seen, fired);
                    true
                });
            }
        }
    }

    fn fire(&self, server: NodeId, binding: &[ActorIndex], start: usize, seen: &mut Seen, fired: &mut Vec<Fired>) {
        if !seen.is_new(server, binding) {
            return;
        }
        let actions = self.actions(binding);
        let place = match seen.mirror(binding, || normalised(&actions), |other| self.ids(other), fired.len()) {
            Mirror::None => fired.len(),
            Mirror::Keep => return,
            Mirror::Replace(place) => place,
        };
        debug_assert!(place >= start, "mirror images belong to the same rule");
        // A balance rule is always about a server, even if its condition is `true`.
        let about_server = self.rule.is_global() || self.rule.atoms.iter().any(Atom::mentions_server);
        let mut values = Vec::new();
        self.observe(&self.rule.condition, Some(server), binding, &mut values);
        let result = Fired {
            rule: self.index,
            binding: self.bounds(binding),
            server: about_server.then_some(server),
            values,
            actions,
        };
        if place == fired.len() {
            fired.push(result);
        } else {
            fired[place] = result;
        }
    }

    fn bounds(&self, binding: &[ActorIndex]) -> Vec<Bound> {
        let bounds = self.rule.variables.iter().zip(binding);
        bounds
            .map(|(variable, actor)| Bound {
                variable: variable.name.clone(),
                actor: self.facts.id(*actor).clone(),
            })
            .collect()
    }

    fn ids(&self, binding: &[ActorIndex]) -> Vec<ActorId> {
        binding.iter().map(|actor| self.facts.id(*actor).clone()).collect()
    }

    fn actions(&self, binding: &[ActorIndex]) -> Vec<Action> {
        let id = |variable: &usize| self.facts.id(binding[*variable]).clone();
        let behaviours = self.rule.behaviours.iter();
        behaviours
            .map(|behaviour| match behaviour {
                Behaviour::Balance(balance) => Action::Balance(balance.clone()),
                Behaviour::Reserve { actor, resource } => Action::Reserve {
                    actor: id(actor),
                    resource: *resource,
                },
                Behaviour::Colocate(first, second) => Action::Colocate(id(first), id(second)),
                Behaviour::Separate(first, second) => Action::Separate(id(first), id(second)),
                Behaviour::Pin(actor) => Action::Pin(id(actor)),
            })
            .collect()
    }

    /// Collects the comparisons that make the condition true, from all alternatives that hold.
    fn observe(
        &self,
        condition: &Condition,
        server: Option<NodeId>,
        binding: &[ActorIndex],
        values: &mut Vec<Observed>,
    ) -> bool {
        match condition {
            Condition::True => true,
            Condition::Atom(atom) => {
                let held = self.measures.holds(*atom, server, binding);
                if let (true, Atom::Compare(comparison)) = (held, &self.rule.atoms[*atom]) {
                    values.push(Observed {
                        text: comparison.text.clone(),
                        value: self.measures.value(*atom, server, binding),
                        held,
                    });
                }
                held
            }
            Condition::All(parts) => {
                let before = values.len();
                let held = parts.iter().all(|part| self.observe(part, server, binding, values));
                if !held {
                    values.truncate(before);
                }
                held
            }
            // Not `any`, which would stop at the first alternative that holds.
            Condition::Any(parts) => {
                let holding = parts.iter().filter(|part| self.observe(part, server, binding, values));
                holding.count() > 0
            }
        }
    }
}

/// The same actions, with the two actors of `colocate` and `separate` in the order of their ids.
fn normalised(actions: &[Action]) -> Vec<Action> {
    let in_order = |one: &ActorId, other: &ActorId| (one.min(other).clone(), one.max(other).clone());
    actions
        .iter()
        .map(|action| match action {
            Action::Colocate(one, other) => {
                let (one, other) = in_order(one, other);
                Action::Colocate(one, other)
            }
            Action::Separate(one, other) => {
                let (one, other) = in_order(one, other);
                Action::Separate(one, other)
            }
            other => other.clone(),
        })
        .collect()
}
