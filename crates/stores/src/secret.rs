//! A secret shared by the processes of a cluster, and mutual authentication with it.
//!
//! ```text
//!   dialler ── nonce ──────────────► acceptor
//!   dialler ◄─ nonce, proof of both ─ acceptor
//!   dialler ── proof of both ──────► acceptor
//! ```
//!
//! The secret itself is never sent, and a proof is valid for one pair of nonces, so nothing overheard can be replayed.

use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// The bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The length of a fingerprint: long enough to be unique, short enough to compare two by eye.
const FINGERPRINT_BYTES: usize = 16;

/// A random number that is used once.
pub type Nonce = [u8; 16];

/// Proves possession of the secret.
pub type Proof = [u8; 32];

/// The side that proves. Each side has its own proof, so that none can be reflected to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The side that dialled.
    Dialler,
    /// The side that accepted.
    Acceptor,
}

/// A secret shared by the processes of a cluster.
#[derive(Clone)]
pub struct Secret(hmac::Key, String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret")
    }
}

/// A text is not a secret.
#[derive(Debug, thiserror::Error)]
#[error("not a secret: expected {} hexadecimal digits", 2 * SECRET_BYTES)]
pub struct NotASecret;

impl Secret {
    /// Generates a new secret.
    pub fn generate() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        fill(&mut bytes);
        Self::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes), hexadecimal(bytes))
    }

    /// Its text, to pass to another process.
    pub fn text(&self) -> &str {
        &self.1
    }

    /// Parses the text of a secret.
    pub fn from_text(text: &str) -> Result<Self, NotASecret> {
        let text = text.trim();
        let digits = text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| NotASecret);
        if !digits {
            return Err(NotASecret);
        }
        let bytes: Result<Vec<u8>, NotASecret> = (0..text.len()).step_by(2).map(byte).collect();
        Ok(Self::from_bytes(&bytes?))
    }

    /// Reads a secret from a file.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(file)?;
        Self::from_text(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Writes the secret to a file that only this user can read.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
        writeln!(file, "{}", self.text())
    }

    /// Proves to the peer, for a protocol named `subject`, that this side has the secret.
    pub fn prove(&self, side: Side, subject: &[u8], dialler: &Nonce, acceptor: &Nonce) -> Proof {
        let tag = hmac::sign(&self.0, &message(side, subject, dialler, acceptor));
        tag.as_ref().try_into().expect("a tag has as many bytes as a proof")
    }

    /// Whether the peer has proved that it has the secret.
    pub fn is_proved(&self, proof: &Proof, side: Side, subject: &[u8], dialler: &Nonce, acceptor: &Nonce) -> bool {
        hmac::verify(&self.0, &message(side, subject, dialler, acceptor), proof).is_ok()
    }
}

/// Generates an unpredictable nonce.
pub fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    fill(&mut nonce);
    nonce
}

/// A short digest of some bytes. It is collision-resistant and reveals nothing about secret bytes.
pub fn fingerprint(bytes: &[u8]) -> String {
    hexadecimal(&digest(&SHA256, bytes).as_ref()[..FINGERPRINT_BYTES])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fill(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the system has random numbers");
}

fn message(side: Side, subject: &[u8], dialler: &Nonce, acceptor: &Nonce) -> Vec<u8> {
    // All parts but the last have a fixed length, so no two messages are equal.
    [&[side as u8][..], dialler, acceptor, subject].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_bound_to_side_secret_subject_and_nonces() {
        let (secret, other) = (Secret::generate(), Secret::generate());
        let (one, two) = (nonce(), nonce());
        let proof = secret.prove(Side::Dialler, b"subject", &one, &two);
        assert!(secret.is_proved(&proof, Side::Dialler, b"subject", &one, &two));
        assert!(!secret.is_proved(&proof, Side::Acceptor, b"subject", &one, &two));
        assert!(!secret.is_proved(&proof, Side::Dialler, b"other", &one, &two));
        assert!(!secret.is_proved(&proof, Side::Dialler, b"subject", &two, &one));
        assert!(!other.is_proved(&proof, Side::Dialler, b"subject", &one, &two));
    }

    #[test]
    fn a_secret_file_is_readable_by_its_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        let secret = Secret::generate();
        secret.write(&file).unwrap();
        assert_eq!(Secret::read(&file).unwrap().text(), secret.text());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Secret::from_text("not a secret").is_err());
        assert!(Secret::from_text(&"é".repeat(32)).is_err());
    }
}
