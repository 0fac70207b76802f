//! Golden tests of the control and admin frames and of the values that servers keep in coordination, against files in
//! git. Servers of two builds share a cluster during an upgrade, so a change here needs a new wire version.
//!
//! `ELASTIN_WIRE=write cargo test -p elastin --lib is_unchanged` rewrites the files.

use std::time::Duration;

use elastin_cluster::{Security, WIRE_VERSIONS};
use elastin_control::{
    Adjustment, Candidate, Cause, Change, ControlMessage, Decision, DecisionId, Direction, End, Held, Manager,
    NewActor, Outcome, PlaceReason, Placement, Proposal, Purpose, Query, QueryReply, Refusal, ReleaseReason, Report,
    ReportReply, Reservation, Rest, ServerDigest, Settle, SettleAnswer, SettleReply, Streak, Unit, Vote, Wish,
};
use elastin_policy::{Bound, Observed};
use elastin_protocol::MoveError;
use elastin_stores::secret::Secret;
use elastin_types::{ActorId, ActorType, NodeId, PerResource, Resource, ServerState, ServerStats, Time, Usage};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::{AdminError, AdminFrame, AdminReply, AdminRequest};
use crate::settings::ClusterSettings;
use crate::wire::ControlFrame;
use crate::{PolicySource, ServerStatus};
use elastin_golden::{self as golden, samples};

const ONE: NodeId = NodeId(5);
const OTHER: NodeId = NodeId(300);

fn actor() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 7)
}

fn file() -> ActorId {
    ActorId::new(ActorType::of("File"), "a.txt")
}

fn used() -> PerResource<f64> {
    PerResource {
        cpu: 1.5,
        mem: 2.5,
        net: 3.5,
    }
}

fn server() -> ServerStats {
    let usage = |used, capacity| Usage { used, capacity };
    ServerStats {
        node: ONE,
        state: ServerState::Draining,
        usage: PerResource {
            cpu: usage(1.5, Some(10.0)),
            mem: usage(2.5, Some(20.0)),
            net: usage(3.5, None),
        },
        cpu_demand: 4.5,
        actors: 6,
    }
}

fn cause() -> Cause {
    Cause {
        rule: 2,
        name: Some("hot".into()),
        text: "server.cpu.perc > 80 => balance({Folder}, cpu);".into(),
        binding: vec![Bound {
            variable: "f".into(),
            actor: actor(),
        }],
        server: Some(ONE),
        values: vec![Observed {
            text: "server.cpu.perc > 80".into(),
            value: Some(81.5),
            held: true,
        }],
    }
}

fn decision(change: Change, outcome: Outcome) -> Decision {
    Decision {
        id: DecisionId {
            manager: Manager::Global(ONE),
            sequence: 9,
        },
        at: Time(1_000_000),
        cause: Some(cause()),
        change,
        candidates: vec![Candidate {
            node: OTHER,
            score: 0.5,
            refused: Some(Refusal::Worse),
        }],
        outcome,
    }
}

fn reservation() -> Reservation {
    Reservation {
        actor: actor(),
        resource: Resource::Cpu,
        cause: cause(),
        used: 1.5,
        shares_with: Some(file()),
        arrived: true,
    }
}

fn unit(held: Option<Held>) -> Unit {
    Unit {
        lead: actor(),
        actors: vec![actor(), file()],
        count: 2,
        used: used(),
        held,
        apart_from: vec![file()],
        refused_by: vec![OTHER],
    }
}

fn moving(purpose: Purpose) -> Change {
    Change::Move {
        actor: actor(),
        with: vec![file()],
        from: ONE,
        to: Some(OTHER),
        purpose,
    }
}

samples! {
    fn changes() -> Change {
        "move": Change::Move { .. } => moving(Purpose::Drain),
        "dedicate": Change::Dedicate { .. } => Change::Dedicate {
            actor: actor(),
            node: ONE,
            resource: Resource::Mem,
            shared_with: Some(file()),
        },
        "release": Change::Release { .. } => Change::Release { actor: actor(), node: ONE, reason: ReleaseReason::Over },
        "part": Change::Part { .. } => Change::Part { first: actor(), second: file() },
        "add servers": Change::AddServers { .. } => Change::AddServers { count: 2, reserved: Some(actor()) },
        "remove server": Change::RemoveServer { .. } => Change::RemoveServer { node: ONE },
    }
}

