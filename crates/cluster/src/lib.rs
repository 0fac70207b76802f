//! Transport and drivers that run Elastin's protocols on sockets.
//!
//! Nothing here decides anything: frames go where `elastin-protocol` says, and what control and admin frames mean is
//! known only to their ends.

mod alarm;
mod authority;
mod callers;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
#[path = "../tests/golden/mod.rs"]
mod golden;
mod handshake;
mod machine;
mod membership;
mod peer;
mod planted;
mod protocol_frame;
mod reminders;
mod security;
mod transport;

pub use authority::{Authority, AuthorityError};
pub use elastin_protocol::membership::{MemberRecord, MembershipEnd, Role, Roster};
pub use frame::{Class, FRAME_BYTES_MAX, FrameError, Frames, Taken};
pub use handshake::{HandshakeError, Refusal, WIRE_VERSIONS, common_version};
pub use membership::{Heard, Membership, MembershipHandle};
pub use peer::{Above, MESSAGE_BYTES_MAX, Peer, PeerConfig, PeerMeasures};
pub use planted::Planted;
pub use security::{CertificateError, Certificates, Security};
pub use transport::{
    Following, LINK_BYTES_MAX, LinkTraffic, Receiver, SendError, StageMeasures, Transport, TransportConfig,
    TransportMeasures,
};
