//! A decision as one line of text for operators.

use elastin_policy::Observed;
use elastin_types::{ActorId, Schema};

use crate::{Cause, Change, Decision, Outcome, Purpose, ReleaseReason};

impl Decision {
    /// The decision in one line, such as `Folder/0 moved n3 → n5: rule hot_folder reserves it (server.cpu.perc 97.2 > 80)`.
    pub fn explain(&self, schema: &Schema) -> String {
        let mut line = headline(&self.change, &self.outcome, schema);
        let reason = reason(&self.change, self.cause.as_ref(), schema);
        if !reason.is_empty() {
            line.push_str(": ");
            line.push_str(&reason);
        }
        // The values made the rule fire; a reservation ends because they no longer hold.
        let is_release = matches!(self.change, Change::Release { .. });
        if let Some(cause) = self.cause.as_ref().filter(|_| !is_release) {
            line.push_str(&measured(&cause.values));
        }
        match &self.outcome {
            Outcome::Refused(refusal) => {
                line.push_str(", but ");
                line.push_str(&refusal.explain(schema));
            }
            Outcome::Failed(why) => {
                line.push_str(", but ");
                line.push_str(why);
            }
            Outcome::Proposed | Outcome::Started | Outcome::Done => {}
        }
        line
    }
}

/// The verbs for a change, by outcome.
struct Verbs {
    proposed: &'static str,
    refused: &'static str,
    started: &'static str,
    done: &'static str,
    failed: &'static str,
}

impl Verbs {
    fn of(&self, outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Proposed => self.proposed,
            Outcome::Refused(_) => self.refused,
            Outcome::Started => self.started,
            Outcome::Done => self.done,
            Outcome::Failed(_) => self.failed,
        }
    }
}

const MOVE: Verbs = Verbs {
    proposed: "should move",
    refused: "did not move",
    started: "is moving",
    done: "moved",
    failed: "failed to move",
};
const DEDICATE: Verbs = Verbs {
    proposed: "should be dedicated",
    refused: "was not dedicated",
    started: "is being dedicated",
    done: "is dedicated",
    failed: "could not be dedicated",
};
const RELEASE: Verbs = Verbs {
    proposed: "should be released",
    refused: "was not released",
    started: "is being released",
    done: "is released",
    failed: "could not be released",
};
const PART: Verbs = Verbs {
    proposed: "should no longer be held together",
    refused: "are still held together",
    started: "are being separated",
    done: "are no longer held together",
    failed: "could not be separated",
};
const ADD: Verbs = Verbs {
    proposed: "should be added",
    refused: "were not added",
    started: "were asked for",
    done: "were added",
    failed: "could not be added",
};
const ADD_ONE: Verbs = Verbs {
    proposed: "should be added",
    refused: "was not added",
    started: "was asked for",
    done: "was added",
    failed: "could not be added",
};
const REMOVE: Verbs = Verbs {
    proposed: "should leave",
    refused: "did not leave",
    started: "is being emptied and leaves",
    done: "left",
    failed: "could not leave",
};

fn headline(change: &Change, outcome: &Outcome, schema: &Schema) -> String {
    match change {
        Change::Move {
            actor, with, from, to, ..
        } => {
            let subject = match with.len() {
                0 => schema.show(actor),
                others => format!("{} with {others} more", schema.show(actor)),
            };
            match to {
                Some(to) => format!("{subject} {} {from} → {to}", MOVE.of(outcome)),
                None => format!("{subject} {} away from {from}", MOVE.of(outcome)),
            }
        }
        Change::Dedicate {
            actor,
            node,
            shared_with,
            ..
        } => {
            let actors = match shared_with {
                Some(other) => format!("{} and {} together", schema.show(actor), schema.show(other)),
                None => schema.show(actor),
            };
            format!("{node} {} to {actors}", DEDICATE.of(outcome))
        }
        Change::Release { actor, node, .. } => format!("{node} {} by {}", RELEASE.of(outcome), schema.show(actor)),
        Change::Part { first, second } => {
            format!(
                "{} and {} {}",
                schema.show(first),
                schema.show(second),
                PART.of(outcome)
            )
        }
        Change::AddServers { count: 1, .. } => format!("1 server {}", ADD_ONE.of(outcome)),
        Change::AddServers { count, .. } => format!("{count} servers {}", ADD.of(outcome)),
        Change::RemoveServer { node } => format!("{node} {}", REMOVE.of(outcome)),
    }
}

