//! The check of behaviours and their arguments against the table of behaviours.

use elastin_types::{ActorSchema, ActorType, Resource};

use super::features::{BEHAVIOURS, Parameter};
use super::rule::Checker;
use super::suggest;
use crate::ast::{ArgumentAst, BehaviourAst, EntityAst};
use crate::{Balance, Behaviour, Span};

impl Checker<'_, '_> {
    pub(super) fn behaviour(&mut self, ast: &BehaviourAst) -> Option<Behaviour> {
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
            // An argument was wrong, which is reported already.
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

    /// The types of a `balance`; an empty list stands for `any`.
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
}
