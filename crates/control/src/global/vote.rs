//! The adjustment vote: a size change needs a majority of the global managers that answer in time.

use elastin_types::{NodeId, Time};

use super::Gem;
use super::event::GemCommand;
use super::provision::Wanted;
use crate::record::refuse;
use crate::settings::part;
use crate::{Adjustment, Cause, Change, ControlMessage, Direction, Refusal, Vote};

/// A size change that the other global managers are voting on.
#[derive(Clone, Debug)]
pub(crate) struct PendingVote {
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
    /// Asks the other global managers to vote on a size change. A single manager decides alone.
    pub(super) fn ask_others(
        &mut self,
        rule: usize,
        direction: Direction,
        cause: Option<Cause>,
        count: u32,
        node: Option<NodeId>,
        out: &mut Vec<GemCommand>,
    ) {
        let is_other = |node: &NodeId| *node != self.context.node;
        let others: Vec<NodeId> = self.context.globals().filter(is_other).collect();
        let number = self.context.number();
        self.pending_vote = Some(PendingVote {
            number,
            cause,
            direction,
            count,
            node,
            others: u32::try_from(others.len()).unwrap_or(u32::MAX),
            agreed: 1,
            answered: 1,
            until: self.context.deadline(part::VOTE),
        });
        for to in others {
            out.push(GemCommand::send(
                to,
                ControlMessage::Adjustment(Adjustment {
                    asking: number,
                    rule,
                    direction,
                }),
            ));
        }
        self.count_votes(false, out);
    }

    /// Votes on another manager's adjustment. A manager without servers abstains.
    pub(super) fn receive_adjustment(&mut self, from: NodeId, adjustment: Adjustment, out: &mut Vec<GemCommand>) {
        let Some(agrees) = self.sees(&adjustment) else {
            return;
        };
        out.push(GemCommand::send(
            from,
            ControlMessage::Vote(Vote {
                asking: adjustment.asking,
                agrees,
            }),
        ));
    }

    fn sees(&self, adjustment: &Adjustment) -> Option<bool> {
        let rules = self.balance_rules();
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

    pub(super) fn receive_vote(&mut self, vote: Vote, out: &mut Vec<GemCommand>) {
        let Some(pending) = self
            .pending_vote
            .as_mut()
            .filter(|pending| pending.number == vote.asking)
        else {
            return;
        };
        pending.answered += 1;
        pending.agreed += u32::from(vote.agrees);
        self.count_votes(false, out);
    }

    pub(super) fn expire_vote(&mut self, out: &mut Vec<GemCommand>) {
        if self
            .pending_vote
            .as_ref()
            .is_some_and(|pending| pending.until <= self.context.now)
        {
            self.count_votes(true, out);
        }
    }

    fn count_votes(&mut self, is_over: bool, out: &mut Vec<GemCommand>) {
        let complete = |pending: &mut PendingVote| is_over || pending.answered > pending.others;
        let Some(pending) = self.pending_vote.take_if(complete) else {
            return;
        };
        if pending.agreed * 2 > pending.answered {
            self.change_size(pending, out);
            return;
        }
        let change = match pending.node {
            Some(node) => Change::RemoveServer { node },
            None => Change::AddServers {
                count: pending.count,
                reserved: None,
            },
        };
        let decision = self.context.decision(pending.cause, change, Vec::new());
        let refusal = Refusal::VotedDown {
            agreed: pending.agreed,
            answered: pending.answered,
        };
        refuse(decision, refusal, out);
    }

    fn change_size(&mut self, pending: PendingVote, out: &mut Vec<GemCommand>) {
        match (pending.direction, pending.node) {
            (Direction::Shrink, Some(node)) => {
                let still_there = self.view.get(node).is_some_and(super::view::Server::is_common);
                if still_there {
                    self.remove_server(pending.cause, node, out);
                }
            }
            _ => {
                let wanted = Wanted {
                    cause: pending.cause,
                    count: pending.count,
                    reserved: None,
                    keep: false,
                };
                if self.add_servers(wanted, out) {
                    self.last_size_change = Some(self.context.now);
                }
            }
        }
    }
}
