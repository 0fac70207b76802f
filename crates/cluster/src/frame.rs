//! The framing of a connection: a length, a class, a payload.
//!
//! ```text
//! ┌─────────────┬───────┬─────────────┐
//! │ length: u32 │ class │ payload     │   the length counts class and payload, little endian
//! └─────────────┴───────┴─────────────┘
//! ```

use elastin_protocol::Frame;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// The largest frame that a node accepts. Larger state travels in chunks; a larger call is rejected before it is sent.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

const LENGTH_BYTES: usize = 4;
const CLASS_BYTES: usize = 1;

/// The class of a frame's payload, which routes it without decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Class {
    /// The handshake that opens a connection.
    Handshake = 0,
    /// Calls, moves and the directory: the frames of `elastin-protocol`.
    Protocol = 1,
    /// Messages between elasticity managers.
    Control = 2,
    /// Requests of operators and their replies.
    Admin = 3,
    /// Notes that a reminder was set.
    Reminder = 4,
}

impl Class {
    fn from_byte(byte: u8) -> Option<Class> {
        [
            Class::Handshake,
            Class::Protocol,
            Class::Control,
            Class::Admin,
            Class::Reminder,
        ]
        .into_iter()
        .find(|class| *class as u8 == byte)
    }
}

/// The reason why bytes are not a valid frame. Their connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {bytes} bytes is larger than the {FRAME_BYTES_MAX} bytes allowed")]
    TooLarge {
        /// Its declared length.
        bytes: usize,
    },
    /// The frame has no class.
    #[error("a frame without a class")]
    Empty,
    /// This version does not know the class.
    #[error("a frame of unknown class {0}")]
    UnknownClass(u8),
    /// The payload is not valid for its class.
    #[error("a frame that can't be decoded: {0}")]
    Undecodable(String),
    /// Frames of this class must not be sent on an open connection.
    #[error("a frame of class {0:?} out of place")]
    OutOfPlace(Class),
}

/// The length of a frame with this payload.
pub(crate) fn length_with(payload: &[u8]) -> usize {
    LENGTH_BYTES + CLASS_BYTES + payload.len()
}

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, class: Class, payload: &[u8]) -> Result<(), FrameError> {
    put_with(out, class, |out| out.extend_from_slice(payload))
}

/// Appends a protocol frame, encoding it in place.
pub(crate) fn put_protocol(out: &mut Vec<u8>, frame: &Frame) -> Result<(), FrameError> {
    // Encoding can't fail: everything in a frame is plain data.
    let put = |out: &mut Vec<u8>| postcard::serialize_with_flavor(frame, Onto(out)).expect("a frame can be encoded");
    put_with(out, Class::Protocol, put)
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

/// Decodes the payload of a protocol frame.
pub(crate) fn get_protocol(payload: &[u8]) -> Result<Frame, FrameError> {
    postcard::from_bytes(payload).map_err(|error| FrameError::Undecodable(error.to_string()))
}

fn put_with(out: &mut Vec<u8>, class: Class, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), FrameError> {
    let start = out.len();
    // The length is filled in once the payload is encoded.
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(class as u8);
    fill(out);
    let length = out.len() - start - LENGTH_BYTES;
    if length > FRAME_BYTES_MAX {
        out.truncate(start);
        return Err(FrameError::TooLarge { bytes: length });
    }
    out[start..start + LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// The first frame of `input`; `None` if it is incomplete. An excessive length is rejected before memory is allocated for it.
fn first(input: &[u8]) -> Result<Option<(Class, &[u8])>, FrameError> {
    let Some(length) = first_length(input)? else {
        return Ok(None);
    };
    let Some(frame) = input.get(LENGTH_BYTES..LENGTH_BYTES + length) else {
        return Ok(None);
    };
    let class = Class::from_byte(frame[0]).ok_or(FrameError::UnknownClass(frame[0]))?;
    Ok(Some((class, &frame[1..])))
}

/// The length of the first frame, without its length prefix.
fn first_length(input: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(head) = input.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*head) as usize {
        0 => Err(FrameError::Empty),
        bytes if bytes > FRAME_BYTES_MAX => Err(FrameError::TooLarge { bytes }),
        length => Ok(Some(length)),
    }
}

/// Iterates over the frames at the front of a buffer, without copying.
pub struct Frames<'a> {
    input: &'a [u8],
    taken: Taken,
    max: usize,
    error: Option<FrameError>,
}

/// The frames that were consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The number of frames.
    pub frames: usize,
    /// The number of their bytes.
    pub bytes: usize,
}

