//! Oneshot channel for results that the host delivers to a turn through a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Sends the value, once. If it is dropped without one, the receiver resolves to `None`.
pub(crate) struct Sender<T> {
    shared: Arc<Mutex<State<T>>>,
}

/// Waits for the value; `None` if the sender was dropped.
pub(crate) struct Receiver<T> {
    shared: Arc<Mutex<State<T>>>,
}

enum State<T> {
    Waiting(Option<Waker>),
    Closed(Option<T>),
}

/// Creates a channel for one value.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(State::Waiting(None)));
    (Sender { shared: shared.clone() }, Receiver { shared })
}

fn lock<T>(shared: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // Nothing that can panic runs under this lock, so poisoning is harmless.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Sender<T> {
    /// Sends the value.
    pub(crate) fn send(self, value: T) {
        self.close(Some(value));
    }

    fn close(&self, value: Option<T>) {
        let mut state = lock(&self.shared);
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Closed(value);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.close(None);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut *lock(&self.shared) {
            State::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Closed(value) => Poll::Ready(value.take()),
        }
    }
}

#[cfg(test)]
mod tests {
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
