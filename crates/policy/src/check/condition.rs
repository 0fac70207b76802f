//! The check of conditions: looks up comparisons in the table of features, and references in the schema.

use elastin_types::{ActorType, Method, Property};

use super::features::{FEATURES, FeatureRow, Measure, Owner};
use super::rule::{Checker, Resolved};
use super::{ATOMS_MAX, suggest};
use crate::ast::{CompareAst, ConditionAst, MemberAst, Number, RefersAst};
use crate::{Atom, CallerClass, Comparison, Condition, Feature, Span, Statistic};

impl Checker<'_, '_> {
    /// Checks all parts even if one is wrong, so that all mistakes are reported.
    pub(super) fn condition(&mut self, ast: &ConditionAst) -> Option<Condition> {
        let mut parts = |parts: &[ConditionAst]| -> Option<Vec<Condition>> {
            let checked: Vec<_> = parts.iter().map(|part| self.condition(part)).collect();
            checked.into_iter().collect()
        };
        match ast {
            ConditionAst::True(_) => Some(Condition::True),
            ConditionAst::Any(any) => parts(any).map(Condition::Any),
            ConditionAst::All(all) => parts(all).map(Condition::All),
            ConditionAst::Compare(compare) => {
                let comparison = self.comparison(compare)?;
                self.atom(Atom::Compare(comparison), compare.span)
            }
            ConditionAst::Refers(refers) => {
                let atom = self.refers(refers)?;
                self.atom(atom, refers.span)
            }
        }
    }

    /// Adds an atom, unless the rule has the same one already.
    fn atom(&mut self, atom: Atom, span: Span) -> Option<Condition> {
        if let Some(known) = self.atoms.iter().position(|other| *other == atom) {
            return Some(Condition::Atom(known));
        }
        if self.atoms.len() == ATOMS_MAX {
            let message = format!("a condition can have at most {ATOMS_MAX} different comparisons and references");
            self.error("too-many-parts", span, message).help = Some("split the rule into several".into());
            return None;
        }
        self.atoms.push(atom);
        Some(Condition::Atom(self.atoms.len() - 1))
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
        if self.is_of_unknown_type(holder) {
            return None;
        }
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
        if self.is_of_unknown_type(callee) {
            return None;
        }
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
}

impl CompareAst {
    /// Whether its entity is the caller of a `call`.
    pub(super) fn is_call(&self) -> bool {
        self.path.first().is_some_and(|segment| segment.name.text == "call")
    }
}
