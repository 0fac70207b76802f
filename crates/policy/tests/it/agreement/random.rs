//! Random policies and snapshots. All numbers are small, so that conditions often hold.

use std::fmt::Write;
use std::time::Duration;

use elastin_types::{
    ActorId, ActorStats, ActorType, CallIn, CallOut, Caller, Method, NodeId, PerResource, Property, References,
    ServerState, ServerStats, Snapshot, Time, Usage,
};

use crate::common::Random;

impl Random {
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    // Policies.

    pub(crate) fn policy(&mut self) -> String {
        let mut text = String::new();
        if self.chance(20) {
            let unit = self.pick(&["second", "minute", "hour"]);
            writeln!(text, "count per {unit};").unwrap();
        }
        for _ in 0..1 + self.below(2) {
            let rule = self.rule();
            writeln!(text, "{rule}").unwrap();
        }
        text
    }

    fn rule(&mut self) -> String {
        if self.chance(15) {
            let condition = self.server_condition();
            let kinds = self.pick(&["{A}", "{A, B}", "{any}"]);
            return format!("{condition} => balance({kinds}, cpu);");
        }
        if self.chance(15) {
            // Both orders of the two actors satisfy such a rule.
            let (kind, relation) = (self.pick(&["A", "any"]), self.pick(&["colocate", "separate"]));
            let link = match self.below(3) {
                0 => format!("{kind}(y) in ref({kind}(x).p)"),
                1 => format!("{kind}(x).call({kind}(y).f).count > 0"),
                _ => format!("{kind}(x).call({kind}(y).f).size >= 0 and x.cpu.size < 30"),
            };
            return format!("{link} => {relation}(x, y);");
        }
        let count = 1 + self.below(3) as usize;
        let actors: Vec<String> = (0..count)
            .map(|index| {
                let kind = self.pick(&["A", "A", "A", "B", "any"]);
                match index {
                    0 if self.chance(15) && kind != "any" => kind.to_string(),
                    _ => format!("{kind}(x{index})"),
                }
            })
            .collect();
        let mut parts = Vec::new();
        for index in 1..count {
            let other = self.index(index);
            let link = self.link(&actors[index], &actors[other]);
            parts.push(link);
        }
        for _ in 0..self.below(3) {
            let actor = actors[self.index(actors.len())].clone();
            let atom = self.atom(&actor);
            if self.chance(40) {
                let actor = actors[self.index(actors.len())].clone();
                let alternative = self.atom(&actor);
                parts.push(format!("({atom} or {alternative})"));
            } else {
                parts.push(atom);
            }
        }
        if parts.is_empty() {
            parts.push("true".into());
        }
        let mut condition = parts.join(" and ");
        if count == 1 && self.chance(30) {
            let alternative = self.atom(&actors[0]);
            write!(condition, " or {alternative}").unwrap();
        }
        let mut behaviours = String::new();
        for _ in 0..1 + self.below(5) / 4 {
            let one = actors[self.index(actors.len())].clone();
            let other = actors[self.index(actors.len())].clone();
            let kind = self.pick(&["colocate", "colocate", "colocate", "separate", "pin", "reserve"]);
            match kind {
                "pin" => write!(behaviours, " pin({one});").unwrap(),
                "reserve" => write!(behaviours, " reserve({one}, cpu);").unwrap(),
                _ if one == other => write!(behaviours, " pin({one});").unwrap(),
                pair => write!(behaviours, " {pair}({one}, {other});").unwrap(),
            }
        }
        if self.chance(30) && count == 1 {
            behaviours = " balance({A}, mem);".into();
        }
        format!("{condition} =>{behaviours}")
    }

    fn link(&mut self, one: &str, other: &str) -> String {
        let (from, to) = if self.chance(50) { (one, other) } else { (other, one) };
        if self.chance(50) {
            let property = match from.chars().next() {
                Some('A') if to.starts_with('A') => "p",
                Some('A') if to.starts_with('B') => "q",
                Some('B') => "r",
                _ => self.pick(&["p", "q", "r"]),
            };
            return format!("{to} in ref({from}.{property})");
        }
        let function = self.function(to);
        let bound = self.pick(&[
            "count > 0",
            "count >= 1",
            "size > 2",
            "perc > 10",
            "perc >= 50",
            "count < 3",
        ]);
        format!("{from}.call({to}.{function}).{bound}")
    }

