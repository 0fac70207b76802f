//! What fuzz targets reach that nobody else does.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use elastin_protocol::Frame;
use elastin_stores::secret::Secret;
use elastin_types::NodeId;

use crate::handshake::{self, HandshakeError, Identity, WIRE_VERSIONS};
use crate::wire_codec;

/// The cluster that greetings must be for.
pub const CLUSTER: &str = "app";
/// The node that must be greeted.
pub const ME: NodeId = NodeId(300);

/// A frame of the protocol, as it is sent.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    wire_codec::put(&mut out, frame);
    out
}

/// A frame of the protocol, as it is taken in.
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

/// What a node makes of somebody who has outgoing socket it and says this and no more: who that is, and the version that both speak.
pub fn accept(mut said: &[u8], secret: Option<&Secret>) -> Result<(NodeId, u16), HandshakeError> {
    let identity = identity(secret);
    at_once(handshake::accept(&mut said, &mut tokio::io::sink(), &identity))
}

/// What a node makes of somebody that it has outgoing socket, and who says this and no more: the version that both speak.
pub fn dial(mut said: &[u8], secret: Option<&Secret>) -> Result<u16, HandshakeError> {
    let identity = identity(secret);
    at_once(handshake::dial(&mut said, &mut tokio::io::sink(), &identity, NodeId(5)))
}

/// Runs what has nothing to wait for: all that will be said is there.
fn at_once<T>(handshake: impl Future<Output = T>) -> T {
    match pin!(handshake).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => unreachable!("there is nothing to wait for"),
    }
}
