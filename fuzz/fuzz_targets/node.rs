//! Feeds arbitrary frames to a running node, which hosts, calls and moves actors, owns slots, and sees views change.
//! One peer is a client, and one is newer than the view. The node must never panic.
#![no_main]

mod world;

use elastin_protocol::Frame;
use libfuzzer_sys::fuzz_target;
use world::World;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut world = World::start(input.byte());
    while !input.0.is_empty() {
        match input.byte() % 9 {
            // The next frame of its peer, or a frame with an arbitrary number.
            kind @ (0 | 1) => {
                let (peer, payload) = (input.byte(), input.piece());
                if let Ok(frame) = postcard::from_bytes::<Frame>(payload) {
                    world.receives(peer, frame, kind == 0);
                }
            }
            2 => world.runtime_answers(input.byte()),
            3 => world.calls(input.byte(), input.byte()),
            4 => world.view_changes(input.byte()),
            5 => world.moves(input.byte(), input.byte()),
            6 => world.time_passes(input.byte()),
            7 => world.link_changes(input.byte()),
            _ => world.parts(),
        }
    }
});

/// The rest of the input, followed by zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Bytes prefixed by a length of two bytes.
    fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(u16::from_le_bytes([self.byte(), self.byte()]));
        let (piece, rest) = self.0.split_at(self.0.len().min(length));
        self.0 = rest;
        piece
    }
}