samples! {
    fn purposes() -> Purpose {
        "reserve": Purpose::Reserve(_) => Purpose::Reserve(Resource::Cpu),
        "make room": Purpose::MakeRoom { .. } => Purpose::MakeRoom { reserved: file() },
        "balance": Purpose::Balance(_) => Purpose::Balance(Resource::Net),
        "separate": Purpose::Separate(_) => Purpose::Separate(file()),
        "colocate": Purpose::Colocate(_) => Purpose::Colocate(file()),
        "drain": Purpose::Drain => Purpose::Drain,
    }
}

samples! {
    fn release_reasons() -> ReleaseReason {
        "over": ReleaseReason::Over => ReleaseReason::Over,
        "left": ReleaseReason::Left => ReleaseReason::Left,
        "never came": ReleaseReason::NeverCame => ReleaseReason::NeverCame,
    }
}

samples! {
    fn outcomes() -> Outcome {
        "proposed": Outcome::Proposed => Outcome::Proposed,
        "refused": Outcome::Refused(_) => Outcome::Refused(Refusal::NoServer),
        "started": Outcome::Started => Outcome::Started,
        "done": Outcome::Done => Outcome::Done,
        "failed": Outcome::Failed(_) => Outcome::Failed("the target was lost".into()),
    }
}

samples! {
    fn managers() -> Manager {
        "local": Manager::Local(_) => Manager::Local(ONE),
        "global": Manager::Global(_) => Manager::Global(ONE),
    }
}

samples! {
    fn refusals() -> Refusal {
        "pinned": Refusal::Pinned(_) => Refusal::Pinned(actor()),
        "both pinned": Refusal::BothPinned => Refusal::BothPinned,
        "both reserved": Refusal::BothReserved => Refusal::BothReserved,
        "pinned and reserved": Refusal::PinnedAndReserved => Refusal::PinnedAndReserved,
        "reserved": Refusal::Reserved(_) => Refusal::Reserved(actor()),
        "came recently": Refusal::CameRecently => Refusal::CameRecently,
        "on the move": Refusal::OnTheMove => Refusal::OnTheMove,
        "not here": Refusal::NotHere => Refusal::NotHere,
        "outranked": Refusal::Outranked => Refusal::Outranked,
        "worse": Refusal::Worse => Refusal::Worse,
        "no room": Refusal::NoRoom { .. } => Refusal::NoRoom { resource: Resource::Mem, percent: 91.5, limit: 90.0 },
        "server reserved": Refusal::ServerReserved(_) => Refusal::ServerReserved(actor()),
        "draining": Refusal::Draining => Refusal::Draining,
        "kept apart": Refusal::KeptApart(_) => Refusal::KeptApart(file()),
        "kept apart from type": Refusal::KeptApartFromType => Refusal::KeptApartFromType,
        "refused before": Refusal::RefusedBefore => Refusal::RefusedBefore,
        "no server": Refusal::NoServer => Refusal::NoServer,
        "no answer": Refusal::NoAnswer(_) => Refusal::NoAnswer(OTHER),
        "host unknown": Refusal::HostUnknown => Refusal::HostUnknown,
        "awaiting server": Refusal::AwaitingServer => Refusal::AwaitingServer,
        "awaiting room": Refusal::AwaitingRoom => Refusal::AwaitingRoom,
        "unsettled": Refusal::Unsettled => Refusal::Unsettled,
        "enough moves": Refusal::EnoughMoves => Refusal::EnoughMoves,
        "at maximum": Refusal::AtMaximum => Refusal::AtMaximum,
        "size changed recently": Refusal::SizeChangedRecently => Refusal::SizeChangedRecently,
        "size does not help": Refusal::SizeDoesNotHelp => Refusal::SizeDoesNotHelp,
        "voted down": Refusal::VotedDown { .. } => Refusal::VotedDown { agreed: 1, answered: 3 },
    }
}

samples! {
    fn resources() -> Resource {
        "cpu": Resource::Cpu => Resource::Cpu,
        "mem": Resource::Mem => Resource::Mem,
        "net": Resource::Net => Resource::Net,
    }
}

samples! {
    fn server_states() -> ServerState {
        "active": ServerState::Active => ServerState::Active,
        "draining": ServerState::Draining => ServerState::Draining,
    }
}

samples! {
    fn held() -> Held {
        "pinned": Held::Pinned(..) => Held::Pinned(actor(), -3),
        "recent": Held::Recent(_) => Held::Recent(actor()),
    }
}

