//! Macros of the actor API: `#[derive(Actor)]`, `#[derive(HoldsReferences)]`, `#[handlers]` and `policy!`.
//!
//! What they write names everything through `::elastin::__private`, so the crate that uses them has the facade, or the
//! actor crate under that name (`extern crate elastin_actor as elastin;`).

mod derive_actor;
mod derive_references;
mod handlers;
mod policy_macro;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes an actor type of a struct: its name, its properties (the fields that hold references) and its typed reference,
/// `FolderRef` for a struct `Folder`.
///
/// `#[actor(name = "…")]` gives it another name than the struct's. `#[actor(persist)]` keeps its state in the store:
/// `persist(each_turn)`, which `persist` alone means too, saves it after each call that may have changed it, before the reply
/// leaves; `persist(on_request)` when a handler calls `ctx.save(self)`; `persist(at_passivation)` when the actor has been
/// idle for long or its node shuts down.
#[proc_macro_derive(Actor, attributes(actor))]
pub fn derive_actor(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    derive_actor::expand(&input)
        .map(|actor| [actor, policy_macro::property_names(&input)].into_iter().collect())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Lets a struct within an actor's state hold references: a field of its type is a property of the actor.
///
/// `#[references]` marks the fields that hold them. They all refer to actors of one type, because a property does.
#[proc_macro_derive(HoldsReferences, attributes(references))]
pub fn derive_references(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    derive_references::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a handler of each function in an actor's `impl` block, and a method of the typed reference that calls it.
///
/// A handler takes `&mut self`, or `&self` if it only reads; then, if it wants to, `ctx: &Ctx`; then its arguments. It may be
/// `async`. Functions without `self` stay as they are.
///
/// A handler with `&mut self` has the actor for itself until it returns. Those that are `async` with `&self` share it: while
/// one waits for something, others begin and go on, and a chain of calls may come back to it. One with `#[reentrant]` does the
/// same and changes the actor all the same, in fields that allow it (a `Mutex`, an atomic); other handlers with `&self` that
/// wait must not rely on such a field being the same after an `.await`. The guard of a `std::sync::Mutex` is not kept over an
/// `.await`: the compiler refuses it.
///
/// A function with `#[on(activate)]`, `#[on(deactivate)]`, `#[on(before_move)]` or `#[on(after_move)]` is a lifecycle hook; one
/// with `#[on(reminder)]` takes a `Reminder` and is told those that the actor has set.
#[proc_macro_attribute]
pub fn handlers(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::ItemImpl);
    handlers::expand(attributes.into(), item)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// A policy, read when the program is compiled: the value that `App::policy` takes.
///
/// `policy!("folder.epl")` names a file in the package's directory, beside its `Cargo.toml`. A mistake in the policy's syntax
/// is an error of the build, with line and column. So is a name that means nothing: the policy's types are looked up where
/// the macro stands, so the actors it speaks of are in scope there; its functions and properties are looked up in those
/// types. An actor with a name of its own (`#[actor(name = "…")]`) is brought into scope under that name. A change of the
/// file builds the program again.
#[proc_macro]
pub fn policy(input: TokenStream) -> TokenStream {
    let file = parse_macro_input!(input as syn::LitStr);
    policy_macro::expand(&file)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
