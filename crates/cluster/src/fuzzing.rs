//! Internals that only fuzz targets use.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use elastin_stores::secret::Secret;
use elastin_types::NodeId;

use crate::handshake::{self, HandshakeError, Identity, WIRE_VERSIONS};

/// The cluster name that a handshake must have.
pub const CLUSTER: &str = "app";
/// The node that a handshake must be for.
pub const ME: NodeId = NodeId(300);

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
