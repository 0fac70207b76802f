//! What is measured: something that answers calls from another process.

use anyhow::Result;
use async_trait::async_trait;

use crate::load::{self, Work};

/// The bytes of each argument and of each reply.
pub(crate) const BODY_BYTES: usize = 64;

/// One caller's way to an echo in another process.
pub(crate) trait Remote: Clone + Send + 'static {
    /// Sends `body` there and gets it back.
    fn call(&mut self, body: Vec<u8>) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// Something that can be measured.
#[async_trait]
pub(crate) trait Contestant {
    /// What it is called in the table.
    fn name(&self) -> &str;

    /// Does some work and says how it went, in the unit of the work.
    async fn measure(&mut self, work: Work) -> Result<f64>;
}

/// A contestant whose server process was started by this program, or is looked after by `server`.
pub(crate) struct Connected<R, S> {
    pub(crate) name: &'static str,
    pub(crate) remote: R,
    /// Lives as long as the contestant.
    pub(crate) _server: S,
}

#[async_trait]
impl<R: Remote + Sync, S: Send> Contestant for Connected<R, S> {
    fn name(&self) -> &str {
        self.name
    }

    async fn measure(&mut self, work: Work) -> Result<f64> {
        load::run(&self.remote, work).await
    }
}
