//! The actor types, functions and properties that a policy names. A macro refers to the Rust items behind them, so that
//! a misspelt name fails the build at its location.

use std::collections::BTreeMap;

use crate::ast::{ArgumentAst, CompareAst, ConditionAst, EntityAst, MemberAst, Name, RuleAst};
use crate::{Span, Syntax};

/// One name in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The actor type.
    pub type_name: String,
    /// The type itself, or the member that is named.
    pub what: Mentioned,
    /// The source range of the name.
    pub span: Span,
}

/// The part of an actor type that is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mentioned {
    /// The type itself.
    Type,
    /// A function of it.
    Function(String),
    /// A property of it.
    Property(String),
}

const NOT_TYPES: [&str; 3] = ["server", "client", "any"];

impl Syntax {
    /// Every type, function and property that the policy names, in source order. Members of `any` are omitted because
    /// they belong to no particular type.
    pub fn mentions(&self) -> Vec<Mention> {
        let mut mentions = Vec::new();
        for rule in &self.ast().rules {
            let mut variables = BTreeMap::new();
            declare(rule, &mut variables);
            let mut finder = Finder {
                variables,
                mentions: &mut mentions,
            };
            finder.rule(rule);
        }
        mentions
    }
}

/// The type of every variable that a rule introduces.
fn declare<'a>(rule: &'a RuleAst, variables: &mut BTreeMap<&'a str, &'a str>) {
    let mut add = |entity: &'a EntityAst| {
        if let Some(variable) = &entity.argument {
            variables.entry(&variable.text).or_insert(&entity.name.text);
        }
    };
    conditions(&rule.condition, &mut |condition| match condition {
        ConditionAst::Compare(compare) => {
            add(&compare.entity);
            members(compare).for_each(|member| add(&member.entity));
        }
        ConditionAst::Refers(refers) => {
            add(&refers.target);
            add(&refers.holder.entity);
        }
        _ => {}
    });
    for argument in rule.behaviours.iter().flat_map(|behaviour| &behaviour.arguments) {
        if let ArgumentAst::Entity(entity) = argument {
            add(entity);
        }
    }
}

/// Calls back with every part of a condition, in source order.
fn conditions<'a>(condition: &'a ConditionAst, found: &mut impl FnMut(&'a ConditionAst)) {
    match condition {
        ConditionAst::Any(parts) | ConditionAst::All(parts) => {
            for part in parts {
                conditions(part, found);
            }
        }
        other => found(other),
    }
}

fn members(compare: &CompareAst) -> impl Iterator<Item = &MemberAst> {
    compare.path.iter().filter_map(|segment| segment.argument.as_ref())
}

struct Finder<'a, 'b> {
    variables: BTreeMap<&'a str, &'a str>,
    mentions: &'b mut Vec<Mention>,
}

impl Finder<'_, '_> {
    fn rule(&mut self, rule: &RuleAst) {
        conditions(&rule.condition, &mut |condition| match condition {
            ConditionAst::Compare(compare) => {
                self.entity(&compare.entity);
                for member in members(compare) {
                    self.member(member, Mentioned::Function);
                }
            }
            ConditionAst::Refers(refers) => {
                self.entity(&refers.target);
                self.member(&refers.holder, Mentioned::Property);
            }
            _ => {}
        });
        for behaviour in &rule.behaviours {
            // The last argument of `balance` and `reserve` is a resource.
            let takes_resource = matches!(behaviour.name.text.as_str(), "balance" | "reserve");
            let actors = behaviour.arguments.len() - usize::from(takes_resource && !behaviour.arguments.is_empty());
            for argument in &behaviour.arguments[..actors] {
                match argument {
                    ArgumentAst::Entity(entity) => self.entity(entity),
                    ArgumentAst::Set(types, _) => types.iter().for_each(|entity| self.entity(entity)),
                }
            }
        }
    }

    fn entity(&mut self, entity: &EntityAst) {
        let is_variable = entity.argument.is_none() && self.variables.contains_key(entity.name.text.as_str());
        if !is_variable && !NOT_TYPES.contains(&entity.name.text.as_str()) {
            self.add(&entity.name.text, Mentioned::Type, entity.name.span);
        }
    }

    fn member(&mut self, member: &MemberAst, mentioned: fn(String) -> Mentioned) {
        self.entity(&member.entity);
        let name: &Name = &member.entity.name;
        let type_name = match member.entity.argument {
            None => self.variables.get(name.text.as_str()).copied().unwrap_or(&name.text),
            Some(_) => &name.text,
        };
        if !NOT_TYPES.contains(&type_name) {
            self.add(type_name, mentioned(member.name.text.clone()), member.name.span);
        }
    }

    fn add(&mut self, type_name: &str, mentioned: Mentioned, span: Span) {
        self.mentions.push(Mention {
            type_name: type_name.into(),
            what: mentioned,
            span,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_where_it_stands() {
        let source = "client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) and any.call(fo.list).count > 1 \
                      => reserve(fo, cpu); colocate(fo, fi); balance({Router, any}, net);";
        let shown: Vec<String> = Syntax::parse(source)
            .mentions()
            .iter()
            .map(|mention| {
                let at = mention.span.text(source);
                match &mention.what {
                    Mentioned::Type => format!("{at}: {}", mention.type_name),
                    Mentioned::Function(name) => format!("{at}: {}::{name}", mention.type_name),
                    Mentioned::Property(name) => format!("{at}: {}.{name}", mention.type_name),
                }
            })
            .collect();
        let expected = [
            "Folder: Folder",
            "open: Folder::open",
            "File: File",
            "files: Folder.files",
            "list: Folder::list",
            "Router: Router",
        ];
        assert_eq!(shown, expected);
    }
}
