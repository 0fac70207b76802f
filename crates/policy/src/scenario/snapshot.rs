//! Conversion between a test case, which uses names, and a snapshot, which uses ids.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::{
    ActorId, ActorStats, ActorType, CallIn, CallOut, Caller, FunctionSchema, Method, NodeId, PerResource, Property,
    References, Resource, Schema, ServerState, ServerStats, Snapshot, Time, Usage,
};

use super::{Scenario, ScenarioActor, ScenarioCalled, ScenarioCalls, ScenarioError, ScenarioServer, ScenarioUsage};
use crate::parse_actor;

impl Scenario {
    /// Converts the measurements to a snapshot.
    pub fn snapshot(&self, schema: &Schema) -> Result<Snapshot, ScenarioError> {
        let period = Duration::try_from_secs_f64(self.period_seconds)
            .map_err(|error| self.error(format!("invalid `period_seconds`: {error}")))?;
        let mut snapshot = Snapshot {
            at: Time::ZERO + period,
            period,
            ..Snapshot::default()
        };
        for (name, server) in &self.servers {
            let node = self.node(name)?;
            let on_it = self.actors.values().filter(|actor| actor.on == *name).count();
            snapshot.servers.push(ServerStats {
                node,
                state: ServerState::Active,
                usage: PerResource {
                    cpu: server.cpu.usage(),
                    mem: server.mem.usage(),
                    net: server.net.usage(),
                },
                cpu_demand: server.cpu.usage().used,
                actors: on_it as u64,
            });
        }
        for (name, actor) in &self.actors {
            snapshot.actors.push(self.actor(name, actor, schema)?);
        }
        Ok(snapshot)
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::Case {
            case: self.name.clone(),
            problem: problem.into(),
        }
    }

    fn node(&self, name: &str) -> Result<NodeId, ScenarioError> {
        let number = name.strip_prefix('n').and_then(|number| number.parse().ok());
        number
            .map(NodeId)
            .ok_or_else(|| self.error(format!("`{name}` is not a server: they are called `n1`, `n2`, …")))
    }

    fn actor_id(&self, name: &str, schema: &Schema) -> Result<ActorId, ScenarioError> {
        parse_actor(name, schema).ok_or_else(|| {
            self.error(format!(
                "`{name}` is not an actor: write its type and key, such as `Folder/1`"
            ))
        })
    }

    fn method(&self, name: &str, callee: ActorType, schema: &Schema) -> Result<Method, ScenarioError> {
        let known = schema.actor_of(callee).and_then(|actor| actor.function(name));
        known
            .map(FunctionSchema::method)
            .ok_or_else(|| self.error(format!("there is no function `{name}`")))
    }

    fn actor(&self, name: &str, actor: &ScenarioActor, schema: &Schema) -> Result<ActorStats, ScenarioError> {
        let id = self.actor_id(name, schema)?;
        let kind = id.kind;
        let called = actor.called.iter().map(|called| {
            let caller = match called.by.as_str() {
                "client" => Caller::Client(NodeId(0)),
                other => Caller::Actor(self.actor_id(other, schema)?),
            };
            Ok(CallIn {
                caller,
                method: self.method(&called.with, kind, schema)?,
                count: called.count,
                bytes: called.bytes,
                node: None,
            })
        });
        let calls = actor.calls.iter().map(|calls| {
            let callee = self.actor_id(&calls.to, schema)?;
            Ok(CallOut {
                method: self.method(&calls.with, callee.kind, schema)?,
                callee,
                count: calls.count,
                bytes: calls.bytes,
                node: None,
            })
        });
        let refers = actor.refers.iter().map(|(property, targets)| {
            let known = schema.actor_of(kind).and_then(|actor| actor.property(property));
            if known.is_none() {
                return Err(self.error(format!("`{name}` has no property `{property}`")));
            }
            let targets = targets.iter().map(|target| self.actor_id(target, schema));
            Ok(References {
                property: Property::of(property),
                actors: targets.collect::<Result<_, _>>()?,
            })
        });
        Ok(ActorStats {
            functions: Vec::new(),
            calls_in: called.collect::<Result<_, ScenarioError>>()?,
            calls_out: calls.collect::<Result<_, ScenarioError>>()?,
            references: refers.collect::<Result<_, ScenarioError>>()?,
            actor: id,
            node: self.node(&actor.on)?,
            since: Time::ZERO,
            used: PerResource {
                cpu: actor.cpu,
                mem: actor.mem,
                net: actor.net,
            },
        })
    }
}

