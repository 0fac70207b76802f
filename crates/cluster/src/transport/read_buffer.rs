//! The read buffer of a connection: received bytes that are not parsed yet.

use crate::frame;
use crate::tuning::{KEPT_BYTES_MAX, READ_BYTES};

/// Received bytes in order, with room for more.
#[derive(Default)]
pub(super) struct ReadBuffer {
    /// Initialized as a whole when it grows, so that it can be read into.
    buffer: Vec<u8>,
    /// The range of the unread bytes.
    begin: usize,
    end: usize,
}

impl ReadBuffer {
    /// The bytes that are not consumed yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Removes bytes from the front.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
        assert!(self.begin <= self.end, "only received bytes are consumed");
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Room for the next read: at least for the rest of an incomplete frame, and never less than [`READ_BYTES`].
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.unread().is_empty() && self.buffer.len() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        let wanted = READ_BYTES.max(frame::missing(self.unread()));
        if self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.buffer.len() - self.end < wanted {
            self.buffer.resize(self.end + wanted, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Whether the last read has filled the room, so that more bytes may be available.
    pub(super) fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    /// Appends bytes that were read into the room.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.buffer.len(), "a read fits into the room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Class, Frames};

    /// Receives frames of these lengths, in pieces of so many bytes each.
    fn check(lengths: &[usize], piece: usize) {
        let mut sent = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            frame::put(&mut sent, Class::Control, &vec![number as u8; *length]).unwrap();
        }
        let (mut buffer, mut received) = (ReadBuffer::default(), Vec::new());
        for piece in sent.chunks(piece) {
            let room = buffer.room();
            assert!(room.len() >= READ_BYTES);
            room[..piece.len()].copy_from_slice(piece);
            buffer.filled(piece.len());
            let mut frames = Frames::new(buffer.unread(), usize::MAX);
            received.extend(
                frames
                    .by_ref()
                    .map(|(_, payload)| (payload.len(), payload.first().copied())),
            );
            let taken = frames.end().unwrap();
            buffer.consume(taken.bytes);
        }
        let expected: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(number, length)| (*length, Some(number as u8)))
            .collect();
        assert_eq!(received, expected, "in pieces of {piece}");
        assert!(buffer.unread().is_empty());
    }

    #[test]
    fn frames_survive_any_fragmentation() {
        for piece in [1, 7, 1_000, READ_BYTES] {
            check(&[1, 20, 300], piece);
        }
        check(&[10, READ_BYTES - 1, 3, READ_BYTES * 5, READ_BYTES, 1, 2], READ_BYTES);
        check(&[10, READ_BYTES - 1, 3, READ_BYTES * 5, READ_BYTES, 1, 2], 1_234);
    }

    #[test]
    fn memory_of_a_large_frame_is_released() {
        let mut buffer = ReadBuffer {
            buffer: vec![0; KEPT_BYTES_MAX + 1],
            ..ReadBuffer::default()
        };
        assert_eq!(buffer.room().len(), READ_BYTES);
    }
}
