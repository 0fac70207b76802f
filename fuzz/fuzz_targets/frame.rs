//! Any bytes as what a peer sends, in any pieces: refused or understood, and what is understood is the same when it is
//! encoded and decoded again.
#![no_main]

use bytes::{BufMut, BytesMut};
use elastin_cluster::{Class, FRAME_BYTES_MAX, take_frame};
use elastin_protocol::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = frames(BytesMut::from(bytes), &[]);
    // However the bytes arrive, the frames are the same.
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    assert_eq!(frames(BytesMut::from(first), rest), whole);
    for (class, payload) in whole {
        assert!(payload.len() < FRAME_BYTES_MAX);
        if class == Class::Protocol
            && let Ok(frame) = postcard::from_bytes::<Frame>(&payload)
        {
            let again = postcard::to_stdvec(&frame).expect("a frame can be encoded");
            let same: Frame = postcard::from_bytes(&again).expect("what was encoded can be decoded");
            assert_eq!(same, frame);
        }
    }
});

/// All frames of an input that comes in two pieces, up to the first that is none: a connection ends there.
fn frames(mut input: BytesMut, rest: &[u8]) -> Vec<(Class, bytes::Bytes)> {
    let mut taken = Vec::new();
    for piece in [&[][..], rest] {
        input.put_slice(piece);
        loop {
            match take_frame(&mut input) {
                Ok(Some(frame)) => taken.push(frame),
                Ok(None) => break,
                Err(_) => return taken,
            }
        }
    }
    taken
}
