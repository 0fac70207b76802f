//! The handshake that opens a connection, so that no frame reaches the wrong node.
//!
//! ```text
//!   dialler ── hello: versions, cluster, from, to, nonce ──► acceptor
//!   dialler ◄─ welcome: version, nonce, proof (or refused) ─ acceptor
//!   dialler ── proof ──────────────────────────────────────► acceptor     only if they share a secret
//! ```

use elastin_stores::secret::{Nonce, Proof, Secret, Side, nonce};
use elastin_types::NodeId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frame::{self, Class, FrameError};

/// The wire versions that this build supports, from the oldest to the newest. Two nodes use the newest that both support, so that
/// a cluster can be upgraded node by node.
pub const WIRE_VERSIONS: (u16, u16) = (4, 4);

/// The largest handshake message: a longer one does not come from a node.
const HANDSHAKE_BYTES_MAX: usize = 1024;

/// The first message. Its first fields must never change: no other version could decode them.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    magic: [u8; 8],
    versions: (u16, u16),
    cluster: String,
    from: NodeId,
    to: NodeId,
    nonce: Nonce,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Welcome {
        version: u16,
        nonce: Nonce,
        /// Present if the nodes share a secret.
        proof: Option<Proof>,
    },
    Refused(Refusal),
}

/// The reason why a node refuses a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The nodes have no wire version in common.
    #[error("it supports wire versions {} to {}, the peer supports {} to {}", theirs.0, theirs.1, ours.0, ours.1)]
    Version {
        /// The versions of the node that refuses.
        ours: (u16, u16),
        /// The versions of the node that is refused.
        theirs: (u16, u16),
    },
    /// The nodes belong to different clusters.
    #[error("the peer belongs to cluster `{ours}`")]
    Cluster {
        /// The cluster of the node that refuses.
        ours: String,
    },
    /// Another node, or a restarted one, has that address now.
    #[error("the peer is {ours} now")]
    NotMe {
        /// The node that refuses.
        ours: NodeId,
    },
    /// The node does not have the cluster's secret.
    #[error("it does not have the cluster's secret")]
    Secret,
}

/// The reason why a connection could not be opened. No frame was sent on it.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer does not follow the protocol.
    #[error("the other side is no node: {0}")]
    Garbage(String),
    /// One side refused the other.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
}

impl From<FrameError> for HandshakeError {
    fn from(error: FrameError) -> Self {
        HandshakeError::Garbage(error.to_string())
    }
}

const MAGIC: [u8; 8] = *b"ELASTIN\0";

/// The identity of a node in the handshake.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) me: NodeId,
    pub(crate) versions: (u16, u16),
    /// The shared secret of the cluster, if its nodes authenticate by one.
    pub(crate) secret: Option<Secret>,
}

impl Hello {
    /// The subject of a proof: all fields that the proof must authenticate.
    fn subject(&self) -> Vec<u8> {
        postcard::to_stdvec(&(self.versions, &self.cluster, self.from, self.to)).expect("a hello is plain data")
    }
}

/// The newest version in two ranges, each from the oldest to the newest supported version.
pub fn common_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

/// The dialling side. Returns the negotiated version.
pub(crate) async fn dial<R, W>(
    reader: &mut R,
    writer: &mut W,
    identity: &Identity,
    peer: NodeId,
) -> Result<u16, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let hello = Hello {
        magic: MAGIC,
        versions: identity.versions,
        cluster: identity.cluster.clone(),
        from: identity.me,
        to: peer,
        nonce: nonce(),
    };
    write(writer, &hello).await?;
    let (version, theirs, proof) = match read(reader).await? {
        Answer::Welcome { version, nonce, proof } => (version, nonce, proof),
        Answer::Refused(refusal) => return Err(refusal.into()),
    };
    let (oldest, newest) = identity.versions;
    if !(oldest..=newest).contains(&version) {
        return Err(HandshakeError::Garbage(format!(
            "it chose wire version {version}, which was not offered"
        )));
    }
    if let Some(secret) = &identity.secret {
        let subject = hello.subject();
        let proved = |proof: &Proof| secret.is_proved(proof, Side::Acceptor, &subject, &hello.nonce, &theirs);
        if !proof.as_ref().is_some_and(proved) {
            return Err(Refusal::Secret.into());
        }
        write(writer, &secret.prove(Side::Dialler, &subject, &hello.nonce, &theirs)).await?;
    } else if proof.is_some() {
        // The peer expects a proof, which needs a secret.
        return Err(Refusal::Secret.into());
    }
    Ok(version)
}

