//! murmer: actors found by label, unbounded mailboxes, no one-way messages.

use murmer::prelude::*;

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind};

pub struct Murmer;

#[derive(Debug)]
pub struct Count;

impl Actor for Count {
    type State = u64;
}

#[handlers]
impl Count {
    #[handler]
    fn add(&mut self, _context: &ActorContext<Self>, total: &mut u64) -> u64 {
        *total += 1;
        *total
    }

    #[handler]
    async fn add_later(&mut self, _context: &ActorContext<Self>, total: &mut u64) -> u64 {
        Kind::Later.run().await;
        *total += 1;
        *total
    }
}

impl Library for Murmer {
    type Counter = Endpoint<Count>;
    type System = System;

    fn system() -> System {
        System::local()
    }

    async fn start(system: &System, key: u64) -> Endpoint<Count> {
        system.start(&format!("count/{key}"), Count, 0)
    }
}

impl Counter for Endpoint<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        let reply = match kind {
            Kind::Later => self.add_later().await,
            Kind::Now | Kind::Work => self.add().await,
        };
        reply.expect("the actor replies")
    }

    async fn tell(&self, _kind: Kind) {
        unreachable!("murmer takes no part in rows with one-way messages");
    }
}
