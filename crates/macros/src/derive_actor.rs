//! `#[derive(Actor)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Ident, LitStr, Result, token};

/// The options of `#[actor(…)]`.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    persist: Option<Ident>,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only a struct can be an actor: its fields are the actor's state",
        ));
    };
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new_spanned(
            parameter,
            "an actor type can't have generic parameters, because policies and messages refer to it by name: write a \
             struct for each case",
        ));
    }
    let options = options(input)?;
    let actor = &input.ident;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => LitStr::new(&actor.to_string(), actor.span()),
    };
    let persist = options.persist.unwrap_or_else(|| format_ident!("Never"));
    let reference = format_ident!("{actor}Ref");
    let visibility = &input.vis;
    let reference_doc = format!("A reference to a `{actor}`: a method for each of its handlers.");
    let properties = data.fields.iter().filter_map(property);
    let references = data.fields.iter().filter_map(field_references);
    Ok(quote! {
        #[doc = #reference_doc]
        #visibility struct #reference(::elastin::__private::RawRef<#actor>);

        #[automatically_derived]
        impl ::core::clone::Clone for #reference {
            fn clone(&self) -> Self {
                Self(::core::clone::Clone::clone(&self.0))
            }
        }

        #[automatically_derived]
        impl ::elastin::__private::TypedRef for #reference {
            type Actor = #actor;

            fn from_raw(raw: ::elastin::__private::RawRef<#actor>) -> Self {
                Self(raw)
            }

            fn raw(&self) -> &::elastin::__private::RawRef<#actor> {
                &self.0
            }
        }

        #[automatically_derived]
        impl ::elastin::__private::Actor for #actor {
            const NAME: &'static str = #name;
            const PERSIST: ::elastin::__private::Persist = ::elastin::__private::Persist::#persist;
            type Ref = #reference;

            fn properties() -> ::std::vec::Vec<::elastin::__private::PropertySchema> {
                #[allow(unused_imports)]
                use ::elastin::__private::{ByNothing as _, ByReferences as _};
                #[allow(unused_mut)]
                let mut properties = ::std::vec::Vec::new();
                #(#properties)*
                properties
            }

            fn visit_references(
                &self,
                visit: &mut dyn ::core::ops::FnMut(::elastin::__private::Property, &::elastin::__private::ActorId),
            ) {
                #[allow(unused_imports)]
                use ::elastin::__private::{ByNothing as _, ByReferences as _};
                let _ = &visit;
                #(#references)*
            }
        }
    })
}

/// Adds a field to the properties if its type holds references.
fn property(field: &Field) -> Option<TokenStream> {
    let name = field.ident.as_ref()?.to_string();
    let kind = &field.ty;
    Some(quote_spanned! { kind.span() =>
        if let ::core::option::Option::Some(target) = (&&::elastin::__private::Probe::<#kind>::new()).target() {
            properties.push(::elastin::__private::PropertySchema {
                name: ::std::borrow::ToOwned::to_owned(#name),
                target: ::std::borrow::ToOwned::to_owned(target),
            });
        }
    })
}

/// Visits the references of a field if its type holds any.
fn field_references(field: &Field) -> Option<TokenStream> {
    let identifier = field.ident.as_ref()?;
    let name = identifier.to_string();
    let kind = &field.ty;
    Some(quote_spanned! { kind.span() =>
        (&&::elastin::__private::Probe::<#kind>::new()).each(&self.#identifier, &mut |actor| {
            const PROPERTY: ::elastin::__private::Property = ::elastin::__private::Property::of(#name);
            visit(PROPERTY, actor)
        });
    })
}

/// The persistence mode: `persist` alone means `each_turn`, else the option in its parentheses.
fn persist(meta: &ParseNestedMeta<'_>) -> Result<Ident> {
    if !meta.input.peek(token::Paren) {
        return Ok(format_ident!("EachTurn"));
    }
    let mut when = None;
    meta.parse_nested_meta(|option| {
        let mode = match option.path.get_ident().map(Ident::to_string).as_deref() {
            Some("each_turn") => "EachTurn",
            Some("on_request") => "OnRequest",
            Some("at_passivation") => "AtPassivation",
            _ => {
                return Err(option.error("unknown persistence mode: use `each_turn`, `on_request` or `at_passivation`"));
            }
        };
        match when.replace(Ident::new(mode, option.path.span())) {
            None => Ok(()),
            Some(_) => Err(option.error("only one persistence mode is allowed")),
        }
    })?;
    when.ok_or_else(|| meta.error("missing persistence mode: use `each_turn`, `on_request` or `at_passivation`"))
}

fn options(input: &DeriveInput) -> Result<Options> {
    let mut options = Options::default();
    for attribute in input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("actor"))
    {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                let text = name.value();
                let mut letters = text.chars();
                let has_valid_start = letters
                    .next()
                    .is_some_and(|first| first.is_alphabetic() || first == '_');
                if !has_valid_start || !letters.all(|letter| letter.is_alphanumeric() || letter == '_') {
                    return Err(Error::new_spanned(
                        name,
                        "an actor name has only letters, digits and underscores and starts with no digit",
                    ));
                }
                options.name = Some(name);
                Ok(())
            } else if meta.path.is_ident("persist") {
                options.persist = Some(persist(&meta)?);
                Ok(())
            } else {
                Err(meta.error("unknown option: use `name = \"…\"` or `persist`"))
            }
        })?;
    }
    Ok(options)
}
