//! Finding the references in an actor's fields.
//!
//! `#[derive(Actor)]` asks every field by its type, not by how the type is spelt: a doubly borrowed
//! [`Probe`] of the field's type has the methods of [`ByReferences`] when the type holds references; otherwise the compiler
//! looks one dereference further and finds those of [`ByNothing`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;

use elastin_types::ActorId;

use crate::{Actor, Ref};

/// A type that holds references to actors of one type. Maps hold them in their values; a struct of one's own holds them with
/// `#[derive(HoldsReferences)]`.
pub trait HoldsReferences {
    /// The actor type that they refer to.
    type Target: Actor;

    /// Shows each, in the holder's own order.
    fn each_reference(&self, visit: &mut dyn FnMut(&ActorId));
}

impl<A: Actor> HoldsReferences for Ref<A> {
    type Target = A;

    fn each_reference(&self, visit: &mut dyn FnMut(&ActorId)) {
        visit(self.id());
    }
}

impl<H: HoldsReferences> HoldsReferences for Box<H> {
    type Target = H::Target;

    fn each_reference(&self, visit: &mut dyn FnMut(&ActorId)) {
        (**self).each_reference(visit);
    }
}

macro_rules! holders {
    ($($holder:ty $(, $parameter:ident)*;)*) => {$(
        impl<H: HoldsReferences $(, $parameter)*> HoldsReferences for $holder {
            type Target = H::Target;

            fn each_reference(&self, visit: &mut dyn FnMut(&ActorId)) {
                for held in self.iter() {
                    held.each_reference(visit);
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

            fn each_reference(&self, visit: &mut dyn FnMut(&ActorId)) {
                for held in self.values() {
                    held.each_reference(visit);
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

    fn each_reference(&self, visit: &mut dyn FnMut(&ActorId)) {
        self.as_slice().each_reference(visit);
    }
}

/// Shows the references of one field of a struct that holds references to a `T`.
pub fn each_of<T: Actor, H: HoldsReferences<Target = T>>(field: &H, visit: &mut dyn FnMut(&ActorId)) {
    field.each_reference(visit);
}

/// Asks a field's type whether it holds references.
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

/// What a probe of a type with references answers.
pub trait ByReferences<T> {
    /// The name of the actor type that the references are to.
    fn target(&self) -> Option<&'static str>;

    /// Shows each reference.
    fn each(&self, field: &T, visit: &mut dyn FnMut(&ActorId));
}

impl<T: HoldsReferences> ByReferences<T> for &Probe<T> {
    fn target(&self) -> Option<&'static str> {
        Some(T::Target::NAME)
    }

    fn each(&self, field: &T, visit: &mut dyn FnMut(&ActorId)) {
        field.each_reference(visit);
    }
}

/// What a probe of any other type answers.
pub trait ByNothing<T> {
    /// There are no references.
    fn target(&self) -> Option<&'static str>;

    /// Shows none.
    fn each(&self, field: &T, visit: &mut dyn FnMut(&ActorId));
}

impl<T> ByNothing<T> for Probe<T> {
    fn target(&self) -> Option<&'static str> {
        None
    }

    fn each(&self, _field: &T, _visit: &mut dyn FnMut(&ActorId)) {}
}
