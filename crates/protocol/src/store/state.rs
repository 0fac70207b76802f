//! The state store: durable state of actors, guarded by activation epochs, and values that an application shares.

use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, KeyTooLong, NodeId, TenantId};
use serde::{Deserialize, Serialize};

use super::{Done, StoreFailure};

/// The largest state of one actor. A store keeps it in one row and sends it in one message.
pub const STATE_BYTES_MAX: usize = 64 << 20;
/// The largest shared value: larger things belong into actors, whose state moves with them.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest name of a shared value, so that names stay fit for an index.
pub const VALUE_NAME_BYTES_MAX: usize = 1024;
/// The most rows that one scan returns.
pub const SCAN_LIMIT_MAX: u32 = 1000;
/// One scan returns no further row once it has this many bytes, so that a reply fits one message.
pub const SCAN_BYTES_MAX: usize = 4 << 20;

/// Keeps the state of actors and the values that an application shares. All requests are atomic.
///
/// - Every [`Done`] is called exactly once, and a write is durable before it is called with `Ok`.
/// - DedupTable that one thread submits one after the other take effect in that order.
/// - The epoch stored for an actor only grows; a write with a lower one is refused.
pub trait StateStore: Send + Sync {
    /// Hands in one request.
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>);
}

/// Whose shared values: names of different spaces never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Space {
    /// Elastin's own rows, such as reminders.
    System,
    /// The values of a tenant's application.
    Tenant(TenantId),
}

/// Names a shared value or a lock; the two do not meet. Names of a space are ordered by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueKey {
    /// Whose it is.
    pub space: Space,
    /// Its name, of at most [`VALUE_NAME_BYTES_MAX`] bytes.
    pub name: Bytes,
}

/// Counts the writes of a store: each gets a higher one, and none is used twice, so a value that was deleted and written
/// again is not mistaken for the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u64);

/// A shared value and the version of the write that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// The write it comes from.
    pub version: Version,
    /// Its bytes.
    pub value: Bytes,
}

/// What a swap requires of the value that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// Nothing: whatever is there is replaced.
    Anything,
    /// That there is no value.
    Absent,
    /// That it is of this version.
    Version(Version),
}

/// A lock that was granted. The token is higher than that of every earlier holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockToken {
    /// The lock.
    pub key: ValueKey,
    /// Which grant of it.
    pub token: Version,
}

/// What can be asked of a [`StateStore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateRequest {
    /// Makes `epoch` the actor's epoch, if it is higher than the stored one, or the same and claimed by the same node
    /// before (a repeated claim). From then on no earlier activation can write. Answered by [`StateReply::Claimed`].
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
    /// can't bring the state back. Answered by [`StateReply::Deleted`].
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
    /// Replaces a shared value if the one there is as expected. Answered by [`StateReply::Swapped`].
    Swap {
        /// The value's name.
        key: ValueKey,
        /// What must be there.
        expected: Expected,
        /// The new value, of at most [`VALUE_BYTES_MAX`] bytes; `None` removes the value.
        value: Option<Bytes>,
        /// A lock that must still be held under this token, so that a holder whose lease ran out can't write.
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
    /// Takes a lock for some time, if nobody holds it. Answered by [`StateReply::Locked`].
    ///
    /// If the reply is lost, the lock stays taken until its time is over.
    Lock {
        /// The lock's name.
        key: ValueKey,
        /// For how long, unless it is renewed. A store that restarts counts anew.
        ttl: Duration,
    },
    /// Holds a lock for some time from now on. Answered by [`StateReply::Locked`].
    Renew {
        /// The lock, as granted.
        lock: LockToken,
        /// For how long.
        ttl: Duration,
    },
    /// Gives a lock back. Answered by [`StateReply::Unlocked`].
    Unlock {
        /// The lock, as granted.
        lock: LockToken,
    },
}

impl StateRequest {
    /// Whether a good outcome changes what is stored.
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            StateRequest::Load { .. } | StateRequest::Get { .. } | StateRequest::Scan { .. }
        )
    }

    /// Tells a reply that this request can have from one that must be to another.
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

    /// Whether it keeps the limits: what every implementation refuses, whatever it holds.
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
            // What is too long to be there is not found.
            StateRequest::Load { .. }
            | StateRequest::Get { .. }
            | StateRequest::Scan { .. }
            | StateRequest::Renew { .. }
            | StateRequest::Unlock { .. } => Ok(()),
        }
    }

    /// The bytes that it carries and that its size may be limited by: keys and values.
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
    /// The actor's state is gone.
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
        /// There are more in the range: go on after the last name.
        more: bool,
    },
    /// The lock is held.
    Locked {
        /// Names this grant in [`StateRequest::Renew`], [`StateRequest::Unlock`] and [`StateRequest::Swap`].
        token: Version,
    },
    /// The lock is free.
    Unlocked,
}

/// Why a [`StateStore`] did not do what was asked. Unless [`StateError::Failed`] says otherwise, nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StateError {
    /// A later activation has claimed the actor, or another node has claimed this epoch. Don't retry: this activation is
    /// over.
    #[error("the actor is claimed by epoch {stored}")]
    Fenced {
        /// The epoch that is stored.
        stored: ActivationEpoch,
    },
    /// The shared value was not as expected. Read it, and decide again.
    #[error("the value is not of the expected version")]
    Conflict {
        /// The version that is there, if any.
        current: Option<Version>,
    },
    /// Somebody else holds the lock.
    #[error("the lock is held for another {remaining:?}")]
    LockHeld {
        /// How long its holder may still keep it without renewing.
        remaining: Duration,
    },
    /// The lock is not held under this token any more. What was protected by it may have changed.
    #[error("the lock is no longer held")]
    LockLost,
    /// The state, value or name is too large. Don't retry.
    #[error("{bytes} bytes are more than the {limit} allowed")]
    TooLarge {
        /// How large it was.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// The store failed; see there whether the request may have been applied.
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
