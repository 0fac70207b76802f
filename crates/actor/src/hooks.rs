//! The future that a lifecycle hook runs as.

use std::future::Future;
use std::pin::Pin;

/// A lifecycle hook that runs. Boxed: hooks are extras, and a trait object keeps actor types without them small.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
