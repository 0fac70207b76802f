//! `#[handlers]`.

mod attributes;
mod generate;
mod signature;

use attributes::{as_reminded, take_hooks, take_reentrant};
use generate::{bare_name, glue};
use proc_macro2::TokenStream;
use quote::quote;
use signature::handler;
use syn::{Attribute, Error, Ident, ImplItem, ImplItemFn, ItemImpl, Result, Type};

/// One parsed handler.
struct Handler<'a> {
    function: &'a ImplItemFn,
    docs: Vec<&'a Attribute>,
    /// It takes `&self`.
    shared: bool,
    /// It changes the actor behind `&self`.
    reentrant: bool,
    takes_context: bool,
    parameters: Vec<(&'a Ident, &'a Type)>,
    reply: Type,
    /// It receives reminders and can't be called otherwise.
    reminded: bool,
}

impl Handler<'_> {
    fn read_only(&self) -> bool {
        self.shared && !self.reentrant
    }

    fn may_wait(&self) -> bool {
        self.function.sig.asyncness.is_some()
    }

    /// The name that identifies it in messages.
    fn name(&self) -> String {
        if self.reminded {
            // Must equal `elastin_types::Reminder::FUNCTION`.
            return "on reminder".to_owned();
        }
        bare_name(&self.function.sig.ident)
    }
}

/// The functions with an `#[on(…)]` attribute.
#[derive(Default)]
struct On {
    hooks: Vec<Hook>,
    reminded: Option<Ident>,
}

/// One lifecycle hook.
struct Hook {
    moment: Ident,
    function: ImplItemFn,
    takes_context: bool,
}

pub(crate) fn expand(attributes: TokenStream, mut item: ItemImpl) -> Result<TokenStream> {
    if !attributes.is_empty() {
        return Err(Error::new_spanned(attributes, "`#[handlers]` takes no options"));
    }
    if let Some((_, trait_path, _)) = &item.trait_ {
        return Err(Error::new_spanned(
            trait_path,
            "`#[handlers]` goes on the actor's own `impl` block, not on a trait's",
        ));
    }
    let actor = match &*item.self_ty {
        Type::Path(path) if path.qself.is_none() => path.path.clone(),
        other => {
            return Err(Error::new_spanned(
                other,
                "`#[handlers]` goes on the `impl` block of an actor's struct",
            ));
        }
    };
    let (mut errors, mut errors_of_reminded) = (Errors::default(), Errors::default());
    let On { hooks, reminded } = take_hooks(&mut item, &mut errors);
    let reentrant = take_reentrant(&mut item, &hooks, &mut errors);
    let handlers: Vec<_> = item
        .items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Fn(function) if function.sig.receiver().is_some() => errors.keep(handler(function)),
            _ => None,
        })
        .map(|handler| Handler {
            reentrant: reentrant.contains(&handler.function.sig.ident),
            ..handler
        })
        .filter_map(|handler| match reminded.as_ref() == Some(&handler.function.sig.ident) {
            true => errors_of_reminded.keep(as_reminded(handler)),
            false => Some(handler),
        })
        .filter(|handler| {
            !hooks
                .iter()
                .any(|hook| hook.function.sig.ident == handler.function.sig.ident)
        })
        .collect();
    errors.finish()?;
    errors_of_reminded.finish()?;
    let glue = glue(&actor, &handlers, &hooks);
    Ok(quote! {
        #item

        #glue
    })
}

/// Collects errors, so that one build reports all of them.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                match &mut self.0 {
                    Some(errors) => errors.combine(error),
                    None => self.0 = Some(error),
                }
                None
            }
        }
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
