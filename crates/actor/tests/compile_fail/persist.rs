extern crate elastin_actor as elastin;

use elastin::{Actor, HoldsReferences, Ref, handlers};
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(sometimes))]
struct Sometimes {}

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(each_turn, on_request))]
struct Twice {}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Known {}

#[handlers]
impl Known {}

#[derive(HoldsReferences)]
struct Unmarked {
    known: Ref<Known>,
}

#[derive(HoldsReferences)]
struct NotAReference {
    #[references]
    known: Ref<Known>,
    #[references]
    count: u64,
}

fn main() {}
