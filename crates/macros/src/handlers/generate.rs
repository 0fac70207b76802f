//! Generates the code for the handlers: their functions, the methods of the reference, the schema.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, Ident, Path, PathArguments, Type};

use super::{Handler, Hook};

/// The types of `Result<T, E>`, if the reply is written like that.
fn as_result(reply: &Type) -> Option<(&Type, &Type)> {
    let Type::Path(path) = reply else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    let mut arguments = arguments.args.iter();
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(GenericArgument::Type(value)), Some(GenericArgument::Type(error)), None) => Some((value, error)),
        _ => None,
    }
}

/// A type as written in source: the tokens without the spaces that a token stream inserts.
fn type_name(kind: &Type) -> String {
    let tight = |text: String, from: &str, to: &str| text.replace(from, to);
    let mut text = quote!(#kind).to_string();
    for (from, to) in [
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :: ", "::"),
        ("& ", "&"),
    ] {
        text = tight(text, from, to);
    }
    text
}

/// All generated items besides the `impl` block itself.
pub(super) fn glue(actor: &Path, handlers: &[Handler<'_>], hooks: &[Hook]) -> TokenStream {
    let mut reference = actor.clone();
    let last = reference.segments.last_mut().expect("a path has a segment");
    last.ident = format_ident!("{}Ref", last.ident);
    let functions = handlers.iter().map(|handler| function_type(actor, handler));
    let markers: Vec<_> = handlers.iter().map(|handler| marker(actor, handler)).collect();
    let callable = || handlers.iter().filter(|handler| !handler.reminded);
    let methods = callable().map(|handler| reference_method(actor, handler));
    let schemas = callable().map(function_schema);
    let reminded = handlers.iter().find(|handler| handler.reminded).map(takes_reminders);
    let hook_arms = hooks.iter().map(hook_arm);
    let moments = hooks.iter().map(|hook| &hook.moment);
    let shares = handlers.iter().any(|handler| handler.shared && handler.may_wait());
    quote! {
        const _: () = {
            #[allow(unused_imports)]
            use ::elastin::__private::Function as _;

            #(#functions)*

            const _: () = ::core::assert!(
                ::elastin::__private::are_distinct(&[#(<#markers>::METHOD),*]),
                "two handlers have names with the same hash: rename one of them",
            );

            impl #reference {
                #(#methods)*
            }

            #[automatically_derived]
            impl ::elastin::__private::Handlers for #actor {
                const SHARES: bool = #shares;

                fn functions() -> ::std::vec::Vec<::elastin::__private::FunctionSchema> {
                    ::std::vec![#(#schemas),*]
                }

                fn decode(
                    message: ::std::sync::Arc<::elastin::__private::Message>,
                    reply: ::core::option::Option<::std::boxed::Box<::elastin::__private::ReplySender>>,
                ) -> ::core::result::Result<
                    ::core::pin::Pin<::std::boxed::Box<dyn ::elastin::__private::Turn<Self>>>,
                    ::elastin::__private::Undecoded,
                > {
                    #(
                        if message.method.number() == <#markers>::METHOD.number() {
                            return ::elastin::__private::received::<#markers>(message, reply);
                        }
                    )*
                    ::core::result::Result::Err(::elastin::__private::Undecoded::unknown_method::<Self>(&message, reply))
                }

                fn hook(
                    &mut self,
                    hook: ::elastin::__private::Hook,
                ) -> ::core::option::Option<::elastin::__private::HookFuture<'_>> {
                    match hook {
                        #(#hook_arms)*
                        #[allow(unreachable_patterns)]
                        _ => ::core::option::Option::None,
                    }
                }

                fn hooks() -> &'static [::elastin::__private::Hook] {
                    &[#(::elastin::__private::Hook::#moments),*]
                }

                #reminded
            }
        };
    }
}

