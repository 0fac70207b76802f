//! The frames between a client and a server of stores: a length and a postcard message.

use std::io;

use elastin_protocol::store::{
    CoordinationError, CoordinationReply, CoordinationRequest, Revision, STATE_BYTES_MAX, StateError, StateReply,
    StateRequest, WatchBatch,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::secret::{Nonce, Proof};

/// The start of every connection, to detect foreign protocols.
pub(crate) const MAGIC: [u8; 8] = *b"elastin\0";
/// The version of this protocol. Both ends must have the same: they are one binary.
pub(crate) const VERSION: u16 = 2;
/// The longest frame: the largest state with its id and framing.
pub(crate) const FRAME_BYTES_MAX: usize = STATE_BYTES_MAX + (1 << 20);
/// The longest frame before authentication.
pub(crate) const HELLO_BYTES_MAX: usize = 256;
/// The length of a frame's length prefix.
const LENGTH_BYTES: usize = 4;

/// A client's first message.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u16,
    /// The session to resume after a lost connection.
    pub(crate) session: Option<Session>,
    pub(crate) nonce: Nonce,
}

/// The subject of the proofs of both ends.
pub(crate) const SUBJECT: &[u8] = b"stores";

/// One client's session, which spans reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The incarnation of the server that created it.
    pub(crate) server: u64,
    pub(crate) number: u64,
}

/// A server's answer to [`Hello`]. The client answers a challenge with its own [`Proof`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Challenge {
    Prove { nonce: Nonce, proof: Proof },
    OtherVersion { version: u16 },
}

/// A server's answer to a valid proof.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) session: Session,
}

/// A request of a client. Ids increase within a session.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientFrame {
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ask {
    State(StateRequest),
    Coordination(CoordinationRequest),
    /// Starts a watch with this frame's id.
    Watch {
        prefix: String,
        from: Revision,
    },
    /// Ends the watch with this frame's id.
    Unwatch,
}

/// A server's reply to the request of this id, or a batch of the watch of this id.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerFrame {
    pub(crate) id: u64,
    pub(crate) answer: Answer,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    State(Result<StateReply, StateError>),
    Coordination(Result<CoordinationReply, CoordinationError>),
    Watch(Result<WatchBatch, CoordinationError>),
}

/// Appends a frame with this message. The error is the length of a message that is too long.
pub(crate) fn append(frames: &mut Vec<u8>, message: &impl Serialize) -> Result<(), usize> {
    let start = frames.len();
    frames.extend([0; LENGTH_BYTES]);
    // `to_io` writes into the vector itself, which avoids a copy of a large state.
    postcard::to_io(message, &mut *frames).expect("messages are plain data, and memory takes them");
    let bytes = frames.len() - start - LENGTH_BYTES;
    if bytes > FRAME_BYTES_MAX {
        frames.truncate(start);
        return Err(bytes);
    }
    let length = u32::try_from(bytes).expect("the longest frame fits").to_le_bytes();
    frames[start..start + LENGTH_BYTES].copy_from_slice(&length);
    Ok(())
}

/// Sends one message.
pub(crate) async fn send(writer: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let mut frame = Vec::new();
    append(&mut frame, message).map_err(|bytes| invalid(format!("a message of {bytes} bytes")))?;
    writer.write_all(&frame).await
}

/// Reads a frame and decodes its message. `None` if the peer closed the connection between frames.
pub(crate) async fn read<M: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<Option<M>> {
    let mut length = [0; LENGTH_BYTES];
    if reader.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > bytes_max {
        return Err(invalid(format!(
            "a frame of {length} bytes, where {bytes_max} are allowed"
        )));
    }
    buffer.clear();
    // The buffer grows with the received bytes: a forged length alone takes no memory.
    reader.take(length as u64).read_to_end(buffer).await?;
    if buffer.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = postcard::from_bytes(buffer).map_err(|error| invalid(format!("undecodable message: {error}")))?;
    Ok(Some(message))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use bytes::Bytes;
    use elastin_protocol::store::{Change, Commit, LeaseId, StoreFailure};
    use elastin_types::{ActivationEpoch, ActorId, ActorType, SlotEpoch};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The encoding of a message, which must decode to the same message.
    fn bytes_of<M: Serialize + DeserializeOwned + PartialEq + Debug>(message: M) -> String {
        let mut frame = Vec::new();
        append(&mut frame, &message).unwrap();
        assert_eq!(postcard::from_bytes::<M>(&frame[LENGTH_BYTES..]).unwrap(), message);
        hex(&frame)
    }

    #[test]
    fn the_wire_format_is_stable() {
        // A change here changes the protocol: increment `VERSION`.
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            session: None,
            nonce: [7; 16],
        };
        assert_eq!(
            bytes_of(hello),
            format!("1a000000656c617374696e000200{}", "07".repeat(16))
        );
        let save = StateRequest::Save {
            actor: ActorId::new(ActorType::of("Folder"), 7),
            epoch: ActivationEpoch {
                slot: SlotEpoch(1),
                counter: 2,
            },
            state: Bytes::from("abc"),
        };
        let ask = Ask::State(save);
        assert_eq!(
            bytes_of(ClientFrame { id: 300, ask }),
            "11000000ac02000200fdf5d5310007010203616263"
        );
        let ask = Ask::Coordination(Commit::put_bound("k", "v", LeaseId(4)).into());
        assert_eq!(bytes_of(ClientFrame { id: 1, ask }), "0c000000010103000100016b01760104");
        let answer = Answer::State(Err(StoreFailure::DiskFull.into()));
        assert_eq!(bytes_of(ServerFrame { id: 1, answer }), "050000000100010503");
        let changes = vec![Change::Deleted {
            key: "k".to_owned(),
            revision: Revision(9),
        }];
        let answer = Answer::Watch(Ok(WatchBatch {
            changes,
            revision: Revision(9),
        }));
        assert_eq!(bytes_of(ServerFrame { id: 1, answer }), "090000000102000101016b0909");
    }

    #[test]
    fn a_message_that_is_too_long_is_not_appended() {
        let mut frames = b"before".to_vec();
        let state = Bytes::from(vec![0; FRAME_BYTES_MAX]);
        assert!(append(&mut frames, &state).is_err());
        assert_eq!(frames, b"before");
    }

    async fn refused(bytes: &[u8]) -> io::ErrorKind {
        let mut reader = bytes;
        let read = read::<ClientFrame>(&mut reader, &mut Vec::new(), 100).await;
        read.unwrap_err().kind()
    }

    #[tokio::test]
    async fn garbage_is_an_error_and_end_of_stream_is_not() {
        let mut nothing: &[u8] = &[];
        assert_eq!(
            read::<ClientFrame>(&mut nothing, &mut Vec::new(), 100).await.unwrap(),
            None
        );
        assert_eq!(refused(&[1]).await, io::ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[9, 0, 0, 0, 1]).await, io::ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[255, 255, 255, 255]).await, io::ErrorKind::InvalidData);
        assert_eq!(refused(&[2, 0, 0, 0, 1, 99]).await, io::ErrorKind::InvalidData);
    }
}
