//! The plan of one alternative: in which order variables are bound, from where, and which atoms are tested when.

use elastin_types::{Method, NodeId, Property};

use super::Measures;
use crate::{ActorIndex, Atom, CallerClass, Facts, Feature, Rule};

/// A planned alternative of a rule's condition.
pub(crate) struct Join<'a, F> {
    rule: &'a Rule,
    facts: &'a F,
    measures: &'a Measures<'a, F>,
    /// Atoms that can be tested before anything else is bound.
    first: Vec<usize>,
    steps: Vec<Step>,
}

/// Binds one more variable, then tests the atoms that have become testable.
struct Step {
    variable: usize,
    source: Source,
    tests: Vec<usize>,
}

/// Where the candidates for a variable come from: a variable that is bound already, and what is followed from it.
#[derive(Clone, Copy)]
enum Source {
    References(usize, Property),
    Referrers(usize, Property),
    CallsOut(usize, Method),
    CallsIn(usize, Method),
}

impl<'a, F: Facts> Join<'a, F> {
    /// Plans an alternative for bindings in which these variables are bound from the start. Variables that it does not
    /// lead to from there stay unbound: such an alternative has no bindings.
    pub(crate) fn new(
        rule: &'a Rule,
        alternative: &[usize],
        bound: &[Option<ActorIndex>],
        facts: &'a F,
        measures: &'a Measures<'a, F>,
    ) -> Self {
        let mut known: Vec<bool> = bound.iter().map(Option::is_some).collect();
        let mut open = alternative.to_vec();
        // What is only about the server is the same for all bindings and cheap: it comes first.
        let mut first = testable(rule, &mut open, &known);
        first.sort_by_key(|atom| !rule.atoms[*atom].mentions_server());
        let mut steps = Vec::new();
        while let Some((variable, source)) = next_source(rule, alternative, &known) {
            known[variable] = true;
            let tests = testable(rule, &mut open, &known);
            steps.push(Step {
                variable,
                source,
                tests,
            });
        }
        Self {
            rule,
            facts,
            measures,
            first,
            steps,
        }
    }

    /// Finds all bindings that agree with the given one, until `found` says no.
    pub(crate) fn run(
        &self,
        server: Option<NodeId>,
        bound: &[Option<ActorIndex>],
        found: &mut dyn FnMut(&[ActorIndex]) -> bool,
    ) {
        // Variables that are not bound yet have a number that is never looked at.
        let mut binding: Vec<ActorIndex> = bound.iter().map(|actor| actor.unwrap_or(ActorIndex(0))).collect();
        let mut taken: Vec<ActorIndex> = bound.iter().flatten().copied().collect();
        if self.steps.len() + taken.len() != bound.len() {
            return;
        }
        if self
            .first
            .iter()
            .all(|atom| self.measures.holds(*atom, server, &binding))
        {
            self.step(0, server, &mut binding, &mut taken, found);
        }
    }

    /// Recursion is as deep as the rule has variables. False if no more bindings are wanted.
    fn step(
        &self,
        depth: usize,
        server: Option<NodeId>,
        binding: &mut Vec<ActorIndex>,
        taken: &mut Vec<ActorIndex>,
        found: &mut dyn FnMut(&[ActorIndex]) -> bool,
    ) -> bool {
        let Some(step) = self.steps.get(depth) else {
            return found(binding);
        };
        let from = |variable: usize| binding[variable];
        // The candidates are slices of the facts, which do not change while the binding does.
        match step.source {
            Source::References(holder, property) => {
                let candidates = self.facts.references(from(holder), property).iter().copied();
                self.try_all(candidates, depth, server, binding, taken, found)
            }
            Source::Referrers(target, property) => {
                let candidates = self.facts.referrers(from(target)).iter();
                let candidates = candidates
                    .filter(|(own, _)| *own == property)
                    .map(|(_, holder)| *holder);
                self.try_all(candidates, depth, server, binding, taken, found)
            }
            Source::CallsOut(caller, method) => {
                let edges = self.facts.calls_out(from(caller)).iter();
                let candidates = edges.filter(|edge| edge.method == method).map(|edge| edge.peer);
                self.try_all(candidates, depth, server, binding, taken, found)
            }
            Source::CallsIn(callee, method) => {
                let edges = self.facts.calls_in(from(callee)).iter();
                let candidates = edges.filter(|edge| edge.method == method).map(|edge| edge.peer);
                self.try_all(candidates, depth, server, binding, taken, found)
            }
        }
    }

    fn try_all(
        &self,
        mut candidates: impl Iterator<Item = ActorIndex>,
        depth: usize,
        server: Option<NodeId>,
        binding: &mut Vec<ActorIndex>,
        taken: &mut Vec<ActorIndex>,
        found: &mut dyn FnMut(&[ActorIndex]) -> bool,
    ) -> bool {
        let step = &self.steps[depth];
        let variable = &self.rule.variables[step.variable];
        candidates.all(|candidate| {
            if taken.contains(&candidate) || !variable.admits(self.facts.id(candidate).kind) {
                return true;
            }
            binding[step.variable] = candidate;
            if !step
                .tests
                .iter()
                .all(|atom| self.measures.holds(*atom, server, binding))
            {
                return true;
            }
            taken.push(candidate);
            let more = self.step(depth + 1, server, binding, taken, found);
            taken.pop();
            more
        })
    }
}

/// Takes out the atoms whose variables are all known.
fn testable(rule: &Rule, open: &mut Vec<usize>, known: &[bool]) -> Vec<usize> {
    let ready = |atom: &mut usize| rule.atoms[*atom].variables().all(|variable| known[variable]);
    open.extract_if(.., ready).collect()
}

/// A variable that can be reached from the known ones in one step. References are preferred: they are fewer than calls.
fn next_source(rule: &Rule, alternative: &[usize], known: &[bool]) -> Option<(usize, Source)> {
    let sources = alternative.iter().filter_map(|atom| {
        let atom = &rule.atoms[*atom];
        let (from, to) = atom.connects()?;
        match (known[from], known[to]) {
            (true, false) => Some((to, forward(atom, from)?)),
            (false, true) => Some((from, backward(atom, to)?)),
            _ => None,
        }
    });
    sources.min_by_key(|(_, source)| match source {
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