samples! {
    fn settle_answers() -> SettleAnswer {
        "stay": SettleAnswer::Stay => SettleAnswer::Stay,
        "come": SettleAnswer::Come(_) => SettleAnswer::Come(OTHER),
        "refuse": SettleAnswer::Refuse(_) => SettleAnswer::Refuse(Refusal::BothPinned),
    }
}

samples! {
    fn directions() -> Direction {
        "grow": Direction::Grow => Direction::Grow,
        "shrink": Direction::Shrink => Direction::Shrink,
    }
}

samples! {
    fn place_reasons() -> PlaceReason {
        "beside": PlaceReason::Beside(_) => PlaceReason::Beside(1),
        "reserved": PlaceReason::Reserved(_) => PlaceReason::Reserved(2),
        "balanced": PlaceReason::Balanced(_) => PlaceReason::Balanced(3),
        "pinned": PlaceReason::Pinned(_) => PlaceReason::Pinned(4),
        "random": PlaceReason::Random => PlaceReason::Random,
    }
}

fn report() -> Report {
    Report {
        round: 8,
        server: server(),
        promised: used(),
        unsettled: true,
        reservations: vec![reservation()],
        units: vec![unit(None)],
        rest: Rest {
            actors: 3,
            used: used(),
        },
        pinned: 1,
        separated_kinds: vec![ActorType::of("File")],
        wishes: vec![Wish {
            cause: cause(),
            actor: actor(),
            resource: Resource::Cpu,
            used: 1.5,
            priority: -3,
            unit: unit(None),
            awaiting: true,
        }],
        balances: vec![cause()],
        streaks: vec![Streak {
            rule: 1,
            above: 2,
            below: 3,
        }],
        added_for_reserve: true,
        free_periods: 4,
    }
}

fn report_reply() -> ReportReply {
    ReportReply {
        round: 8,
        proposals: vec![Proposal {
            decision: decision(moving(Purpose::Drain), Outcome::Proposed),
            priority: -3,
            score: 0.5,
            reservation: Some(reservation()),
        }],
        dedicate: vec![reservation()],
        added_for_reserve: true,
        awaiting: vec![actor()],
        servers: vec![ServerDigest {
            server: server(),
            reserved: vec![actor()],
            pinned: 1,
            separated_kinds: vec![ActorType::of("File")],
        }],
    }
}

fn settle() -> Settle {
    Settle {
        settle: 4,
        cause: cause(),
        priority: -3,
        mine: End {
            actor: actor(),
            node: ONE,
            used: 1.5,
            pinned: Some(2),
            reserved: true,
            recent: true,
        },
        other: file(),
        calls: 12,
    }
}

fn query() -> Query {
    Query {
        query: 4,
        actors: vec![actor()],
        used: used(),
        priority: -3,
        must_leave: true,
        beside: Some(file()),
        apart_from: vec![file()],
        reservation: Some(reservation()),
    }
}

samples! {
    fn messages() -> ControlMessage {
        "report": ControlMessage::Report(_) => ControlMessage::Report(Box::new(report())),
        "report reply": ControlMessage::ReportReply(_) => ControlMessage::ReportReply(Box::new(report_reply())),
        "settle": ControlMessage::Settle(_) => ControlMessage::Settle(Box::new(settle())),
        "settle reply": ControlMessage::SettleReply(_) => ControlMessage::SettleReply(SettleReply {
            settle: 4,
            answer: SettleAnswer::Stay,
        }),
        "query": ControlMessage::Query(_) => ControlMessage::Query(Box::new(query())),
        "query reply": ControlMessage::QueryReply(_) => ControlMessage::QueryReply(QueryReply {
            query: 4,
            refused: Some(Refusal::Draining),
        }),
        "withdraw": ControlMessage::Withdraw { .. } => ControlMessage::Withdraw { query: 4 },
        "adjustment": ControlMessage::Adjustment(_) => ControlMessage::Adjustment(Adjustment {
            asking: 4,
            rule: 1,
            direction: Direction::Shrink,
        }),
        "vote": ControlMessage::Vote(_) => ControlMessage::Vote(Vote { asking: 4, agrees: true }),
        "place": ControlMessage::Place { .. } => ControlMessage::Place {
            request: 4,
            new: NewActor {
                actor: actor(),
                caller: Some(file()),
                caller_node: Some(OTHER),
            },
        },
        "placed": ControlMessage::Placed { .. } => ControlMessage::Placed {
            request: 4,
            placement: Some(Placement {
                node: OTHER,
                reason: PlaceReason::Beside(1),
            }),
        },
    }
}