fn reason(change: &Change, cause: Option<&Cause>, schema: &Schema) -> String {
    if let Change::Move {
        from,
        purpose: Purpose::Drain,
        ..
    } = change
    {
        return format!("{from} is being emptied");
    }
    let Some(cause) = cause else {
        return match change {
            Change::RemoveServer { .. } => "the others have room for its actors".into(),
            Change::Part { .. } => "no server has room for all of their group".into(),
            _ => String::new(),
        };
    };
    let rule = format!("rule {}", cause.rule_name());
    let show = |actor: &ActorId| schema.show(actor);
    match change {
        Change::Move { purpose, from, .. } => match purpose {
            Purpose::Reserve(_) => format!("{rule} reserves it"),
            Purpose::MakeRoom { reserved } => format!("{rule} reserves {from} for {}", show(reserved)),
            Purpose::Balance(resource) => format!("{rule} balances {resource}"),
            Purpose::Separate(other) => format!("{rule} separates it from {}", show(other)),
            Purpose::Colocate(other) => format!("{rule} colocates it with {}", show(other)),
            Purpose::Drain => unreachable!("a drain has been explained above"),
        },
        Change::Dedicate { .. } => format!("{rule} reserves it"),
        Change::Release { reason, .. } => match reason {
            ReleaseReason::Over => format!("it no longer needs the server that {rule} reserved"),
            ReleaseReason::Left => "it has left".into(),
            ReleaseReason::NeverCame => "it never came".into(),
        },
        Change::Part { .. } => format!("{rule} colocates them, and no server has room for all of their group"),
        Change::AddServers {
            reserved: Some(actor), ..
        } => format!("{rule} reserves {}", show(actor)),
        Change::AddServers { reserved: None, .. } => format!("{rule} finds the servers too busy"),
        Change::RemoveServer { .. } => format!("{rule} finds the servers too idle"),
    }
}

/// The comparisons that held, with what was measured, in brackets.
fn measured(values: &[Observed]) -> String {
    let shown: Vec<String> = values.iter().filter(|observed| observed.held).map(with_value).collect();
    if shown.is_empty() {
        return String::new();
    }
    format!(" ({})", shown.join(", "))
}

