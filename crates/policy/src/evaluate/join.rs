//! The join plan of one alternative: the order in which variables are bound, the source of their candidates, and the
//! atoms tested after each step.

use elastin_types::{Method, NodeId, Property};

use super::Measures;
use crate::{ActorIndex, Atom, CallerClass, Facts, Feature, Rule};

/// A receiver of a join's findings.
pub(crate) trait Visit {
    /// Receives a binding; returns false to stop the join.
    fn found(&mut self, binding: &[ActorIndex]) -> bool;

    /// Receives an atom that does not hold, after `passed` atoms that did. The atom's variables are bound.
    fn failed(&mut self, _atom: usize, _passed: usize, _server: Option<NodeId>, _binding: &[ActorIndex]) {}

    /// Receives an atom that leads to no candidate for a variable, after `passed` atoms that held.
    fn dead_end(&mut self, _atom: usize, _passed: usize, _server: Option<NodeId>, _binding: &[ActorIndex]) {}
}

impl<T: FnMut(&[ActorIndex]) -> bool> Visit for T {
    fn found(&mut self, binding: &[ActorIndex]) -> bool {
        self(binding)
    }
}

/// A planned alternative of a rule's condition.
pub(crate) struct Join<'a, F> {
    rule: &'a Rule,
    facts: &'a F,
    measures: &'a Measures<'a, F>,
    /// Atoms that can be tested before the first step.
    first: Vec<usize>,
    steps: Vec<Step>,
}

/// Binds one more variable, then tests the atoms that have become testable.
struct Step {
    variable: usize,
    source: Source,
    /// The atom that leads to it.
    by: usize,
    tests: Vec<usize>,
    /// Number of atoms that held before this step.
    passed: usize,
}

/// A partial binding.
struct Partial {
    server: Option<NodeId>,
    binding: Vec<ActorIndex>,
    /// The bound actors. Different variables bind different actors.
    taken: Vec<ActorIndex>,
}

/// The source of candidates for a variable: a bound variable, and the edges to follow from it.
#[derive(Clone, Copy)]
enum Source {
    References(usize, Property),
    Referrers(usize, Property),
    CallsOut(usize, Method),
    CallsIn(usize, Method),
}

impl<'a, F: Facts> Join<'a, F> {
    /// Plans an alternative for bindings in which these variables are bound from the start. If some variable cannot be
    /// reached from there, the alternative has no bindings.
    pub(crate) fn new(
        rule: &'a Rule,
        alternative: &[usize],
        bound: &[Option<ActorIndex>],
        facts: &'a F,
        measures: &'a Measures<'a, F>,
    ) -> Self {
        let mut known: Vec<bool> = bound.iter().map(Option::is_some).collect();
        let mut open = alternative.to_vec();
        // Atoms about the server come first: they are cheap and the same for all bindings.
        let mut first = testable(rule, &mut open, &known);
        first.sort_by_key(|atom| !rule.atoms[*atom].mentions_server());
        let mut steps = Vec::new();
        let mut passed = first.len();
        while let Some((variable, source, by)) = next_source(rule, alternative, &known) {
            known[variable] = true;
            let tests = testable(rule, &mut open, &known);
            let tested = tests.len();
            steps.push(Step {
                variable,
                source,
                by,
                tests,
                passed,
            });
            passed += tested;
        }
        Self {
            rule,
            facts,
            measures,
            first,
            steps,
        }
    }

    /// Finds the bindings that extend the given one, until the receiver stops.
    pub(crate) fn run(&self, server: Option<NodeId>, bound: &[Option<ActorIndex>], visit: &mut impl Visit) {
        let mut partial = Partial {
            server,
            // The index of an unbound variable is never read.
            binding: bound.iter().map(|actor| actor.unwrap_or(ActorIndex(0))).collect(),
            taken: bound.iter().flatten().copied().collect(),
        };
        let complete = self.steps.len() + partial.taken.len() == bound.len();
        if complete && self.all_hold(&self.first, 0, &partial, visit) {
            self.step(0, &mut partial, visit);
        }
    }

    fn all_hold(&self, atoms: &[usize], passed: usize, partial: &Partial, visit: &mut impl Visit) -> bool {
        let holds = |atom: &usize| self.measures.holds(*atom, partial.server, &partial.binding);
        let Some(failed) = atoms.iter().position(|atom| !holds(atom)) else {
            return true;
        };
        visit.failed(atoms[failed], passed + failed, partial.server, &partial.binding);
        false
    }