impl ScenarioUsage {
    fn usage(self) -> Usage {
        match self {
            ScenarioUsage::Percent(used) => Usage {
                used,
                capacity: Some(100.0),
            },
            ScenarioUsage::Of(used, capacity) => Usage { used, capacity },
        }
    }
}

impl Scenario {
    /// Converts a snapshot to a case without expectations: a readable dump, or the start of a test.
    pub fn of(name: &str, snapshot: &Snapshot, schema: &Schema) -> Self {
        let usage = |usage: Usage| match usage.capacity {
            Some(100.0) => ScenarioUsage::Percent(usage.used),
            capacity => ScenarioUsage::Of(usage.used, capacity),
        };
        let server = |server: &ServerStats| {
            let usage = |resource: Resource| usage(server.usage[resource]);
            let measured = ScenarioServer {
                cpu: usage(Resource::Cpu),
                mem: usage(Resource::Mem),
                net: usage(Resource::Net),
            };
            (server.node.to_string(), measured)
        };
        let actor = |stats: &ActorStats| (schema.show(&stats.actor), named_actor(stats, schema));
        Scenario {
            name: name.into(),
            period_seconds: snapshot.period.as_secs_f64(),
            servers: snapshot.servers.iter().map(server).collect(),
            actors: snapshot.actors.iter().map(actor).collect(),
            expect: Vec::new(),
        }
    }
}

fn named_actor(stats: &ActorStats, schema: &Schema) -> ScenarioActor {
    let called = stats.calls_in.iter().map(|call| ScenarioCalled {
        by: match &call.caller {
            Caller::Client(_) => "client".into(),
            Caller::Actor(actor) => schema.show(actor),
        },
        with: method_name(stats.actor.kind, call.method, schema),
        count: call.count,
        bytes: call.bytes,
    });
    let calls = stats.calls_out.iter().map(|call| ScenarioCalls {
        to: schema.show(&call.callee),
        with: method_name(call.callee.kind, call.method, schema),
        count: call.count,
        bytes: call.bytes,
    });
    let mut refers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for references in &stats.references {
        let name = property_name(stats.actor.kind, references.property, schema);
        let targets = references.actors.iter().map(|actor| schema.show(actor));
        refers.entry(name).or_default().extend(targets);
    }
    ScenarioActor {
        on: stats.node.to_string(),
        cpu: stats.used.cpu,
        mem: stats.used.mem,
        net: stats.used.net,
        called: called.collect(),
        calls: calls.collect(),
        refers,
    }
}

fn method_name(kind: ActorType, method: Method, schema: &Schema) -> String {
    let functions = schema.actor_of(kind).into_iter().flat_map(|actor| &actor.functions);
    let mut named = functions.filter(|function| function.method() == method);
    named
        .next()
        .map_or_else(|| format!("#{:08x}", method.number()), |function| function.name.clone())
}

fn property_name(kind: ActorType, property: Property, schema: &Schema) -> String {
    let properties = schema.actor_of(kind).into_iter().flat_map(|actor| &actor.properties);
    let mut named = properties.filter(|known| known.property() == property);
    named
        .next()
        .map_or_else(|| format!("#{:08x}", property.number()), |known| known.name.clone())
}

#[cfg(test)]
mod tests {
    use crate::{Scenario, Scenarios};

    #[test]
    fn a_case_round_trips_through_its_snapshot() {
        let text = r#"{ "schema": { "A": { "functions": ["f"], "properties": { "p": "A" } } }, "cases": [ {
            "name": "x", "period_seconds": 30.0, "servers": { "n1": { "cpu": 90.5, "mem": [5, 10], "net": [3, null] } },
            "actors": { "A/1": { "on": "n1", "cpu": 3, "called": [ { "by": "client", "with": "f", "count": 2, "bytes": 9 } ],
                                 "calls": [ { "to": "A/two", "with": "f", "count": 5 } ], "refers": { "p": ["A/3"] } } } } ] }"#;
        let scenarios = Scenarios::parse(text).unwrap();
        let schema = scenarios.schema().unwrap().unwrap();
        let snapshot = scenarios.cases[0].snapshot(&schema).unwrap();
        assert_eq!(Scenario::of("x", &snapshot, &schema), scenarios.cases[0]);
    }
}
