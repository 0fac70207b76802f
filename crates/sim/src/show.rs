//! Human-readable events and commands, and the actors they concern.

use elastin_protocol::{Body, Command, DirectoryBody, Event, Frame, MoveStep};
use elastin_types::{ActorId, CallId, Caller};

/// The longest text of an event: longer lines hide the important parts.
const CHARS_MAX: usize = 240;

pub(crate) fn show_call(call: CallId) -> String {
    format!("{}#{}", call.origin, call.sequence)
}

pub(crate) fn show_caller(caller: &Caller) -> String {
    match caller {
        Caller::Client(node) => format!("client {node}"),
        Caller::Actor(actor) => format!("actor {}", actor.key),
    }
}

pub(crate) fn show_event(event: &Event) -> String {
    match event {
        Event::Send { message } => format!(
            "send {} from {} to {}",
            show_call(message.header.call),
            show_caller(&message.header.caller),
            message.target.key
        ),
        Event::Frame { from, frame } => format!("from {from} {}", show_frame(frame)),
        Event::View(view) => format!("view {}: {:?}", view.revision, view.members.keys()),
        other => truncated(format!("{other:?}")),
    }
}

pub(crate) fn show_command(command: &Command) -> String {
    match command {
        Command::Transmit { to, frame } => format!("to {to} {}", show_frame(frame)),
        Command::Deliver { epoch, message } => {
            format!(
                "deliver {} to {} {epoch}",
                show_call(message.header.call),
                message.target.key
            )
        }
        other => truncated(format!("{other:?}")),
    }
}

fn show_frame(frame: &Frame) -> String {
    let body = match &frame.body {
        None => "-".into(),
        Some(Body::Message { message, epoch }) => {
            let call = show_call(message.header.call);
            format!("message {call} to {} {epoch:?}", message.target.key)
        }
        Some(Body::Passed { message, epoch }) => {
            let call = show_call(message.header.call);
            format!("passed {call} to {} {epoch}", message.target.key)
        }
        Some(Body::Returned { message, place }) => {
            let call = show_call(message.header.call);
            format!("returned {call} to {} {place:?}", message.target.key)
        }
        Some(Body::Move(body)) => {
            let step = match &body.step {
                MoveStep::Release { to_epoch, queue, last } => {
                    let calls: Vec<String> = queue.iter().map(|message| show_call(message.header.call)).collect();
                    format!("Release to {to_epoch} {calls:?} last {last}")
                }
                step => format!("{step:?}"),
            };
            format!("move of {} {} #{}: {step}", body.actor.key, body.epoch, body.attempt)
        }
        Some(other) => truncated(format!("{other:?}")),
    };
    format!("#{} ack {}: {body}", frame.number, frame.acknowledged)
}

fn truncated(mut text: String) -> String {
    text = text.replace("ActorId { tenant: TenantId(0), kind: ActorType(708684913), key: ", "{");
    if let Some((cut, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// The actor that an event concerns, if any.
pub(crate) fn actor_of_event(event: &Event) -> Option<&ActorId> {
    match event {
        Event::Send { message } | Event::Bounced { message, .. } => Some(&message.target),
        Event::Frame { frame, .. } => frame.body.as_ref().and_then(actor_of_body),
        Event::Activated { actor, .. }
        | Event::Frozen { actor, .. }
        | Event::Released { actor, .. }
        | Event::Passivated { actor, .. }
        | Event::Move { actor, .. }
        | Event::Placed { actor, .. } => Some(actor),
        _ => None,
    }
}

/// The actor that a command concerns, if any.
pub(crate) fn actor_of_command(command: &Command) -> Option<&ActorId> {
    match command {
        Command::Transmit { frame, .. } => frame.body.as_ref().and_then(actor_of_body),
        Command::Deliver { message, .. } => Some(&message.target),
        Command::Activate { actor, .. }
        | Command::Open { actor, .. }
        | Command::Freeze { actor, .. }
        | Command::Resume { actor, .. }
        | Command::Release { actor, .. }
        | Command::NeedPlacement { actor, .. } => Some(actor),
        Command::Complete { .. } | Command::MoveEnded { .. } | Command::Refused { .. } => None,
    }
}

fn actor_of_body(body: &Body) -> Option<&ActorId> {
    match body {
        Body::Message { message, .. } | Body::Passed { message, .. } | Body::Returned { message, .. } => {
            Some(&message.target)
        }
        Body::PassedOn { actor, .. }
        | Body::Landed { actor, .. }
        | Body::Kept { actor, .. }
        | Body::Rejected { actor, .. } => Some(actor),
        Body::Move(body) => Some(&body.actor),
        Body::Directory(
            DirectoryBody::Grant { actor, .. }
            | DirectoryBody::Ended { actor, .. }
            | DirectoryBody::EndNoted { actor, .. }
            | DirectoryBody::Commit { actor, .. }
            | DirectoryBody::Abort { actor, .. }
            | DirectoryBody::Decided { actor, .. },
        ) => Some(actor),
        _ => None,
    }
}