    fn function(&mut self, actor: &str) -> &'static str {
        match actor.chars().next() {
            Some('A') => self.pick(&["f", "g"]),
            Some('B') => self.pick(&["f", "h"]),
            _ => self.pick(&["f", "g", "h"]),
        }
    }

    fn atom(&mut self, actor: &str) -> String {
        let comparator = self.pick(&["<", "<=", ">", ">="]).to_string();
        match self.below(6) {
            0 => self.server_condition(),
            1 => format!(
                "{actor}.{}.perc {comparator} {}",
                self.pick(&["cpu", "mem"]),
                self.below(60)
            ),
            2 => format!(
                "{actor}.{}.size {comparator} {}",
                self.pick(&["cpu", "net"]),
                self.below(6)
            ),
            3 => "true".into(),
            _ => {
                let caller = self.pick(&["client", "client", "A", "B", "any"]);
                let function = self.function(actor);
                let (statistic, limit) = self.pick(&[("count", 6), ("perc", 100), ("size", 8)]);
                let value = self.below(limit);
                format!("{caller}.call({actor}.{function}).{statistic} {comparator} {value}")
            }
        }
    }

    fn server_condition(&mut self) -> String {
        let mut atom = || {
            let resource = self.pick(&["cpu", "mem", "net"]).to_string();
            let statistic = self.pick(&["perc", "perc", "size"]).to_string();
            let comparator = self.pick(&["<", "<=", ">", ">="]).to_string();
            format!("server.{resource}.{statistic} {comparator} {}", 10 * self.below(8))
        };
        let first = atom();
        match first.len() % 3 {
            0 => format!("({first} or {})", atom()),
            1 => format!("({first} and {})", atom()),
            _ => first,
        }
    }

    // Snapshots.

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let servers = (1..=1 + self.below(3)).map(|node| self.server(NodeId(node))).collect();
        let mut actors: Vec<ActorStats> = Vec::new();
        for _ in 0..2 + self.below(8) {
            let stats = self.actor_stats();
            if !actors.iter().any(|other| other.actor == stats.actor) {
                actors.push(stats);
            }
        }
        Snapshot {
            at: Time(1),
            period: Duration::from_secs(self.pick(&[60, 60, 30, 0])),
            servers,
            actors,
        }
    }

    fn server(&mut self, node: NodeId) -> ServerStats {
        let mut usage = || Usage {
            used: self.below(80) as f64,
            capacity: if self.chance(85) {
                Some(self.pick(&[100.0, 80.0, 0.0]))
            } else {
                None
            },
        };
        ServerStats {
            node,
            state: ServerState::Active,
            usage: PerResource {
                cpu: usage(),
                mem: usage(),
                net: usage(),
            },
            cpu_demand: 0.0,
            actors: 0,
        }
    }

    fn actor(&mut self) -> ActorId {
        let kind = self.pick(&["A", "A", "B"]);
        ActorId::new(ActorType::of(kind), self.below(4))
    }

    fn actor_stats(&mut self) -> ActorStats {
        let method = |random: &mut Self| Method::of(random.pick(&["f", "f", "g", "h"]));
        let calls_in = (0..self.below(6))
            .map(|_| CallIn {
                caller: if self.chance(40) {
                    Caller::Client(NodeId(90 + self.below(2)))
                } else {
                    Caller::Actor(self.actor())
                },
                method: method(self),
                count: self.below(5),
                bytes: self.below(20),
                node: None,
            })
            .collect();
        let calls_out = (0..self.below(6))
            .map(|_| CallOut {
                callee: self.actor(),
                method: method(self),
                count: self.below(5),
                bytes: self.below(20),
                node: None,
            })
            .collect();
        let references = (0..self.below(4))
            .map(|_| References {
                property: Property::of(self.pick(&["p", "q", "r"])),
                actors: (0..self.below(4)).map(|_| self.actor()).collect(),
            })
            .collect();
        ActorStats {
            functions: Vec::new(),
            actor: self.actor(),
            node: NodeId(1 + self.below(3)),
            since: Time(0),
            used: PerResource {
                cpu: self.below(40) as f64,
                mem: self.below(40) as f64,
                net: self.below(6) as f64,
            },
            calls_in,
            calls_out,
            references,
        }
    }
}