/// `server.cpu.perc > 80` with 97.2 is `server.cpu.perc 97.2 > 80`.
fn with_value(observed: &Observed) -> String {
    let Some(value) = observed.value else {
        return observed.text.clone();
    };
    match observed.text.rfind(['<', '>', '=']) {
        Some(last) => {
            let start = observed.text[..last].trim_end_matches(['<', '>', '=']).len();
            let (left, right) = observed.text.split_at(start);
            format!("{} {value:.1} {right}", left.trim_end())
        }
        None => observed.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorSchema, ActorType, NodeId, Resource, Time};

    use super::*;
    use crate::{DecisionId, Manager, Refusal};

    fn folder(key: u64) -> ActorId {
        ActorId::new(ActorType::of("Folder"), key)
    }

    fn cause(name: Option<&str>) -> Cause {
        let observed = |text: &str, value, held| Observed {
            text: text.into(),
            value,
            held,
        };
        Cause {
            rule: 2,
            name: name.map(str::to_owned),
            text: String::new(),
            binding: Vec::new(),
            server: Some(NodeId(3)),
            values: vec![
                observed("server.cpu.perc > 80", Some(97.16), true),
                observed("client.call(Folder(fo).open).perc >= 40", Some(51.3), true),
                observed("server.mem.perc < 10", Some(50.0), false),
            ],
        }
    }

    fn moving(with: u64, to: Option<u64>, purpose: Purpose) -> Change {
        Change::Move {
            actor: folder(0),
            with: (1..=with).map(folder).collect(),
            from: NodeId(3),
            to: to.map(NodeId),
            purpose,
        }
    }

    fn check(change: Change, cause: Option<Cause>, outcome: Outcome, expected: &str) {
        let mut schema = Schema::default();
        let kind = ActorSchema {
            name: "Folder".into(),
            functions: Vec::new(),
            properties: Vec::new(),
        };
        schema.add(kind).expect("there is one type");
        let decision = Decision {
            id: DecisionId {
                manager: Manager::Global(NodeId(1)),
                sequence: 1,
            },
            at: Time::ZERO,
            cause,
            change,
            candidates: Vec::new(),
            outcome,
        };
        assert_eq!(decision.explain(&schema), expected);
    }

    const VALUES: &str = "(server.cpu.perc 97.2 > 80, client.call(Folder(fo).open).perc 51.3 >= 40)";

    #[test]
    fn moves() {
        let hot = || Some(cause(Some("hot_folder")));
        let reserve = || moving(0, Some(5), Purpose::Reserve(Resource::Cpu));
        check(
            reserve(),
            hot(),
            Outcome::Done,
            &format!("Folder/0 moved n3 → n5: rule hot_folder reserves it {VALUES}"),
        );
        check(
            reserve(),
            hot(),
            Outcome::Refused(Refusal::NoRoom {
                resource: Resource::Cpu,
                percent: 91.44,
                limit: 80.0,
            }),
            &format!(
                "Folder/0 did not move n3 → n5: rule hot_folder reserves it {VALUES}, \
                 but cpu there would be at 91.4 % of at most 80 %"
            ),
        );
        check(
            moving(8, Some(5), Purpose::Balance(Resource::Net)),
            Some(cause(None)),
            Outcome::Started,
            &format!("Folder/0 with 8 more is moving n3 → n5: rule 3 balances net {VALUES}"),
        );
        check(
            moving(0, None, Purpose::Separate(folder(7))),
            hot(),
            Outcome::Refused(Refusal::NoServer),
            &format!(
                "Folder/0 did not move away from n3: rule hot_folder separates it from Folder/7 {VALUES}, \
                 but no server can take it"
            ),
        );
        check(
            moving(0, Some(5), Purpose::MakeRoom { reserved: folder(9) }),
            hot(),
            Outcome::Failed("n5 is gone".into()),
            &format!(
                "Folder/0 failed to move n3 → n5: rule hot_folder reserves n3 for Folder/9 {VALUES}, but n5 is gone"
            ),
        );
        check(
            moving(1, Some(5), Purpose::Drain),
            None,
            Outcome::Proposed,
            "Folder/0 with 1 more should move n3 → n5: n3 is being emptied",
        );
    }

    #[test]
    fn servers() {
        let dedicate = Change::Dedicate {
            actor: folder(0),
            node: NodeId(3),
            resource: Resource::Cpu,
            shared_with: Some(folder(1)),
        };
        check(
            dedicate,
            Some(cause(None)),
            Outcome::Done,
            &format!("n3 is dedicated to Folder/0 and Folder/1 together: rule 3 reserves it {VALUES}"),
        );
        let release = Change::Release {
            actor: folder(0),
            node: NodeId(3),
            reason: ReleaseReason::NeverCame,
        };
        check(
            release,
            Some(cause(None)),
            Outcome::Done,
            "n3 is released by Folder/0: it never came",
        );
        let add = Change::AddServers {
            count: 2,
            reserved: None,
        };
        check(
            add,
            Some(cause(None)),
            Outcome::Refused(Refusal::VotedDown { agreed: 1, answered: 3 }),
            &format!(
                "2 servers were not added: rule 3 finds the servers too busy {VALUES}, but only 1 of 3 managers agreed"
            ),
        );
        check(
            Change::RemoveServer { node: NodeId(4) },
            None,
            Outcome::Started,
            "n4 is being emptied and leaves: the others have room for its actors",
        );
    }
}
