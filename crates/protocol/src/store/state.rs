//! The state store: durable state of actors, guarded by activation epochs, and values that an application shares.

use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, KeyTooLong, NodeId, TenantId};
use serde::{Deserialize, Serialize};

use super::{Done, StoreFailure};

/// The largest state of one actor. A store keeps it in one row and sends it in one message.
pub const STATE_BYTES_MAX: usize = 64 << 20;
/// The largest shared value. Larger data belongs in actors, whose state moves with them.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest name of a shared value; databases limit the size of index keys.
pub const VALUE_NAME_BYTES_MAX: usize = 1024;
/// The most rows that one scan returns.
pub const SCAN_LIMIT_MAX: u32 = 1000;
/// A scan stops adding rows once it has this many bytes, so that a reply fits one message.
pub const SCAN_BYTES_MAX: usize = 4 << 20;

/// Durable store of actor state and shared application values. Requests are atomic.
///
/// - Every [`Done`] is called exactly once, and a write is durable before it is called with `Ok`.
/// - Requests that one thread submits one after the other take effect in that order.
/// - The epoch stored for an actor only grows; a write with a lower one is rejected.
pub trait StateStore: Send + Sync {
    /// Submits one request.
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>);
}

/// Namespace of shared values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Space {
    /// Elastin's own rows, such as reminders.
    System,
    /// The values of a tenant's application.
    Tenant(TenantId),
}

/// Key of a shared value or a lock. The two are separate; names of a space are ordered by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueKey {
    /// Its namespace.
    pub space: Space,
    /// Its name, of at most [`VALUE_NAME_BYTES_MAX`] bytes.
    pub name: Bytes,
}

/// Number of a write. Versions grow and are never reused, so a value that was deleted and written again differs from
/// the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u64);

/// A shared value and the version of the write that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// The version of its write.
    pub version: Version,
    /// Its bytes.
    pub value: Bytes,
}

/// Precondition of a swap on the current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// No precondition.
    Anything,
    /// The value does not exist.
    Absent,
    /// The value has this version.
    Version(Version),
}

/// A granted lock. The token is higher than that of every earlier holder, as a fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockToken {
    /// The lock.
    pub key: ValueKey,
    /// The grant's fencing token.
    pub token: Version,
}

/// A request to a [`StateStore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateRequest {
    /// Claims an actor for an activation: stores `epoch`, if it is higher than the stored one, and fences off earlier
    /// activations. The node that made a claim may repeat it. Answered by [`StateReply::Claimed`].
    Claim {
        /// The actor.
        actor: ActorId,
        /// The epoch of its new activation.
        epoch: ActivationEpoch,
        /// The node that holds the activation.
        claimer: NodeId,
    },
    /// Reads an actor's state without claiming it. Answered by [`StateReply::Loaded`].
    Load {
        /// The actor.
        actor: ActorId,
    },
    /// Writes an actor's state, unless a higher epoch is stored. Answered by [`StateReply::Saved`].
    Save {
        /// The actor.
        actor: ActorId,
        /// The epoch of the activation that writes. Becomes the stored one.
        epoch: ActivationEpoch,
        /// The state, of at most [`STATE_BYTES_MAX`] bytes.
        state: Bytes,
    },
    /// Removes an actor's state, unless a higher epoch is stored. The epoch itself stays, so that a late activation
    /// can't restore the state. Answered by [`StateReply::Deleted`].
    Delete {
        /// The actor.
        actor: ActorId,
        /// The epoch of the activation that deletes. Becomes the stored one.
        epoch: ActivationEpoch,
    },
    /// Reads a shared value. Answered by [`StateReply::Value`].
    Get {
        /// The value's name.
        key: ValueKey,
    },
    /// Replaces a shared value by compare-and-swap. Answered by [`StateReply::Swapped`].
    Swap {
        /// The value's name.
        key: ValueKey,
        /// The precondition.
        expected: Expected,
        /// The new value, of at most [`VALUE_BYTES_MAX`] bytes; `None` removes the value.
        value: Option<Bytes>,
        /// A lock that must still be held under this token, which fences off a holder whose lock expired.
        under: Option<LockToken>,
    },
    /// Reads the shared values of a space whose names are in a range, in order. Answered by [`StateReply::Rows`].
    Scan {
        /// The space.
        space: Space,
        /// The first name of the range.
        from: Bytes,
        /// The first name after the range; `None` goes to the end of the space.
        until: Option<Bytes>,
        /// The most rows wanted; [`SCAN_LIMIT_MAX`] and [`SCAN_BYTES_MAX`] limit them too.
        limit: u32,
    },
    /// Acquires a lock for some time, if it is free. Answered by [`StateReply::Locked`].
    ///
    /// If the reply is lost, the lock stays held until it expires.
    Lock {
        /// The lock's name.
        key: ValueKey,
        /// Time until it expires, unless renewed. Counted anew when a store restarts.
        ttl: Duration,
    },
    /// Extends a lock, counted from now. Answered by [`StateReply::Locked`].
    Renew {
        /// The lock, as granted.
        lock: LockToken,
        /// Time until it expires.
        ttl: Duration,
    },
    /// Releases a lock. Answered by [`StateReply::Unlocked`].
    Unlock {
        /// The lock, as granted.
        lock: LockToken,
    },
}

