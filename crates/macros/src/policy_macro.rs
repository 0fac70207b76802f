//! `policy!`: a policy that is checked at compile time against the Rust items that it names.
//!
//! The macro parses the policy, so a syntax error is reported with line and column. It can't see the actors. Instead it
//! generates code that uses every type, function and property of the policy, so that rustc reports unknown names with
//! suggestions. Checks beyond names, such as the target type of a property, run when the application starts.

use std::collections::BTreeSet;
use std::path::Path;

use elastin_policy::{Mention, Mentioned, SOURCE_BYTES_MAX, Syntax};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, LitStr, Result};

/// The value of `policy!("file.epl")`: its name and its text.
pub(crate) fn expand(file: &LitStr) -> Result<TokenStream> {
    let file_name = file.value();
    let directory = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| {
        let message = "`CARGO_MANIFEST_DIR` is not set, so the policy file can't be located: build with cargo";
        Error::new_spanned(file, message)
    })?;
    let text = read(&Path::new(&directory).join(&file_name)).map_err(|why| {
        let message = format!("the policy `{file_name}` can't be read: {why}");
        Error::new_spanned(file, message)
    })?;
    let syntax = Syntax::parse(&text);
    let mistakes = syntax.report(&file_name);
    if mistakes.has_errors() {
        let message = format!("the policy can't be understood\n\n{}", mistakes.render());
        return Err(Error::new_spanned(file, message));
    }
    // The uses get the span of the file name: rustc suggests no similar names for purely generated code.
    let uses = uses(&syntax.mentions(), file.span()).map_err(|name| {
        let message = format!("the policy uses `{name}`, which is not a valid Rust identifier");
        Error::new_spanned(file, message)
    })?;
    // `include_str!` makes the file a build dependency, so that a change of the policy triggers a rebuild.
    let path = format!("/{file_name}");
    Ok(quote! {{
        const _: fn() = || {
            #(#uses)*
        };
        ::elastin::PolicySource::new(
            #file_name,
            ::core::include_str!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), #path)),
        )
    }})
}

/// Reads a policy file, or explains why it can't be read.
fn read(file: &Path) -> std::result::Result<String, String> {
    let bytes = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if bytes > SOURCE_BYTES_MAX as u64 {
        return Err(format!(
            "it has {bytes} bytes, more than the {SOURCE_BYTES_MAX} allowed"
        ));
    }
    std::fs::read_to_string(file).map_err(|error| error.to_string())
}

/// One use of each name; fails with the first name that is not a valid identifier.
fn uses(mentions: &[Mention], span: Span) -> std::result::Result<Vec<TokenStream>, String> {
    let mut known = BTreeSet::new();
    let mut uses = Vec::new();
    for mention in mentions {
        let member = match &mention.what {
            Mentioned::Type => None,
            Mentioned::Function(name) | Mentioned::Property(name) => Some(identifier(name, span)?),
        };
        let is_property = matches!(mention.what, Mentioned::Property(_));
        if !known.insert((&mention.type_name, is_property, member.clone())) {
            continue;
        }
        let actor = identifier(&mention.type_name, span)?;
        uses.push(match member {
            None => quote_spanned!(span => let _ = <#actor as ::elastin::__private::Actor>::NAME;),
            Some(property) if is_property => quote_spanned!(span => let _ = #actor::__PROPERTIES.#property;),
            Some(function) => {
                quote_spanned!(span => let _ = <<#actor as ::elastin::__private::Actor>::Ref>::#function;)
            }
        });
    }
    Ok(uses)
}

/// A policy's name as a Rust identifier: a keyword such as `type` becomes `r#type`.
fn identifier(name: &str, span: Span) -> std::result::Result<Ident, String> {
    let parsed = syn::parse_str::<Ident>(name).or_else(|_| syn::parse_str(&format!("r#{name}")));
    let mut identifier = parsed.map_err(|_| name.to_owned())?;
    identifier.set_span(span);
    Ok(identifier)
}

/// Constant with an actor's field names, for [`expand`]. It is visible everywhere, regardless of the fields'
/// visibility.
pub(crate) fn property_names(input: &DeriveInput) -> TokenStream {
    let Data::Struct(data) = &input.data else {
        return TokenStream::new();
    };
    let actor = &input.ident;
    let properties = format_ident!("{actor}Properties");
    let fields: Vec<_> = data.fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    let names = fields.iter().map(|field| field.to_string());
    quote! {
        const _: () = {
            #[allow(dead_code, missing_docs, unreachable_pub)]
            pub struct #properties {
                #(pub #fields: &'static str,)*
            }

            #[automatically_derived]
            impl #actor {
                #[doc(hidden)]
                #[allow(dead_code, unreachable_pub)]
                pub const __PROPERTIES: #properties = #properties { #(#fields: #names),* };
            }
        };
    }
}
