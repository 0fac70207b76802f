//! Internals that only fuzz targets use.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use elastin_protocol::Frame;
use elastin_stores::secret::Secret;
use elastin_types::NodeId;

use crate::handshake::{self, HandshakeError, Identity, WIRE_VERSIONS};
use crate::wire_codec;

/// The cluster name that a handshake must have.
pub const CLUSTER: &str = "app";
/// The node that a handshake must be for.
pub const ME: NodeId = NodeId(300);

/// Encodes a protocol frame.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    wire_codec::put(&mut out, frame);
    out
}

/// Decodes a protocol frame.
pub fn decode(bytes: &[u8]) -> postcard::Result<Frame> {
    wire_codec::get(bytes)
}

fn identity(secret: Option<&Secret>) -> Identity {
    Identity {
        cluster: CLUSTER.into(),
        me: ME,
        versions: WIRE_VERSIONS,
        secret: secret.cloned(),
    }
}

/// Runs the accepting side of a handshake on the bytes of a dialler. Returns the dialler and the negotiated version.
pub fn accept(mut input: &[u8], secret: Option<&Secret>) -> Result<(NodeId, u16), HandshakeError> {
    let identity = identity(secret);
    complete(handshake::accept(&mut input, &mut tokio::io::sink(), &identity))
}

/// Runs the dialling side of a handshake on the bytes of an acceptor. Returns the negotiated version.
pub fn dial(mut input: &[u8], secret: Option<&Secret>) -> Result<u16, HandshakeError> {
    let identity = identity(secret);
    complete(handshake::dial(
        &mut input,
        &mut tokio::io::sink(),
        &identity,
        NodeId(5),
    ))
}

/// Runs a handshake whose input is complete, so that it never waits.
fn complete<T>(handshake: impl Future<Output = T>) -> T {
    match pin!(handshake).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => unreachable!("the input is complete"),
    }
}
