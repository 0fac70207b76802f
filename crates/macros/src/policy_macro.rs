//! `policy!`: a policy that is read when the program is compiled, tied to the Rust items that it names.
//!
//! The macro parses the policy, so a mistake in its syntax is told with line and column. It can't see the actors; instead
//! it writes code that uses every type, function and property of the policy, so that rustc misses what does not exist and
//! suggests what does. Whatever needs more than names, such as whether a property holds references to the right type, the
//! policy's checker says when the application starts.

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
        let message = "a policy is looked for in the package's directory, which cargo tells: build with cargo";
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
    // The uses stand where the file's name stands: from what a macro has written itself, rustc suggests no other names.
    let uses = uses(&syntax.mentions(), file.span()).map_err(|name| {
        let message = format!("the policy names `{name}`, which can't be the name of anything in Rust");
        Error::new_spanned(file, message)
    })?;
    // The compiler reads the file a second time: so it knows that a change of the policy changes the program.
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

/// The text of a policy, or why there is none.
fn read(file: &Path) -> std::result::Result<String, String> {
    let bytes = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if bytes > SOURCE_BYTES_MAX as u64 {
        return Err(format!(
            "it has {bytes} bytes, more than the {SOURCE_BYTES_MAX} allowed"
        ));
    }
    std::fs::read_to_string(file).map_err(|error| error.to_string())
}

/// A use of each name, once; or the first name that Rust can't have.
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

/// A name of a policy as Rust writes it: a keyword, such as `type`, is written `r#type`.
fn identifier(name: &str, span: Span) -> std::result::Result<Ident, String> {
    let parsed = syn::parse_str::<Ident>(name).or_else(|_| syn::parse_str(&format!("r#{name}")));
    let mut identifier = parsed.map_err(|_| name.to_owned())?;
    identifier.set_span(span);
    Ok(identifier)
}

/// What [`expand`] needs of an actor: its fields' names, as a constant that any module can see whatever their visibility.
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
