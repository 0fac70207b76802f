//! Macros of the actor API: `#[derive(Actor)]`, `#[derive(HoldsReferences)]`, `#[handlers]` and `policy!`.
//!
//! Generated code refers to all items through `::elastin::__private`. A crate that uses the macros therefore depends on
//! the facade, or on the actor crate under that name (`extern crate elastin_actor as elastin;`).

mod derive_actor;
mod derive_references;
mod handlers;
mod policy_macro;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a struct an actor type, with a name, properties (the fields that hold references) and a typed reference, such
/// as `FolderRef` for `Folder`.
///
/// `#[actor(name = "…")]` overrides the struct's name. `#[actor(persist)]` keeps the state in the store:
/// - `persist(each_turn)`, or just `persist`, saves it after each call that may have changed it, before the reply is
///   sent.
/// - `persist(on_request)` saves it when a handler calls `ctx.save(self)`.
/// - `persist(at_passivation)` saves it when the actor has been idle or its node shuts down.
#[proc_macro_derive(Actor, attributes(actor))]
pub fn derive_actor(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    derive_actor::expand(&input)
        .map(|actor| [actor, policy_macro::property_names(&input)].into_iter().collect())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a struct within an actor's state a holder of references: an actor's field of this type is a property.
///
/// `#[references]` marks the fields that hold references. All of them must refer to the same actor type.
#[proc_macro_derive(HoldsReferences, attributes(references))]
pub fn derive_references(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    derive_references::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes each function in an actor's `impl` block a handler, with a method of the typed reference that calls it.
///
/// A handler takes `&mut self`, or `&self` if it only reads; then an optional `ctx: &Ctx`; then its arguments. It may
/// be `async`. Functions without `self` are unchanged.
///
/// A handler with `&mut self` is exclusive until it returns. `async` handlers with `&self` share the actor: they
/// interleave at their `.await` points, and a call chain may re-enter the actor.
///
/// A handler with `#[reentrant]` shares the actor too, and may change fields with interior mutability (a `Mutex`, an
/// atomic). Such a field may have changed after any `.await` of another sharing handler. The compiler rejects a
/// `std::sync::Mutex` guard that is held across an `.await`.
///
/// A function with `#[on(activate)]`, `#[on(deactivate)]`, `#[on(before_move)]` or `#[on(after_move)]` is a lifecycle
/// hook. One with `#[on(reminder)]` takes a `Reminder` and receives the reminders that the actor has set.
#[proc_macro_attribute]
pub fn handlers(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::ItemImpl);
    handlers::expand(attributes.into(), item)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// A policy that is checked at compile time, for `App::policy`.
///
/// `policy!("folder.epl")` names a file relative to the package's `Cargo.toml`. A syntax error in the policy fails the
/// build, with line and column. So does an unknown name: types are resolved at the macro's call site, so the policy's
/// actors must be in scope there. Functions and properties are resolved in those types. Import an actor with
/// `#[actor(name = "…")]` under that name. A change of the file triggers a rebuild.
#[proc_macro]
pub fn policy(input: TokenStream) -> TokenStream {
    let file = parse_macro_input!(input as syn::LitStr);
    policy_macro::expand(&file)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
