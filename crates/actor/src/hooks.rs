//! The future of a lifecycle hook.

use std::future::Future;
use std::pin::Pin;

/// A running lifecycle hook. Boxed, because hooks are rare and a trait object keeps actor types without hooks small.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
