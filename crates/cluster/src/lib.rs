//! Transport and drivers that run Elastin's protocols on sockets.
//!
//! This crate makes no decisions: `elastin-protocol` routes every frame, and the payloads of control and admin frames are
//! opaque here.

mod authority;
mod coalesced_timer;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod membership;
mod node_driver;
mod outbox;
mod pending_calls;
mod planted;
mod reminders;
mod security;
mod serial_executor;
mod transport;
mod tuning;

pub use authority::{Authority, AuthorityError};
pub use elastin_protocol::membership::{MemberRecord, MembershipEnd, Role, Roster};
pub use frame::{Class, FRAME_BYTES_MAX, FrameError, Frames, Taken};
pub use handshake::{HandshakeError, Refusal, WIRE_VERSIONS, common_version};
pub use membership::{Membership, MembershipHandle, MembershipUpdate};
pub use node_driver::{MESSAGE_BYTES_MAX, NodeCallbacks, NodeDriver, NodeDriverConfig, NodeDriverMeasures};
pub use planted::Planted;
pub use security::{CertificateError, Certificates, Security};
pub use transport::{
    FollowUp, LinkTraffic, Receiver, SendError, StageMeasures, Steps, Transport, TransportConfig, TransportMeasures,
};
pub use tuning::LINK_BYTES_MAX;
