//! The codec of protocol frames, compatible with postcard.
//!
//! Nearly all frames are calls and replies without optional fields. A hand-written codec encodes and decodes these to the same
//! bytes, because serde's field-by-field code is too slow for the hot path. Postcard handles all other frames.

mod bytes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ::bytes::Bytes;
use elastin_protocol::{Body, Frame};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallId, Caller, ChainId, Header, Key, Message, Method, NodeId, SlotEpoch,
    TenantId, Time,
};
use postcard::ser_flavors::Flavor;

use bytes::{Decoder, HeadBuffer};

/// The longest key of the hand-written codec; postcard handles longer ones.
const KEY_BYTES_MAX: usize = 40;

/// The most bytes before the arguments of a call: fewer than 25 numbers and tags, nearly all of at most 5 bytes, and two keys.
const HEAD_BYTES_MAX: usize = 256;

/// The most bytes after the arguments.
const TAIL_BYTES_MAX: usize = 16;

// Indexes of variants in their enums, which encode them.
const NONE: u8 = 0;
const SOME: u8 = 1;
const OK: u8 = 0;
const BODY_MESSAGE: u8 = 0;
const BODY_REPLY: u8 = 7;
const CALLER_CLIENT: u8 = 0;
const CALLER_ACTOR: u8 = 1;
const KEY_U64: u8 = 0;
const KEY_UUID: u8 = 1;
const KEY_STR: u8 = 2;

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, frame: &Frame) {
    if put_call(out, frame).is_none() {
        // Encoding can't fail: everything in a frame is plain data.
        postcard::serialize_with_flavor(frame, Onto(out)).expect("a frame can be encoded");
    }
}

/// Decodes a frame.
pub(crate) fn get(bytes: &[u8]) -> postcard::Result<Frame> {
    match get_call(bytes) {
        Some(frame) => Ok(frame),
        None => postcard::from_bytes(bytes),
    }
}

/// Appends a frame if the hand-written codec supports it; otherwise appends nothing.
fn put_call(out: &mut Vec<u8>, frame: &Frame) -> Option<()> {
    let mut head = HeadBuffer::<HEAD_BYTES_MAX>::new();
    head.number(frame.number);
    head.number(frame.acknowledged);
    head.number(frame.sent_at.0);
    head.byte(SOME);
    match frame.body.as_ref()? {
        Body::Message { message, epoch } => {
            head.byte(BODY_MESSAGE);
            put_actor(&mut head, &message.target)?;
            put_header(&mut head, &message.header)?;
            head.number(message.method.number().into());
            head.number(message.body.len() as u64);
            let mut tail = HeadBuffer::<TAIL_BYTES_MAX>::new();
            put_epoch(&mut tail, *epoch);
            put_all(out, [head.bytes(), &message.body, tail.bytes()]);
        }
        Body::Reply {
            call,
            outcome: Ok(reply),
        } => {
            head.byte(BODY_REPLY);
            put_call_id(&mut head, *call);
            head.byte(OK);
            head.number(reply.len() as u64);
            put_all(out, [head.bytes(), reply]);
        }
        _ => return None,
    }
    Some(())
}

