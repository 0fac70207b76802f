//! `#[derive(HoldsReferences)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Member, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "`HoldsReferences` can only be derived for structs",
        ));
    };
    let marked: Vec<(Member, &Field)> = data
        .fields
        .members()
        .zip(&data.fields)
        .filter(|(_, field)| {
            field
                .attrs
                .iter()
                .any(|attribute| attribute.path().is_ident("references"))
        })
        .collect();
    let Some((_, first)) = marked.first() else {
        return Err(Error::new_spanned(
            &input.ident,
            "no field is marked: mark the fields that hold references with `#[references]`",
        ));
    };
    let holder = &input.ident;
    let target_of = &first.ty;
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    let references = marked.iter().map(|(member, field)| {
        // The span reports a field without references, or with references to another type, at the field.
        quote_spanned! { field.ty.span() => ::elastin::__private::each_of::<Self::Target, _>(&self.#member, f); }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::elastin::__private::HoldsReferences for #holder #arguments #conditions {
            type Target = <#target_of as ::elastin::__private::HoldsReferences>::Target;

            fn each_reference(&self, f: &mut dyn ::core::ops::FnMut(&::elastin::__private::ActorId)) {
                #(#references)*
            }
        }
    })
}
