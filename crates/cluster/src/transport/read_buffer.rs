//! What has been read of a connection and not been taken in.

use super::link::KEPT_BYTES_MAX;
use crate::frame;

/// How much is read at once; large enough that one system call carries many small frames.
const READ_BYTES: usize = 64 << 10;

/// Bytes in the order in which they came, with room for more.
#[derive(Default)]
pub(super) struct ReadBuffer {
    /// Its bytes are written once when it grows, so that what reads into it need not care.
    buffer: Vec<u8>,
    /// Where what is unread begins and ends.
    begin: usize,
    end: usize,
}

impl ReadBuffer {
    /// What was not taken in.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// So many bytes were taken in.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.begin += bytes;
        assert!(self.begin <= self.end, "nobody takes in what has not come");
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Room for what comes next: for the rest of a frame that has come in part, and never for little.
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

    /// Whether there was no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    /// So many bytes came into the room.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.buffer.len(), "nothing comes where there is no room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Class, Frames};

    /// Frames of these lengths, in pieces of so many bytes each.
    fn check(lengths: &[usize], piece: usize) {
        let mut sent = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            frame::put(&mut sent, Class::Control, &vec![number as u8; *length]).unwrap();
        }
        let (mut input, mut came) = (ReadBuffer::default(), Vec::new());
        for piece in sent.chunks(piece) {
            let room = input.room();
            assert!(room.len() >= READ_BYTES);
            room[..piece.len()].copy_from_slice(piece);
            input.filled(piece.len());
            let mut frames = Frames::new(input.unread(), usize::MAX);
            came.extend(
                frames
                    .by_ref()
                    .map(|(_, payload)| (payload.len(), payload.first().copied())),
            );
            let taken = frames.end().unwrap();
            input.pass(taken.bytes);
        }
        let expected: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(number, length)| (*length, Some(number as u8)))
            .collect();
        assert_eq!(came, expected, "in pieces of {piece}");
        assert!(input.unread().is_empty());
    }

    #[test]
    fn frames_come_as_they_were_sent_however_they_were_cut() {
        for piece in [1, 7, 1_000, READ_BYTES] {
            check(&[1, 20, 300], piece);
        }
        check(&[10, READ_BYTES - 1, 3, READ_BYTES * 5, READ_BYTES, 1, 2], READ_BYTES);
        check(&[10, READ_BYTES - 1, 3, READ_BYTES * 5, READ_BYTES, 1, 2], 1_234);
    }

    #[test]
    fn what_one_large_frame_took_is_given_back() {
        let mut input = ReadBuffer {
            buffer: vec![0; KEPT_BYTES_MAX + 1],
            ..ReadBuffer::default()
        };
        assert_eq!(input.room().len(), READ_BYTES);
    }
}
