//! Oneshot channel for results that the host delivers to a turn through a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use elastin_types::CallError;

use crate::reply::ReplyCell;

/// Sends the value, once. If it is dropped without one, the receiver resolves to `None`.
pub(crate) struct Sender<T>(Arc<ReplyCell<T>>);

/// Waits for the value; `None` if the sender was dropped.
pub(crate) struct Receiver<T>(Arc<ReplyCell<T>>);

/// Creates a channel for one value.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let reply_cell = ReplyCell::new(None);
    (Sender(reply_cell.clone()), Receiver(reply_cell))
}

impl<T> Sender<T> {
    /// Sends the value.
    pub(crate) fn send(self, value: T) {
        self.0.complete(Ok(value));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Without effect once the value was sent.
        self.0.complete(Err(CallError::Cancelled));
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll(cx.waker()).map(Result::ok)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll<T>(receiver: &mut Receiver<T>) -> Poll<Option<T>> {
        Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn receiver_gets_the_value_or_notices_a_dropped_sender() {
        let (sender, mut receiver) = channel();
        assert_eq!(poll(&mut receiver), Poll::Pending);
        sender.send(7);
        assert_eq!(poll(&mut receiver), Poll::Ready(Some(7)));
        let (sender, mut receiver) = channel::<u8>();
        drop(sender);
        assert_eq!(poll(&mut receiver), Poll::Ready(None));
    }
}
