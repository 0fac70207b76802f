extern crate elastin_actor as elastin;

use elastin::{Actor, handlers};
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
struct Folder {}

struct Opaque;

#[handlers]
impl Folder {
    fn open(&mut self, how: Opaque) {}
}

fn main() {}