/// The accepting side. Returns the dialler and the negotiated version.
pub(crate) async fn accept<R, W>(
    reader: &mut R,
    writer: &mut W,
    identity: &Identity,
) -> Result<(NodeId, u16), HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let hello: Hello = read(reader).await?;
    if hello.magic != MAGIC {
        return Err(HandshakeError::Garbage("the hello has another magic number".into()));
    }
    let version = match welcome(&hello, identity) {
        Ok(version) => version,
        Err(refusal) => {
            write(writer, &Answer::Refused(refusal.clone())).await?;
            return Err(refusal.into());
        }
    };
    let ours = nonce();
    let subject = hello.subject();
    let prove = |secret: &Secret| secret.prove(Side::Acceptor, &subject, &hello.nonce, &ours);
    let answer = Answer::Welcome {
        version,
        nonce: ours,
        proof: identity.secret.as_ref().map(prove),
    };
    write(writer, &answer).await?;
    if let Some(secret) = &identity.secret {
        let proof: Proof = read(reader).await?;
        if !secret.is_proved(&proof, Side::Dialler, &subject, &hello.nonce, &ours) {
            return Err(Refusal::Secret.into());
        }
    }
    Ok((hello.from, version))
}

/// Negotiates the version, or refuses the dialler.
fn welcome(hello: &Hello, identity: &Identity) -> Result<u16, Refusal> {
    let Some(version) = common_version(identity.versions, hello.versions) else {
        return Err(Refusal::Version {
            ours: identity.versions,
            theirs: hello.versions,
        });
    };
    if hello.cluster != identity.cluster {
        return Err(Refusal::Cluster {
            ours: identity.cluster.clone(),
        });
    }
    if hello.to != identity.me {
        return Err(Refusal::NotMe { ours: identity.me });
    }
    Ok(version)
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, value: &impl Serialize) -> Result<(), HandshakeError> {
    let payload = postcard::to_stdvec(value).map_err(|error| HandshakeError::Garbage(error.to_string()))?;
    let mut out = Vec::new();
    frame::put(&mut out, Class::Handshake, &payload)?;
    stream.write_all(&out).await?;
    // TLS buffers bytes until it is flushed.
    stream.flush().await?;
    Ok(())
}

