//! A contestant: answers calls from another process.

use std::pin::Pin;

use anyhow::Result;

use crate::load::{self, Work};

/// The size of each argument and of each reply.
pub(crate) const BODY_BYTES: usize = 64;

/// A caller's handle of an echo in another process.
pub(crate) trait Remote: Clone + Send + 'static {
    /// Sends `body` and returns the echo.
    fn call(&mut self, body: Vec<u8>) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// The pending result of a workload.
pub(crate) type Measured<'a> = Pin<Box<dyn Future<Output = Result<f64>> + Send + 'a>>;

/// An implementation to measure.
pub(crate) trait Contestant {
    /// Its name in the table.
    fn name(&self) -> &str;

    /// Runs a workload and returns the result in the unit of the workload.
    fn measure(&mut self, work: Work) -> Measured<'_>;
}

/// A contestant with a server process started by this program, or managed by `server`.
pub(crate) struct Connected<R, S> {
    pub(crate) name: &'static str,
    pub(crate) remote: R,
    /// Lives as long as the contestant.
    pub(crate) _server: S,
}

impl<R: Remote + Sync, S: Send> Contestant for Connected<R, S> {
    fn name(&self) -> &str {
        self.name
    }

    fn measure(&mut self, work: Work) -> Measured<'_> {
        Box::pin(load::run(&self.remote, work))
    }
}
