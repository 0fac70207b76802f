extern crate elastin_actor as elastin;

use elastin::{Actor, Ref, handlers};
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
struct Folder {}

#[handlers]
impl Folder {
    fn open(&mut self, name: String) {}
}

async fn call(folder: Ref<Folder>) {
    let _ = folder.opne("a".into()).await;
    let _ = folder.open(7).await;
}

fn main() {}
