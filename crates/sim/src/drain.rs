//! Drains a server with many actors while they are called.

use std::time::Duration;

use elastin_protocol::membership::Role;

use crate::check::{check_at_rest, check_bounds};
use crate::random::Random;
use crate::world::{World, actor};
use crate::{Options, Violation};

/// Calls per step while the server drains.
const CALLS_PER_STEP: u64 = 4;
const STEP: Duration = Duration::from_millis(1);
/// The number of steps between two checks of the tables, which take time linear in their size.
const CHECK_EVERY: u32 = 50;
/// Actors activated per step: about as many as fit into the queues.
const ACTIVATED_PER_STEP: u64 = 1000;
/// A server must be empty within this time per actor, plus [`EMPTY_MAX`].
const PER_ACTOR_MAX: Duration = Duration::from_millis(2);
const EMPTY_MAX: Duration = Duration::from_secs(10);

/// Measurements of one drain.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    /// Moved actors.
    pub moved: u64,
    /// Moves that were refused or aborted; those actors were moved later.
    pub refused: u64,
    /// Calls made during the drain.
    pub calls: u64,
    /// The simulated duration.
    pub simulated: Duration,
    /// Events handled by the protocol during the drain.
    pub events: u64,
    /// The most concurrent moves from the drained server, and to another one.
    pub moves_at_once: (usize, usize),
    /// Broken invariants.
    pub violations: Vec<Violation>,
}

/// Drains a server with this number of actors onto two others. Every move keeps the invariants, no limit is exceeded,
/// and every concurrent call is answered.
///
/// # Panics
/// If the servers don't join, which other runs detect first.
pub fn empty_a_server(seed: u64, actors: u64) -> Drain {
    let options = Options {
        servers: 1,
        clients: 1,
        actors,
        ..Options::default()
    };
    let mut world = World::new(seed, &options, false);
    let mut random = Random::new(seed);
    let (client, full) = (world.clients()[0], world.servers()[0]);
    for number in 0..actors {
        world.client_sends(client, &actor(number), Vec::new(), true);
        if number % ACTIVATED_PER_STEP == 0 {
            let next = world.now + STEP;
            world.run_until(next);
        }
    }
    rest(&mut world, EMPTY_MAX);
    for _ in 0..2 {
        world.begin(Role::Server, None);
    }
    rest(&mut world, EMPTY_MAX);

    let (began, before) = (world.now, world.events);
    let mut drain = Drain::default();
    world.retire(full);
    let end = began + EMPTY_MAX + PER_ACTOR_MAX * actors as u32;
    let mut steps = 0_u32;
    while world.activations_of(full) > 0 && world.now < end && world.checkers.violations.is_empty() {
        for _ in 0..CALLS_PER_STEP {
            world.client_sends(client, &actor(random.below(actors)), Vec::new(), false);
            drain.calls += 1;
        }
        let next = world.now + STEP;
        world.run_until(next);
        steps += 1;
        if !steps.is_multiple_of(CHECK_EVERY) {
            continue;
        }
        world.drain_step();
        for (node, sizes) in world.table_sizes() {
            let within = check_bounds(node, &sizes, &world.limits(), world.mailbox_max());
            world.checkers.note(within);
            let (out, into) = &mut drain.moves_at_once;
            (*out, *into) = ((*out).max(sizes.moves_out), (*into).max(sizes.moves_in));
        }
    }
    drain.simulated = world.now.since(began);
    drain.events = world.events - before;
    let left = world.activations_of(full);
    if left > 0 {
        world.checkers.note(Err(Violation {
            invariant: "a server is emptied",
            what: format!("{left} actors are left after {:?}", drain.simulated),
            actor: None,
        }));
    }
    rest(&mut world, EMPTY_MAX);
    drain.moved = world.log.times("move done");
    drain.refused = world.log.times("move failed");
    drain.violations = world.checkers.violations;
    drain
}

/// Waits until nothing is in flight.
fn rest(world: &mut World, most: Duration) {
    let end = world.now + most;
    while world.checkers.violations.is_empty() {
        let next = world.now + STEP * 20;
        world.run_until(next);
        let left = check_at_rest(world);
        if left.is_ok() || world.now >= end {
            return world.checkers.note(left);
        }
    }
}
