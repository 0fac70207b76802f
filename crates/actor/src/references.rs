//! Finds the references in an actor's fields.
//!
//! `#[derive(Actor)]` probes every field's type through autoref specialization. A doubly borrowed [`Probe`] resolves to
//! the methods of [`ByReferences`] if the type holds references. Otherwise method lookup continues one dereference
//! further, at [`ByNothing`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;

use elastin_types::ActorId;

use crate::{Actor, Ref};

/// A type that holds references to actors of one type. Maps hold them in their values; derive it for your own structs
/// with `#[derive(HoldsReferences)]`.
pub trait HoldsReferences {
    /// The actor type of the references.
    type Target: Actor;

    /// Calls `f` with each reference, in the holder's own order.
    fn each_reference(&self, f: &mut dyn FnMut(&ActorId));
}

impl<A: Actor> HoldsReferences for Ref<A> {
    type Target = A;

    fn each_reference(&self, f: &mut dyn FnMut(&ActorId)) {
        f(self.id());
    }
}

impl<H: HoldsReferences> HoldsReferences for Box<H> {
    type Target = H::Target;

    fn each_reference(&self, f: &mut dyn FnMut(&ActorId)) {
        (**self).each_reference(f);
    }
}

macro_rules! holders {
    ($($holder:ty $(, $parameter:ident)*;)*) => {$(
        impl<H: HoldsReferences $(, $parameter)*> HoldsReferences for $holder {
            type Target = H::Target;

            fn each_reference(&self, f: &mut dyn FnMut(&ActorId)) {
                for held in self.iter() {
                    held.each_reference(f);
                }
            }
        }
    )*};
}

holders! {
    Option<H>;
    Vec<H>;
    VecDeque<H>;
    BTreeSet<H>;
    HashSet<H, S>, S;
    [H];
}

macro_rules! maps {
    ($($map:ty $(, $parameter:ident)*;)*) => {$(
        impl<K, H: HoldsReferences $(, $parameter)*> HoldsReferences for $map {
            type Target = H::Target;

            fn each_reference(&self, f: &mut dyn FnMut(&ActorId)) {
                for held in self.values() {
                    held.each_reference(f);
                }
            }
        }
    )*};
}

maps! {
    BTreeMap<K, H>;
    HashMap<K, H, S>, S;
}

impl<H: HoldsReferences, const N: usize> HoldsReferences for [H; N] {
    type Target = H::Target;

    fn each_reference(&self, f: &mut dyn FnMut(&ActorId)) {
        self.as_slice().each_reference(f);
    }
}

/// Calls `f` with the references of one field of a struct that holds references to a `T`.
pub fn each_of<T: Actor, H: HoldsReferences<Target = T>>(field: &H, f: &mut dyn FnMut(&ActorId)) {
    field.each_reference(f);
}

/// Detects whether a field's type holds references.
pub struct Probe<T>(PhantomData<T>);

impl<T> Probe<T> {
    /// A probe of that type.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Probe methods of types that hold references.
pub trait ByReferences<T> {
    /// The name of the references' actor type.
    fn target(&self) -> Option<&'static str>;

    /// Calls `f` with each reference.
    fn each(&self, field: &T, f: &mut dyn FnMut(&ActorId));
}

impl<T: HoldsReferences> ByReferences<T> for &Probe<T> {
    fn target(&self) -> Option<&'static str> {
        Some(T::Target::NAME)
    }

    fn each(&self, field: &T, f: &mut dyn FnMut(&ActorId)) {
        field.each_reference(f);
    }
}

/// Probe methods of all other types.
pub trait ByNothing<T> {
    /// Always `None`: there are no references.
    fn target(&self) -> Option<&'static str>;

    /// Never calls `f`.
    fn each(&self, field: &T, f: &mut dyn FnMut(&ActorId));
}

impl<T> ByNothing<T> for Probe<T> {
    fn target(&self) -> Option<&'static str> {
        None
    }

    fn each(&self, _field: &T, _f: &mut dyn FnMut(&ActorId)) {}
}
