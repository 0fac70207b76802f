//! The task of an I/O thread that reads an accepted connection.

use std::time::Instant;

use elastin_runtime::AdaptiveBackoff;

use super::io_threads::IoThreads;
use crate::transport::FollowUp;
use crate::transport::inbound::{Broken, Inbound, Received};
use crate::tuning::SLOW_PER_FRAME;

/// Reads an accepted connection. It can be handed over to the other I/O thread while a follow-up runs.
pub(super) struct AcceptedReader {
    inbound: Inbound,
    io_threads: &'static IoThreads,
    backoff: AdaptiveBackoff,
}

impl AcceptedReader {
    pub(super) fn spawn(inbound: Inbound, io_threads: &'static IoThreads) {
        let connection = inbound.connection.clone();
        let reader = Self {
            inbound,
            io_threads,
            backoff: AdaptiveBackoff::default(),
        };
        let handle = connection.inner.handle.clone();
        io_threads.spawn(&handle, connection.run(reader.read()));
    }

    /// Reads on, because the reader's thread is blocked by a follow-up.
    pub(super) fn take_over(mut self) {
        let connection = self.inbound.connection.clone();
        let handle = connection.inner.handle.clone();
        self.io_threads.spawn(&handle, async move {
            connection.inner.receiver.follow_up_is_late();
            self.backoff.severe_failure();
            connection.run(self.read()).await;
        });
    }

    async fn read(mut self) -> Result<(), Broken> {
        loop {
            let Received { frames, follow_up } = self.inbound.receive(None)?;
            if let Some(FollowUp::Run(work)) = follow_up {
                match self.run(work, frames) {
                    Some(reader) => self = reader,
                    None => return Ok(()),
                }
            }
            self.inbound.read_after(frames).await?;
        }
    }

    /// Runs a follow-up on this thread, or drops it. Returns none if the other thread has taken the connection over because the
    /// follow-up took too long.
    fn run(mut self, work: Box<dyn FnOnce() + Send>, frames: usize) -> Option<Self> {
        let io_threads = self.io_threads;
        // It must not delay connections that are known to be ready.
        if io_threads.has_ready() || self.backoff.should_skip() {
            return Some(self);
        }
        let token = match io_threads.offer_connection(self) {
            Ok(token) => token,
            Err(reader) => return Some(reader),
        };
        let began = Instant::now();
        work();
        let mut reader = io_threads.reclaim_connection(token)?;
        match began.elapsed() > SLOW_PER_FRAME * frames as u32 {
            true => reader.backoff.failure(),
            false => reader.backoff.success(),
        }
        Some(reader)
    }
}
