//! The adjustment vote: a change of the number of servers needs a majority of the global managers that answer in time.

use elastin_types::{NodeId, Time};

use super::Gem;
use super::event::GemCommand;
use super::provision::Wanted;
use crate::settings::part;
use crate::{Adjustment, Cause, Change, ControlMessage, Direction, Outcome, Refusal, Vote};

/// A change of size that the other global managers were asked about.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    number: u64,
    cause: Option<Cause>,
    direction: Direction,
    count: u32,
    /// The server that would leave.
    node: Option<NodeId>,
    others: u32,
    agreed: u32,
    answered: u32,
    pub(crate) until: Time,
}

impl Gem {
    /// Asks the other global managers whether the number of servers shall change. One that is alone decides alone.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one asking, each named at its only two callers"
    )]
    pub(super) fn ask_others(
        &mut self,
        now: Time,
        rule: usize,
        direction: Direction,
        cause: Option<Cause>,
        count: u32,
        node: Option<NodeId>,
        out: &mut Vec<GemCommand>,
    ) {
        let others: Vec<NodeId> = self
            .members
            .iter()
            .filter(|member| member.global && member.node != self.node)
            .map(|member| member.node)
            .collect();
        let number = self.number();
        self.asking = Some(Asking {
            number,
            cause,
            direction,
            count,
            node,
            others: u32::try_from(others.len()).unwrap_or(u32::MAX),
            agreed: 1,
            answered: 1,
            until: now + self.settings.limit(part::VOTE),
        });
        for to in others {
            out.push(GemCommand::Send {
                to,
                message: ControlMessage::Adjustment(Adjustment {
                    asking: number,
                    rule,
                    direction,
                }),
            });
        }
        self.count_votes(now, false, out);
    }

    /// Another manager asks: the answer is whether this one sees the same. One that sees no servers does not answer.
    pub(super) fn receive_adjustment(
        &mut self,
        now: Time,
        from: NodeId,
        adjustment: Adjustment,
        out: &mut Vec<GemCommand>,
    ) {
        let Some(agrees) = self.sees(now, &adjustment) else {
            return;
        };
        out.push(GemCommand::Send {
            to: from,
            message: ControlMessage::Vote(Vote {
                asking: adjustment.asking,
                agrees,
            }),
        });
    }

    fn sees(&self, now: Time, adjustment: &Adjustment) -> Option<bool> {
        let rules = self.balance_rules(now);
        let rule = rules.iter().find(|rule| rule.index == adjustment.rule)?;
        let mut percents = self
            .view
            .common()
            .filter_map(|server| server.measured(rule.resource()))
            .peekable();
        percents.peek()?;
        Some(match adjustment.direction {
            Direction::Grow => percents.all(|percent| percent > rule.limit),
            Direction::Shrink => {
                let lower = rule.balance.lower?;
                percents.all(|percent| percent < lower)
            }
        })
    }

    /// A vote has come.
    pub(super) fn receive_vote(&mut self, now: Time, vote: Vote, out: &mut Vec<GemCommand>) {
        let Some(asking) = self.asking.as_mut().filter(|asking| asking.number == vote.asking) else {
            return;
        };
        asking.answered += 1;
        asking.agreed += u32::from(vote.agrees);
        self.count_votes(now, false, out);
    }

    pub(super) fn expire_asking(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        if self.asking.as_ref().is_some_and(|asking| asking.until <= now) {
            self.count_votes(now, true, out);
        }
    }

    fn count_votes(&mut self, now: Time, is_over: bool, out: &mut Vec<GemCommand>) {
        let complete = |asking: &mut Asking| is_over || asking.answered > asking.others;
        let Some(asking) = self.asking.take_if(complete) else {
            return;
        };
        if asking.agreed * 2 > asking.answered {
            self.change_size(now, asking, out);
            return;
        }
        let change = match asking.node {
            Some(node) => Change::RemoveServer { node },
            None => Change::AddServers {
                count: asking.count,
                reserved: None,
            },
        };
        let decision = self.decision(now, asking.cause, change, Vec::new());
        let refusal = Refusal::VotedDown {
            agreed: asking.agreed,
            answered: asking.answered,
        };
        out.push(GemCommand::record(decision.with_outcome(Outcome::Refused(refusal))));
    }

    fn change_size(&mut self, now: Time, asking: Asking, out: &mut Vec<GemCommand>) {
        match (asking.direction, asking.node) {
            (Direction::Shrink, Some(node)) => {
                let still_there = self.view.get(node).is_some_and(super::view::Server::is_common);
                if still_there {
                    self.remove_server(now, asking.cause, node, out);
                }
            }
            _ => {
                let wanted = Wanted {
                    cause: asking.cause,
                    count: asking.count,
                    reserved: None,
                    keep: false,
                };
                if self.add_servers(now, wanted, out) {
                    self.last_size_change = Some(now);
                }
            }
        }
    }
}