/// Reads exactly one frame, so that no byte behind it is consumed.
async fn read<S, T>(stream: &mut S) -> Result<T, HandshakeError>
where
    S: AsyncRead + Unpin,
    T: for<'a> Deserialize<'a>,
{
    let length = stream.read_u32_le().await? as usize;
    if length > HANDSHAKE_BYTES_MAX || length == 0 {
        return Err(HandshakeError::Garbage(format!(
            "a handshake message of {length} bytes"
        )));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    if bytes[0] != Class::Handshake as u8 {
        return Err(HandshakeError::Garbage("a frame before the handshake".into()));
    }
    postcard::from_bytes(&bytes[1..]).map_err(|error| HandshakeError::Garbage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastin_golden as golden;

    fn identity(cluster: &str, me: u64) -> Identity {
        Identity {
            cluster: cluster.into(),
            me: NodeId(me),
            versions: WIRE_VERSIONS,
            secret: None,
        }
    }

    fn with_versions(versions: (u16, u16), me: u64) -> Identity {
        Identity {
            versions,
            ..identity("a", me)
        }
    }

    fn with_secret(secret: &Secret, me: u64) -> Identity {
        Identity {
            secret: Some(secret.clone()),
            ..identity("a", me)
        }
    }

    async fn connect(dialler: Identity, wanted: NodeId, acceptor: Identity) -> (String, String) {
        let (near, far) = tokio::io::duplex(4096);
        let (mut near_reader, mut near_writer) = tokio::io::split(near);
        let (mut far_reader, mut far_writer) = tokio::io::split(far);
        let dialling = async {
            let dialled = dial(&mut near_reader, &mut near_writer, &dialler, wanted).await;
            // A side that gives up closes the connection.
            drop((near_reader, near_writer));
            dialled
        };
        let (dialled, accepted) = tokio::join!(dialling, accept(&mut far_reader, &mut far_writer, &acceptor));
        let show = |error: HandshakeError| error.to_string();
        (
            dialled.map_or_else(show, |version| format!("version {version}")),
            accepted.map_or_else(show, |(from, version)| format!("from {from}, version {version}")),
        )
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_connect() {
        let connected = connect(identity("a", 1), NodeId(2), identity("a", 2)).await;
        assert_eq!(connected, ("version 4".into(), "from n1, version 4".into()));
        let secret = Secret::generate();
        let connected = connect(with_secret(&secret, 1), NodeId(2), with_secret(&secret, 2)).await;
        assert_eq!(connected, ("version 4".into(), "from n1, version 4".into()));
    }

    #[tokio::test]
    async fn nodes_negotiate_the_newest_common_version() {
        let check = async |one, other, expected: &str| {
            let (dialled, accepted) = connect(with_versions(one, 1), NodeId(2), with_versions(other, 2)).await;
            assert_eq!((dialled.as_str(), accepted), (expected, format!("from n1, {expected}")));
        };
        check((1, 3), (2, 5), "version 3").await;
        check((4, 4), (1, 9), "version 4").await;
        let (dialled, _) = connect(with_versions((1, 2), 1), NodeId(2), with_versions((3, 4), 2)).await;
        assert_eq!(
            dialled,
            "refused: it supports wire versions 1 to 2, the peer supports 3 to 4"
        );
    }

    #[tokio::test]
    async fn a_version_that_was_not_offered_is_refused() {
        for version in [WIRE_VERSIONS.0 - 1, WIRE_VERSIONS.1 + 1] {
            let (near, far) = tokio::io::duplex(4096);
            let (mut near_reader, mut near_writer) = tokio::io::split(near);
            let (_far_reader, mut far_writer) = tokio::io::split(far);
            let welcome = Answer::Welcome {
                version,
                nonce: [9; 16],
                proof: None,
            };
            write(&mut far_writer, &welcome).await.unwrap();
            let error = dial(&mut near_reader, &mut near_writer, &identity("a", 1), NodeId(2)).await;
            let error = error.expect_err("the version was not offered");
            assert!(error.to_string().ends_with("which was not offered"), "{error}");
        }
    }

    #[tokio::test]
    async fn refusals_state_their_reason() {
        let (dialled, _) = connect(identity("a", 1), NodeId(2), identity("b", 2)).await;
        assert_eq!(dialled, "refused: the peer belongs to cluster `b`");
        let (dialled, accepted) = connect(identity("a", 1), NodeId(2), identity("a", 3)).await;
        assert_eq!(dialled, "refused: the peer is n3 now");
        assert_eq!(accepted, "refused: the peer is n3 now");
    }

    #[tokio::test]
    async fn another_secret_or_none_is_refused() {
        let (ours, other) = (Secret::generate(), Secret::generate());
        let without = "refused: it does not have the cluster's secret";
        let (dialled, accepted) = connect(with_secret(&ours, 1), NodeId(2), with_secret(&other, 2)).await;
        assert_eq!(
            dialled, without,
            "the dialler verifies the proof first, and closes the connection"
        );
        assert!(accepted.starts_with("the connection failed"), "{accepted}");
        let (dialled, _) = connect(with_secret(&ours, 1), NodeId(2), identity("a", 2)).await;
        assert_eq!(dialled, without);
        let (dialled, accepted) = connect(identity("a", 1), NodeId(2), with_secret(&ours, 2)).await;
        assert_eq!(dialled, without);
        assert!(accepted.starts_with("the connection failed"), "{accepted}");
    }

    #[tokio::test]
    async fn a_replayed_hello_is_refused() {
        let secret = Secret::generate();
        let hello = Hello {
            magic: MAGIC,
            versions: WIRE_VERSIONS,
            cluster: "a".into(),
            from: NodeId(1),
            to: NodeId(2),
            nonce: [7; 16],
        };
        // A recorded handshake, replayed to a node that has chosen another nonce.
        let proof = secret.prove(Side::Dialler, &hello.subject(), &hello.nonce, &[9; 16]);
        let (near, far) = tokio::io::duplex(4096);
        let (_near_reader, mut near_writer) = tokio::io::split(near);
        write(&mut near_writer, &hello).await.unwrap();
        write(&mut near_writer, &proof).await.unwrap();
        let (mut far_reader, mut far_writer) = tokio::io::split(far);
        let error = accept(&mut far_reader, &mut far_writer, &with_secret(&secret, 2)).await;
        assert!(
            matches!(error, Err(HandshakeError::Refused(Refusal::Secret))),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn garbage_is_refused() {
        let (mut near, far) = tokio::io::duplex(4096);
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let (mut far_reader, mut far_writer) = tokio::io::split(far);
        let error = accept(&mut far_reader, &mut far_writer, &identity("a", 2)).await;
        assert!(matches!(error, Err(HandshakeError::Garbage(_))), "{error:?}");
    }

    golden::samples! {
        fn answers() -> Answer {
            "welcome": Answer::Welcome { proof: None, .. } => Answer::Welcome {
                version: 1,
                nonce: [9; 16],
                proof: None,
            },
            "welcome with a proof": Answer::Welcome { proof: Some(_), .. } => Answer::Welcome {
                version: 1,
                nonce: [9; 16],
                proof: Some([7; 32]),
            },
            "refused": Answer::Refused(_) => Answer::Refused(Refusal::Secret),
        }
    }

    golden::samples! {
        fn refusals() -> Refusal {
            "version": Refusal::Version { .. } => Refusal::Version {
                ours: (3, 4),
                theirs: (1, 2),
            },
            "cluster": Refusal::Cluster { .. } => Refusal::Cluster { ours: "app".into() },
            "not me": Refusal::NotMe { .. } => Refusal::NotMe { ours: NodeId(300) },
            "secret": Refusal::Secret => Refusal::Secret,
        }
    }

    /// No other version could decode a changed handshake.
    #[test]
    fn the_encoding_of_the_handshake_is_unchanged() {
        let framed = |name: &str, payload: Vec<u8>| {
            let mut bytes = Vec::new();
            frame::put(&mut bytes, Class::Handshake, &payload).unwrap();
            golden::line(name, &bytes)
        };
        let hello = Hello {
            magic: MAGIC,
            versions: (1, 2),
            cluster: "app".into(),
            from: NodeId(5),
            to: NodeId(300),
            nonce: [9; 16],
        };
        let proof: Proof = [7; 32];
        let mut lines = vec![
            framed("hello", golden::encoded(&hello)),
            framed("proof", golden::encoded(&proof)),
            golden::line("subject of a proof", &hello.subject()),
        ];
        lines.extend(
            answers()
                .iter()
                .map(|(name, answer)| framed(name, golden::encoded(answer))),
        );
        for (name, refusal) in refusals() {
            lines.push(framed(
                &format!("refused {name}"),
                golden::encoded(&Answer::Refused(refusal)),
            ));
        }
        golden::check("tests/wire/handshake.txt", &lines);
    }
}
