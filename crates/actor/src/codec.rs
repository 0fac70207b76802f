//! Encoding of arguments, replies and state.
//!
//! Arguments and replies are encoded by position (postcard), since caller and callee are built from the same source.
//! State is encoded by field name (MessagePack), so that a field may be added between two versions of an application.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use elastin_types::Rejected;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;

/// State could not be encoded or decoded. The actor is unchanged. A retry fails again, because the data or the type is
/// at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of a `{kind}` can't be {operation}: {why}")]
pub struct StateCodecError {
    /// The actor type.
    pub kind: &'static str,
    /// "encoded" or "decoded".
    pub operation: &'static str,
    /// The codec's error.
    pub why: String,
}

/// Runs a codec on an application's type. A hand-written implementation may panic, which is reported as an error.
fn contained<T, E: ToString>(codec: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(codec)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its `Serialize` or `Deserialize` implementation panicked".to_owned()),
    }
}

/// Encodes an actor's state by field name.
pub fn encode_state<A: Actor>(state: &A) -> Result<Bytes, StateCodecError> {
    match contained(|| rmp_serde::to_vec_named(state)) {
        Ok(bytes) => Ok(bytes.into()),
        Err(why) => Err(StateCodecError {
            kind: A::NAME,
            operation: "encoded",
            why,
        }),
    }
}

/// The size of the result of [`encode_state`], without allocating it; 0 if the state can't be encoded.
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

/// Decodes state from [`encode_state`], possibly of an older version of the application.
///
/// A removed field is ignored. An added field needs a default (`#[serde(default)]` on the field or the struct). A field
/// whose type has changed incompatibly is an error that names it.
pub fn decode_state<A: Actor>(bytes: &[u8]) -> Result<A, StateCodecError> {
    contained(|| rmp_serde::from_slice(bytes)).map_err(|_| StateCodecError {
        kind: A::NAME,
        operation: "decoded",
        why: contained(|| Ok::<_, String>(explain::<A>(bytes))).unwrap_or_else(|panicked| panicked),
    })
}

/// Explains why a state can't be decoded, with the path of the field at fault. Tracking the path is too slow for the
/// hot path.
#[cold]
fn explain<A: Actor>(bytes: &[u8]) -> String {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    match serde_path_to_error::deserialize::<_, A>(&mut decoder) {
        Ok(_) => "it can only be decoded without tracking field paths".to_owned(),
        Err(error) => match error.path().to_string().as_str() {
            // At the root, or before the first field.
            "." | "?" => error.inner().to_string(),
            path => format!("field `{path}`: {}", error.inner()),
        },
    }
}

/// Encodes the arguments or the reply of a function.
pub(crate) fn encode<T: Serialize>(value: &T, subject: &str, method: &str) -> Result<Bytes, Rejected> {
    let encoded = contained(|| postcard::to_extend(value, Vec::new()));
    encoded
        .map(Bytes::from)
        .map_err(|why| undecodable(subject, method, why))
}

/// Decodes the arguments or the reply of a function.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], subject: &str, method: &str) -> Result<T, Rejected> {
    contained(|| postcard::from_bytes(bytes)).map_err(|why| undecodable(subject, method, why))
}

/// The size of the result of [`encode`], without allocating it; 0 if the value can't be encoded.
pub(crate) fn encoded_size<T: Serialize>(value: &T) -> u64 {
    let size = postcard::ser_flavors::Size::default();
    contained(|| postcard::serialize_with_flavor(value, size)).unwrap_or_default() as u64
}

fn undecodable(subject: &str, method: &str, why: String) -> Rejected {
    Rejected::Undecodable {
        what: subject.to_owned(),
        method: method.to_owned(),
        why,
    }
}
