//! References to actors.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use elastin_types::ActorId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::host::{Host, Invoke};
use crate::scope;
use crate::{Actor, TypedRef};

/// A location-transparent reference to an actor of type `A`. It stays valid when the actor moves.
///
/// It has a method for each handler of `A`, which returns a [`Call`](crate::Call). It is compared, ordered and encoded
/// by the actor's id alone. A decoded reference works within turns. Outside turns its calls are rejected until it is
/// bound with [`Client::bind`](crate::Client::bind).
pub struct Ref<A: Actor> {
    typed: A::Ref,
}

/// The untyped core of a [`Ref`]: the actor's id, and its cell once resolved.
pub struct RawRef<A: Actor> {
    link: Arc<Link<A>>,
}

struct Link<A: Actor> {
    id: ActorId,
    host: OnceLock<Arc<dyn Host>>,
    target: OnceLock<Option<Arc<dyn Invoke<A>>>>,
}

impl<A: Actor> RawRef<A> {
    /// A reference to the actor with this id, which must be of type `A`.
    ///
    /// # Panics
    /// If the id is of another type.
    pub fn new(id: ActorId, host: Option<Arc<dyn Host>>) -> Self {
        assert!(
            id.kind == A::KIND,
            "a reference to a `{}` needs an id of that type",
            A::NAME
        );
        Self {
            link: Arc::new(Link {
                id,
                host: host.map_or_else(OnceLock::new, OnceLock::from),
                target: OnceLock::new(),
            }),
        }
    }

    /// The actor's id.
    pub fn id(&self) -> &ActorId {
        &self.link.id
    }

    /// The host that calls go through: the one that created the reference, else the current turn's. `None` for a
    /// decoded reference outside any turn.
    #[inline]
    pub(crate) fn host(&self) -> Option<&Arc<dyn Host>> {
        match self.link.host.get() {
            Some(host) => Some(host),
            None => self.host_of_turn(),
        }
    }

    #[cold]
    fn host_of_turn(&self) -> Option<&Arc<dyn Host>> {
        let host = scope::with_current(|scope| Some(scope?.cell().host()))?;
        Some(self.link.host.get_or_init(|| host))
    }

    /// The host that calls go through, for a call that has begun.
    ///
    /// # Panics
    /// For a decoded reference outside any turn: its calls never begin.
    #[inline]
    pub(crate) fn bound(&self) -> &Arc<dyn Host> {
        self.host().expect("a call begins only on a bound reference")
    }

    /// The actor's cell on this node; `None` if the type is not registered in this process.
    #[inline]
    pub(crate) fn target(&self) -> Option<&Arc<dyn Invoke<A>>> {
        if let Some(known) = self.link.target.get() {
            return known.as_ref();
        }
        let host = self.host()?;
        let resolve = || {
            let target = host.resolve(&self.link.id)?;
            let target = target.downcast::<Arc<dyn Invoke<A>>>();
            Some(*target.unwrap_or_else(|_| panic!("the host resolves an id to a cell of its actor type")))
        };
        self.link.target.get_or_init(resolve).as_ref()
    }
}

impl<A: Actor> Clone for RawRef<A> {
    fn clone(&self) -> Self {
        Self {
            link: self.link.clone(),
        }
    }
}

impl<A: Actor> Ref<A> {
    /// The actor's id.
    pub fn id(&self) -> &ActorId {
        self.typed.raw().id()
    }

    /// A reference to the actor with this id, for use within turns; `None` if the id is of another type.
    pub fn from_id(id: ActorId) -> Option<Self> {
        (id.kind == A::KIND).then(|| Self::from(A::Ref::from_raw(RawRef::new(id, None))))
    }

    pub(crate) fn from(typed: A::Ref) -> Self {
        Self { typed }
    }
}

impl<A: Actor> Deref for Ref<A> {
    type Target = A::Ref;

    fn deref(&self) -> &A::Ref {
        &self.typed
    }
}

impl<A: Actor> Clone for Ref<A> {
    fn clone(&self) -> Self {
        Self {
            typed: self.typed.clone(),
        }
    }
}

impl<A: Actor> PartialEq for Ref<A> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<A: Actor> Eq for Ref<A> {}

impl<A: Actor> PartialOrd for Ref<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A: Actor> Ord for Ref<A> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id().cmp(other.id())
    }
}

impl<A: Actor> Hash for Ref<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<A: Actor> fmt::Debug for Ref<A> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", A::NAME, self.id().key)
    }
}

impl<A: Actor> Serialize for Ref<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id().serialize(serializer)
    }
}

impl<'de, A: Actor> Deserialize<'de> for Ref<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = ActorId::deserialize(deserializer)?;
        Ref::from_id(id).ok_or_else(|| serde::de::Error::custom(format_args!("not a reference to a `{}`", A::NAME)))
    }
}
