//! Parses the signature of a handler.

use syn::{Error, FnArg, Ident, ImplItemFn, Pat, Result, ReturnType, Type};

use super::Handler;

/// Maximum number of parameters of a handler; they are encoded as a tuple.
const PARAMETERS_MAX: usize = 12;

pub(super) fn handler(function: &ImplItemFn) -> Result<Handler<'_>> {
    let signature = &function.sig;
    if let Some(parameter) = signature.generics.params.first() {
        return Err(Error::new_spanned(
            parameter,
            "a handler can't have generic parameters, because its calls are sent between nodes",
        ));
    }
    if let Some(unsafety) = &signature.unsafety {
        return Err(Error::new_spanned(
            unsafety,
            "a handler can be called from anywhere, so it can't be `unsafe`",
        ));
    }
    let receiver = signature.receiver().expect("only functions with `self` are handlers");
    if receiver.reference.is_none() || receiver.colon_token.is_some() {
        return Err(Error::new_spanned(
            receiver,
            "a handler borrows its actor: write `&mut self`, or `&self` if it only reads",
        ));
    }
    let mut takes_context = false;
    let mut parameters = Vec::new();
    for (position, input) in signature.inputs.iter().skip(1).enumerate() {
        let FnArg::Typed(input) = input else {
            unreachable!("`self` comes first and once")
        };
        if is_context(&input.ty) {
            if position > 0 {
                return Err(Error::new_spanned(input, "the context comes first, right after `self`"));
            }
            takes_context = true;
            continue;
        }
        parameters.push(parameter(input)?);
    }
    if parameters.len() > PARAMETERS_MAX {
        return Err(Error::new_spanned(
            &signature.inputs,
            format!("a handler has at most {PARAMETERS_MAX} parameters: put some into a struct"),
        ));
    }
    let reply = match &signature.output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, reply) => (**reply).clone(),
    };
    if let Type::Reference(_) | Type::ImplTrait(_) = &reply {
        return Err(Error::new_spanned(
            &reply,
            "the reply may be sent to another node: return an owned, named type",
        ));
    }
    Ok(Handler {
        function,
        docs: function
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("doc"))
            .collect(),
        shared: receiver.mutability.is_none(),
        reentrant: false,
        takes_context,
        parameters,
        reply,
        reminded: false,
    })
}

fn parameter(input: &syn::PatType) -> Result<(&Ident, &Type)> {
    let name = match &*input.pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => &name.ident,
        other => {
            return Err(Error::new_spanned(
                other,
                "a handler's parameter must be a plain name, because callers see it",
            ));
        }
    };
    match &*input.ty {
        Type::Reference(_) => Err(Error::new_spanned(
            &input.ty,
            "arguments may be sent to another node: take an owned type, such as `String` instead of `&str`",
        )),
        Type::ImplTrait(_) => Err(Error::new_spanned(
            &input.ty,
            "arguments may be sent to another node: take a named type",
        )),
        owned => Ok((name, owned)),
    }
}

/// Whether a parameter is the context: a reference to a type called `Ctx`.
fn is_context(kind: &Type) -> bool {
    matches!(kind, Type::Reference(reference) if matches!(
        &*reference.elem,
        Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == "Ctx")
    ))
}
