//! xtra, with its bounded mailbox.

use xtra::prelude::*;

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind, MAILBOX};

pub struct Xtra;

#[derive(xtra::Actor)]
pub struct Count(u64);

pub struct Add(Kind);

impl Handler<Add> for Count {
    type Return = u64;

    async fn handle(&mut self, Add(kind): Add, _context: &mut Context<Self>) -> u64 {
        kind.run().await;
        self.0 += 1;
        self.0
    }
}

impl Library for Xtra {
    type Counter = Address<Count>;
    type System = ();

    fn system() {}

    async fn start((): &(), _key: u64) -> Address<Count> {
        xtra::spawn_tokio(Count(0), Mailbox::bounded(MAILBOX))
    }
}

impl Counter for Address<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        self.send(Add(kind)).await.expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        let sent = self.send(Add(kind)).detach().await;
        drop(sent.expect("the actor is running"));
    }
}
