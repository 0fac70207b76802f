//! The attributes within a `#[handlers]` block: `#[on(…)]` and `#[reentrant]`.

use syn::{Attribute, Error, Ident, ImplItem, ImplItemFn, ItemImpl, Meta, Result, Type};

use super::signature::handler;
use super::{Errors, Handler, Hook, On};

/// Finds the functions with `#[on(…)]` and strips the attribute.
pub(super) fn take_hooks(item: &mut ItemImpl, errors: &mut Errors) -> On {
    let mut on = On::default();
    for item in &mut item.items {
        let ImplItem::Fn(function) = item else { continue };
        let Some(position) = function
            .attrs
            .iter()
            .position(|attribute| attribute.path().is_ident("on"))
        else {
            continue;
        };
        let attribute = function.attrs.remove(position);
        if attribute.parse_args::<Ident>().is_ok_and(|moment| moment == "reminder") {
            if on.reminded.replace(function.sig.ident.clone()).is_some() {
                let twice = Error::new_spanned(&attribute, "an actor has only one `#[on(reminder)]` handler");
                errors.keep::<()>(Err(twice));
            }
            continue;
        }
        let Some(hook) = errors.keep(hook(&attribute, function)) else {
            continue;
        };
        if on.hooks.iter().any(|other| other.moment == hook.moment) {
            errors.keep::<()>(Err(Error::new_spanned(
                &attribute,
                "an actor has only one hook for each lifecycle event",
            )));
            continue;
        }
        on.hooks.push(hook);
    }
    on
}

/// Finds the functions with `#[reentrant]` and strips the attribute.
pub(super) fn take_reentrant(item: &mut ItemImpl, hooks: &[Hook], errors: &mut Errors) -> Vec<Ident> {
    let mut reentrant = Vec::new();
    for item in &mut item.items {
        let ImplItem::Fn(function) = item else { continue };
        let is_reentrant = |attribute: &Attribute| attribute.path().is_ident("reentrant");
        let Some(position) = function.attrs.iter().position(is_reentrant) else {
            continue;
        };
        let attribute = function.attrs.remove(position);
        let name = function.sig.ident.clone();
        let is_hook = hooks.iter().any(|hook| hook.function.sig.ident == name);
        let wrong = match (&attribute.meta, function.sig.receiver()) {
            (Meta::List(_) | Meta::NameValue(_), _) => Some("`#[reentrant]` takes no options"),
            (Meta::Path(_), _) if is_hook => Some("a lifecycle hook is exclusive, so it can't be reentrant"),
            (Meta::Path(_), None) => Some("only handlers can be reentrant, and a handler takes `self`"),
            (Meta::Path(_), Some(receiver)) if receiver.mutability.is_some() => Some(
                "a handler with `&mut self` is exclusive: to be reentrant, take `&self` and put mutable fields into a \
                 `Mutex` or an atomic",
            ),
            (Meta::Path(_), Some(_)) => None,
        };
        match wrong {
            Some(wrong) => errors.keep::<()>(Err(Error::new_spanned(&attribute, wrong))),
            None => {
                reentrant.push(name);
                None
            }
        };
    }
    reentrant
}

/// Turns a handler into the reminder handler.
pub(super) fn as_reminded(handler: Handler<'_>) -> Result<Handler<'_>> {
    if handler.parameters.len() != 1 {
        return Err(Error::new_spanned(
            &handler.function.sig.inputs,
            "a reminder handler takes exactly one argument besides `self` and the context: the `Reminder`",
        ));
    }
    if !matches!(&handler.reply, Type::Tuple(nothing) if nothing.elems.is_empty()) {
        return Err(Error::new_spanned(
            &handler.reply,
            "a reminder handler returns nothing, because it has no caller",
        ));
    }
    Ok(Handler {
        reminded: true,
        ..handler
    })
}

fn hook(attribute: &Attribute, function: &ImplItemFn) -> Result<Hook> {
    let moment: Ident = attribute.parse_args()?;
    let moment = match moment.to_string().as_str() {
        "activate" => Ident::new("Activate", moment.span()),
        "deactivate" => Ident::new("Deactivate", moment.span()),
        "before_move" => Ident::new("BeforeMove", moment.span()),
        "after_move" => Ident::new("AfterMove", moment.span()),
        _ => {
            return Err(Error::new_spanned(
                moment,
                "unknown event: use `activate`, `deactivate`, `before_move`, `after_move` or `reminder`",
            ));
        }
    };
    let handler = handler(function)?;
    if let Some((parameter, _)) = handler.parameters.first() {
        return Err(Error::new_spanned(
            parameter,
            "a hook takes no arguments besides `self` and the context",
        ));
    }
    let takes_context = handler.takes_context;
    Ok(Hook {
        moment,
        function: function.clone(),
        takes_context,
    })
}