fn put_all<const PARTS: usize>(out: &mut Vec<u8>, parts: [&[u8]; PARTS]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[inline]
fn put_actor(head: &mut HeadBuffer<HEAD_BYTES_MAX>, actor: &ActorId) -> Option<()> {
    head.number(actor.tenant.0.into());
    head.number(actor.kind.number().into());
    match &actor.key {
        Key::U64(number) => {
            head.byte(KEY_U64);
            head.number(*number);
        }
        Key::Uuid(uuid) => {
            head.byte(KEY_UUID);
            head.slice(uuid);
        }
        Key::Str(text) if text.len() <= KEY_BYTES_MAX => {
            head.byte(KEY_STR);
            head.number(text.len() as u64);
            head.slice(text.as_bytes());
        }
        Key::Str(_) => return None,
    }
    Some(())
}

#[inline]
fn put_header(head: &mut HeadBuffer<HEAD_BYTES_MAX>, header: &Header) -> Option<()> {
    let Header {
        call,
        chain,
        caller,
        tenant,
        deadline,
        one_way,
        expected_cost: None,
        trace: None,
        source_time_ms,
        context: None,
        request: None,
    } = header
    else {
        return None;
    };
    put_call_id(head, *call);
    put_call_id(head, chain.0);
    match caller {
        Caller::Client(node) => {
            head.byte(CALLER_CLIENT);
            head.number(node.0);
        }
        Caller::Actor(actor) => {
            head.byte(CALLER_ACTOR);
            put_actor(head, actor)?;
        }
    }
    head.number(tenant.0.into());
    match deadline {
        None => head.byte(NONE),
        Some(at) => {
            head.byte(SOME);
            head.number(at.0);
        }
    }
    head.byte((*one_way).into());
    // No expected cost, no trace.
    head.slice(&[NONE; 2]);
    head.number(*source_time_ms);
    // No context, no request.
    head.slice(&[NONE; 2]);
    Some(())
}

#[inline]
fn put_call_id(head: &mut HeadBuffer<HEAD_BYTES_MAX>, call: CallId) {
    head.number(call.origin.0);
    head.number(call.sequence);
}

#[inline]
fn put_epoch(tail: &mut HeadBuffer<TAIL_BYTES_MAX>, epoch: Option<ActivationEpoch>) {
    let Some(epoch) = epoch else { return tail.byte(NONE) };
    tail.byte(SOME);
    tail.number(epoch.slot.0.into());
    tail.number(epoch.counter.into());
}

/// Decodes a frame if the hand-written codec supports it.
fn get_call(bytes: &[u8]) -> Option<Frame> {
    let mut from = Decoder::new(bytes);
    let (number, acknowledged, sent_at) = (from.number()?, from.number()?, Time(from.number()?));
    from.expect(SOME)?;
    let body = match from.byte()? {
        BODY_MESSAGE => {
            let message = Message {
                target: get_actor(&mut from)?,
                header: get_header(&mut from)?,
                method: Method::from_number(from.short_number()?),
                body: get_bytes(&mut from)?,
            };
            Body::Message {
                message: Arc::new(message),
                epoch: get_epoch(&mut from)?,
            }
        }
        BODY_REPLY => {
            let call = get_call_id(&mut from)?;
            from.expect(OK)?;
            let outcome = Ok(get_bytes(&mut from)?);
            Body::Reply { call, outcome }
        }
        _ => return None,
    };
    Some(Frame {
        number,
        acknowledged,
        sent_at,
        body: Some(body),
    })
}

#[inline]
fn get_actor(from: &mut Decoder<'_>) -> Option<ActorId> {
    Some(ActorId {
        tenant: TenantId(from.short_number()?),
        kind: ActorType::from_number(from.short_number()?),
        key: match from.byte()? {
            KEY_U64 => Key::U64(from.number()?),
            KEY_UUID => Key::Uuid(from.slice(16)?.try_into().ok()?),
            KEY_STR => {
                let length = from.number()?;
                Key::from(str::from_utf8(from.slice(length)?).ok()?)
            }
            _ => return None,
        },
    })
}

#[inline]
fn get_header(from: &mut Decoder<'_>) -> Option<Header> {
    let call = get_call_id(from)?;
    let chain = ChainId(get_call_id(from)?);
    let caller = match from.byte()? {
        CALLER_CLIENT => Caller::Client(NodeId(from.number()?)),
        CALLER_ACTOR => Caller::Actor(get_actor(from)?),
        _ => return None,
    };
    let tenant = TenantId(from.short_number()?);
    let deadline = match from.bool()? {
        true => Some(Time(from.number()?)),
        false => None,
    };
    let one_way = from.bool()?;
    (from.slice(2)? == [NONE; 2]).then_some(())?;
    let source_time_ms = from.number()?;
    (from.slice(2)? == [NONE; 2]).then_some(())?;
    Some(Header {
        call,
        chain,
        caller,
        tenant,
        deadline,
        one_way,
        expected_cost: None,
        trace: None,
        source_time_ms,
        context: None,
        request: None,
    })
}

#[inline]
fn get_call_id(from: &mut Decoder<'_>) -> Option<CallId> {
    Some(CallId {
        origin: NodeId(from.number()?),
        sequence: from.number()?,
    })
}

#[inline]
fn get_bytes(from: &mut Decoder<'_>) -> Option<Bytes> {
    let length = from.number()?;
    from.slice(length).map(Bytes::copy_from_slice)
}

#[inline]
fn get_epoch(from: &mut Decoder<'_>) -> Option<Option<ActivationEpoch>> {
    if !from.bool()? {
        return Some(None);
    }
    Some(Some(ActivationEpoch {
        slot: SlotEpoch(from.short_number()?),
        counter: from.short_number()?,
    }))
}

/// A postcard flavor that appends to a buffer.
struct Onto<'a>(&'a mut Vec<u8>);

impl Flavor for Onto<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