samples! {
    fn control_frames() -> ControlFrame {
        "message": ControlFrame::Message(_) => ControlFrame::Message(ControlMessage::Withdraw { query: 4 }),
        "to host": ControlFrame::ToHost { .. } => ControlFrame::ToHost {
            actor: actor(),
            message: ControlMessage::Withdraw { query: 4 },
        },
        "relayed": ControlFrame::Relayed { .. } => ControlFrame::Relayed {
            from: ONE,
            message: ControlMessage::Withdraw { query: 4 },
        },
        "record": ControlFrame::Record(_) => ControlFrame::Record(Box::new(decision(
            moving(Purpose::Drain),
            Outcome::Done,
        ))),
        "leave": ControlFrame::Leave => ControlFrame::Leave,
    }
}

samples! {
    fn admin_frames() -> AdminFrame {
        "ask": AdminFrame::Ask { .. } => AdminFrame::Ask { id: 4, request: AdminRequest::Status },
        "move here": AdminFrame::MoveHere { .. } => AdminFrame::MoveHere { id: 4, actor: actor(), to: OTHER },
        "answer": AdminFrame::Answer { .. } => AdminFrame::Answer { id: 4, result: Ok(AdminReply::Done) },
    }
}

samples! {
    fn admin_requests() -> AdminRequest {
        "move": AdminRequest::Move { .. } => AdminRequest::Move { actor: actor(), to: OTHER },
        "drain": AdminRequest::Drain => AdminRequest::Drain,
        "status": AdminRequest::Status => AdminRequest::Status,
    }
}

samples! {
    fn admin_replies() -> AdminReply {
        "done": AdminReply::Done => AdminReply::Done,
        "servers": AdminReply::Servers(_) => AdminReply::Servers(vec![ServerStatus {
            name: "server-1".into(),
            node: ONE,
            cpu_percent: Some(81.5),
            actors: 6,
            draining: true,
            reserved_for: vec![actor()],
        }]),
    }
}

samples! {
    fn admin_errors() -> AdminError {
        "no such server": AdminError::NoSuchServer(_) => AdminError::NoSuchServer("server-1".into()),
        "not active": AdminError::NotActive => AdminError::NotActive,
        "move": AdminError::Move(_) => AdminError::Move(MoveError::AlreadyThere),
        "wrong node": AdminError::WrongNode => AdminError::WrongNode,
        "no answer": AdminError::NoAnswer => AdminError::NoAnswer,
    }
}

/// The golden lines of one kind of value.
fn lines<T: Serialize + DeserializeOwned>(kind: &str, samples: Vec<(&str, T)>) -> Vec<String> {
    let line = |(name, value): (&str, T)| golden::line(&format!("{kind}, {name}"), &golden::encoded(&value));
    samples.into_iter().map(line).collect()
}

#[test]
fn encoding_of_control_and_admin_frames_is_unchanged() {
    let all = [
        lines("control frame", control_frames()),
        lines("control message", messages()),
        lines("manager", managers()),
        lines("change", changes()),
        lines("purpose", purposes()),
        lines("release reason", release_reasons()),
        lines("outcome", outcomes()),
        lines("refusal", refusals()),
        lines("resource", resources()),
        lines("server state", server_states()),
        lines("held", held()),
        lines("settle answer", settle_answers()),
        lines("direction", directions()),
        lines("place reason", place_reasons()),
        lines("admin frame", admin_frames()),
        lines("admin request", admin_requests()),
        lines("admin reply", admin_replies()),
        lines("admin error", admin_errors()),
    ];
    let (_, newest) = WIRE_VERSIONS;
    golden::check(&format!("tests/wire/version-{newest}.txt"), &all.concat());
}

/// Servers of two builds read these during an upgrade, and a later build reads the values of an earlier one.
#[test]
fn encoding_of_values_in_coordination_is_unchanged() {
    let settings = ClusterSettings {
        policy: PolicySource::new("shop.epl", "true => pin(Folder);"),
        period: Duration::from_millis(2500),
        servers_min: 2,
        servers_max: 8,
    };
    let json = serde_json::to_string(&settings).expect("settings are plain data");
    let secret = Secret::from_text(&"07".repeat(32)).expect("it is as long as a secret");
    let known_by = Security::Secret(secret).known_by();
    let lines = [
        format!("settings: {json}\n"),
        format!("known by a secret: {known_by}\n"),
        format!("known by trust: {}\n", Security::Trusting.known_by()),
    ];
    golden::check("tests/kept/coordination.txt", &lines);
}
