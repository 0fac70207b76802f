//! `#[handlers]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ImplItem, ImplItemFn, ItemImpl, Pat, Path, PathArguments, Result,
    ReturnType, Type,
};

/// The most parameters that a handler may have: as many as a tuple that can be encoded has fields.
const PARAMETERS_MAX: usize = 12;

/// One handler, taken apart.
struct Handler<'a> {
    function: &'a ImplItemFn,
    docs: Vec<&'a Attribute>,
    read_only: bool,
    takes_context: bool,
    parameters: Vec<(&'a Ident, &'a Type)>,
    reply: Type,
    /// It is told reminders, and nobody else calls it.
    reminded: bool,
}

impl Handler<'_> {
    /// The name that stands for it in messages.
    fn name(&self) -> String {
        if self.reminded {
            // As in `elastin_types::Reminder::FUNCTION`.
            return "on reminder".to_owned();
        }
        bare_name(&self.function.sig.ident)
    }
}

/// The functions that `#[on(…)]` was written on.
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
            "handlers are in the actor's own `impl` block, not in that of a trait",
        ));
    }
    let actor = match &*item.self_ty {
        Type::Path(path) if path.qself.is_none() => path.path.clone(),
        other => {
            return Err(Error::new_spanned(
                other,
                "`#[handlers]` goes on `impl` of an actor's struct",
            ));
        }
    };
    let (mut errors, mut errors_of_reminded) = (Errors::default(), Errors::default());
    let On { hooks, reminded } = take_hooks(&mut item, &mut errors);
    let handlers: Vec<_> = item
        .items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Fn(function) if function.sig.receiver().is_some() => errors.keep(handler(function)),
            _ => None,
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
    let glue = glue(&actor, &handlers, &hooks)?;
    Ok(quote! {
        #item

        #glue
    })
}

/// All errors at once, so that a user sees them in one build.
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

/// Finds the functions with `#[on(…)]` and takes that attribute off them.
fn take_hooks(item: &mut ItemImpl, errors: &mut Errors) -> On {
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
                let twice = Error::new_spanned(&attribute, "there is a handler of reminders already");
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
                "there is a hook for this moment already",
            )));
            continue;
        }
        on.hooks.push(hook);
    }
    on
}

/// Makes a handler the one that is told reminders.
fn as_reminded(handler: Handler<'_>) -> Result<Handler<'_>> {
    if handler.parameters.len() != 1 {
        return Err(Error::new_spanned(
            &handler.function.sig.inputs,
            "a handler of reminders takes one thing besides `self` and the context: the `Reminder`",
        ));
    }
    if !matches!(&handler.reply, Type::Tuple(nothing) if nothing.elems.is_empty()) {
        return Err(Error::new_spanned(
            &handler.reply,
            "nobody waits for what a handler of reminders returns",
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
                "a function runs on `activate`, `deactivate`, `before_move`, `after_move` or `reminder`",
            ));
        }
    };
    let handler = handler(function)?;
    if let Some((parameter, _)) = handler.parameters.first() {
        return Err(Error::new_spanned(
            parameter,
            "a hook takes nothing but `self` and the context",
        ));
    }
    let takes_context = handler.takes_context;
    Ok(Hook {
        moment,
        function: function.clone(),
        takes_context,
    })
}

