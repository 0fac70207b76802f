//! Transport and drivers that run Elastin's protocols on sockets.
//!
//! Nothing here decides anything: frames go where `elastin-protocol` says, and what control and admin frames mean is
//! known only to their ends.

mod alarm;
mod frame;
mod handshake;
mod machine;
mod membership;
mod peer;
mod reminders;
mod transport;

pub use elastin_protocol::membership::{MemberRecord, MembershipEnd, Role, Roster};
pub use frame::{Class, FRAME_BYTES_MAX, FrameError};
pub use handshake::{HandshakeError, Refusal, WIRE_VERSION};
pub use membership::{Heard, Membership, MembershipHandle};
pub use peer::{Above, MESSAGE_BYTES_MAX, Peer, PeerConfig};
pub use transport::{LINK_BYTES_MAX, Receiver, SendError, Transport};
