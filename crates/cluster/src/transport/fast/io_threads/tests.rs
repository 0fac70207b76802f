//! Tasks on the threads that read connections.

use std::future::poll_fn;
use std::task::Poll;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::*;

fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    IoThreads::of_process().unwrap().spawn(&Handle::current(), future);
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = timeout(Duration::from_secs(10), future).await;
    done.unwrap_or_else(|_| panic!("it takes too long: {what}"))
}

#[tokio::test]
async fn a_panic_ends_its_task_and_no_other() {
    let (done, receive) = oneshot::channel();
    spawn(async { panic!("on purpose") });
    spawn(async { done.send(()).unwrap() });
    in_time("the task behind the one that panics", receive).await.unwrap();
}

#[tokio::test]
async fn a_task_resumes_when_it_is_woken_from_another_thread() {
    let (to_task, mut task_receiver) = mpsc::unbounded_channel();
    let (to_test, mut test_receiver) = mpsc::unbounded_channel();
    spawn(async move {
        while let Some(number) = task_receiver.recv().await {
            to_test.send(number).unwrap();
        }
    });
    for number in 0..1_000 {
        to_task.send(number).unwrap();
        assert_eq!(in_time("an answer", test_receiver.recv()).await, Some(number));
        if number % 100 == 0 {
            // After the busy-poll the leader parks, and has to be woken.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_task_that_wakes_itself_lets_others_run() {
    let (done, receive) = oneshot::channel();
    let mut rounds = 0_u64;
    let mut stop = receive;
    let (ended, end) = oneshot::channel();
    spawn(async move {
        poll_fn(|context| {
            rounds += 1;
            if stop.try_recv().is_ok() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        ended.send(rounds).unwrap();
    });
    spawn(async { done.send(()).unwrap() });
    assert!(in_time("its end", end).await.unwrap() >= 1);
}

#[tokio::test]
async fn tasks_use_timers_of_the_runtime_that_they_were_given() {
    let (done, receive) = oneshot::channel();
    spawn(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        done.send(()).unwrap();
    });
    in_time("a timer", receive).await.unwrap();
}
