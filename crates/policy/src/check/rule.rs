//! One rule: its entities resolved to types and variables, its features and behaviours looked up in the tables.

use std::collections::BTreeMap;

use elastin_types::{ActorSchema, ActorType, Method, Property, Resource};

use super::connect::{Unconnected, between_types};
use super::features::{BEHAVIOURS, FEATURES, FeatureRow, Measure, Owner, Parameter, RESERVED};
use super::{SchemaNames, VARIABLES_MAX, suggest};
use crate::ast::{
    ArgumentAst, BehaviourAst, CompareAst, ConditionAst, EntityAst, MemberAst, Name, Number, RefersAst, RuleAst,
};
use crate::bounds::with_bounds;
use crate::disjunct::{ALTERNATIVES_MAX, disjuncts};
use crate::{
    Atom, Balance, Behaviour, CallerClass, Comparison, Condition, Diagnostic, Feature, Interest, Rule, Span, Statistic,
    Variable,
};

/// The largest priority that a rule may have, either way.
const PRIORITY_MAX: f64 = 1_000_000.0;

/// The first actor that behaviours name.
pub(crate) fn subject(behaviours: &[Behaviour]) -> Option<usize> {
    behaviours.iter().flat_map(Behaviour::variables).next()
}

/// Checks one rule. Mistakes are added to the diagnostics, and then there is no rule.
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
        bare: Vec::new(),
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

struct Checker<'a, 'b> {
    names: &'a SchemaNames<'a>,
    interest: &'b mut Interest,
    diagnostics: &'b mut Vec<Diagnostic>,
    /// Variables that `Type(v)` introduces anywhere in the rule, with where.
    declared: BTreeMap<String, (Option<ActorType>, Span)>,
    /// Bare names that occur not only as callers: if such a name is a type, it stands for an actor.
    bare: Vec<String>,
    variables: Vec<Variable>,
    /// Where each variable first occurs.
    spans: Vec<Span>,
    atoms: Vec<Atom>,
}

/// What an entity turned out to be.
enum Resolved {
    Server,
    Client,
    Actor(usize),
    /// All actors of a type together, as callers.
    Class(Option<ActorType>),
}

impl Resolved {
    fn owner(&self) -> Owner {
        match self {
            Resolved::Server => Owner::Server,
            Resolved::Client => Owner::Client,
            Resolved::Actor(_) | Resolved::Class(_) => Owner::Actor,
        }
    }
}

impl Checker<'_, '_> {
    fn error(&mut self, code: &str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.diagnostics.push(Diagnostic::error(code, span, message));
        self.diagnostics.last_mut().expect("it was just added")
    }

    // Names of actors.

