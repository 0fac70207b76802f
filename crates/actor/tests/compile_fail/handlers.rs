extern crate elastin_actor as elastin;

use elastin::{Actor, Ctx, handlers};
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
struct Folder {}

#[handlers]
impl Folder {
    fn borrowed(&mut self, name: &str) {}

    fn taken(self) {}

    fn generic<T>(&mut self, value: T) {}

    fn late_context(&mut self, name: String, ctx: &Ctx) {}

    fn pattern(&mut self, (a, b): (u64, u64)) {}

    fn borrowed_reply(&self) -> &str {
        ""
    }

    fn some_reply(&self) -> impl Clone {}

    #[reentrant]
    async fn changes(&mut self) {}

    #[reentrant(deeply)]
    async fn deep(&self) {}

    #[reentrant]
    fn make() -> Self {
        Folder {}
    }

    #[on(deactivate)]
    #[reentrant]
    async fn stop(&self) {}

    #[on(sunday)]
    fn rest(&mut self) {}

    #[on(activate)]
    fn start(&mut self, speed: u64) {}
}

#[handlers]
impl Clone for Folder {
    fn clone(&self) -> Self {
        Folder {}
    }
}

#[handlers(fast)]
impl Folder {}

fn main() {}
