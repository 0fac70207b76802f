//! Reads arbitrary bytes in arbitrary pieces as the input of a connection: they are rejected or decoded, independent of
//! the pieces, and every decoded frame survives encoding and decoding.
#![no_main]

use elastin_cluster::{Class, FRAME_BYTES_MAX, FrameError, Frames, Taken};
use elastin_protocol::Frame;
use libfuzzer_sys::fuzz_target;

/// The frames of a connection, and the error that ended it.
type Read = (Vec<(Class, Vec<u8>)>, Option<FrameError>);

fuzz_target!(|bytes: &[u8]| {
    let whole = read([bytes], usize::MAX);
    // Neither the pieces nor the number of frames decoded at once change the result.
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

/// A decoded frame survives encoding and decoding.
fn check(payload: &[u8]) {
    let Ok(frame) = postcard::from_bytes::<Frame>(payload) else {
        return;
    };
    let again = postcard::to_stdvec(&frame).expect("a frame can be encoded");
    assert_eq!(postcard::from_bytes(&again), Ok(frame));
}

/// A generator seeded by the input, so that failures are reproducible.
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

/// Reads the frames of a connection up to the first invalid one.
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
