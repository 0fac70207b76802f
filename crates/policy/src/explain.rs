//! Why a rule fired, or what kept it from firing and by how much.

use std::fmt::Write;

use elastin_types::{ActorId, NodeId, Schema};
use serde::Serialize;

use crate::evaluate::{Measures, Visit};
use crate::{ActorIndex, Atom, Bound, Facts, Fired, Policy, Rule, Scope, show_action};

/// Number of firings of a rule that the text shows.
const SHOWN_MAX: usize = 20;

/// The result of each rule of a policy on some facts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The rules that were in scope.
    pub rules: Vec<RuleExplanation>,
}

/// The result of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleExplanation {
    /// The rule, by its index.
    pub rule: usize,
    /// Its name, or its number counted from one.
    pub label: String,
    /// The line it starts in.
    pub line: usize,
    /// Its firings.
    pub fired: Vec<Fired>,
    /// The nearest miss, if it did not fire.
    pub nearest: Option<Miss>,
    /// Why nothing could come close at all.
    pub note: Option<String>,
}

/// The binding that came closest to making a rule fire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Miss {
    /// The actors it was about.
    pub binding: Vec<Bound>,
    /// The server that `server` stood for.
    pub server: Option<NodeId>,
    /// Number of parts of the condition that held.
    pub held: usize,
    /// The part that failed first.
    pub failed: String,
    /// The measured value, if that part is a comparison and the value is known.
    pub value: Option<f64>,
    /// How far the value is from where the comparison would hold.
    pub short_by: Option<f64>,
    /// Why it failed, as text.
    pub why: String,
}

impl Policy {
    /// Explains what each rule in scope did on some facts.
    pub fn explain<F: Facts>(&self, facts: &F, scope: Scope, schema: &Schema) -> Explanation {
        let in_scope = |rule: &Rule| match scope {
            Scope::Local(_) => !rule.is_global(),
            Scope::Global => rule.is_global(),
            Scope::Whole => true,
        };
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| in_scope(rule));
        Explanation {
            rules: rules
                .map(|(index, rule)| self.explain_rule(index, rule, facts, scope, schema))
                .collect(),
        }
    }

    fn explain_rule<F: Facts>(
        &self,
        index: usize,
        rule: &Rule,
        facts: &F,
        scope: Scope,
        schema: &Schema,
    ) -> RuleExplanation {
        let mut explanation = RuleExplanation {
            rule: index,
            label: rule.label(index),
            line: rule.line,
            fired: Vec::new(),
            nearest: None,
            note: None,
        };
        if rule.between_types {
            explanation.note = Some("it separates types: it is asked for pairs of actors when they are placed".into());
            return explanation;
        }
        self.evaluate_rule(index, facts, scope, &mut explanation.fired);
        if !explanation.fired.is_empty() {
            return explanation;
        }
        let mut nearest = Nearest {
            rule,
            facts,
            measures: Measures::new(rule, self.count_unit(), facts),
            best: None,
        };
        let starts = self.visit_rule(index, facts, scope, &mut nearest);
        if starts == 0 {
            explanation.note = Some(nothing_to_start_from(rule, schema));
        }
        explanation.nearest = nearest.best.map(|(_, miss)| miss);
        explanation
    }
}

fn nothing_to_start_from(rule: &Rule, schema: &Schema) -> String {
    match rule.subject.or((!rule.variables.is_empty()).then_some(0)) {
        None => "no server was measured".into(),
        Some(start) => {
            let kind = rule.variables[start].kind.and_then(|kind| schema.actor_of(kind));
            format!(
                "no {} was measured here",
                kind.map_or("actor", |kind| kind.name.as_str())
            )
        }
    }
}

/// Keeps the miss with the most parts that held; among those, the one that failed by least.
struct Nearest<'a, F> {
    rule: &'a Rule,
    facts: &'a F,
    measures: Measures<'a, F>,
    best: Option<((usize, f64), Miss)>,
}

impl<F: Facts> Nearest<'_, F> {
    fn offer(&mut self, held: usize, short_by: Option<f64>, miss: impl FnOnce(&Self) -> Miss) {
        let gap = short_by.unwrap_or(f64::INFINITY);
        let closer = match &self.best {
            None => true,
            Some(((best_held, best_gap), _)) => held > *best_held || (held == *best_held && gap < *best_gap),
        };
        if closer {
            self.best = Some(((held, gap), miss(self)));
        }
    }

    fn binding(&self, atom: usize, binding: &[ActorIndex]) -> Vec<Bound> {
        let start = self.rule.subject.or((!self.rule.variables.is_empty()).then_some(0));
        let mut variables: Vec<usize> = start.into_iter().chain(self.rule.atoms[atom].variables()).collect();
        variables.sort_unstable();
        variables.dedup();
        let bound = |variable: usize| Bound {
            variable: self.rule.variables[variable].name.clone(),
            actor: self.facts.id(binding[variable]).clone(),
        };
        variables.into_iter().map(bound).collect()
    }
}

