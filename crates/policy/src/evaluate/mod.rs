//! Evaluation: the bindings that make a rule's condition true, and the actions that it then proposes.
//!
//! ```text
//! subjects of a server ──► for each alternative: follow references and calls ──► filter as soon as bound ──► Fired
//! ```
//! A join starts from the rule's subject and follows recorded references and calls. Its cost therefore grows with the
//! facts it meets, never with the product of all actors.

mod join;
mod measure;
mod rule;
mod seen;

use elastin_types::{ActorId, NodeId};

use join::Join;
pub(crate) use join::Visit;
pub(crate) use measure::Measures;

use rule::Evaluation;

use crate::disjunct::Disjunct;
use crate::{ActorIndex, Bound, Facts, Fired, Policy, Rule};

/// The rules and servers that one manager evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For the server's local manager: the rules that bind actors, with subjects on this server.
    Local(NodeId),
    /// For a global manager: the rules whose only behaviour is `balance`, for each server.
    Global,
    /// All rules, for all servers in the facts.
    Whole,
}

/// The part of a condition to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole condition.
    Whole,
    /// The part that does not mention `server`; an empty part holds. A reservation lasts while this part holds.
    WithoutServer,
}

impl Policy {
    /// Evaluates the rules. Firings are ordered by rule, then by the order of the facts. A binding and its mirror image
    /// fire once; several firings may propose the same action. Rules between types are not expanded: see
    /// [`Policy::separates`].
    pub fn evaluate<F: Facts>(&self, facts: &F, scope: Scope) -> Vec<Fired> {
        let mut fired = Vec::new();
        for index in 0..self.rules.len() {
            self.evaluate_rule(index, facts, scope, &mut fired);
        }
        fired
    }

    pub(crate) fn evaluate_rule<F: Facts>(&self, index: usize, facts: &F, scope: Scope, fired: &mut Vec<Fired>) {
        let rule = &self.rules[index];
        let in_scope = match scope {
            Scope::Local(_) => !rule.is_global(),
            Scope::Global => rule.is_global(),
            Scope::Whole => true,
        };
        if !in_scope || rule.between_types {
            return;
        }
        self.evaluation(index, facts).run(scope, fired);
    }

    fn evaluation<'a, F: Facts>(&'a self, index: usize, facts: &'a F) -> Evaluation<'a, F> {
        let rule = &self.rules[index];
        Evaluation {
            index,
            rule,
            alternatives: &self.alternatives[index],
            facts,
            measures: Measures::new(rule, self.count_unit(), facts),
        }
    }

    /// Reports the bindings that a rule's alternatives find and miss, for every actor or server that it can start from.
    /// Returns the number of these starts.
    pub(crate) fn visit_rule<F: Facts>(&self, index: usize, facts: &F, scope: Scope, visit: &mut impl Visit) -> usize {
        let evaluation = self.evaluation(index, facts);
        let starts = evaluation.starts(scope);
        for join in evaluation.joins() {
            for (server, actor) in &starts {
                join.run(Some(*server), &evaluation.start_binding(*actor), visit);
            }
        }
        starts.len()
    }

    /// Whether a rule's condition, or a part of it, holds for some binding that extends this one. `server` is the
    /// subject's server, or that of the first bound actor if the subject is not bound.
    ///
    /// # Panics
    /// If there is no such rule.
    pub fn holds<F: Facts>(&self, facts: &F, rule: usize, binding: &[Bound], part: Part) -> bool {
        let index = rule;
        let rule = &self.rules[index];
        let mut bound: Vec<Option<ActorIndex>> = vec![None; rule.variables.len()];
        for entry in binding {
            let variable = rule
                .variables
                .iter()
                .position(|variable| variable.name == entry.variable);
            let (Some(variable), Some(actor)) = (variable, facts.find(&entry.actor)) else {
                return false;
            };
            bound[variable] = Some(actor);
        }
        let subject = rule.subject.and_then(|subject| bound[subject]);
        let server = subject
            .or_else(|| bound.iter().flatten().next().copied())
            .and_then(|actor| facts.node(actor));
        self.holds_at(facts, index, &bound, server, part)
    }

    /// Whether a rule holds for all of its variables bound to these actors, on this server.
    pub(crate) fn holds_for<F: Facts>(&self, facts: &F, rule: usize, actors: &[&ActorId], server: NodeId) -> bool {
        let bound: Vec<Option<ActorIndex>> = actors.iter().map(|actor| facts.find(actor)).collect();
        let known = bound.iter().all(Option::is_some);
        known && self.holds_at(facts, rule, &bound, Some(server), Part::Whole)
    }

    fn holds_at<F: Facts>(
        &self,
        facts: &F,
        index: usize,
        bound: &[Option<ActorIndex>],
        server: Option<NodeId>,
        part: Part,
    ) -> bool {
        let rule = &self.rules[index];
        let measures = Measures::new(rule, self.count_unit(), facts);
        let alternatives = match part {
            Part::Whole => self.alternatives[index].clone(),
            Part::WithoutServer => without_server(rule, &self.alternatives[index]),
        };
        alternatives.iter().any(|alternative| {
            let mut found = false;
            Join::new(rule, alternative, bound, facts, &measures).run(server, bound, &mut |_: &[ActorIndex]| {
                found = true;
                false
            });
            found
        })
    }

    /// Whether a rule between types separates these two actors, in either order.
    ///
    /// # Panics
    /// If there is no such rule.
    pub fn separates<F: Facts>(&self, facts: &F, rule: usize, one: &ActorId, other: &ActorId) -> bool {
        let Some((first, second)) = self.rules[rule].separated_types() else {
            return false;
        };
        let variables = &self.rules[rule].variables;
        [(one, other), (other, one)].into_iter().any(|(one, other)| {
            let fits = one != other && variables[first].admits(one.kind) && variables[second].admits(other.kind);
            let bound = |variable: usize, actor: &ActorId| Bound {
                variable: variables[variable].name.clone(),
                actor: actor.clone(),
            };
            fits && (self.rules[rule].condition.is_trivial()
                || self.holds(facts, rule, &[bound(first, one), bound(second, other)], Part::Whole))
        })
    }
}

/// The alternatives of a condition without the atoms that mention `server`. An alternative that is only about the
/// server does not restrict the actors, so it is dropped unless all are.
fn without_server(rule: &Rule, alternatives: &[Disjunct]) -> Vec<Disjunct> {
    let rest: Vec<Disjunct> = alternatives
        .iter()
        .map(|alternative| {
            let rest = alternative.iter().filter(|atom| !rule.atoms[**atom].mentions_server());
            rest.copied().collect()
        })
        .collect();
    let about_actors: Vec<Disjunct> = rest
        .iter()
        .zip(alternatives)
        .filter(|(rest, whole)| !rest.is_empty() || whole.is_empty())
        .map(|(rest, _)| rest.clone())
        .collect();
    if about_actors.is_empty() {
        vec![vec![]]
    } else {
        about_actors
    }
}