    /// Finds out which variables the rule introduces and which bare types stand for an actor, before any name is
    /// resolved: both may come after their first use.
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
                self.bare.push(entity.name.text.clone());
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
            // Reported once here; declared as of any type, so that its uses are not reported too.
            self.declared
                .entry(variable.text.clone())
                .or_insert((None, type_name.span));
            return;
        };
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

    /// The type of this name; complains if there is none.
    fn kind(&mut self, name: &Name) -> Option<Option<ActorType>> {
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

    fn resolve(&mut self, entity: &EntityAst, as_caller: bool) -> Option<Resolved> {
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

    /// An actor in a place where nothing else can stand.
    fn actor(&mut self, entity: &EntityAst) -> Option<usize> {
        match self.resolve(entity, false)? {
            Resolved::Actor(variable) => Some(variable),
            Resolved::Server | Resolved::Client | Resolved::Class(_) => {
                let message = format!("expected an actor, found `{entity}`");
                self.error("not-an-actor", entity.span, message).help = Some("name a type or a variable".into());
                None
            }
        }
    }

    // Conditions.

    /// All parts are checked even if one is wrong, so that all mistakes are reported.
    fn condition(&mut self, ast: &ConditionAst) -> Option<Condition> {
        let mut parts = |parts: &[ConditionAst]| -> Option<Vec<Condition>> {
            let checked: Vec<_> = parts.iter().map(|part| self.condition(part)).collect();
            checked.into_iter().collect()
        };
        match ast {
            ConditionAst::True(_) => Some(Condition::True),
            ConditionAst::Any(any) => parts(any).map(Condition::Any),
            ConditionAst::All(all) => parts(all).map(Condition::All),
            ConditionAst::Compare(compare) => self.comparison(compare).map(|atom| self.atom(Atom::Compare(atom))),
            ConditionAst::Refers(refers) => self.refers(refers).map(|atom| self.atom(atom)),
        }
    }

    /// The same atom twice is one atom.
    fn atom(&mut self, atom: Atom) -> Condition {
        let known = self.atoms.iter().position(|other| *other == atom);
        Condition::Atom(known.unwrap_or_else(|| {
            self.atoms.push(atom);
            self.atoms.len() - 1
        }))
    }

    fn refers(&mut self, ast: &RefersAst) -> Option<Atom> {
        if ast.relation.text != "ref" {
            let message = format!("expected `ref`, found `{}`", ast.relation.text);
            self.error("unknown-relation", ast.relation.span, message).help =
                Some("references are asked for with `File(fi) in ref(fo.files)`".into());
            return None;
        }
        let target = self.actor(&ast.target);
        let holder = self.actor(&ast.holder.entity)?;
        let property = self.property(&ast.holder, holder, target)?;
        Some(Atom::Refers {
            target: target?,
            holder,
            property,
            text: ast.to_string(),
        })
    }

    fn property(&mut self, member: &MemberAst, holder: usize, target: Option<usize>) -> Option<Property> {
        let name = &member.name.text;
        let kind = self.variables[holder].kind;
        let holders: Vec<_> = self
            .names
            .types_of(kind)
            .filter_map(|actor| Some((actor, actor.property(name)?)))
            .collect();
        if holders.is_empty() {
            let owner = self.names.name_of(kind);
            let known = self.names.types_of(kind).flat_map(|actor| &actor.properties);
            let is_function = self.names.types_of(kind).any(|actor| actor.function(name).is_some());
            let help = if is_function {
                format!("`{name}` is a function; `ref` wants a field that holds references")
            } else {
                suggest::help(name, "properties", known.map(|property| property.name.as_str()))
            };
            let message = format!("`{owner}` has no property `{name}`");
            self.error("unknown-property", member.name.span, message).help = Some(help);
            return None;
        }
        if let (Some(wanted), [(owner, property)]) =
            (target.and_then(|target| self.variables[target].kind), &holders[..])
            && ActorType::of(&property.target) != wanted
        {
            let wanted = self.names.name_of(Some(wanted));
            let message = format!(
                "`{}.{name}` refers to `{}`, never to `{wanted}`",
                owner.name, property.target
            );
            self.error("wrong-target", member.name.span, message).help =
                Some(format!("name a `{}` before `in`", property.target));
            return None;
        }
        let property = Property::of(name);
        let holders = holders.iter().map(|(actor, _)| (actor.kind(), property));
        self.interest.properties.extend(holders);
        Some(property)
    }

    fn comparison(&mut self, ast: &CompareAst) -> Option<Comparison> {
        let entity = self.resolve(&ast.entity, ast.is_call());
        let value = self.number(ast.value);
        let entity = entity?;
        let row = self.feature(ast, entity.owner())?;
        let statistic = self.statistic(ast, row);
        let feature = match row.measure {
            Measure::Use(resource) => {
                if ast.path[0].argument.is_some() {
                    let message = format!("`{}` takes nothing in parentheses", row.name);
                    self.error("unexpected-argument", ast.path[0].name.span, message);
                    return None;
                }
                match entity {
                    Resolved::Actor(variable) => Feature::Actor(variable, resource),
                    _ => Feature::Server(resource),
                }
            }
            Measure::Calls => self.calls(ast, &entity)?,
        };
        Some(Comparison {
            feature,
            statistic: statistic?,
            comparator: ast.comparator,
            value: value?,
            text: ast.to_string(),
        })
    }

    fn feature(&mut self, ast: &CompareAst, owner: Owner) -> Option<&'static FeatureRow> {
        let Some(segment) = ast.path.first() else {
            self.error("missing-feature", ast.span, "nothing is measured here");
            return None;
        };
        let name = &segment.name.text;
        let known = FEATURES.iter().filter(|row| row.owners.contains(&owner));
        let found = known.clone().find(|row| row.name == *name);
        if found.is_none() {
            let known = known.map(|row| row.name);
            let message = format!("{} has no feature `{name}`", owner.describe());
            let help = suggest::help(name, "features", known);
            self.error("unknown-feature", segment.name.span, message).help = Some(help);
        }
        found
    }

    fn statistic(&mut self, ast: &CompareAst, row: &FeatureRow) -> Option<Statistic> {
        let known = row.statistics.iter().map(|statistic| statistic.name());
        let Some(segment) = ast.path.get(1) else {
            let choices: Vec<String> = known.map(|name| format!("`.{name}`")).collect();
            let message = format!("which statistic of `{}` is meant?", row.name);
            self.error("missing-statistic", ast.path[0].name.span, message).help =
                Some(format!("add {}", choices.join(" or ")));
            return None;
        };
        if let Some(extra) = ast.path.get(2) {
            let message = format!("nothing can follow the statistic, found `.{}`", extra.name.text);
            self.error("unexpected-name", extra.name.span, message);
            return None;
        }
        let name = &segment.name.text;
        if segment.argument.is_some() {
            let message = format!("`{name}` takes nothing in parentheses");
            self.error("unexpected-argument", segment.name.span, message);
            return None;
        }
        let found = row
            .statistics
            .iter()
            .find(|statistic| statistic.name() == name)
            .copied();
        if found.is_none() {
            let exists = Statistic::ALL.iter().any(|statistic| statistic.name() == name);
            let message = if exists {
                format!("`{name}` can't be measured of `{}`", row.name)
            } else {
                format!("there is no statistic `{name}`")
            };
            let help = suggest::help(name, "statistics", known);
            self.error("unknown-statistic", segment.name.span, message).help = Some(help);
        }
        found
    }

    fn calls(&mut self, ast: &CompareAst, caller: &Resolved) -> Option<Feature> {
        let segment = &ast.path[0];
        let Some(member) = &segment.argument else {
            let message = "which function's calls are meant?";
            self.error("missing-argument", segment.name.span, message).help =
                Some("for example `client.call(Folder(fo).open).count`".into());
            return None;
        };
        let callee = self.actor(&member.entity)?;
        let method = self.method(member, callee)?;
        let caller = match caller {
            Resolved::Actor(variable) => CallerClass::Variable(*variable),
            Resolved::Class(kind) => CallerClass::Kind(*kind),
            Resolved::Client | Resolved::Server => CallerClass::Client,
        };
        Some(Feature::Calls { caller, callee, method })
    }

    fn method(&mut self, member: &MemberAst, callee: usize) -> Option<Method> {
        let name = &member.name.text;
        let kind = self.variables[callee].kind;
        let types: Vec<_> = self
            .names
            .types_of(kind)
            .filter(|actor| actor.function(name).is_some())
            .collect();
        if types.is_empty() {
            let owner = self.names.name_of(kind);
            let is_property = self.names.types_of(kind).any(|actor| actor.property(name).is_some());
            let known = self.names.types_of(kind).flat_map(|actor| &actor.functions);
            let help = if is_property {
                format!("`{name}` is a property; `call` wants a function")
            } else {
                suggest::help(name, "functions", known.map(|function| function.name.as_str()))
            };
            let message = format!("`{owner}` has no function `{name}`");
            self.error("unknown-function", member.name.span, message).help = Some(help);
            return None;
        }
        let method = Method::of(name);
        let types = types.iter().map(|actor| (actor.kind(), method));
        self.interest.methods.extend(types);
        Some(method)
    }

    fn number(&mut self, number: Number) -> Option<f64> {
        if !number.value.is_finite() {
            self.error("bad-number", number.span, "this number is too large");
            return None;
        }
        Some(number.value)
    }

    // Behaviours.

    fn behaviour(&mut self, ast: &BehaviourAst) -> Option<Behaviour> {
        let Some(row) = BEHAVIOURS.iter().find(|row| row.name == ast.name.text) else {
            let message = format!("there is no behaviour `{}`", ast.name.text);
            let help = suggest::help(&ast.name.text, "behaviours", BEHAVIOURS.iter().map(|row| row.name));
            self.error("unknown-behaviour", ast.name.span, message).help = Some(help);
            return None;
        };
        if ast.arguments.len() != row.parameters.len() {
            let takes: Vec<_> = row.parameters.iter().map(|parameter| parameter.describe()).collect();
            let message = format!("`{}` takes {}", row.name, takes.join(" and "));
            self.error("wrong-arguments", ast.span, message).help = Some(format!("for example `{}`", row.example));
            return None;
        }
        let mut actors = Vec::new();
        let mut kinds = None;
        let mut resource = None;
        let mut whole = true;
        for (argument, parameter) in ast.arguments.iter().zip(row.parameters) {
            match (parameter, argument) {
                (Parameter::Actor, ArgumentAst::Entity(entity)) => actors.extend(self.actor(entity)),
                (Parameter::Resource, ArgumentAst::Entity(entity)) => resource = self.resource(entity),
                (Parameter::Types, ArgumentAst::Set(types, span)) => kinds = self.types(types, *span),
                (parameter, argument) => {
                    whole = false;
                    let message = format!("`{}` takes {} here", row.name, parameter.describe());
                    self.error("wrong-arguments", argument.span(), message).help =
                        Some(format!("for example `{}`", row.example));
                }
            }
        }
        if !whole {
            return None;
        }
        match (row.name, &actors[..]) {
            ("balance", _) => Some(Behaviour::Balance(Balance {
                kinds: kinds?,
                resource: resource?,
                upper: None,
                lower: None,
            })),
            ("reserve", [actor]) => Some(Behaviour::Reserve {
                actor: *actor,
                resource: resource?,
            }),
            ("pin", [actor]) => Some(Behaviour::Pin(*actor)),
            ("colocate" | "separate", [first, second]) if first == second => {
                let message = format!("`{}` wants two different actors", row.name);
                self.error("same-actor", ast.span, message).help =
                    Some("give them names: `Folder(a)` and `Folder(b)` are two different folders".into());
                None
            }
            ("colocate", [first, second]) => Some(Behaviour::Colocate(*first, *second)),
            ("separate", [first, second]) => Some(Behaviour::Separate(*first, *second)),
            // An actor among the arguments was wrong, and reported.
            _ => None,
        }
    }

    fn resource(&mut self, entity: &EntityAst) -> Option<Resource> {
        let found = Resource::ALL
            .into_iter()
            .find(|resource| entity.argument.is_none() && resource.name() == entity.name.text);
        if found.is_none() {
            let known = Resource::ALL.iter().map(|resource| resource.name());
            let help = suggest::help(&entity.name.text, "resources", known);
            let message = format!("`{entity}` is not a resource");
            self.error("unknown-resource", entity.span, message).help = Some(help);
        }
        found
    }

    /// The types of a `balance`; empty for `any`.
    fn types(&mut self, types: &[EntityAst], span: Span) -> Option<Vec<ActorType>> {
        if types.is_empty() {
            self.error("no-types", span, "`balance` wants at least one type").help =
                Some("`{any}` stands for all types".into());
            return None;
        }
        let mut kinds = Vec::new();
        let mut any = false;
        let mut whole = true;
        for entity in types {
            if entity.argument.is_some() || self.declared.contains_key(&entity.name.text) {
                whole = false;
                let message = "`balance` takes types, not single actors";
                self.error("not-a-type", entity.span, message).help =
                    Some("it may have to move any actor of the types, whatever the condition says of some".into());
                continue;
            }
            match self.kind(&entity.name) {
                Some(Some(kind)) => kinds.push(kind),
                Some(None) => any = true,
                None => whole = false,
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        if any {
            kinds.clear();
            self.interest
                .kinds
                .extend(self.names.types_of(None).map(ActorSchema::kind));
        }
        self.interest.kinds.extend(&kinds);
        whole.then_some(kinds)
    }

    // The whole rule.

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

impl CompareAst {
    /// Whether its entity is the caller of a `call`.
    fn is_call(&self) -> bool {
        self.path.first().is_some_and(|segment| segment.name.text == "call")
    }
}
