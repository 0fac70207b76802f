//! Handles arbitrary bytes as a greeting and as its answer: they are never accepted without the secret.
#![no_main]

use std::sync::LazyLock;

use elastin_cluster::{HandshakeError, Refusal, WIRE_VERSIONS, fuzzing};
use elastin_stores::secret::Secret;
use libfuzzer_sys::fuzz_target;

static SECRET: LazyLock<Secret> = LazyLock::new(Secret::generate);

fuzz_target!(|bytes: &[u8]| {
    let accepted = fuzzing::accept(bytes, None);
    if let Ok((_, version)) = accepted {
        assert!((WIRE_VERSIONS.0..=WIRE_VERSIONS.1).contains(&version));
    }
    // The proof cannot be guessed, not even by a peer whose greeting is otherwise valid.
    let authenticated = fuzzing::accept(bytes, Some(&SECRET));
    assert!(authenticated.is_err());
    if accepted.is_err() {
        assert_eq!(
            accepted.map_err(|error| error.to_string()).err(),
            authenticated.map_err(|error| error.to_string()).err(),
            "the secret matters only after an otherwise valid greeting"
        );
    }
    let dialled = fuzzing::dial(bytes, Some(&SECRET));
    assert!(dialled.is_err());
    if fuzzing::dial(bytes, None).is_ok() {
        assert!(matches!(dialled, Err(HandshakeError::Refused(Refusal::Secret))));
    }
});
