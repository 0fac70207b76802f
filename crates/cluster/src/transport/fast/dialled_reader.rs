//! The read loop of a connection that this process has opened. A [`ReplyReader`] polls it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::task::yield_now;

use super::dialled_socket::DialledSocket;
use super::reply_reader::ReplyReader;
use crate::transport::inbound::{Broken, Inbound};
use crate::transport::{FollowUp, Steps};

/// Reads a dialled connection, and takes steps of a follow-up between reads.
pub(super) struct DialledReader {
    inbound: Inbound,
    /// Whether there are steps.
    has_steps: Arc<AtomicBool>,
    steps: Option<Box<dyn Steps>>,
}

impl DialledReader {
    pub(super) fn spawn(inbound: Inbound, socket: DialledSocket) {
        let connection = inbound.connection.clone();
        let (handle, link) = (connection.inner.handle.clone(), Arc::clone(&connection.link));
        let has_steps = Arc::new(AtomicBool::new(false));
        let reader = Self {
            inbound,
            has_steps: Arc::clone(&has_steps),
            steps: None,
        };
        let reading = connection.run(reader.read());
        link.set_reply_poller(ReplyReader::spawn(&handle, socket, has_steps, reading));
    }

    async fn read(mut self) -> Result<(), Broken> {
        loop {
            let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
            let received = self.inbound.receive(Some(&task))?;
            let is_full = received.is_full();
            if let Some(FollowUp::Steps(steps)) = received.follow_up {
                self.steps = Some(steps);
                self.has_steps.store(true, Ordering::Relaxed);
            }
            if is_full {
                self.step_or_yield().await;
            } else if self.read_more().await? {
                yield_now().await;
            }
        }
    }

    /// Takes steps until bytes arrive, and reads them. Returns whether more bytes may be available.
    async fn read_more(&mut self) -> Result<bool, Broken> {
        while self.steps.is_some() {
            self.step_or_yield().await;
            if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(self.inbound.poll_read(context))).await {
                return read;
            }
        }
        poll_fn(|context| self.inbound.poll_read(context)).await
    }

    async fn step_or_yield(&mut self) {
        let Some(steps) = &mut self.steps else {
            return yield_now().await;
        };
        if !poll_fn(|context| steps.poll_step(context)).await {
            self.steps = None;
            self.has_steps.store(false, Ordering::Relaxed);
        }
    }
}
