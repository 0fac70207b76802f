//! How arguments, replies and state are encoded.
//!
//! Arguments and replies are encoded by position (postcard), since caller and callee are built from the same source.
//! State is encoded by field name (MessagePack), so that a field may be added between two versions of an application.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use elastin_types::Rejected;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;

/// State could not be encoded or decoded. The actor is as it was; trying again does not help, because the data or
/// the type is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of a `{kind}` can't be {what}: {why}")]
pub struct StateCodecError {
    /// The actor type.
    pub kind: &'static str,
    /// "encoded" or "decoded".
    pub what: &'static str,
    /// What the codec said.
    pub why: String,
}

/// Runs a codec on an application's type. Its code may be written by hand and panic, which here is one more way to fail.
fn contained<T, E: ToString>(codec: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(codec)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its own code panicked".to_owned()),
    }
}

/// Encodes an actor's state by field name.
pub fn encode_state<A: Actor>(state: &A) -> Result<Bytes, StateCodecError> {
    match contained(|| rmp_serde::to_vec_named(state)) {
        Ok(bytes) => Ok(bytes.into()),
        Err(why) => Err(StateCodecError {
            kind: A::NAME,
            what: "encoded",
            why,
        }),
    }
}

/// How many bytes [`encode_state`] would give, without keeping them; 0 if it can't be encoded.
pub fn encoded_state_size<A: Actor>(state: &A) -> u64 {
    struct Counter(u64);

    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    match contained(|| rmp_serde::encode::write_named(&mut counter, state)) {
        Ok(()) => counter.0,
        Err(_) => 0,
    }
}

/// Decodes what [`encode_state`] gave, possibly in an older version of the application.
///
/// A field that was saved and is no longer there is ignored. One that was not saved needs a default (`#[serde(default)]` on
/// the field or on the whole struct). One whose type does not fit any longer is an error that names it.
pub fn decode_state<A: Actor>(bytes: &[u8]) -> Result<A, StateCodecError> {
    contained(|| rmp_serde::from_slice(bytes)).map_err(|_| StateCodecError {
        kind: A::NAME,
        what: "decoded",
        why: contained(|| Ok::<_, String>(explain::<A>(bytes))).unwrap_or_else(|panicked| panicked),
    })
}

/// Why a state can't be decoded, with the way to the field at fault. Apart, because keeping track of the way costs time.
#[cold]
fn explain<A: Actor>(bytes: &[u8]) -> String {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    match serde_path_to_error::deserialize::<_, A>(&mut decoder) {
        Ok(_) => "it can be decoded only with its fields' names known".to_owned(),
        Err(error) => match error.path().to_string().as_str() {
            // At the top, or where no field had been named yet.
            "." | "?" => error.inner().to_string(),
            path => format!("field `{path}`: {}", error.inner()),
        },
    }
}

/// What was encoded is copied out of a buffer that is kept, unless it is longer than this.
const COPIED_BYTES_MAX: usize = 4 << 10;

thread_local! {
    /// Where this thread encodes: it need not grow step by step, and what leaves takes no more memory than it needs.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes the arguments or the reply of a function.
pub(crate) fn encode<T: Serialize>(value: &T, what: &str, method: &str) -> Result<Bytes, Rejected> {
    let buffer = BUFFER.take();
    match contained(|| postcard::to_extend(value, buffer)) {
        Ok(encoded) if encoded.len() > COPIED_BYTES_MAX => Ok(encoded.into()),
        Ok(mut encoded) => {
            let bytes = Bytes::copy_from_slice(&encoded);
            encoded.clear();
            BUFFER.set(encoded);
            Ok(bytes)
        }
        Err(why) => Err(undecodable(what, method, why)),
    }
}

/// Decodes the arguments or the reply of a function.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str, method: &str) -> Result<T, Rejected> {
    contained(|| postcard::from_bytes(bytes)).map_err(|why| undecodable(what, method, why))
}

/// How many bytes [`encode`] would give, without keeping them; 0 if it can't be encoded.
pub(crate) fn encoded_size<T: Serialize>(value: &T) -> u64 {
    let size = postcard::ser_flavors::Size::default();
    contained(|| postcard::serialize_with_flavor(value, size)).unwrap_or_default() as u64
}

fn undecodable(what: &str, method: &str, why: String) -> Rejected {
    Rejected::Undecodable {
        what: what.to_owned(),
        method: method.to_owned(),
        why,
    }
}
