//! The check of one rule: resolves its entities to types and variables, then checks it as a whole.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorSchema, ActorType};

use super::connect::{Unconnected, between_types};
use super::features::{Owner, RESERVED};
use super::{SchemaNames, VARIABLES_MAX, suggest};
use crate::ast::{ArgumentAst, ConditionAst, EntityAst, Name, Number, RuleAst};
use crate::bounds::with_bounds;
use crate::disjunct::{ALTERNATIVES_MAX, disjuncts};
use crate::{Atom, Behaviour, CallerClass, Diagnostic, Feature, Interest, Rule, Span, Variable};

/// The largest absolute value of a priority.
const PRIORITY_MAX: f64 = 1_000_000.0;

/// The variable of the first actor that a behaviour names.
pub(crate) fn subject(behaviours: &[Behaviour]) -> Option<usize> {
    behaviours.iter().flat_map(Behaviour::variables).next()
}

/// Checks one rule. On mistakes, adds diagnostics and returns `None`.
pub(super) fn check(
    ast: &RuleAst,
    source: &str,
    line: usize,
    names: &SchemaNames<'_>,
    interest: &mut Interest,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Rule> {
    let errors_before = diagnostics.len();
    let mut checker = Checker {
        names,
        interest,
        diagnostics,
        declared: BTreeMap::new(),
        of_unknown_type: BTreeSet::new(),
        bare: BTreeSet::new(),
        variables: Vec::new(),
        spans: Vec::new(),
        atoms: Vec::new(),
    };
    checker.declare(ast);
    let priority = checker.priority(&ast.attributes);
    let condition = checker.condition(&ast.condition);
    let behaviours: Vec<_> = ast
        .behaviours
        .iter()
        .map(|behaviour| checker.behaviour(behaviour))
        .collect();
    let (condition, behaviours) = (condition?, behaviours.into_iter().collect::<Option<Vec<_>>>()?);
    let behaviours = with_bounds(behaviours, &condition, &checker.atoms);
    let mut rule = Rule {
        name: ast.name.as_ref().map(|name| name.text.clone()),
        priority,
        text: ast.span.text(source).into(),
        span: ast.span,
        line,
        subject: subject(&behaviours),
        variables: std::mem::take(&mut checker.variables),
        atoms: std::mem::take(&mut checker.atoms),
        condition,
        behaviours,
        between_types: false,
    };
    checker.whole(&mut rule, ast);
    (diagnostics.len() == errors_before).then_some(rule)
}

pub(super) struct Checker<'a, 'b> {
    pub(super) names: &'a SchemaNames<'a>,
    pub(super) interest: &'b mut Interest,
    diagnostics: &'b mut Vec<Diagnostic>,
    /// Variables that `Type(v)` introduces anywhere in the rule, with their type and span.
    pub(super) declared: BTreeMap<String, (Option<ActorType>, Span)>,
    /// Variables whose type does not exist. That is reported once; their features and functions are not checked.
    of_unknown_type: BTreeSet<String>,
    /// Bare names that also occur in other places than as a caller. If such a name is a type, it stands for an actor.
    bare: BTreeSet<String>,
    pub(super) variables: Vec<Variable>,
    /// The first occurrence of each variable.
    spans: Vec<Span>,
    pub(super) atoms: Vec<Atom>,
}

/// The meaning of an entity.
pub(super) enum Resolved {
    Server,
    Client,
    Actor(usize),
    /// All actors of a type together, as callers.
    Class(Option<ActorType>),
}

impl Resolved {
    pub(super) fn owner(&self) -> Owner {
        match self {
            Resolved::Server => Owner::Server,
            Resolved::Client => Owner::Client,
            Resolved::Actor(_) | Resolved::Class(_) => Owner::Actor,
        }
    }
}

impl Checker<'_, '_> {
    pub(super) fn error(&mut self, code: &str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.diagnostics.push(Diagnostic::error(code, span, message));
        self.diagnostics.last_mut().expect("it was just added")
    }

    /// Collects the variables that the rule introduces and the bare types that stand for an actor. This precedes name
    /// resolution, because both may come after their first use.
    fn declare(&mut self, ast: &RuleAst) {
        let mut entities = Vec::new();
        gather(&ast.condition, &mut entities);
        for argument in ast.behaviours.iter().flat_map(|behaviour| &behaviour.arguments) {
            if let ArgumentAst::Entity(entity) = argument {
                entities.push((entity, false));
            }
        }
        for (entity, is_caller) in entities {
            if let Some(variable) = &entity.argument {
                self.declare_variable(&entity.name, variable);
            } else if !is_caller {
                self.bare.insert(entity.name.text.clone());
            }
        }
    }

    fn declare_variable(&mut self, type_name: &Name, variable: &Name) {
        let taken = if RESERVED.contains(&variable.text.as_str()) {
            Some("has a meaning of its own")
        } else if self.names.actor(&variable.text).is_some() {
            Some("is the name of a type")
        } else {
            None
        };
        if let Some(why) = taken {
            let message = format!("`{}` can't be a variable: it {why}", variable.text);
            self.error("bad-variable", variable.span, message).help = Some("choose another name".into());
        }
        let Some(kind) = self.kind(type_name) else {
            // Declared as of any type, so that its uses are not reported as well.
            if !self.declared.contains_key(&variable.text) {
                self.declared.insert(variable.text.clone(), (None, type_name.span));
                self.of_unknown_type.insert(variable.text.clone());
            }
            return;
        };
        if self.of_unknown_type.contains(&variable.text) {
            return;
        }
        match self.declared.get(&variable.text) {
            Some((other, first)) if *other != kind => {
                let (first, other) = (*first, self.names.name_of(*other));
                let message = format!("`{}` is a `{other}` already", variable.text);
                let error = Diagnostic::error("variable-type", type_name.span, message)
                    .also(first, "introduced here")
                    .help("variables are local to a rule, but within it they have one type");
                self.diagnostics.push(error);
            }
            Some(_) => {}
            None => {
                self.declared.insert(variable.text.clone(), (kind, type_name.span));
            }
        }
    }

    /// The type of this name; reports an error if there is none.
    pub(super) fn kind(&mut self, name: &Name) -> Option<Option<ActorType>> {
        if name.text == "any" {
            return Some(None);
        }
        if let Some(actor) = self.names.actor(&name.text) {
            return Some(Some(actor.kind()));
        }
        // The same misspelt type is reported once in a rule.
        let known = |diagnostic: &Diagnostic| diagnostic.code == "unknown-type" && diagnostic.span() == name.span;
        if !self.diagnostics.iter().rev().take(8).any(known) {
            let help = suggest::help(&name.text, "actor types", self.names.types());
            let message = format!("there is no actor type `{}`", name.text);
            self.error("unknown-type", name.span, message).help = Some(help);
        }
        None
    }

    /// Whether the variable of this index was introduced with a type that does not exist.
    pub(super) fn is_of_unknown_type(&self, variable: usize) -> bool {
        self.of_unknown_type.contains(&self.variables[variable].name)
    }

    pub(super) fn resolve(&mut self, entity: &EntityAst, as_caller: bool) -> Option<Resolved> {
        let name = &entity.name.text;
        if let Some(variable) = &entity.argument {
            if RESERVED[..2].contains(&name.as_str()) {
                let message = format!("`{name}` is not a type");
                self.error("not-a-type", entity.name.span, message);
                return None;
            }
            let (kind, _) = *self.declared.get(&variable.text)?;
            return self.variable(&variable.text, kind, entity.span).map(Resolved::Actor);
        }
        match name.as_str() {
            "server" => return Some(Resolved::Server),
            "client" => return Some(Resolved::Client),
            _ => {}
        }
        if let Some((kind, _)) = self.declared.get(name) {
            return self.variable(&name.clone(), *kind, entity.span).map(Resolved::Actor);
        }
        if self.names.actor(name).is_none() && name != "any" {
            let known: Vec<&str> = self
                .declared
                .keys()
                .map(String::as_str)
                .chain(self.names.types())
                .collect();
            let help = suggest::help(name, "actors and types", known.iter().copied());
            let message = format!("`{name}` is neither a variable of this rule nor an actor type");
            self.error("unknown-actor", entity.span, message).help = Some(help);
            return None;
        }
        let kind = self.kind(&entity.name)?;
        if as_caller && !self.bare.contains(name) {
            return Some(Resolved::Class(kind));
        }
        self.variable(&name.clone(), kind, entity.span).map(Resolved::Actor)
    }

    fn variable(&mut self, name: &str, kind: Option<ActorType>, span: Span) -> Option<usize> {
        if let Some(index) = self.variables.iter().position(|variable| variable.name == name) {
            return Some(index);
        }
        if self.variables.len() == VARIABLES_MAX {
            let message = format!("a rule can speak of at most {VARIABLES_MAX} actors");
            self.error("too-many-actors", span, message).help = Some("split it into several rules".into());
            return None;
        }
        self.interest
            .kinds
            .extend(self.names.types_of(kind).map(ActorSchema::kind));
        self.variables.push(Variable {
            name: name.into(),
            kind,
        });
        self.spans.push(span);
        Some(self.variables.len() - 1)
    }

    /// Resolves an entity that must be an actor.
    pub(super) fn actor(&mut self, entity: &EntityAst) -> Option<usize> {
        match self.resolve(entity, false)? {
            Resolved::Actor(variable) => Some(variable),
            Resolved::Server | Resolved::Client | Resolved::Class(_) => {
                let message = format!("expected an actor, found `{entity}`");
                self.error("not-an-actor", entity.span, message).help = Some("name a type or a variable".into());
                None
            }
        }
    }

    fn priority(&mut self, attributes: &[(Name, Number)]) -> Option<i32> {
        let mut priority = None;
        for (name, number) in attributes {
            if name.text != "priority" {
                let message = format!("there is no attribute `@{}`", name.text);
                let help = suggest::help(&name.text, "attributes", ["priority"]);
                self.error("unknown-attribute", name.span, message).help = Some(help);
            } else if priority.is_some() {
                self.error("duplicate-priority", name.span, "this rule has a priority already");
            } else if number.value.fract() != 0.0 || number.value.abs() > PRIORITY_MAX {
                let message = format!("a priority is a whole number up to {PRIORITY_MAX}");
                self.error("bad-priority", number.span, message);
            } else {
                priority = Some(number.value as i32);
            }
        }
        priority
    }

    fn whole(&mut self, rule: &mut Rule, ast: &RuleAst) {
        let Ok(alternatives) = disjuncts(&rule.condition) else {
            let message = format!("this condition multiplies out to more than {ALTERNATIVES_MAX} alternatives");
            self.error("too-many-alternatives", ast.condition.span(), message).help =
                Some("split it into several rules".into());
            return;
        };
        match between_types(rule, &alternatives) {
            Ok(between_types) => rule.between_types = between_types,
            Err(unconnected) => self.unconnected(rule, &unconnected, alternatives.len()),
        }
    }

    fn unconnected(&mut self, rule: &Rule, unconnected: &Unconnected, alternatives: usize) {
        let from = &rule.variables[unconnected.from].name;
        let to = &rule.variables[unconnected.to].name;
        let pair = [(unconnected.from, unconnected.to), (unconnected.to, unconnected.from)];
        let weak = unconnected
            .alternative
            .iter()
            .find_map(|atom| match &rule.atoms[*atom] {
                Atom::Compare(comparison) => match comparison.feature {
                    Feature::Calls {
                        caller: CallerClass::Variable(caller),
                        callee,
                        ..
                    } if pair.contains(&(caller, callee)) => Some(&comparison.text),
                    _ => None,
                },
                Atom::Refers { .. } => None,
            });
        let help = match weak {
            Some(weak) => {
                format!("`{weak}` also holds for actors that never call each other: ask for `.count > 0` as well")
            }
            None if rule.variables[unconnected.from].kind == rule.variables[unconnected.to].kind => {
                format!("use one name for the same actor, or connect `{from}` and `{to}` by a call or a reference")
            }
            None => format!("connect them by a call or a reference, such as `… in ref({from}.…)`"),
        };
        let mut message = format!("nothing connects `{from}` and `{to}`, so the rule would try all pairs of actors");
        if alternatives > 1 {
            let texts: Vec<_> = unconnected
                .alternative
                .iter()
                .map(|atom| rule.atoms[*atom].text())
                .collect();
            message = match &texts[..] {
                [] => format!("{message} where the condition is just `true`"),
                texts => format!("{message} where just `{}` holds", texts.join(" and ")),
            };
        }
        let error = Diagnostic::error("unconnected", self.spans[unconnected.to], message)
            .also(self.spans[unconnected.from], "from here")
            .help(help);
        self.diagnostics.push(error);
    }
}

/// The entities of a condition in the order of the text, and whether each is the caller of a `call`.
fn gather<'a>(condition: &'a ConditionAst, entities: &mut Vec<(&'a EntityAst, bool)>) {
    match condition {
        ConditionAst::True(_) => {}
        ConditionAst::Any(parts) | ConditionAst::All(parts) => {
            for part in parts {
                gather(part, entities);
            }
        }
        ConditionAst::Compare(compare) => {
            entities.push((&compare.entity, compare.is_call()));
            let arguments = compare.path.iter().filter_map(|segment| segment.argument.as_ref());
            entities.extend(arguments.map(|member| (&member.entity, false)));
        }
        ConditionAst::Refers(refers) => {
            entities.push((&refers.target, false));
            entities.push((&refers.holder.entity, false));
        }
    }
}