/// The type that stands for a handler. Its name can't be that of a type which the handlers mention. The actor is a
/// parameter, so that the type is not more visible than the actor.
fn marker(actor: &Path, handler: &Handler<'_>) -> TokenStream {
    let name = marker_name(handler);
    quote!(#name<#actor>)
}

fn marker_name(handler: &Handler<'_>) -> Ident {
    format_ident!("__{}", handler.function.sig.ident)
}

/// A name as written by callers and policies.
pub(super) fn bare_name(identifier: &Ident) -> String {
    let name = identifier.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

fn function_type(actor: &Path, handler: &Handler<'_>) -> TokenStream {
    let (marker_name, marker) = (marker_name(handler), marker(actor, handler));
    let function = &handler.function.sig.ident;
    let name = handler.name();
    let reply = &handler.reply;
    let (shared, read_only, may_wait) = (handler.shared, handler.read_only(), handler.may_wait());
    let kinds: Vec<_> = handler.parameters.iter().map(|(_, kind)| kind).collect();
    let (held, run) = run_function(actor, handler);
    let (output, convert) = match as_result(reply) {
        Some((value, error)) => (
            quote!(::core::result::Result<#value, ::elastin::__private::CallFailed<#error>>),
            quote!(::elastin::__private::flatten(outcome)),
        ),
        None => (
            quote!(::core::result::Result<#reply, ::elastin::__private::CallError>),
            quote!(outcome),
        ),
    };
    // The span reports a type that can't be encoded at the handler's own parameters.
    let arguments_span = kinds.first().map_or(function.span(), |kind| kind.span());
    let arguments = quote_spanned! { arguments_span => (#(#kinds,)*) };
    let reply_type = quote_spanned! { reply.span() => #reply };
    quote! {
        #[doc(hidden)]
        #[allow(dead_code, non_camel_case_types)]
        pub struct #marker_name<A>(::core::marker::PhantomData<A>);

        #[automatically_derived]
        impl ::elastin::__private::Function for #marker {
            type Actor = #actor;
            type Arguments = #arguments;
            type Reply = #reply_type;
            type Output = #output;
            type Held = #held;

            const NAME: &'static str = #name;
            const SHARED: bool = #shared;
            const READ_ONLY: bool = #read_only;
            const MAY_WAIT: bool = #may_wait;

            #run

            fn output(
                outcome: ::core::result::Result<Self::Reply, ::elastin::__private::CallError>,
            ) -> Self::Output {
                #convert
            }
        }
    }
}

/// The type of the future's hold on the actor, and the function that runs the handler.
fn run_function(actor: &Path, handler: &Handler<'_>) -> (TokenStream, TokenStream) {
    let function = &handler.function.sig.ident;
    let names: Vec<_> = handler.parameters.iter().map(|(name, _)| name).collect();
    let context = handler
        .takes_context
        .then(|| quote!(&::elastin::__private::Ctx::CURRENT,));
    // Hygienic names, because the handler's parameters may have any name.
    let held = Ident::new("held", Span::mixed_site());
    let state = Ident::new("state", Span::mixed_site());
    let owned = quote!(::std::boxed::Box<::elastin::__private::Instance<#actor>>);
    if !handler.may_wait() {
        let (name, borrowed) = if handler.shared {
            (quote!(read_plain), quote!(&#actor))
        } else {
            (quote!(run_plain), quote!(&mut #actor))
        };
        let call = quote_spanned! { function.span() => #actor::#function(#state, #context #(#names),*) };
        let run = quote! {
            #[inline]
            fn #name(#state: #borrowed, (#(#names,)*): Self::Arguments) -> Self::Reply {
                #call
            }
        };
        return (owned, run);
    }
    let (kind, mutable, borrow, share) = if handler.shared {
        let share = quote_spanned! { function.span() =>
            fn share(#held: #owned) -> ::elastin::__private::SharedInstance {
                ::elastin::__private::SharedInstance::new(#held)
            }
        };
        let borrow = quote!(&#held.instance::<#actor>().state);
        (quote!(::elastin::__private::SharedInstance), None, borrow, Some(share))
    } else {
        (owned, Some(quote!(mut)), quote!(&mut #held.state), None)
    };
    let call = quote_spanned! { function.span() => #actor::#function(#borrow, #context #(#names),*).await };
    let run = quote! {
        #share

        fn run(
            #mutable #held: Self::Held,
            (#(#names,)*): Self::Arguments,
        ) -> impl ::core::future::Future<Output = (Self::Held, Self::Reply)> + ::core::marker::Send + 'static {
            async move {
                let reply = #call;
                (#held, reply)
            }
        }
    };
    (kind, run)
}

fn reference_method(actor: &Path, handler: &Handler<'_>) -> TokenStream {
    let marker = marker(actor, handler);
    let function = &handler.function.sig.ident;
    let docs = &handler.docs;
    let names: Vec<_> = handler.parameters.iter().map(|(name, _)| name).collect();
    let kinds: Vec<_> = handler.parameters.iter().map(|(_, kind)| kind).collect();
    let fallback = docs.is_empty().then(|| {
        let text = format!("Calls the handler `{function}`.");
        quote!(#[doc = #text])
    });
    quote! {
        #(#docs)*
        #fallback
        #[allow(dead_code, clippy::too_many_arguments)]
        pub fn #function(&self, #(#names: #kinds),*) -> ::elastin::__private::Call<'_, #marker> {
            ::elastin::__private::Call::new(&self.0, (#(#names,)*))
        }
    }
}

fn function_schema(handler: &Handler<'_>) -> TokenStream {
    let name = handler.name();
    let read_only = handler.read_only();
    let reply = type_name(&handler.reply);
    let parameters = handler.parameters.iter().map(|(name, kind)| {
        let name = name.to_string();
        let kind = type_name(kind);
        quote!(::elastin::__private::ParameterSchema {
            name: ::std::borrow::ToOwned::to_owned(#name),
            type_name: ::std::borrow::ToOwned::to_owned(#kind),
        })
    });
    quote!(::elastin::__private::FunctionSchema {
        name: ::std::borrow::ToOwned::to_owned(#name),
        parameters: ::std::vec![#(#parameters),*],
        reply: ::std::borrow::ToOwned::to_owned(#reply),
        read_only: #read_only,
    })
}

/// Declares the reminder handler, and checks at compile time that its parameter is a `Reminder`.
fn takes_reminders(handler: &Handler<'_>) -> TokenStream {
    let kinds = handler.parameters.iter().map(|(_, kind)| kind);
    quote! {
        fn takes_reminders() -> bool {
            #(const _: fn(::elastin::__private::Reminder) -> #kinds = |reminder| reminder;)*
            true
        }
    }
}

fn hook_arm(hook: &Hook) -> TokenStream {
    let moment = &hook.moment;
    let function = &hook.function.sig.ident;
    let context = hook.takes_context.then(|| quote!(&::elastin::__private::Ctx::CURRENT));
    let wait = hook.function.sig.asyncness.map(|_| quote!(.await));
    quote_spanned! { function.span() =>
        ::elastin::__private::Hook::#moment => ::core::option::Option::Some(::std::boxed::Box::pin(async move {
            self.#function(#context) #wait;
        })),
    }
}
