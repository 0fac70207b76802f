//! actix. Its actors live on the thread they were started on; callers are on the same one, its fastest configuration.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::prelude::*;

use crate::workload::{Counter, Kind, MAILBOX, MANY, Row, run};

pub struct Count(u64);

impl Actor for Count {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

#[derive(Message)]
#[rtype(result = "u64")]
pub struct Add;

#[derive(Message)]
#[rtype(result = "u64")]
pub struct AddLater(Kind);

impl Handler<Add> for Count {
    type Result = u64;

    fn handle(&mut self, _message: Add, _context: &mut Context<Self>) -> u64 {
        self.0 += 1;
        self.0
    }
}

impl Handler<AddLater> for Count {
    type Result = AtomicResponse<Self, u64>;

    fn handle(&mut self, AddLater(kind): AddLater, _context: &mut Context<Self>) -> Self::Result {
        let later = kind.run().into_actor(self).map(|(), count, _| {
            count.0 += 1;
            count.0
        });
        AtomicResponse::new(Box::pin(later))
    }
}

impl Counter for Addr<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Now => self.send(Add).await,
            kind => self.send(AddLater(kind)).await,
        }
        .expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        static RECEIVED: AtomicUsize = AtomicUsize::new(0);
        match kind {
            Kind::Now => self.do_send(Add),
            kind => self.do_send(AddLater(kind)),
        }
        // Without this the actor, on the same thread, would never run and its mailbox never end.
        if RECEIVED.fetch_add(1, Ordering::Relaxed).is_multiple_of(MAILBOX) {
            tokio::task::yield_now().await;
        }
    }
}

pub fn measure(row: Row, operations: u64) -> Duration {
    System::new().block_on(async move {
        let counters: Vec<_> = (0..MANY).map(|_| Count(0).start()).collect();
        run(row, &counters, operations).await
    })
}

/// Keeps idle actors.
pub fn hold(actors: u64, inspect: &mut dyn FnMut()) {
    System::new().block_on(async {
        let mut registry = HashMap::new();
        for key in 0..actors {
            let counter = Count(0).start();
            counter.call(Kind::Now).await;
            registry.insert(key, counter);
        }
        inspect();
    });
}
