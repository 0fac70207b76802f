//! When the state of actors is saved, and what their callers may rely on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::slow_store::SlowStore;
use crate::common::{Gate, eventually, within};
use bytes::Bytes;
use elastin::{Actor, Ctx, Handlers, Ref, decode_state, handlers};
use elastin_runtime::{Runtime, SaveDone, SaveError, Settings};
use elastin_types::{CallError, Unknown};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;

type Saves = UnboundedReceiver<(Bytes, SaveDone)>;

fn start<A: Handlers>(idle_max: Option<Duration>) -> (Runtime, Arc<SlowStore>, Saves) {
    let (store, saves) = SlowStore::new();
    let settings = Settings {
        workers: 1,
        idle_max,
        ..Default::default()
    };
    let builder = Runtime::builder().register::<A>().settings(settings);
    (builder.remote(store.clone()).build().unwrap(), store, saves)
}

async fn next_save(saves: &mut Saves) -> (Bytes, SaveDone) {
    within("a save", saves.recv()).await.expect("the store is alive")
}

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
struct Account {
    balance: i64,
}

#[handlers]
impl Account {
    fn pay_in(&mut self, amount: i64) -> i64 {
        self.balance += amount;
        self.balance
    }

    fn balance(&self) -> i64 {
        self.balance
    }

    fn fail(&mut self) {
        panic!("requested by the test");
    }
}

#[tokio::test]
async fn queued_turns_share_a_save_and_are_answered_after_it() {
    let (runtime, _store, mut saves) = start::<Account>(None);
    let account: Ref<Account> = runtime.client().actor(1);
    let first = tokio::spawn({
        let account = account.clone();
        async move { account.pay_in(1).await }
    });
    let (_, first_done) = next_save(&mut saves).await;
    // They wait for the first save, and run together after it.
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let account = account.clone();
        waiting.push(tokio::spawn(async move { account.pay_in(1).await }));
    }
    let reader = tokio::spawn({
        let account = account.clone();
        async move { account.balance().await }
    });
    tokio::task::yield_now().await;
    first_done(Ok(()));
    assert_eq!(within("the first reply", first).await.unwrap(), Ok(1));
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(decode_state::<Account>(&state).unwrap().balance, 11);
    assert!(!waiting.iter().any(tokio::task::JoinHandle::is_finished));
    assert!(!reader.is_finished(), "the reader has seen an unsaved change");
    done(Ok(()));
    for (index, paid) in waiting.into_iter().enumerate() {
        assert_eq!(within("a reply", paid).await.unwrap(), Ok(index as i64 + 2));
    }
    assert_eq!(within("the reader's reply", reader).await.unwrap(), Ok(11));
    assert!(saves.try_recv().is_err(), "eleven turns must take two saves");
}

#[tokio::test]
async fn a_panic_fails_earlier_unsaved_turns() {
    let (runtime, store, mut saves) = start::<Account>(None);
    let account: Ref<Account> = runtime.client().actor(1);
    let call = |amount: Option<i64>| {
        let account = account.clone();
        tokio::spawn(async move {
            match amount {
                Some(amount) => account.pay_in(amount).await.map(drop),
                None => account.fail().await,
            }
        })
    };
    let first = call(Some(1));
    let (state, done) = next_save(&mut saves).await;
    store.keep(account.id(), state);
    let (second, failing) = (call(Some(10)), call(None));
    tokio::task::yield_now().await;
    done(Ok(()));
    assert_eq!(within("the first reply", first).await.unwrap(), Ok(()));
    let not_saved = Err(CallError::Unknown(Unknown::NotSaved));
    assert_eq!(within("the second outcome", second).await.unwrap(), not_saved);
    assert_eq!(within("the panic", failing).await.unwrap(), Err(CallError::Panicked));
    assert_eq!(account.balance().await, Ok(1));
}

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(on_request))]
struct Draft {
    text: String,
}

#[handlers]
impl Draft {
    fn write(&mut self, text: String) {
        self.text = text;
    }

