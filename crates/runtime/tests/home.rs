//! Turns that wait for something go on in the tokio runtime in which they began, if that is the application's own.

extern crate elastin_actor as elastin;

mod common;

use std::future::IntoFuture;

use common::{Gate, within};
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use serde::{Deserialize, Serialize};

const HOME: &str = "home";

#[derive(Actor, Serialize, Deserialize, Default)]
struct Guest {
    turns: u32,
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

static GATES: [Gate; 2] = [const { Gate::new() }; 2];

#[handlers]
impl Guest {
    /// The threads on which it ran before and after it waited.
    async fn wait(&mut self) -> Vec<String> {
        let mut threads = vec![thread()];
        for _ in 0..2 {
            tokio::task::yield_now().await;
            threads.push(thread());
        }
        self.turns += 1;
        threads
    }

    /// The same of another.
    async fn have_wait(&mut self, ctx: &Ctx, other: u64) -> Vec<String> {
        let mut threads = ctx.actor::<Guest>(other).wait().await.expect("the other is there");
        threads.push(thread());
        threads
    }

    /// Waits often; says on which thread it ran in the end.
    async fn wait_often(&mut self) -> String {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        thread()
    }

    async fn pass(&mut self, gate: usize) -> String {
        GATES[gate].passed().await;
        self.turns += 1;
        thread()
    }

    fn turns(&self) -> u32 {
        self.turns
    }
}

fn tokio_named(name: &str) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .thread_name(name)
        .enable_all()
        .build()
        .unwrap()
}

fn guests() -> Runtime {
    Runtime::builder().register::<Guest>().workers(2).build().unwrap()
}

#[tokio::test]
async fn a_turn_goes_on_where_it_began() {
    let runtime = guests();
    let home = tokio_named(HOME);
    let (one, other): (Ref<Guest>, Ref<Guest>) = (runtime.client().actor(1), runtime.client().actor(2));
    let called = home.spawn({
        let one = one.clone();
        async move { (one.wait().await, one.have_wait(2).await) }
    });
    let (alone, through) = within("both replies", called).await.unwrap();
    assert_eq!(alone.unwrap(), [HOME; 3]);
    assert_eq!(through.unwrap(), [HOME; 4]);
    let called = home.spawn({
        let one = one.clone();
        async move { one.wait_often().await }
    });
    let often = within("the long turn", called).await.unwrap().unwrap();
    assert!(
        often.starts_with("elastin-work"),
        "a turn that lasts is the workers', not {often}'s"
    );
    // A message is theirs from the beginning.
    let gate = &GATES[0];
    other.pass(0).try_tell().unwrap();
    within("the told turn", gate.reached(1)).await;
    gate.open();
    assert_eq!(within("the next turn", other.turns().into_future()).await, Ok(2));
    home.shutdown_background();
}

#[tokio::test]
async fn a_turn_whose_home_is_gone_is_run_by_a_worker() {
    let runtime = guests();
    let home = tokio_named(HOME);
    let guest: Ref<Guest> = runtime.client().actor(1);
    let (gate, waiting) = (&GATES[1], guest.clone());
    home.spawn(async move { waiting.pass(1).await });
    within("the turn", gate.reached(1)).await;
    // Waits until all its threads have ended.
    tokio::task::spawn_blocking(move || drop(home)).await.unwrap();
    gate.open();
    let next = within("the next turn", guest.turns().into_future()).await;
    assert_eq!(next, Ok(1), "a turn that has begun comes to its end");
}