impl<'a> Frames<'a> {
    /// Iterates over at most `max` frames of `input`.
    pub fn new(input: &'a [u8], max: usize) -> Self {
        Self {
            input,
            taken: Taken::default(),
            max,
            error: None,
        }
    }

    /// Rejects the last frame: the iteration ends, and [`Frames::end`] returns the error.
    pub fn refuse(&mut self, error: FrameError) {
        self.error.get_or_insert(error);
    }

    /// Skips the remaining frames, and returns the frames that were consumed.
    pub fn end(mut self) -> Result<Taken, FrameError> {
        self.by_ref().for_each(drop);
        match self.error {
            None => Ok(self.taken),
            Some(error) => Err(error),
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (Class, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken.frames == self.max || self.error.is_some() {
            return None;
        }
        match first(&self.input[self.taken.bytes..]) {
            Ok(Some((class, payload))) => {
                self.taken.frames += 1;
                self.taken.bytes += length_with(payload);
                Some((class, payload))
            }
            Ok(None) => None,
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}

/// The number of bytes missing from the first frame; 0 if it is not known yet.
pub(crate) fn missing(input: &[u8]) -> usize {
    match first_length(input) {
        Ok(Some(length)) => (LENGTH_BYTES + length).saturating_sub(input.len()),
        Ok(None) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastin_golden as golden;

    golden::samples! {
        fn classes() -> Class {
            "handshake": Class::Handshake => Class::Handshake,
            "protocol": Class::Protocol => Class::Protocol,
            "control": Class::Control => Class::Control,
            "admin": Class::Admin => Class::Admin,
            "reminder": Class::Reminder => Class::Reminder,
        }
    }

    #[test]
    fn the_encoding_of_each_class_is_unchanged() {
        let framed = |(name, class): (&str, Class)| {
            let mut out = Vec::new();
            put(&mut out, class, b"payload").unwrap();
            assert_eq!(Class::from_byte(class as u8), Some(class));
            golden::line(name, &out)
        };
        let lines: Vec<String> = classes().into_iter().map(framed).collect();
        golden::check("tests/wire/classes.txt", &lines);
    }

    #[test]
    fn frames_are_parsed_from_any_fragmentation() {
        let mut wire = Vec::new();
        put(&mut wire, Class::Protocol, b"first").unwrap();
        put(&mut wire, Class::Control, b"").unwrap();
        let mut input = Vec::new();
        let mut received = Vec::new();
        for byte in wire {
            input.push(byte);
            let mut frames = Frames::new(&input, 9);
            received.extend(frames.by_ref().map(|(class, payload)| (class, payload.to_vec())));
            let taken = frames.end().unwrap();
            input.drain(..taken.bytes);
        }
        assert_eq!(
            received,
            [(Class::Protocol, b"first".to_vec()), (Class::Control, Vec::new())]
        );
    }

    #[test]
    fn frames_are_parsed_until_the_first_invalid_one() {
        let mut wire = Vec::new();
        for payload in [&b"one"[..], b"two", b"three"] {
            put(&mut wire, Class::Protocol, payload).unwrap();
        }
        let whole = wire.len();
        let mut frames = Frames::new(&wire, 2);
        assert_eq!(frames.next(), Some((Class::Protocol, &b"one"[..])));
        let two = Taken { frames: 2, bytes: 16 };
        assert_eq!(frames.end(), Ok(two), "at most two, one of them skipped");
        let frames = Frames::new(&wire[..whole - 1], 9);
        assert_eq!(frames.end(), Ok(two), "the third is incomplete");
        assert_eq!(missing(&wire[16..whole - 1]), 1);
        wire.extend([1, 0, 0, 0, 99]);
        let mut frames = Frames::new(&wire, 9);
        assert_eq!(frames.by_ref().count(), 3);
        assert_eq!(frames.end(), Err(FrameError::UnknownClass(99)));
    }

    #[test]
    fn an_oversized_frame_is_rejected_before_its_bytes_arrive() {
        let input = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        assert_eq!(
            Frames::new(&input, 1).end(),
            Err(FrameError::TooLarge {
                bytes: FRAME_BYTES_MAX + 1
            })
        );
        let mut out = Vec::new();
        assert_eq!(
            put(&mut out, Class::Protocol, &vec![0; FRAME_BYTES_MAX]),
            Err(FrameError::TooLarge {
                bytes: FRAME_BYTES_MAX + 1
            })
        );
        assert!(out.is_empty());
    }

    #[test]
    fn garbage_is_rejected() {
        assert_eq!(Frames::new(&[0, 0, 0, 0], 1).end(), Err(FrameError::Empty));
        assert_eq!(
            Frames::new(&[1, 0, 0, 0, 99], 1).end(),
            Err(FrameError::UnknownClass(99))
        );
    }
}