impl StateRequest {
    /// Whether success changes the stored data.
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            StateRequest::Load { .. } | StateRequest::Get { .. } | StateRequest::Scan { .. }
        )
    }

    /// Predicate that accepts only replies of the kind this request gets.
    pub fn expects(&self) -> fn(&StateReply) -> bool {
        match self {
            StateRequest::Claim { .. } => |reply| matches!(reply, StateReply::Claimed { .. }),
            StateRequest::Load { .. } => |reply| matches!(reply, StateReply::Loaded { .. }),
            StateRequest::Save { .. } => |reply| matches!(reply, StateReply::Saved),
            StateRequest::Delete { .. } => |reply| matches!(reply, StateReply::Deleted),
            StateRequest::Get { .. } => |reply| matches!(reply, StateReply::Value(_)),
            StateRequest::Swap { .. } => |reply| matches!(reply, StateReply::Swapped { .. }),
            StateRequest::Scan { .. } => |reply| matches!(reply, StateReply::Rows { .. }),
            StateRequest::Lock { .. } | StateRequest::Renew { .. } => {
                |reply| matches!(reply, StateReply::Locked { .. })
            }
            StateRequest::Unlock { .. } => |reply| matches!(reply, StateReply::Unlocked),
        }
    }

    /// Checks the limits. Every implementation rejects a violation, whatever it stores.
    pub fn check(&self) -> Result<(), StateError> {
        match self {
            StateRequest::Claim { actor, .. } | StateRequest::Delete { actor, .. } => Ok(actor.key.check()?),
            StateRequest::Save { actor, state, .. } => {
                actor.key.check()?;
                within(state.len(), STATE_BYTES_MAX)
            }
            StateRequest::Swap { key, value, .. } => {
                within(key.name.len(), VALUE_NAME_BYTES_MAX)?;
                within(value.as_ref().map_or(0, Bytes::len), VALUE_BYTES_MAX)
            }
            StateRequest::Lock { key, .. } => within(key.name.len(), VALUE_NAME_BYTES_MAX),
            // An oversized key can't have been stored, so it is simply not found.
            StateRequest::Load { .. }
            | StateRequest::Get { .. }
            | StateRequest::Scan { .. }
            | StateRequest::Renew { .. }
            | StateRequest::Unlock { .. } => Ok(()),
        }
    }

    /// The bytes of its keys and values that count against limits.
    pub fn payload_bytes(&self) -> usize {
        match self {
            StateRequest::Save { state, .. } => state.len(),
            StateRequest::Swap { key, value, .. } => key.name.len() + value.as_ref().map_or(0, Bytes::len),
            StateRequest::Scan { from, until, .. } => from.len() + until.as_ref().map_or(0, Bytes::len),
            _ => 0,
        }
    }
}

fn within(bytes: usize, limit: usize) -> Result<(), StateError> {
    if bytes > limit {
        return Err(StateError::TooLarge { bytes, limit });
    }
    Ok(())
}

/// The answer to a [`StateRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateReply {
    /// The actor is claimed.
    Claimed {
        /// Its state, if it has any.
        state: Option<Bytes>,
    },
    /// The actor's state was read.
    Loaded {
        /// The epoch last stored, if the actor was ever claimed or saved.
        epoch: Option<ActivationEpoch>,
        /// Its state, if it has any.
        state: Option<Bytes>,
    },
    /// The actor's state is durable.
    Saved,
    /// The actor's state was deleted.
    Deleted,
    /// The shared value.
    Value(Option<Versioned>),
    /// The value was replaced (or removed) by the write of this version.
    Swapped {
        /// The version of this write.
        version: Version,
    },
    /// Rows of a scan.
    Rows {
        /// Names and values, ordered by name.
        rows: Vec<(Bytes, Versioned)>,
        /// The range has more rows: continue after the last name.
        more: bool,
    },
    /// The lock is held.
    Locked {
        /// Identifies this grant in [`StateRequest::Renew`], [`StateRequest::Unlock`] and [`StateRequest::Swap`].
        token: Version,
    },
    /// The lock is free.
    Unlocked,
}

/// Error of a [`StateStore`] request. Nothing changed, except possibly after [`StateError::Failed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StateError {
    /// A later activation has claimed the actor, or another node has claimed this epoch. Don't retry: this activation has
    /// ended.
    #[error("the actor is claimed by epoch {stored}")]
    Fenced {
        /// The stored epoch.
        stored: ActivationEpoch,
    },
    /// The precondition of a swap failed. Re-read the value before retrying.
    #[error("the value is not of the expected version")]
    Conflict {
        /// The current version, if the value exists.
        current: Option<Version>,
    },
    /// Another holder has the lock.
    #[error("the lock is held for another {remaining:?}")]
    LockHeld {
        /// Time until it expires, unless renewed.
        remaining: Duration,
    },
    /// The lock is no longer held under this token. The data it protected may have changed.
    #[error("the lock is no longer held")]
    LockLost,
    /// The state, value or name is too large. Don't retry.
    #[error("{bytes} bytes are more than the {limit} allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest allowed size.
        limit: usize,
    },
    /// The store failed; [`StoreFailure::may_be_applied`] reports whether the request may have been applied.
    #[error(transparent)]
    Failed(#[from] StoreFailure),
}

impl StateError {
    /// Whether the request may have taken effect although it failed.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, StateError::Failed(failure) if failure.may_be_applied())
    }
}

impl From<KeyTooLong> for StateError {
    fn from(error: KeyTooLong) -> Self {
        StateError::TooLarge {
            bytes: error.bytes,
            limit: elastin_types::KEY_BYTES_MAX,
        }
    }
}