    async fn publish(&mut self, ctx: &Ctx) -> Result<(), String> {
        ctx.save(self).await.map_err(|error| error.to_string())
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn close(&self, ctx: &Ctx) {
        ctx.deactivate();
    }
}

#[tokio::test]
async fn persist_on_request_saves_nothing_else() {
    let (runtime, store, mut saves) = start::<Draft>(None);
    let draft: Ref<Draft> = runtime.client().actor("a");
    draft.write("one".into()).await.unwrap();
    let publish = || {
        let draft = draft.clone();
        tokio::spawn(async move { draft.publish().await })
    };
    let publishing = publish();
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(decode_state::<Draft>(&state).unwrap().text, "one");
    assert!(!publishing.is_finished());
    store.keep(draft.id(), state);
    done(Ok(()));
    assert_eq!(within("the reply", publishing).await.unwrap(), Ok(()));
    // The handler deals with the error; the state in memory stays.
    draft.write("two".into()).await.unwrap();
    let publishing = publish();
    let (_, done) = next_save(&mut saves).await;
    done(Err(SaveError::Unavailable("the disk is full".into())));
    let failed = within("the reply", publishing)
        .await
        .unwrap()
        .unwrap_err()
        .application();
    assert_eq!(failed.unwrap(), "the store can't take the state: the disk is full");
    assert_eq!(draft.text().await.unwrap(), "two");
    // A state that was not requested to be saved is not saved at the end either.
    draft.close().await.unwrap();
    eventually("the end", || runtime.active(draft.id()).is_none()).await;
    assert_eq!(draft.text().await.unwrap(), "one");
    assert!(saves.try_recv().is_err());
}

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(at_passivation))]
struct Cart {
    items: u32,
}

#[handlers]
impl Cart {
    fn add(&mut self) -> u32 {
        self.items += 1;
        self.items
    }

    fn items(&self) -> u32 {
        self.items
    }
}

#[tokio::test]
async fn an_idle_actor_stays_active_until_it_is_saved() {
    let (runtime, store, mut saves) = start::<Cart>(Some(Duration::from_millis(5)));
    let cart: Ref<Cart> = runtime.client().actor(7);
    assert_eq!(cart.add().await, Ok(1), "the reply must not wait for a save");
    let (_, done) = next_save(&mut saves).await;
    done(Err(SaveError::Unavailable("the disk is full".into())));
    assert_eq!(cart.add().await, Ok(2), "the actor must still be active");
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(decode_state::<Cart>(&state).unwrap().items, 2);
    store.keep(cart.id(), state);
    done(Ok(()));
    eventually("the end", || runtime.active(cart.id()).is_none()).await;
    assert_eq!(cart.items().await, Ok(2));
    eventually("the second end", || runtime.active(cart.id()).is_none()).await;
    assert!(saves.try_recv().is_err(), "an unchanged state must not be saved again");
}

#[tokio::test]
async fn a_shutdown_saves_actors_that_persist_at_passivation() {
    let (runtime, _store, mut saves) = start::<Cart>(None);
    let cart: Ref<Cart> = runtime.client().actor(7);
    cart.add().await.unwrap();
    let stopping = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(Duration::from_secs(20)).await }
    });
    let (state, done) = next_save(&mut saves).await;
    assert!(!stopping.is_finished());
    assert_eq!(decode_state::<Cart>(&state).unwrap().items, 1);
    done(Ok(()));
    assert!(within("the shutdown", stopping).await.unwrap());
}

/// Changes its state behind `&self`, in interleaved turns.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
struct Ledger {
    entries: Mutex<Vec<i64>>,
}

static LEDGER: [Gate; 4] = [const { Gate::new() }; 4];

#[handlers]
impl Ledger {
    #[reentrant]
    async fn add(&self, amount: i64, gate: usize) -> usize {
        LEDGER[gate].passed().await;
        let mut entries = self.entries.lock().unwrap();
        entries.push(amount);
        entries.len()
    }

    #[reentrant]
    fn add_at_once(&self, amount: i64) {
        self.entries.lock().unwrap().push(amount);
    }

