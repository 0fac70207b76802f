//! Macros of the actor API: `#[derive(Actor)]` and `#[handlers]`.
//!
//! What they write names everything through `::elastin::__private`, so the crate that uses them has the facade, or the
//! actor crate under that name (`extern crate elastin_actor as elastin;`).

mod derive_actor;
mod handlers;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes an actor type of a struct: its name, its properties (the fields that hold references) and its typed reference,
/// `FolderRef` for a struct `Folder`.
///
/// `#[actor(name = "…")]` gives it another name than the struct's; `#[actor(persist)]` saves its state after each call that
/// may have changed it, before the reply leaves.
#[proc_macro_derive(Actor, attributes(actor))]
pub fn derive_actor(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    derive_actor::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a handler of each function in an actor's `impl` block, and a method of the typed reference that calls it.
///
/// A handler takes `&mut self`, or `&self` if it only reads; then, if it wants to, `ctx: &Ctx`; then its arguments. It may be
/// `async`. Functions without `self` stay as they are. A function with `#[on(activate)]`, `#[on(deactivate)]`,
/// `#[on(before_move)]` or `#[on(after_move)]` is a lifecycle hook.
#[proc_macro_attribute]
pub fn handlers(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::ItemImpl);
    handlers::expand(attributes.into(), item)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
