//! A round. Once per period, a local manager collects all proposals for its actors, before it arbitrates among them.

use std::collections::BTreeMap;

use elastin_policy::Fired;
use elastin_types::{NodeId, Time};

use super::report::Reporting;
use super::{colocate, separate};
use crate::context::Context;
use crate::local::LemCommand;
use crate::local::arbitrate::PROPOSALS_MAX;
use crate::local::server::OwnServer;
use crate::settings::part;
use crate::{ControlMessage, Proposal, Refusal, ServerDigest, Settle, SettleAnswer, SettleReply};

/// The round in progress, if any. Its handlers return the proposals that are ready for arbitration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    phase: Phase,
    /// Deadline of the current phase.
    until: Time,
    proposals: Vec<Proposal>,
}

/// The replies that a round is waiting for.
#[derive(Clone, Debug)]
enum Phase {
    /// The global manager's reply to the report.
    Reporting {
        /// The global manager.
        global: NodeId,
    },
    /// The replies of the hosts of related actors, by request number.
    Settling(BTreeMap<u64, Settle>),
}

impl Round {
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.open.as_ref().map(|open| open.until)
    }

    /// Ends the round; returns its proposals.
    pub(crate) fn take(&mut self) -> Vec<Proposal> {
        self.open.take().map(|open| open.proposals).unwrap_or_default()
    }

    /// Starts the period's round with a report to a randomly chosen global manager.
    pub(crate) fn start(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        reporting: &mut Reporting,
        fired: &[Fired],
        out: &mut Vec<LemCommand>,
    ) -> Vec<Proposal> {
        let globals: Vec<NodeId> = context.globals().collect();
        let picked = context.random.pick(&globals).copied();
        let (Some(global), Some(report)) = (picked, reporting.report(context, server, fired)) else {
            return self.settle(context, server, reporting.known(), Vec::new(), out);
        };
        self.open = Some(Open {
            phase: Phase::Reporting { global },
            until: context.deadline(part::REPORT),
            proposals: Vec::new(),
        });
        out.push(LemCommand::send(global, ControlMessage::Report(Box::new(report))));
        Vec::new()
    }

    /// Whether the round is waiting for this global manager's reply.
    pub(crate) fn expects(&self, from: NodeId) -> bool {
        let phase = self.open.as_ref().map(|open| &open.phase);
        matches!(phase, Some(Phase::Reporting { global }) if *global == from)
    }

    /// Adds the global manager's proposals to those that other servers have made in the meantime.
    pub(crate) fn receive_reply(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        known: &[ServerDigest],
        replied: Vec<Proposal>,
        out: &mut Vec<LemCommand>,
    ) -> Vec<Proposal> {
        let mut proposals = self.take();
        proposals.extend(replied);
        self.settle(context, server, known, proposals, out)
    }

    /// Adds separations, and asks the hosts of all actors that a rule colocates with an actor of this server.
    fn settle(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        known: &[ServerDigest],
        mut proposals: Vec<Proposal>,
        out: &mut Vec<LemCommand>,
    ) -> Vec<Proposal> {
        separate::propose(context, server, known, &mut proposals);
        let mut waiting = BTreeMap::new();
        for settle in colocate::settles(context, server, &proposals) {
            out.push(LemCommand::SendToHost {
                actor: settle.other.clone(),
                message: ControlMessage::Settle(Box::new(settle.clone())),
            });
            waiting.insert(settle.settle, settle);
        }
        self.open = Some(Open {
            phase: Phase::Settling(waiting),
            until: context.deadline(part::SETTLE),
            proposals,
        });
        self.take_if_settled()
    }

    /// Answers another server's request for an agreement.
    pub(crate) fn receive_settle(
        &mut self,
        context: &mut Context,
        server: &mut OwnServer,
        settle: Settle,
    ) -> (SettleReply, Vec<Proposal>) {
        let number = settle.settle;
        let proposals = self.open.as_ref().map_or(&[][..], |open| &open.proposals[..]);
        let (answer, proposal) = colocate::answer(context, server, proposals, settle);
        let reply = SettleReply { settle: number, answer };
        (reply, proposal.map_or_else(Vec::new, |proposal| self.add(proposal)))
    }

    /// Handles the reply of the other end's host.
    pub(crate) fn receive_settle_reply(
        &mut self,
        context: &mut Context,
        reply: SettleReply,
        out: &mut Vec<LemCommand>,
    ) -> Vec<Proposal> {
        let Some(Phase::Settling(waiting)) = self.open.as_mut().map(|open| &mut open.phase) else {
            return Vec::new();
        };
        let Some(settle) = waiting.remove(&reply.settle) else {
            return Vec::new();
        };
        match reply.answer {
            SettleAnswer::Stay => {}
            SettleAnswer::Come(node) => {
                let proposal = colocate::proposal(context, &settle, &settle.mine.actor, &settle.other, node);
                return self.add(proposal);
            }
            SettleAnswer::Refuse(refusal) => colocate::refuse(context, settle, refusal, out),
        }
        Vec::new()
    }

    /// Ends the round if no reply is outstanding; returns its proposals.
    pub(crate) fn take_if_settled(&mut self) -> Vec<Proposal> {
        let phase = self.open.as_ref().map(|open| &open.phase);
        match phase {
            Some(Phase::Settling(waiting)) if waiting.is_empty() => self.take(),
            _ => Vec::new(),
        }
    }

    /// Proceeds when the awaited replies do not arrive in time.
    pub(crate) fn expire(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        known: &[ServerDigest],
        out: &mut Vec<LemCommand>,
    ) -> Vec<Proposal> {
        let Some(open) = self.open.take_if(|open| open.until <= context.now) else {
            return Vec::new();
        };
        match open.phase {
            Phase::Reporting { .. } => self.settle(context, server, known, open.proposals, out),
            Phase::Settling(waiting) => {
                for settle in waiting.into_values() {
                    colocate::refuse(context, settle, Refusal::HostUnknown, out);
                }
                open.proposals
            }
        }
    }

    /// Adds a proposal to the round; returns it if no round is open.
    fn add(&mut self, proposal: Proposal) -> Vec<Proposal> {
        match &mut self.open {
            Some(open) if open.proposals.len() < PROPOSALS_MAX => {
                open.proposals.push(proposal);
                Vec::new()
            }
            _ => vec![proposal],
        }
    }
}
