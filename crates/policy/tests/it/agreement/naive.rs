//! A reference evaluator that tries all actors for all variables. It shares only the syntax tree with the real one.

use std::collections::BTreeSet;

use elastin_policy::ast::{ArgumentAst, Ast, CompareAst, ConditionAst, EntityAst, RuleAst, SettingValue};
use elastin_policy::{Action, Balance, Bound, Comparator, Fired, Observed, Scope};
use elastin_types::{
    ActorId, ActorStats, ActorType, Caller, Method, NodeId, Property, Resource, Schema, ServerStats, Snapshot,
};

/// The firings, and the number of mirrored bindings that were dropped.
pub(crate) fn evaluate(ast: &Ast, schema: &Schema, snapshot: &Snapshot, scope: Scope) -> (Vec<Fired>, usize) {
    let mut fired = Vec::new();
    let mut mirrors = 0;
    for (index, rule) in ast.rules.iter().enumerate() {
        let naive = Naive {
            index,
            rule,
            snapshot,
            variables: variables(rule, schema),
            seconds_per_unit: unit(ast),
        };
        mirrors += naive.evaluate(scope, &mut fired);
    }
    (fired, mirrors)
}

fn unit(ast: &Ast) -> f64 {
    match ast.settings.first().map(|setting| &setting.values[..]) {
        Some([_, SettingValue::Name(unit)]) => match unit.text.as_str() {
            "second" => 1.0,
            "minute" => 60.0,
            _ => 3600.0,
        },
        _ => 60.0,
    }
}

type Variable = (String, Option<ActorType>);

fn entities(condition: &ConditionAst) -> Vec<(&EntityAst, bool)> {
    match condition {
        ConditionAst::True(_) => vec![],
        ConditionAst::Any(parts) | ConditionAst::All(parts) => parts.iter().flat_map(entities).collect(),
        ConditionAst::Refers(refers) => vec![(&refers.target, false), (&refers.holder.entity, false)],
        ConditionAst::Compare(compare) => {
            let mut all = vec![(&compare.entity, compare.path[0].argument.is_some())];
            all.extend(compare.path[0].argument.as_ref().map(|member| (&member.entity, false)));
            all
        }
    }
}

/// All variables in order of first occurrence. A type that only occurs as a caller is not a variable.
fn variables(rule: &RuleAst, schema: &Schema) -> Vec<Variable> {
    let mut all = entities(&rule.condition);
    for behaviour in &rule.behaviours {
        for argument in &behaviour.arguments {
            if let ArgumentAst::Entity(entity) = argument {
                all.push((entity, false));
            }
        }
    }
    let mut variables: Vec<Variable> = Vec::new();
    for (entity, is_caller) in &all {
        let kind_name = entity.name.text.as_str();
        let is_type = kind_name == "any" || schema.actor(kind_name).is_some();
        let name = match &entity.argument {
            Some(argument) => argument.text.clone(),
            None => kind_name.to_string(),
        };
        let elsewhere = all
            .iter()
            .any(|(other, caller)| !caller && other.argument.is_none() && other.name.text == kind_name);
        let stands_for_actor = entity.argument.is_some() || !is_caller || elsewhere;
        if is_type && stands_for_actor && !variables.iter().any(|(known, _)| *known == name) {
            let kind = (kind_name != "any").then(|| ActorType::of(kind_name));
            variables.push((name, kind));
        }
    }
    variables
}

struct Naive<'a> {
    index: usize,
    rule: &'a RuleAst,
    snapshot: &'a Snapshot,
    variables: Vec<Variable>,
    seconds_per_unit: f64,
}

/// One actor per variable, and the server.
struct Binding<'a> {
    naive: &'a Naive<'a>,
    actors: Vec<ActorId>,
    server: NodeId,
}

