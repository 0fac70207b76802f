//! Any bytes as a greeting, and as the answer to one: refused or understood, and never welcome without the secret.
#![no_main]

use std::sync::LazyLock;

use elastin_cluster::{HandshakeError, Refusal, WIRE_VERSIONS, fuzzing};
use elastin_stores::secret::Secret;
use libfuzzer_sys::fuzz_target;

static SECRET: LazyLock<Secret> = LazyLock::new(Secret::generate);

fuzz_target!(|said: &[u8]| {
    let accepted = fuzzing::accept(said, None);
    if let Ok((_, version)) = accepted {
        assert!((WIRE_VERSIONS.0..=WIRE_VERSIONS.1).contains(&version));
    }
    // The proof cannot be guessed, not even by a peer whose greeting is otherwise valid.
    let greeted = fuzzing::accept(said, Some(&SECRET));
    assert!(greeted.is_err());
    if accepted.is_err() {
        assert_eq!(
            accepted.map_err(|error| error.to_string()).err(),
            greeted.map_err(|error| error.to_string()).err(),
            "the secret matters only to peers that are welcome otherwise"
        );
    }
    let dialled = fuzzing::dial(said, Some(&SECRET));
    assert!(dialled.is_err());
    if fuzzing::dial(said, None).is_ok() {
        assert!(matches!(dialled, Err(HandshakeError::Refused(Refusal::Secret))));
    }
});
