//! Counts message delays: the cost of the protocol if a frame takes one unit of time and everything else none.

use std::time::Duration;

use elastin_types::{CallId, NodeId, Time};

use crate::Options;
use crate::world::{World, actor};

/// The time of one frame. Nothing else takes time, so a duration in this unit is a count.
const DELAY: Duration = Duration::from_millis(1);

/// Counts of message delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// From the first call of an inactive actor to its reply, without the time of placement itself.
    pub first_activation: u64,
    /// From a call of an active actor to its reply, when the caller does not know its location.
    pub unknown_place: u64,
    /// From a call of an active actor to its reply, when the caller knows its location.
    pub known_place: u64,
    /// From the freeze of an actor with queued messages to its first turn at the target of the move.
    pub frozen: u64,
}

/// Counts the delays with all participants on different nodes.
///
/// # Panics
/// If the calls don't end, which other runs detect first.
pub fn count_delays() -> Delays {
    let options = Options {
        servers: 5,
        exact: true,
        delay_most: DELAY,
        ..Options::default()
    };
    let mut world = World::new(1, &options, false);
    let clients = world.clients();
    // An actor with its directory slot neither at its host nor at the target of the move.
    let called = (0..)
        .map(actor)
        .find(|actor| {
            let call = world.client_sends(clients[0], actor, Vec::new(), false);
            ended(&mut world, call);
            world.host_of(actor) != Some(world.directory_of(actor))
        })
        .expect("there are many actors");
    let fresh = (1000..)
        .map(actor)
        .find(|actor| world.directory_of(actor) != world.servers()[0])
        .expect("there are many actors");
    let first_activation = call(&mut world, clients[1], &fresh);
    let unknown_place = call(&mut world, clients[1], &called);
    let known_place = call(&mut world, clients[1], &called);
    Delays {
        first_activation,
        unknown_place,
        known_place,
        frozen: freeze(&mut world, clients[0], &called),
    }
}

fn ended(world: &mut World, call: CallId) -> Time {
    let end = world.now + Duration::from_secs(1);
    world.run_until(end);
    world.ended[&call]
}

fn call(world: &mut World, client: NodeId, to: &elastin_types::ActorId) -> u64 {
    let sent = world.now;
    let call = world.client_sends(client, to, Vec::new(), false);
    in_delays(sent, ended(world, call))
}

fn freeze(world: &mut World, client: NodeId, moved: &elastin_types::ActorId) -> u64 {
    let (source, owner) = (world.host_of(moved), world.directory_of(moved));
    let fits = |node: &NodeId| Some(*node) != source && *node != owner;
    let target = world.servers().into_iter().find(fits).expect("there are five servers");
    world.move_actor(moved, target);
    // The offer and its acceptance take two delays, so a message sent now arrives while the actor is frozen.
    for _ in 0..4 {
        let next = world.now + DELAY / 2;
        world.run_until(next);
        world.client_sends(client, moved, Vec::new(), true);
    }
    while world.host_of(moved) != Some(target) {
        let next = world.now + DELAY / 10;
        world.run_until(next);
    }
    in_delays(world.last_freeze, world.last_turn)
}

fn in_delays(from: Time, to: Time) -> u64 {
    to.since(from).as_nanos().div_ceil(DELAY.as_nanos()) as u64
}
