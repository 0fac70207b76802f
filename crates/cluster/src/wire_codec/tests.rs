//! The hand-written codec writes the same bytes as postcard, and decodes them to the same values.

use std::time::Duration;

use elastin_types::{CallError, Request, TraceContext};

use super::*;

/// A seeded generator of numbers of all lengths.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = (self.0 >> 33) % 65;
        match bits {
            0 => 0,
            bits => self.0.rotate_left(17) >> (64 - bits),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() ^ (self.0 >> 40)) % bound
    }

    fn actor(&mut self) -> ActorId {
        let key = match self.below(4) {
            0 => Key::Uuid([self.next() as u8; 16]),
            1 => Key::from("ü".repeat(self.below(40) as usize)),
            _ => Key::U64(self.next()),
        };
        ActorId {
            tenant: TenantId(self.next() as u32),
            kind: ActorType::from_number(self.next() as u32),
            key,
        }
    }

    fn call_id(&mut self) -> CallId {
        CallId {
            origin: NodeId(self.next()),
            sequence: self.next(),
        }
    }

    fn bytes(&mut self) -> Bytes {
        vec![self.next() as u8; self.below(300) as usize].into()
    }

    fn header(&mut self) -> Header {
        let caller = match self.below(2) {
            0 => Caller::Client(NodeId(self.next())),
            _ => Caller::Actor(self.actor()),
        };
        let mut header = Header::of_call(self.call_id(), caller);
        header.chain = ChainId(self.call_id());
        header.tenant = TenantId(self.next() as u32);
        header.deadline = (self.below(2) == 0).then(|| Time(self.next()));
        header.one_way = self.below(2) == 0;
        header.source_time_ms = self.next();
        // One in four has an optional field.
        match self.below(16) {
            0 => header.expected_cost = Some(Duration::from_nanos(self.next())),
            1 => {
                header.trace = Some(TraceContext {
                    trace_id: [1; 16],
                    span_id: [2; 8],
                    flags: 1,
                })
            }
            2 => header.context = Some([("user".into(), "ann".into())].into()),
            3 => {
                header.request = Some(Request {
                    number: self.next(),
                    settled_below: self.next(),
                })
            }
            _ => {}
        }
        header
    }

    fn body(&mut self) -> Option<Body> {
        let epoch = ActivationEpoch {
            slot: SlotEpoch(self.next() as u32),
            counter: self.next() as u32,
        };
        Some(match self.below(8) {
            0 => return None,
            1 => Body::Ping,
            2 => Body::Reply {
                call: self.call_id(),
                outcome: Err(CallError::Panicked),
            },
            3 | 4 => Body::Reply {
                call: self.call_id(),
                outcome: Ok(self.bytes()),
            },
            _ => Body::Message {
                message: Arc::new(Message {
                    target: self.actor(),
                    header: self.header(),
                    method: Method::from_number(self.next() as u32),
                    body: self.bytes(),
                }),
                epoch: (self.below(2) == 0).then_some(epoch),
            },
        })
    }

    fn frame(&mut self) -> Frame {
        Frame {
            number: self.next(),
            acknowledged: self.next(),
            sent_at: Time(self.next()),
            body: self.body(),
        }
    }
}

fn frames(count: usize) -> impl Iterator<Item = Frame> {
    let mut numbers = Numbers(7);
    (0..count).map(move |_| numbers.frame())
}

#[test]
fn the_encoding_equals_that_of_postcard() {
    let mut by_hand = 0;
    for frame in frames(20_000) {
        let theirs = postcard::to_stdvec(&frame).unwrap();
        let mut ours = vec![1, 2, 3];
        put(&mut ours, &frame);
        assert_eq!(ours[3..], theirs, "{frame:?}");
        assert_eq!(get(&theirs).unwrap(), frame);
        by_hand += usize::from(get_call(&theirs).is_some());
    }
    assert!(by_hand > 10_000, "decoded by hand: {by_hand}");
}

/// Checks that postcard decodes the bytes to the same frame, if the hand-written codec decodes them.
fn agree(bytes: &[u8]) {
    if let Some(ours) = get_call(bytes) {
        assert_eq!(postcard::from_bytes(bytes), Ok(ours), "{bytes:?}");
    }
}

#[test]
fn input_that_postcard_rejects_is_rejected() {
    let mut numbers = Numbers(11);
    for frame in frames(2_000) {
        let mut bytes = postcard::to_stdvec(&frame).unwrap();
        for length in 0..bytes.len().min(100) {
            agree(&bytes[..length]);
        }
        for _ in 0..20 {
            let at = numbers.below(bytes.len().min(100) as u64) as usize;
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, numbers.next() as u8][numbers.below(6) as usize];
            agree(&bytes);
        }
    }
}

#[test]
fn varints_end_where_postcard_ends_them() {
    let ends: [&[u8]; 6] = [&[0], &[1], &[2], &[0x7f], &[0x80, 0], &[0x80, 1]];
    for length in 0..12 {
        for end in ends {
            let bytes = [vec![0xff; length], end.to_vec()].concat();
            let (mut long, mut short) = (Decoder::new(&bytes), Decoder::new(&bytes));
            assert_eq!(long.number(), postcard::from_bytes::<u64>(&bytes).ok(), "{bytes:?}");
            assert_eq!(
                short.short_number(),
                postcard::from_bytes::<u32>(&bytes).ok(),
                "{bytes:?}"
            );
        }
    }
}

#[test]
fn the_longest_head_fits() {
    let long = || ActorId {
        tenant: TenantId(u32::MAX),
        kind: ActorType::from_number(u32::MAX),
        key: Key::from("x".repeat(KEY_BYTES_MAX)),
    };
    let call = CallId {
        origin: NodeId(u64::MAX),
        sequence: u64::MAX,
    };
    let mut header = Header::of_call(call, Caller::Actor(long()));
    header.tenant = TenantId(u32::MAX);
    header.deadline = Some(Time(u64::MAX));
    header.source_time_ms = u64::MAX;
    let message = Message {
        target: long(),
        header,
        method: Method::from_number(u32::MAX),
        body: Bytes::new(),
    };
    let frame = Frame {
        number: u64::MAX,
        acknowledged: u64::MAX,
        sent_at: Time(u64::MAX),
        body: Some(Body::Message {
            message: Arc::new(message),
            epoch: Some(ActivationEpoch {
                slot: SlotEpoch(u32::MAX),
                counter: u32::MAX,
            }),
        }),
    };
    let mut ours = Vec::new();
    assert_eq!(put_call(&mut ours, &frame), Some(()));
    assert_eq!(ours, postcard::to_stdvec(&frame).unwrap());
}
