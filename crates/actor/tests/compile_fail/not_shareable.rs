extern crate elastin_actor as elastin;

use std::cell::Cell;
use std::sync::Mutex;

use elastin::{Actor, handlers};
use serde::{Deserialize, Serialize};

async fn pause() {}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Counter {
    count: Cell<u64>,
}

#[handlers]
impl Counter {
    async fn get(&self) -> u64 {
        pause().await;
        self.count.get()
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Guarded {
    count: Mutex<u64>,
}

#[handlers]
impl Guarded {
    #[reentrant]
    async fn add(&self) {
        let mut count = self.count.lock().unwrap();
        pause().await;
        *count += 1;
    }
}

fn main() {}