impl Naive<'_> {
    fn evaluate(&self, scope: Scope, fired: &mut Vec<Fired>) -> usize {
        let subject = self.subject();
        let only_balance = subject.is_none();
        match scope {
            Scope::Local(_) if only_balance => return 0,
            Scope::Global if !only_balance => return 0,
            _ => {}
        }
        if self.is_between_types() {
            return 0;
        }
        let mut found: Vec<Fired> = Vec::new();
        for actors in self.assignments() {
            let mut servers: Vec<NodeId> = Vec::new();
            match subject.or((!actors.is_empty()).then_some(0)) {
                Some(variable) => servers.extend(self.stats(&actors[variable]).map(|stats| stats.node)),
                None => servers.extend(self.snapshot.servers.iter().map(|server| server.node)),
            }
            for server in servers {
                if only_balance && self.server(server).is_none() {
                    continue;
                }
                if matches!(scope, Scope::Local(own) if own != server) {
                    continue;
                }
                let binding = Binding {
                    naive: self,
                    actors: actors.clone(),
                    server,
                };
                found.extend(binding.fire());
            }
        }
        let all = found.len();
        // Of several firings with the same actors and actions, the first in the order of ids counts.
        found.sort_by_key(|one| one.binding.iter().map(|bound| bound.actor.clone()).collect::<Vec<_>>());
        let mut kept: Vec<Fired> = Vec::new();
        for one in found {
            let set = |fired: &Fired| {
                fired
                    .binding
                    .iter()
                    .map(|bound| bound.actor.clone())
                    .collect::<BTreeSet<_>>()
            };
            let mirrored = kept.iter().any(|other| {
                !one.binding.is_empty() && set(other) == set(&one) && plain(&other.actions) == plain(&one.actions)
            });
            if !mirrored {
                kept.push(one);
            }
        }
        let mirrors = all - kept.len();
        fired.extend(kept);
        mirrors
    }

    /// The variable of the first actor that a behaviour names.
    fn subject(&self) -> Option<usize> {
        let entity = self
            .rule
            .behaviours
            .iter()
            .find_map(|behaviour| match &behaviour.arguments[0] {
                ArgumentAst::Entity(entity) => Some(entity),
                ArgumentAst::Set(..) => None,
            })?;
        Some(self.variable(entity).expect("behaviours name variables"))
    }

    fn variable(&self, entity: &EntityAst) -> Option<usize> {
        let name = entity.argument.as_ref().unwrap_or(&entity.name);
        self.variables.iter().position(|(known, _)| *known == name.text)
    }

    /// Only a rule with a single `separate` compiles although nothing connects its two actors.
    fn is_between_types(&self) -> bool {
        let lone_separate = self.rule.behaviours.len() == 1 && self.rule.behaviours[0].name.text == "separate";
        lone_separate && self.variables.len() == 2 && !self.connects(&self.rule.condition)
    }

    fn connects(&self, condition: &ConditionAst) -> bool {
        match condition {
            ConditionAst::True(_) => false,
            ConditionAst::Refers(refers) => self.variable(&refers.target) != self.variable(&refers.holder.entity),
            ConditionAst::All(parts) => parts.iter().any(|part| self.connects(part)),
            ConditionAst::Any(parts) => parts.iter().all(|part| self.connects(part)),
            ConditionAst::Compare(compare) => {
                let Some(member) = &compare.path[0].argument else {
                    return false;
                };
                let caller = self.variable(&compare.entity);
                let without_calls =
                    compare.path[1].name.text != "size" && holds(0.0, compare.comparator, compare.value.value);
                caller.is_some() && caller != self.variable(&member.entity) && !without_calls
            }
        }
    }

    fn stats(&self, actor: &ActorId) -> Option<&ActorStats> {
        self.snapshot.actors.iter().find(|stats| stats.actor == *actor)
    }

    fn server(&self, node: NodeId) -> Option<&ServerStats> {
        self.snapshot.servers.iter().find(|server| server.node == node)
    }

    /// Every actor that the snapshot lists or mentions.
    fn known(&self) -> BTreeSet<ActorId> {
        let mut known = BTreeSet::new();
        for stats in &self.snapshot.actors {
            known.insert(stats.actor.clone());
            known.extend(stats.calls_out.iter().map(|call| call.callee.clone()));
            known.extend(stats.references.iter().flat_map(|references| references.actors.clone()));
            for call in &stats.calls_in {
                if let Caller::Actor(actor) = &call.caller {
                    known.insert(actor.clone());
                }
            }
        }
        known
    }

    /// All ways to bind the variables to different actors of their types.
    fn assignments(&self) -> Vec<Vec<ActorId>> {
        let known = self.known();
        let mut all: Vec<Vec<ActorId>> = vec![vec![]];
        for (_, kind) in &self.variables {
            let mut longer = Vec::new();
            for assignment in &all {
                for actor in &known {
                    if kind.is_none_or(|kind| kind == actor.kind) && !assignment.contains(actor) {
                        let mut next = assignment.clone();
                        next.push(actor.clone());
                        longer.push(next);
                    }
                }
            }
            all = longer;
        }
        all
    }

    /// Count and bytes of the calls between two actors: as recorded at the callee if it recorded any, else at the caller.
    fn recorded(&self, caller: &ActorId, callee: &ActorId, method: Method) -> Option<(u64, u64)> {
        let at_callee: Vec<_> = self
            .stats(callee)
            .into_iter()
            .flat_map(|stats| &stats.calls_in)
            .filter(|call| call.caller == Caller::Actor(caller.clone()) && call.method == method)
            .collect();
        if !at_callee.is_empty() {
            return Some(
                at_callee
                    .iter()
                    .fold((0, 0), |sum, call| (sum.0 + call.count, sum.1 + call.bytes)),
            );
        }
        let at_caller = self.stats(caller)?.calls_out.iter();
        let at_caller = at_caller.filter(|call| call.callee == *callee && call.method == method);
        let mut calls = at_caller.peekable();
        calls.peek()?;
        Some(calls.fold((0, 0), |sum, call| (sum.0 + call.count, sum.1 + call.bytes)))
    }

    fn client_calls(&self, callee: &ActorStats, method: Method) -> (u64, u64) {
        let calls = callee.calls_in.iter();
        let calls = calls.filter(|call| matches!(call.caller, Caller::Client(_)) && call.method == method);
        calls.fold((0, 0), |sum, call| (sum.0 + call.count, sum.1 + call.bytes))
    }

    fn class_calls(&self, kind: Option<ActorType>, callee: &ActorId, method: Method) -> (u64, u64) {
        let known = self.known();
        let callers = known
            .iter()
            .filter(|caller| kind.is_none_or(|kind| kind == caller.kind));
        let calls = callers.filter_map(|caller| self.recorded(caller, callee, method));
        calls.fold((0, 0), |sum, call| (sum.0 + call.0, sum.1 + call.1))
    }
}

