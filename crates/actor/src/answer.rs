//! What a turn waits for when the host does something for it and answers by a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Takes the answer, once. If it is dropped without one, whoever waits learns that none will come.
pub(crate) struct Answerer<T> {
    shared: Arc<Mutex<State<T>>>,
}

/// Waits for the answer; `None` if none will come.
pub(crate) struct Answer<T> {
    shared: Arc<Mutex<State<T>>>,
}

enum State<T> {
    Waiting(Option<Waker>),
    Answered(Option<T>),
}

/// The two ends of one answer.
pub(crate) fn answer<T>() -> (Answerer<T>, Answer<T>) {
    let shared = Arc::new(Mutex::new(State::Waiting(None)));
    (Answerer { shared: shared.clone() }, Answer { shared })
}

fn lock<T>(shared: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // Nothing that can panic runs under this lock, so what it guards is whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Answerer<T> {
    /// Gives the answer.
    pub(crate) fn put(self, answer: T) {
        self.end(Some(answer));
    }

    fn end(&self, answer: Option<T>) {
        let mut state = lock(&self.shared);
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Answered(answer);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<T> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut *lock(&self.shared) {
            State::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Answered(answer) => Poll::Ready(answer.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<T>(answer: &mut Answer<T>) -> Poll<Option<T>> {
        Pin::new(answer).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answer_comes_once_and_a_lost_one_is_noticed() {
        let (answerer, mut waiting) = answer();
        assert_eq!(poll(&mut waiting), Poll::Pending);
        answerer.put(7);
        assert_eq!(poll(&mut waiting), Poll::Ready(Some(7)));
        let (answerer, mut waiting) = answer::<u8>();
        drop(answerer);
        assert_eq!(poll(&mut waiting), Poll::Ready(None));
    }
}
