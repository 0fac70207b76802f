//! The values of features under a binding.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use elastin_types::{ActorType, Method, NodeId, Usage};

use crate::index::find_edge;
use crate::{ActorIndex, Atom, CallerClass, Calls, Comparison, CountUnit, Facts, Feature, Rule, Statistic};

/// Measures the atoms of one rule on some facts.
pub(crate) struct Measures<'a, F> {
    rule: &'a Rule,
    facts: &'a F,
    /// Factor from calls in the period to calls per unit; unknown for an empty period.
    per_unit: Option<f64>,
    /// For each atom about a share of calls, the totals, computed when first needed.
    totals: Vec<OnceCell<Totals>>,
}

/// Number of calls from a class of callers to the actors of each type on each server.
type Totals = BTreeMap<(NodeId, ActorType), u64>;

impl<'a, F: Facts> Measures<'a, F> {
    pub(crate) fn new(rule: &'a Rule, unit: CountUnit, facts: &'a F) -> Self {
        let seconds = facts.period().as_secs_f64();
        Self {
            rule,
            facts,
            per_unit: (seconds > 0.0).then(|| unit.seconds() / seconds),
            totals: vec![OnceCell::new(); rule.atoms.len()],
        }
    }

    /// Whether an atom with bound variables holds. A comparison of an unknown value does not hold.
    pub(crate) fn holds(&self, atom: usize, server: Option<NodeId>, binding: &[ActorIndex]) -> bool {
        match &self.rule.atoms[atom] {
            Atom::Refers {
                target,
                holder,
                property,
                ..
            } => {
                let references = self.facts.references(binding[*holder], *property);
                references.binary_search(&binding[*target]).is_ok()
            }
            Atom::Compare(comparison) => self
                .value(atom, server, binding)
                .is_some_and(|value| comparison.comparator.holds(value, comparison.value)),
        }
    }

    /// The measured value of an atom's comparison; `None` if it is unknown, or the atom is not a comparison.
    pub(crate) fn value(&self, atom: usize, server: Option<NodeId>, binding: &[ActorIndex]) -> Option<f64> {
        let Atom::Compare(comparison) = &self.rule.atoms[atom] else {
            return None;
        };
        match comparison.feature {
            Feature::Server(resource) => {
                let usage = self.facts.usage(server?, resource)?;
                of_usage(usage, comparison)
            }
            Feature::Actor(variable, resource) => {
                let actor = binding[variable];
                let used = self.facts.used(actor, resource)?;
                let server = self.facts.usage(self.facts.node(actor)?, resource);
                let capacity = server.and_then(|usage| usage.capacity);
                of_usage(Usage { used, capacity }, comparison)
            }
            Feature::Calls { caller, callee, method } => {
                let callee = binding[callee];
                let calls = self.calls(caller, callee, method, binding)?;
                match comparison.statistic {
                    Statistic::Count => Some(calls.count as f64 * self.per_unit?),
                    Statistic::Size => (calls.count > 0).then(|| calls.bytes as f64 / calls.count as f64),
                    Statistic::Perc => self.share(atom, caller, callee, method, calls),
                }
            }
        }
    }

    /// The calls to a callee; unknown if neither side that records them is listed.
    fn calls(&self, caller: CallerClass, callee: ActorIndex, method: Method, binding: &[ActorIndex]) -> Option<Calls> {
        let listed = self.facts.node(callee).is_some();
        match caller {
            CallerClass::Variable(caller) => {
                let caller = binding[caller];
                let known = listed || self.facts.node(caller).is_some();
                known.then(|| find_edge(self.facts.calls_in(callee), caller, method).unwrap_or_default())
            }
            CallerClass::Client => listed.then(|| self.facts.client_calls(callee, method)),
            CallerClass::Kind(kind) => listed.then(|| self.of_class(kind, callee, method)),
        }
    }

    fn of_class(&self, kind: Option<ActorType>, callee: ActorIndex, method: Method) -> Calls {
        let mut sum = Calls::default();
        for edge in self.facts.calls_in(callee) {
            if edge.method == method && kind.is_none_or(|kind| kind == self.facts.id(edge.peer).kind) {
                sum += edge.calls;
            }
        }
        sum
    }

    /// Calls in percent of all calls from the same class of callers to actors of the callee's type on its server.
    fn share(&self, atom: usize, caller: CallerClass, callee: ActorIndex, method: Method, calls: Calls) -> Option<f64> {
        let node = self.facts.node(callee)?;
        if calls.count == 0 {
            return Some(0.0);
        }
        let totals = self.totals[atom].get_or_init(|| self.totals(caller, callee_kind(self.rule, atom), method));
        let total = *totals.get(&(node, self.facts.id(callee).kind))?;
        Some(100.0 * calls.count as f64 / total as f64)
    }

    fn totals(&self, caller: CallerClass, kind: Option<ActorType>, method: Method) -> Totals {
        let class = match caller {
            CallerClass::Client => None,
            CallerClass::Kind(kind) => Some(kind),
            CallerClass::Variable(variable) => Some(self.rule.variables[variable].kind),
        };
        let mut totals = Totals::new();
        for callee in self.facts.listed(kind) {
            let calls = match class {
                None => self.facts.client_calls(*callee, method),
                Some(kind) => self.of_class(kind, *callee, method),
            };
            if let Some(node) = self.facts.node(*callee)
                && calls.count > 0
            {
                let total = totals.entry((node, self.facts.id(*callee).kind)).or_insert(0);
                *total = total.saturating_add(calls.count);
            }
        }
        totals
    }
}

fn callee_kind(rule: &Rule, atom: usize) -> Option<ActorType> {
    match &rule.atoms[atom] {
        Atom::Compare(Comparison {
            feature: Feature::Calls { callee, .. },
            ..
        }) => rule.variables[*callee].kind,
        _ => None,
    }
}

fn of_usage(usage: Usage, comparison: &Comparison) -> Option<f64> {
    match comparison.statistic {
        Statistic::Perc => usage.percent(),
        Statistic::Size => Some(usage.used),
        Statistic::Count => None,
    }
}
