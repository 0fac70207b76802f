extern crate elastin_actor as elastin;

use elastin::Actor;

#[derive(Actor)]
enum Light {
    On,
    Off,
}

#[derive(Actor)]
struct Shelf<T> {
    things: Vec<T>,
}

#[derive(Actor)]
#[actor(name = "two words", keep)]
struct Named {}

#[derive(Actor)]
#[actor(keep)]
struct Kept {}

fn main() {}
