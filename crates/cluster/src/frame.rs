//! How frames look on a connection: a length, a class, a payload.
//!
//! ```text
//! ┌─────────────┬───────┬─────────────┐
//! │ length: u32 │ class │ payload     │   the length counts class and payload, little endian
//! └─────────────┴───────┴─────────────┘
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// The longest frame that a node takes. Larger state travels in chunks; a larger call is refused before it is sent.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

const LENGTH_BYTES: usize = 4;
const CLASS_BYTES: usize = 1;

/// What a frame's payload is, so that this crate can carry it without knowing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Class {
    /// The handshake that opens a connection.
    Handshake = 0,
    /// Calls, moves and the directory: the frames of `elastin-protocol`.
    Protocol = 1,
    /// What elasticity managers tell each other.
    Control = 2,
    /// Requests of operators and their answers.
    Admin = 3,
    /// A reminder was set.
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

/// Why bytes are not a frame. The connection they came from can't be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {bytes} bytes is larger than the {FRAME_BYTES_MAX} bytes allowed")]
    TooLarge {
        /// How long it says it is.
        bytes: usize,
    },
    /// The frame has no class.
    #[error("a frame without a class")]
    Empty,
    /// The class is none that this version knows.
    #[error("a frame of unknown class {0}")]
    UnknownClass(u8),
}

/// How long the frame with this payload is.
pub(crate) fn length_with(payload: &[u8]) -> usize {
    LENGTH_BYTES + CLASS_BYTES + payload.len()
}

/// Appends a frame.
pub(crate) fn put(out: &mut BytesMut, class: Class, payload: &[u8]) -> Result<(), FrameError> {
    put_with(out, class, |out| out.put_slice(payload))
}

/// Appends a frame whose payload is a value, which is encoded where it will be written from.
pub(crate) fn put_value(out: &mut BytesMut, class: Class, value: &impl Serialize) -> Result<(), FrameError> {
    put_with(out, class, |out| {
        // Encoding can't fail: everything in a frame is plain data.
        postcard::serialize_with_flavor(value, Onto(out)).expect("a frame can be encoded");
    })
}

fn put_with(out: &mut BytesMut, class: Class, fill: impl FnOnce(&mut BytesMut)) -> Result<(), FrameError> {
    let start = out.len();
    // How long it is shows when it is there.
    out.put_u32_le(0);
    out.put_u8(class as u8);
    fill(out);
    let length = out.len() - start - LENGTH_BYTES;
    if length > FRAME_BYTES_MAX {
        out.truncate(start);
        return Err(FrameError::TooLarge { bytes: length });
    }
    out[start..start + LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Lets values be encoded onto the end of a buffer.
struct Onto<'a>(&'a mut BytesMut);

impl Flavor for Onto<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.put_u8(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.put_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Takes the first frame off the front; `None` if it is not all there yet. A length that is too long is refused before
/// any memory is set aside for it.
pub fn take(input: &mut BytesMut) -> Result<Option<(Class, Bytes)>, FrameError> {
    let Some(head) = input.get(..LENGTH_BYTES) else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(head.try_into().expect("the slice has four bytes")) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge { bytes: length });
    }
    if length == 0 {
        return Err(FrameError::Empty);
    }
    if input.len() < LENGTH_BYTES + length {
        input.reserve(LENGTH_BYTES + length - input.len());
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    let mut frame = input.split_to(length).freeze();
    let byte = frame.get_u8();
    let class = Class::from_byte(byte).ok_or(FrameError::UnknownClass(byte))?;
    Ok(Some((class, frame)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_one_by_one_however_the_bytes_arrive() {
        let mut wire = BytesMut::new();
        put(&mut wire, Class::Protocol, b"first").unwrap();
        put(&mut wire, Class::Control, b"").unwrap();
        let mut input = BytesMut::new();
        let mut frames = Vec::new();
        for byte in wire {
            input.put_u8(byte);
            while let Some(frame) = take(&mut input).unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!(
            frames,
            [
                (Class::Protocol, Bytes::from_static(b"first")),
                (Class::Control, Bytes::new())
            ]
        );
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_its_bytes_arrive() {
        let mut input = BytesMut::from(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes()[..]);
        assert_eq!(
            take(&mut input),
            Err(FrameError::TooLarge {
                bytes: FRAME_BYTES_MAX + 1
            })
        );
        let mut out = BytesMut::new();
        assert_eq!(
            put(&mut out, Class::Protocol, &vec![0; FRAME_BYTES_MAX]),
            Err(FrameError::TooLarge {
                bytes: FRAME_BYTES_MAX + 1
            })
        );
        assert!(out.is_empty());
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(take(&mut BytesMut::from(&[0, 0, 0, 0][..])), Err(FrameError::Empty));
        assert_eq!(
            take(&mut BytesMut::from(&[1, 0, 0, 0, 99][..])),
            Err(FrameError::UnknownClass(99))
        );
    }
}
