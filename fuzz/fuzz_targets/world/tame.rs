//! Maps the actor ids of a frame to existing actors: an arbitrary id would never match one.

use std::sync::Arc;

use elastin_protocol::{Body, DirectoryBody, Entry, MoveBody, MoveStep};
use elastin_types::{ActorId, Caller, Key, Message};

pub(super) fn body(body: &mut Body) {
    match body {
        Body::Message { message, .. } | Body::Passed { message, .. } | Body::Returned { message, .. } => tame(message),
        Body::PassedOn { actor: id, .. } | Body::Landed { actor: id, .. } | Body::Rejected { actor: id, .. } => {
            actor(id)
        }
        Body::Kept {
            actor: id,
            caller: peer,
            ..
        } => {
            actor(id);
            caller(peer);
        }
        Body::Move(MoveBody { actor: id, step, .. }) => {
            actor(id);
            if let MoveStep::Release { queue, .. } = step {
                queue.iter_mut().for_each(tame);
            }
        }
        Body::Directory(body) => directory(body),
        Body::Reply { .. } | Body::Ping | Body::ViewIs { .. } | Body::Leaving | Body::Parted => {}
    }
}

fn directory(body: &mut DirectoryBody) {
    match body {
        DirectoryBody::Grant { actor: id, .. }
        | DirectoryBody::Ended { actor: id, .. }
        | DirectoryBody::EndNoted { actor: id, .. }
        | DirectoryBody::Commit { actor: id, .. }
        | DirectoryBody::Abort { actor: id, .. }
        | DirectoryBody::Decided { actor: id, .. } => actor(id),
        DirectoryBody::HandOver { entries: known, .. } | DirectoryBody::Recovered { entries: known, .. } => {
            entries(known)
        }
        DirectoryBody::Recover { .. } => {}
    }
}

fn entries(known: &mut [Entry]) {
    known.iter_mut().for_each(|entry| actor(&mut entry.actor));
}

fn tame(message: &mut Arc<Message>) {
    let message = Arc::make_mut(message);
    actor(&mut message.target);
    caller(&mut message.header.caller);
}

fn caller(caller: &mut Caller) {
    if let Caller::Actor(id) = caller {
        actor(id);
    }
}

fn actor(id: &mut ActorId) {
    let key = match &id.key {
        Key::U64(number) => *number as u8,
        Key::Uuid(bytes) => bytes[0],
        Key::Str(text) => text.len() as u8,
    };
    *id = super::actor(key);
}
