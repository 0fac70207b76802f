//! Any bytes as what a peer sends, in any pieces, read as a connection is: refused or understood, the same however the bytes
//! arrive, and what is understood is the same when it is encoded and decoded again.
#![no_main]

use elastin_cluster::{Class, FRAME_BYTES_MAX, FrameError, Frames, Taken, fuzzing};
use elastin_protocol::Frame;
use libfuzzer_sys::fuzz_target;

/// What a connection brought until its end.
type Read = (Vec<(Class, Vec<u8>)>, Option<FrameError>);

fuzz_target!(|bytes: &[u8]| {
    let whole = read([bytes], usize::MAX);
    // However the bytes arrive, and however many frames are taken in together, they are the same.
    let mut random = Random::of(bytes);
    let at_once = 1 + random.below(4);
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(random.below(12)));
        pieces.push(piece);
        rest = behind;
    }
    assert_eq!(read(pieces, at_once), whole);
    for (class, payload) in whole.0 {
        assert!(payload.len() < FRAME_BYTES_MAX);
        if class == Class::Protocol {
            check(&payload);
        }
    }
});

/// What is read and written by hand is what postcard reads and writes.
fn check(payload: &[u8]) {
    let frame = postcard::from_bytes::<Frame>(payload);
    assert_eq!(fuzzing::decode(payload), frame);
    let Ok(frame) = frame else { return };
    let again = fuzzing::encode(&frame);
    assert_eq!(again, postcard::to_stdvec(&frame).expect("a frame can be encoded"));
    assert_eq!(fuzzing::decode(&again), Ok(frame));
}

/// Numbers that depend on the input alone, so that what fails fails again.
struct Random(u64);

impl Random {
    fn of(bytes: &[u8]) -> Self {
        let mix = |seed: u64, byte: &u8| (seed ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// All frames of a connection, up to the first that is none: it ends there.
fn read<'a>(arriving: impl IntoIterator<Item = &'a [u8]>, at_once: usize) -> Read {
    let (mut input, mut received) = (Vec::new(), Vec::new());
    for piece in arriving {
        input.extend_from_slice(piece);
        loop {
            let mut frames = Frames::new(&input, at_once);
            let before = received.len();
            received.extend(frames.by_ref().map(|(class, payload)| (class, payload.to_vec())));
            match frames.end() {
                Ok(Taken { frames, bytes }) => {
                    assert_eq!(received.len() - before, frames);
                    input.drain(..bytes);
                    if frames < at_once {
                        break;
                    }
                }
                Err(error) => return (received, Some(error)),
            }
        }
    }
    (received, None)
}