    async fn sum(&self, gate: usize) -> i64 {
        LEDGER[gate].passed().await;
        self.entries.lock().unwrap().iter().sum()
    }
}

#[tokio::test]
async fn interleaved_changes_are_saved_before_they_are_visible() {
    const OPEN: usize = 0;
    LEDGER[OPEN].open();
    let (runtime, store, mut saves) = start::<Ledger>(None);
    let ledger: Ref<Ledger> = runtime.client().actor(1);
    let entries = |state: &Bytes| decode_state::<Ledger>(state).unwrap().entries.into_inner().unwrap();
    let add = |amount, gate| {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.add(amount, gate).await })
    };
    let sum = |gate| {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.sum(gate).await })
    };
    // Alone.
    let adding = add(1, OPEN);
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(entries(&state), [1]);
    assert!(!adding.is_finished());
    done(Ok(()));
    assert_eq!(within("the reply", adding).await.unwrap(), Ok(1));
    // A reader that may have seen unsaved changes waits for the save as well.
    let adding = add(2, 1);
    within("the turn", LEDGER[1].reached(1)).await;
    let reading = sum(OPEN);
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(entries(&state), [1]);
    assert!(!reading.is_finished());
    // Turns that finish during a save are saved together by the next one.
    LEDGER[1].open();
    let others = [add(3, 1), add(4, 1)];
    eventually("all of them", || LEDGER[1].count() == 3).await;
    assert!(saves.try_recv().is_err());
    store.keep(ledger.id(), state);
    done(Ok(()));
    assert_eq!(within("the reader", reading).await.unwrap(), Ok(1));
    let mut saved = 0;
    while saved < 4 {
        let (state, done) = next_save(&mut saves).await;
        saved = entries(&state).len();
        store.keep(ledger.id(), state);
        done(Ok(()));
    }
    within("the reply", adding).await.unwrap().unwrap();
    for other in others {
        within("the reply", other).await.unwrap().unwrap();
    }
    assert_eq!(within("the sum", sum(OPEN)).await.unwrap(), Ok(10));
    assert!(saves.try_recv().is_err(), "reading must not save");
    // An unsaved change did not happen, for any caller.
    let reading = sum(2);
    within("the reader", LEDGER[2].reached(1)).await;
    let failing = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.add_at_once(90).await }
    });
    let (_, done) = next_save(&mut saves).await;
    done(Err(SaveError::Unavailable("the disk is full".into())));
    let not_saved = CallError::Unknown(Unknown::NotSaved);
    assert_eq!(within("the outcome", failing).await.unwrap(), Err(not_saved.clone()));
    assert_eq!(within("the outcome", reading).await.unwrap(), Err(not_saved));
    assert_eq!(within("the sum", sum(OPEN)).await.unwrap(), Ok(10));
}

/// Saves itself on request, in interleaved turns.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(on_request))]
struct Notes {
    words: Mutex<Vec<u64>>,
}

#[handlers]
impl Notes {
    #[reentrant]
    async fn append(&self, ctx: &Ctx, word: u64) -> Result<(), String> {
        self.words.lock().unwrap().push(word);
        ctx.save(self).await.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn requested_saves_of_interleaved_turns_keep_their_order() {
    let (runtime, _store, mut saves) = start::<Notes>(None);
    let notes: Ref<Notes> = runtime.client().actor(1);
    let words = |state: &Bytes| decode_state::<Notes>(state).unwrap().words.into_inner().unwrap();
    let append = |word| {
        let notes = notes.clone();
        tokio::spawn(async move { notes.append(word).await })
    };
    let first = append(1);
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(words(&state), [1]);
    let others = [append(2), append(3)];
    eventually("both turns", || runtime.stats().turns >= 2).await;
    assert!(saves.try_recv().is_err(), "one save at a time");
    done(Ok(()));
    within("the first", first).await.unwrap().unwrap();
    let (state, done) = next_save(&mut saves).await;
    assert_eq!(words(&state).len(), 3, "one save for both");
    done(Ok(()));
    for other in others {
        within("the other", other).await.unwrap().unwrap();
    }
}