    /// Runs the steps from this depth on; false if the receiver stopped. The rule's variables bound the recursion.
    fn step(&self, depth: usize, partial: &mut Partial, visit: &mut impl Visit) -> bool {
        let Some(step) = self.steps.get(depth) else {
            return visit.found(&partial.binding);
        };
        let from = |variable: usize| partial.binding[variable];
        // The candidates borrow from the facts, not from the binding, which changes meanwhile.
        match step.source {
            Source::References(holder, property) => {
                let candidates = self.facts.references(from(holder), property).iter().copied();
                self.try_all(candidates, depth, partial, visit)
            }
            Source::Referrers(target, property) => {
                let candidates = self.facts.referrers(from(target)).iter();
                let candidates = candidates
                    .filter(|(own, _)| *own == property)
                    .map(|(_, holder)| *holder);
                self.try_all(candidates, depth, partial, visit)
            }
            Source::CallsOut(caller, method) => {
                let edges = self.facts.calls_out(from(caller)).iter();
                let candidates = edges.filter(|edge| edge.method == method).map(|edge| edge.peer);
                self.try_all(candidates, depth, partial, visit)
            }
            Source::CallsIn(callee, method) => {
                let edges = self.facts.calls_in(from(callee)).iter();
                let candidates = edges.filter(|edge| edge.method == method).map(|edge| edge.peer);
                self.try_all(candidates, depth, partial, visit)
            }
        }
    }

    fn try_all(
        &self,
        mut candidates: impl Iterator<Item = ActorIndex>,
        depth: usize,
        partial: &mut Partial,
        visit: &mut impl Visit,
    ) -> bool {
        let step = &self.steps[depth];
        let variable = &self.rule.variables[step.variable];
        let mut admitted = false;
        let more = candidates.all(|candidate| {
            if partial.taken.contains(&candidate) || !variable.admits(self.facts.id(candidate).kind) {
                return true;
            }
            admitted = true;
            partial.binding[step.variable] = candidate;
            if !self.all_hold(&step.tests, step.passed, partial, visit) {
                return true;
            }
            partial.taken.push(candidate);
            let more = self.step(depth + 1, partial, visit);
            partial.taken.pop();
            more
        });
        if !admitted {
            visit.dead_end(step.by, step.passed, partial.server, &partial.binding);
        }
        more
    }
}

/// Removes and returns the atoms whose variables are all known.
fn testable(rule: &Rule, open: &mut Vec<usize>, known: &[bool]) -> Vec<usize> {
    let ready = |atom: &mut usize| rule.atoms[*atom].variables().all(|variable| known[variable]);
    open.extract_if(.., ready).collect()
}

/// A variable reachable from the known ones in one step. References are preferred, because they are fewer than calls.
fn next_source(rule: &Rule, alternative: &[usize], known: &[bool]) -> Option<(usize, Source, usize)> {
    let sources = alternative.iter().filter_map(|by| {
        let atom = &rule.atoms[*by];
        let (from, to) = atom.connects()?;
        match (known[from], known[to]) {
            (true, false) => Some((to, forward(atom, from)?, *by)),
            (false, true) => Some((from, backward(atom, to)?, *by)),
            _ => None,
        }
    });
    sources.min_by_key(|(_, source, _)| match source {
        Source::References(..) => 0,
        Source::CallsOut(..) => 1,
        Source::CallsIn(..) => 2,
        Source::Referrers(..) => 3,
    })
}

fn forward(atom: &Atom, from: usize) -> Option<Source> {
    match atom {
        Atom::Refers { property, .. } => Some(Source::References(from, *property)),
        Atom::Compare(comparison) => match comparison.feature {
            Feature::Calls {
                caller: CallerClass::Variable(_),
                method,
                ..
            } => Some(Source::CallsOut(from, method)),
            _ => None,
        },
    }
}

fn backward(atom: &Atom, to: usize) -> Option<Source> {
    match forward(atom, to)? {
        Source::References(target, property) => Some(Source::Referrers(target, property)),
        Source::CallsOut(callee, method) => Some(Source::CallsIn(callee, method)),
        Source::Referrers(..) | Source::CallsIn(..) => None,
    }
}
