//! What two nodes say first on a connection, so that no frame goes to the wrong one.

use bytes::BytesMut;
use elastin_types::NodeId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frame::{self, Class, FrameError};

/// The version of frames and messages that this build speaks.
pub const WIRE_VERSION: u16 = 1;

/// A handshake is short: whoever sends more than this is no node.
const HANDSHAKE_BYTES_MAX: usize = 1024;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    magic: [u8; 8],
    version: u16,
    cluster: String,
    from: NodeId,
    to: NodeId,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Welcome,
    Refused(Refusal),
}

/// Why a node does not talk to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// It speaks another version.
    #[error("it speaks wire version {theirs}, the peer speaks {ours}")]
    Version {
        /// The version of the node that refuses.
        ours: u16,
        /// The version of the node that is refused.
        theirs: u16,
    },
    /// It belongs to another cluster.
    #[error("the peer belongs to cluster `{ours}`")]
    Cluster {
        /// The cluster of the node that refuses.
        ours: String,
    },
    /// Another node (or another life of it) lives at that address now.
    #[error("the peer is {ours} now")]
    NotMe {
        /// The node that answered.
        ours: NodeId,
    },
}

/// Why a connection could not be opened. Nothing was sent on it.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The other side does not speak the protocol.
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

/// Who a node is, for the handshake.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) me: NodeId,
}

/// The dialling side.
pub(crate) async fn dial<S>(stream: &mut S, identity: &Identity, peer: NodeId) -> Result<(), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello = Hello {
        magic: MAGIC,
        version: WIRE_VERSION,
        cluster: identity.cluster.clone(),
        from: identity.me,
        to: peer,
    };
    write(stream, &hello).await?;
    match read(stream).await? {
        Answer::Welcome => Ok(()),
        Answer::Refused(refusal) => Err(refusal.into()),
    }
}

/// The accepting side: says who dialled.
pub(crate) async fn accept<S>(stream: &mut S, identity: &Identity) -> Result<NodeId, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello: Hello = read(stream).await?;
    if hello.magic != MAGIC {
        return Err(HandshakeError::Garbage("the greeting is not ours".into()));
    }
    let refusal = if hello.version != WIRE_VERSION {
        Some(Refusal::Version {
            ours: WIRE_VERSION,
            theirs: hello.version,
        })
    } else if hello.cluster != identity.cluster {
        Some(Refusal::Cluster {
            ours: identity.cluster.clone(),
        })
    } else if hello.to != identity.me {
        Some(Refusal::NotMe { ours: identity.me })
    } else {
        None
    };
    match refusal {
        None => {
            write(stream, &Answer::Welcome).await?;
            Ok(hello.from)
        }
        Some(refusal) => {
            write(stream, &Answer::Refused(refusal.clone())).await?;
            Err(refusal.into())
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, value: &impl Serialize) -> Result<(), HandshakeError> {
    let payload = postcard::to_stdvec(value).map_err(|error| HandshakeError::Garbage(error.to_string()))?;
    let mut out = BytesMut::new();
    frame::put(&mut out, Class::Handshake, &payload)?;
    stream.write_all(&out).await?;
    Ok(())
}

/// Reads exactly one frame, byte by exact byte, so that nothing of what follows is taken off the stream.
async fn read<S, T>(stream: &mut S) -> Result<T, HandshakeError>
where
    S: AsyncRead + Unpin,
    T: for<'a> Deserialize<'a>,
{
    let length = stream.read_u32_le().await? as usize;
    if length > HANDSHAKE_BYTES_MAX || length == 0 {
        return Err(HandshakeError::Garbage(format!("a greeting of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    if bytes[0] != Class::Handshake as u8 {
        return Err(HandshakeError::Garbage("a frame before the greeting".into()));
    }
    postcard::from_bytes(&bytes[1..]).map_err(|error| HandshakeError::Garbage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: &str, me: u64) -> Identity {
        Identity {
            cluster: cluster.into(),
            me: NodeId(me),
        }
    }

    async fn meet(dialler: Identity, wanted: NodeId, acceptor: Identity) -> (String, String) {
        let (mut near, mut far) = tokio::io::duplex(4096);
        let (dialled, accepted) = tokio::join!(dial(&mut near, &dialler, wanted), accept(&mut far, &acceptor));
        let show = |error: HandshakeError| error.to_string();
        (
            dialled.map_or_else(show, |()| "ok".into()),
            accepted.map_or_else(show, |from| format!("from {from}")),
        )
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_meet() {
        let met = meet(identity("a", 1), NodeId(2), identity("a", 2)).await;
        assert_eq!(met, ("ok".into(), "from n1".into()));
    }

    #[tokio::test]
    async fn strangers_are_refused_with_the_reason() {
        let (dialled, _) = meet(identity("a", 1), NodeId(2), identity("b", 2)).await;
        assert_eq!(dialled, "refused: the peer belongs to cluster `b`");
        let (dialled, accepted) = meet(identity("a", 1), NodeId(2), identity("a", 3)).await;
        assert_eq!(dialled, "refused: the peer is n3 now");
        assert_eq!(accepted, "refused: the peer is n3 now");
    }

    #[tokio::test]
    async fn garbage_is_no_greeting() {
        let (mut near, mut far) = tokio::io::duplex(4096);
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let error = accept(&mut far, &identity("a", 1)).await.unwrap_err();
        assert!(matches!(error, HandshakeError::Garbage(_)), "{error}");
    }
}