fn holds(value: f64, comparator: Comparator, bound: f64) -> bool {
    match comparator {
        Comparator::Less => value < bound,
        Comparator::LessOrEqual => value <= bound,
        Comparator::Greater => value > bound,
        Comparator::GreaterOrEqual => value >= bound,
    }
}

fn plain(actions: &[Action]) -> Vec<String> {
    let pair = |one: &ActorId, other: &ActorId| format!("{:?} {:?}", one.min(other), one.max(other));
    actions
        .iter()
        .map(|action| match action {
            Action::Colocate(one, other) => format!("colocate {}", pair(one, other)),
            Action::Separate(one, other) => format!("separate {}", pair(one, other)),
            other => format!("{other:?}"),
        })
        .collect()
}

impl Binding<'_> {
    fn fire(&self) -> Option<Fired> {
        let mut values = Vec::new();
        if !self.condition(&self.naive.rule.condition, &mut values) {
            return None;
        }
        let mut text = String::new();
        for (entity, _) in entities(&self.naive.rule.condition) {
            text.push_str(&entity.name.text);
            text.push(' ');
        }
        let about_server = text.split(' ').any(|name| name == "server") || self.naive.subject().is_none();
        let bounds = self.naive.variables.iter().zip(&self.actors);
        Some(Fired {
            rule: self.naive.index,
            binding: bounds
                .map(|((variable, _), actor)| Bound {
                    variable: variable.clone(),
                    actor: actor.clone(),
                })
                .collect(),
            server: about_server.then_some(self.server),
            values,
            actions: self.actions(),
        })
    }

    fn actor(&self, entity: &EntityAst) -> Option<&ActorId> {
        self.naive.variable(entity).map(|variable| &self.actors[variable])
    }

    fn condition(&self, condition: &ConditionAst, values: &mut Vec<Observed>) -> bool {
        match condition {
            ConditionAst::True(_) => true,
            ConditionAst::Refers(refers) => {
                let target = self.actor(&refers.target).unwrap();
                let holder = self.actor(&refers.holder.entity).unwrap();
                let property = Property::of(&refers.holder.name.text);
                self.naive.stats(holder).is_some_and(|stats| {
                    let lists = stats.references.iter().filter(|list| list.property == property);
                    lists.flat_map(|list| &list.actors).any(|actor| actor == target)
                })
            }
            ConditionAst::Compare(compare) => {
                let value = self.value(compare);
                let held = value.is_some_and(|value| holds(value, compare.comparator, compare.value.value));
                if held {
                    values.push(Observed {
                        text: compare.to_string(),
                        value,
                        held,
                    });
                }
                held
            }
            ConditionAst::All(parts) => {
                let mut inner = Vec::new();
                let held = parts.iter().all(|part| self.condition(part, &mut inner));
                if held {
                    values.extend(inner);
                }
                held
            }
            ConditionAst::Any(parts) => {
                let mut held = false;
                for part in parts {
                    held |= self.condition(part, values);
                }
                held
            }
        }
    }

    fn value(&self, compare: &CompareAst) -> Option<f64> {
        let statistic = compare.path[1].name.text.as_str();
        if let Some(member) = &compare.path[0].argument {
            let callee = self.actor(&member.entity).unwrap();
            return self.calls(&compare.entity, callee, Method::of(&member.name.text), statistic);
        }
        let resource = Resource::ALL
            .into_iter()
            .find(|resource| resource.name() == compare.path[0].name.text)
            .unwrap();
        let (used, node) = match self.actor(&compare.entity) {
            Some(actor) => {
                let stats = self.naive.stats(actor)?;
                (stats.used[resource], stats.node)
            }
            None => (self.naive.server(self.server)?.usage[resource].used, self.server),
        };
        match statistic {
            "size" => Some(used),
            _ => {
                let capacity = self.naive.server(node)?.usage[resource].capacity?;
                (capacity > 0.0).then(|| 100.0 * used / capacity)
            }
        }
    }

    fn calls(&self, caller: &EntityAst, callee: &ActorId, method: Method, statistic: &str) -> Option<f64> {
        let listed = self.naive.stats(callee);
        let class = match caller.name.text.as_str() {
            _ if caller.argument.is_some() => self
                .naive
                .variable(caller)
                .and_then(|index| self.naive.variables[index].1),
            "any" => None,
            name => Some(ActorType::of(name)),
        };
        let from_class = |callee: &ActorStats| match caller.name.text.as_str() {
            "client" => self.naive.client_calls(callee, method),
            _ => self.naive.class_calls(class, &callee.actor, method),
        };
        let (count, bytes) = match self.actor(caller) {
            Some(caller) => {
                if listed.is_none() {
                    self.naive.stats(caller)?;
                }
                self.naive.recorded(caller, callee, method).unwrap_or((0, 0))
            }
            None => from_class(listed?),
        };
        match statistic {
            "count" => {
                let seconds = self.naive.snapshot.period.as_secs_f64();
                (seconds > 0.0).then(|| count as f64 * (self.naive.seconds_per_unit / seconds))
            }
            "size" => (count > 0).then(|| bytes as f64 / count as f64),
            _ => {
                let node = listed?.node;
                let peers = self.naive.snapshot.actors.iter();
                let peers = peers.filter(|peer| peer.actor.kind == callee.kind && peer.node == node);
                let total: u64 = peers.map(|peer| from_class(peer).0).sum();
                Some(if count == 0 {
                    0.0
                } else {
                    100.0 * count as f64 / total as f64
                })
            }
        }
    }

    fn actions(&self) -> Vec<Action> {
        let behaviours = self.naive.rule.behaviours.iter();
        behaviours
            .map(|behaviour| {
                let actor = |index: usize| match &behaviour.arguments[index] {
                    ArgumentAst::Entity(entity) => self.actor(entity).unwrap().clone(),
                    ArgumentAst::Set(..) => unreachable!("the compiler accepts only an actor here"),
                };
                match behaviour.name.text.as_str() {
                    "pin" => Action::Pin(actor(0)),
                    "colocate" => Action::Colocate(actor(0), actor(1)),
                    "separate" => Action::Separate(actor(0), actor(1)),
                    "reserve" => Action::Reserve {
                        actor: actor(0),
                        resource: Resource::Cpu,
                    },
                    _ => Action::Balance(self.balance(&behaviour.arguments)),
                }
            })
            .collect()
    }

    fn balance(&self, arguments: &[ArgumentAst]) -> Balance {
        let ArgumentAst::Set(types, _) = &arguments[0] else {
            unreachable!("the compiler accepts only types here");
        };
        let ArgumentAst::Entity(resource) = &arguments[1] else {
            unreachable!("the compiler accepts only a resource here");
        };
        let resource = &resource.name.text;
        let mut kinds: Vec<ActorType> = types.iter().map(|kind| ActorType::of(&kind.name.text)).collect();
        kinds.sort();
        if types.iter().any(|kind| kind.name.text == "any") {
            kinds.clear();
        }
        Balance {
            kinds,
            resource: Resource::ALL
                .into_iter()
                .find(|known| known.name() == resource)
                .unwrap(),
            upper: bound(&self.naive.rule.condition, resource, true),
            lower: bound(&self.naive.rule.condition, resource, false),
        }
    }
}

/// The bound of a `balance`. Of alternatives, the one crossed first counts; of joint conditions, the one crossed last.
fn bound(condition: &ConditionAst, resource: &str, upper: bool) -> Option<f64> {
    let all = |parts: &[ConditionAst]| -> Vec<f64> {
        let mut bounds: Vec<f64> = parts.iter().filter_map(|part| bound(part, resource, upper)).collect();
        bounds.sort_by(f64::total_cmp);
        bounds
    };
    match condition {
        ConditionAst::True(_) | ConditionAst::Refers(_) => None,
        ConditionAst::Any(parts) if upper => all(parts).first().copied(),
        ConditionAst::Any(parts) => all(parts).last().copied(),
        ConditionAst::All(parts) if upper => all(parts).last().copied(),
        ConditionAst::All(parts) => all(parts).first().copied(),
        ConditionAst::Compare(compare) => {
            let is_above = matches!(compare.comparator, Comparator::Greater | Comparator::GreaterOrEqual);
            let fits = compare.entity.name.text == "server"
                && compare.path[0].name.text == resource
                && compare.path[1].name.text == "perc"
                && is_above == upper;
            fits.then_some(compare.value.value)
        }
    }
}