impl<F: Facts> Visit for Nearest<'_, F> {
    fn found(&mut self, _binding: &[ActorIndex]) -> bool {
        true
    }

    fn failed(&mut self, atom: usize, passed: usize, server: Option<NodeId>, binding: &[ActorIndex]) {
        let value = self.measures.value(atom, server, binding);
        let (short_by, why) = match (&self.rule.atoms[atom], value) {
            (Atom::Refers { text, .. }, _) => (None, format!("`{text}` does not hold")),
            (Atom::Compare(comparison), None) => (None, format!("`{}` is about something unknown", comparison.text)),
            (Atom::Compare(comparison), Some(value)) => {
                let short_by = (value - comparison.value).abs();
                let much = if comparison.comparator.wants_more() {
                    "little"
                } else {
                    "much"
                };
                let why = match short_by {
                    0.0 => format!("`{}` was exactly {}", comparison.text, short(value)),
                    _ => format!(
                        "`{}` was {}, {} too {much}",
                        comparison.text,
                        short(value),
                        short(short_by)
                    ),
                };
                (Some(short_by), why)
            }
        };
        self.offer(passed, short_by, |nearest| Miss {
            binding: nearest.binding(atom, binding),
            server,
            held: passed,
            failed: nearest.rule.atoms[atom].text().into(),
            value,
            short_by,
            why,
        });
    }

    fn dead_end(&mut self, atom: usize, passed: usize, server: Option<NodeId>, binding: &[ActorIndex]) {
        self.offer(passed, None, |nearest| {
            let text = nearest.rule.atoms[atom].text();
            let start = nearest.rule.subject.unwrap_or(0);
            Miss {
                binding: vec![Bound {
                    variable: nearest.rule.variables[start].name.clone(),
                    actor: nearest.facts.id(binding[start]).clone(),
                }],
                server,
                held: passed,
                failed: text.into(),
                value: None,
                short_by: None,
                why: format!("there is no other actor for which `{text}` holds"),
            }
        });
    }
}

/// A number with at most two places after the point.
fn short(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}")
}

impl Explanation {
    /// Renders it as text.
    pub fn render(&self, schema: &Schema) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            rule.render(schema, &mut text).expect("writing to a string can't fail");
        }
        text
    }
}

impl RuleExplanation {
    fn render(&self, schema: &Schema, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{} (line {})", self.label, self.line)?;
        for fired in self.fired.iter().take(SHOWN_MAX) {
            let subject = about(&fired.binding, fired.server, schema);
            let values: Vec<String> = fired
                .values
                .iter()
                .map(|value| match value.value {
                    Some(measured) => format!("`{}` was {}", value.text, short(measured)),
                    None => format!("`{}`", value.text),
                })
                .collect();
            let because = if values.is_empty() {
                String::new()
            } else {
                format!(": {}", values.join(", "))
            };
            let actions: Vec<String> = fired.actions.iter().map(|action| show_action(action, schema)).collect();
            writeln!(text, "  fired for {subject}{because}")?;
            writeln!(text, "    => {}", actions.join("; "))?;
        }
        if self.fired.len() > SHOWN_MAX {
            writeln!(text, "  and {} times more", self.fired.len() - SHOWN_MAX)?;
        }
        if let Some(note) = &self.note {
            writeln!(text, "  did not fire: {note}")?;
        } else if let Some(miss) = &self.nearest {
            let subject = about(&miss.binding, miss.server, schema);
            writeln!(text, "  did not fire; closest came {subject}: {}", miss.why)?;
        }
        Ok(())
    }
}

fn about(binding: &[Bound], server: Option<NodeId>, schema: &Schema) -> String {
    let actor = |bound: &Bound, id: &ActorId| format!("{} = {}", bound.variable, schema.show(id));
    let actors: Vec<String> = binding.iter().map(|bound| actor(bound, &bound.actor)).collect();
    match (&actors[..], server) {
        ([], Some(server)) => server.to_string(),
        (actors, Some(server)) => format!("{} on {server}", actors.join(", ")),
        (actors, None) => actors.join(", "),
    }
}
