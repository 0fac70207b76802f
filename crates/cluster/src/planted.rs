//! Planted bugs: faulty or altered behaviour of a node that tests must detect. Without the feature `planted-bugs` there are none.

use crate::handshake::WIRE_VERSIONS;

/// The planted bugs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// The node acts although its lease may have expired.
    #[cfg(feature = "planted-bugs")]
    pub no_lease_fence: bool,
    /// The node overwrites the state of a later activation.
    #[cfg(feature = "planted-bugs")]
    pub no_store_fence: bool,
    /// The newest supported wire version, as if this were a later build.
    #[cfg(feature = "planted-bugs")]
    pub wire_newest: Option<u16>,
}

impl Planted {
    /// Whether the node acts although its lease may have expired.
    pub fn ignores_lease(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.no_lease_fence;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// The supported wire versions, from the oldest to the newest.
    pub fn wire_versions(self) -> (u16, u16) {
        let (oldest, newest) = WIRE_VERSIONS;
        #[cfg(feature = "planted-bugs")]
        let newest = self.wire_newest.unwrap_or(newest);
        (oldest, newest)
    }
}
