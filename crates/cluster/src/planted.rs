//! What a node does wrong, or otherwise than this build would, on purpose: tests must notice it. Without the feature
//! `planted-bugs` there is nothing.

use crate::handshake::WIRE_VERSIONS;

/// What a node does otherwise on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Acts although its lease may have run out.
    #[cfg(feature = "planted-bugs")]
    pub no_lease_fence: bool,
    /// Writes over what a later activation has written.
    #[cfg(feature = "planted-bugs")]
    pub no_store_fence: bool,
    /// Speaks versions of the wire up to this one, as a later build would.
    #[cfg(feature = "planted-bugs")]
    pub wire_newest: Option<u16>,
}

impl Planted {
    /// Whether it acts although its lease may have run out.
    pub fn ignores_lease(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.no_lease_fence;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// The versions of the wire that it speaks, from the oldest to the newest.
    pub fn wire_versions(self) -> (u16, u16) {
        let (oldest, newest) = WIRE_VERSIONS;
        #[cfg(feature = "planted-bugs")]
        let newest = self.wire_newest.unwrap_or(newest);
        (oldest, newest)
    }
}
