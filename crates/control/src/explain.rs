//! A decision as one line for people.

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
        // The values made the rule fire; what ended a reservation is that they are gone.
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

/// What is said of a change, by its outcome.
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
    started: "are being parted",
    done: "are no longer held together",
    failed: "could not be parted",
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
            let who = match with.len() {
                0 => schema.show(actor),
                others => format!("{} with {others} more", schema.show(actor)),
            };
            match to {
                Some(to) => format!("{who} {} {from} → {to}", MOVE.of(outcome)),
                None => format!("{who} {} away from {from}", MOVE.of(outcome)),
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
            ReleaseReason::Over => format!("what {rule} reserved it for is over"),
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