fn handler(function: &ImplItemFn) -> Result<Handler<'_>> {
    let signature = &function.sig;
    if let Some(parameter) = signature.generics.params.first() {
        return Err(Error::new_spanned(
            parameter,
            "a handler has no generic parameters, because calls of it are sent between nodes",
        ));
    }
    if let Some(unsafety) = &signature.unsafety {
        return Err(Error::new_spanned(
            unsafety,
            "a handler can be called by anyone, so it can't be `unsafe`",
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
            "a reply is sent to the caller, who may be on another node: return an owned, named type",
        ));
    }
    Ok(Handler {
        function,
        docs: function
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("doc"))
            .collect(),
        read_only: receiver.mutability.is_none(),
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
                "a handler's parameter is a plain name, which callers see",
            ));
        }
    };
    match &*input.ty {
        Type::Reference(_) => Err(Error::new_spanned(
            &input.ty,
            "arguments are sent to the actor, which may be on another node: take an owned type, such as `String` for `&str`",
        )),
        Type::ImplTrait(_) => Err(Error::new_spanned(
            &input.ty,
            "arguments are sent to the actor: name their type",
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

/// The types of `Result<T, E>`, when that is how the reply is written.
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

/// A type as people write it: the tokens, without the spaces that a token stream puts between them.
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

/// Everything besides the `impl` block itself.
fn glue(actor: &Path, handlers: &[Handler<'_>], hooks: &[Hook]) -> Result<TokenStream> {
    let mut reference = actor.clone();
    let last = reference.segments.last_mut().expect("a path has a segment");
    last.ident = format_ident!("{}Ref", last.ident);
    let functions: Vec<_> = handlers.iter().map(|handler| function_type(actor, handler)).collect();
    let callable = || handlers.iter().filter(|handler| !handler.reminded);
    let methods = callable().map(|handler| reference_method(actor, handler));
    let schemas = callable().map(function_schema);
    let reminded = handlers.iter().find(|handler| handler.reminded).map(takes_reminders);
    let numbers: Vec<_> = handlers.iter().map(number).collect();
    let hook_arms = hooks.iter().map(hook_arm);
    let moments = hooks.iter().map(|hook| &hook.moment);
    Ok(quote! {
        const _: () = {
            #(#functions)*

            impl #reference {
                #(#methods)*
            }

            #[automatically_derived]
            impl ::elastin::__private::Handlers for #actor {
                fn functions() -> ::std::vec::Vec<::elastin::__private::FunctionSchema> {
                    ::std::vec![#(#schemas),*]
                }

                fn decode(
                    message: ::elastin::__private::Message,
                    reply: ::core::option::Option<::elastin::__private::ReplyTo>,
                ) -> ::core::result::Result<
                    ::core::pin::Pin<::std::boxed::Box<dyn ::elastin::__private::Turn<Self>>>,
                    ::elastin::__private::Undecoded,
                > {
                    #(
                        if message.method.number() == #numbers {
                            return ::elastin::__private::received::<::elastin::__private::Handler<#actor, #numbers>>(
                                message, reply,
                            );
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
    })
}

/// The number that stands for a handler in types.
fn number(handler: &Handler<'_>) -> TokenStream {
    let name = handler.name();
    quote!({ ::elastin::__private::Method::of(#name).number() })
}

/// A name as callers and policies write it.
fn bare_name(identifier: &Ident) -> String {
    let name = identifier.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

fn function_type(actor: &Path, handler: &Handler<'_>) -> TokenStream {
    let number = number(handler);
    let function = &handler.function.sig.ident;
    let name = handler.name();
    let reply = &handler.reply;
    let read_only = handler.read_only;
    let may_wait = handler.function.sig.asyncness.is_some();
    let names: Vec<_> = handler.parameters.iter().map(|(name, _)| name).collect();
    let kinds: Vec<_> = handler.parameters.iter().map(|(_, kind)| kind).collect();
    let context = handler
        .takes_context
        .then(|| quote!(&::elastin::__private::Ctx::CURRENT,));
    let wait = handler.function.sig.asyncness.map(|_| quote!(.await));
    let borrow = if read_only { quote!(&) } else { quote!(&mut) };
    let mutable = (!read_only).then(|| quote!(mut));
    // Parameters may have any names, also those that stand here: these are seen by nothing that the user wrote.
    let body = Ident::new("body", Span::mixed_site());
    let state = Ident::new("state", Span::mixed_site());
    let call = quote_spanned! { function.span() =>
        #actor::#function(#borrow #body.state, #context #(#names),*) #wait
    };
    let plain = if may_wait {
        quote!(::core::unreachable!("an async handler runs as a future"))
    } else {
        quote_spanned! { function.span() => #actor::#function(#state, #context #(#names),*) }
    };
    let unused = may_wait.then(|| quote!(#[allow(unused_variables)]));
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
    // The span makes a type that can't be encoded an error at the handler's own parameters.
    let arguments_span = kinds.first().map_or(function.span(), |kind| kind.span());
    let arguments = quote_spanned! { arguments_span => (#(#kinds,)*) };
    let reply_type = quote_spanned! { reply.span() => #reply };
    quote! {
        #[automatically_derived]
        impl ::elastin::__private::Answers<#number> for #actor {
            type Arguments = #arguments;
            type Reply = #reply_type;
            type Output = #output;

            const NAME: &'static str = #name;
            const READ_ONLY: bool = #read_only;
            const MAY_WAIT: bool = #may_wait;

            #unused
            fn run_plain(#state: &mut Self, (#(#names,)*): Self::Arguments) -> Self::Reply {
                #plain
            }

            fn run(
                #mutable #body: ::std::boxed::Box<::elastin::__private::Body<#actor>>,
                (#(#names,)*): Self::Arguments,
            ) -> impl ::core::future::Future<
                Output = (::std::boxed::Box<::elastin::__private::Body<#actor>>, Self::Reply),
            > + ::core::marker::Send + 'static {
                async move {
                    let reply = #call;
                    (#body, reply)
                }
            }

            fn output(
                outcome: ::core::result::Result<Self::Reply, ::elastin::__private::CallError>,
            ) -> Self::Output {
                #convert
            }
        }
    }
}

fn reference_method(actor: &Path, handler: &Handler<'_>) -> TokenStream {
    let number = number(handler);
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
        pub fn #function(&self, #(#names: #kinds),*) -> ::elastin::__private::Call<'_, ::elastin::__private::Handler<#actor, #number>> {
            ::elastin::__private::Call::new(&self.0, (#(#names,)*))
        }
    }
}

fn function_schema(handler: &Handler<'_>) -> TokenStream {
    let name = handler.name();
    let read_only = handler.read_only;
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

/// Says that there is a handler of reminders; its parameter is one, or the compiler says so.
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
