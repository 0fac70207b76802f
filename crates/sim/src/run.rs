//! Whole runs: a random workload with faults, and a single move with a crash at every step.

use std::time::Duration;

use elastin_protocol::Member;
use elastin_types::{NodeId, Time};

use crate::check::Violation;
use crate::random::Random;
use crate::world::{CrashPoint, World, actor};
use crate::{Options, Report};

/// The workload and the faults are looked at this often.
const STEP: Duration = Duration::from_millis(1);
/// After the last fault everything must have been answered within this time.
const SETTLE: Duration = Duration::from_secs(30);

/// Runs a random workload with the faults of the options, then heals everything and requires that all is served.
pub fn run(seed: u64, options: &Options) -> Report {
    run_world(seed, options, false)
}

/// The same, keeping the last lines of what happened.
pub fn run_traced(seed: u64, options: &Options) -> Report {
    run_world(seed, options, true)
}

fn run_world(seed: u64, options: &Options, keep_lines: bool) -> Report {
    let mut world = World::new(seed, options, keep_lines);
    let mut random = Random::new(seed ^ 0x5eed);
    let warm_up = world.now + Duration::from_millis(50);
    world.run_until(warm_up);
    let end = world.now + options.duration;
    while world.now < end && world.checkers.violations.is_empty() {
        work(&mut world, &mut random, options);
        harm(&mut world, &mut random, options);
        let next = world.now + STEP;
        world.run_until(next);
    }
    settle(&mut world, options);
    finish(seed, world)
}

/// What callers do in one step.
fn work(world: &mut World, random: &mut Random, options: &Options) {
    let clients = world.clients();
    let steps_per_second = 1000;
    let mut calls = options.calls_per_second / steps_per_second;
    calls += u64::from(random.below(steps_per_second) < options.calls_per_second % steps_per_second);
    for _ in 0..calls {
        let Some(client) = random.pick(&clients).copied() else {
            return;
        };
        let to = actor(random.below(options.actors));
        let tells = (0..random.below(3))
            .map(|_| actor(random.below(options.actors)))
            .collect();
        let one_way = random.chance(50);
        world.client_sends(client, &to, tells, one_way);
    }
    if random.below(steps_per_second) < options.moves_per_second {
        let servers = world.servers();
        if let Some(to) = random.pick(&servers).copied() {
            world.move_actor(&actor(random.below(options.actors)), to);
        }
    }
    if random.chance(2) {
        world.drain_step();
    }
}

/// What goes wrong in one step.
fn harm(world: &mut World, random: &mut Random, options: &Options) {
    let steps = 100_000;
    let faults = options.faults;
    if random.below(steps) < faults.crashes
        && let Some(server) = random.pick(&world.servers()).copied()
    {
        world.crash(server);
        world.join(Member::SERVER);
        world.publish_soon();
    }
    if random.below(steps) < faults.breaks
        && let (Some(one), Some(other)) = (world.any_process(), world.any_process())
        && one != other
    {
        world.break_link(one, other);
    }
    if random.below(steps) < faults.cuts
        && let (Some(one), Some(other)) = (world.any_process(), world.any_process())
        && one != other
    {
        world.cut(one, other);
    }
    if random.below(steps) < faults.passivations {
        world.passivate_one();
    }
    if random.below(steps) < faults.resizes {
        let servers = world.servers();
        if random.chance(50) || servers.len() < 3 {
            world.join(Member::SERVER);
            world.publish_soon();
        } else if let Some(server) = random.pick(&servers).copied() {
            world.retire(server);
        }
    }
}

/// Heals everything and requires that all calls end, that nothing is lost where nothing crashed, and that the tables
/// become small again.
fn settle(world: &mut World, options: &Options) {
    world.heal();
    let end = world.now + SETTLE;
    world.run_until(end);
    if !world.checkers.violations.is_empty() {
        return;
    }
    let open = if options.faults.may_lose() {
        world.checkers.outcome.unanswered(|node| world.lives(node))
    } else {
        world.checkers.outcome.open(|node| world.lives(node))
    };
    if !open.is_empty() {
        let first: Vec<_> = open.iter().take(5).collect();
        let what = format!("{} calls have no outcome, such as {first:?}", open.len());
        world.checkers.note(Err(Violation {
            invariant: "everything is served",
            what,
        }));
    }
    for (node, sizes) in world.table_sizes() {
        if sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.closed_slots > 0 {
            let what = format!("{node} still has {sizes:?}");
            world.checkers.note(Err(Violation {
                invariant: "tables become small again",
                what,
            }));
        }
    }
    let stuck: Vec<_> = world
        .moves
        .iter()
        .filter(|(_, ended)| ended.is_none())
        .map(|(id, _)| *id)
        .collect();
    if !stuck.is_empty() && !options.faults.may_lose() {
        world.checkers.note(Err(Violation {
            invariant: "no move outlives its deadline",
            what: format!("{} moves have not ended, such as {:?}", stuck.len(), stuck[0]),
        }));
    }
}

fn finish(seed: u64, world: World) -> Report {
    let (made, ran) = world.checkers.outcome.counts();
    let simulated = world.now.since(Time::ZERO);
    let log_hash = world.log.hash();
    let (mut counters, trace) = world.log.into_parts();
    counters.insert("message", made);
    counters.insert("message ran", ran);
    Report {
        seed,
        violations: world.checkers.violations,
        events: world.events,
        simulated,
        log_hash,
        counters,
        trace,
    }
}

/// Who crashes in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveScenario {
    /// Nobody.
    Nobody,
    /// The node that has the actor, after this many of its commands.
    Source(u64),
    /// The node that shall have it.
    Target(u64),
    /// The owner of the actor's directory slot, where it is neither.
    Directory(u64),
}

/// Moves one busy actor from one node to another while clients and another actor send to it and it sends to others, with
/// a crash at one step. The counters tell how many commands each side carried out during the move.
pub fn crash_in_a_move(seed: u64, scenario: MoveScenario, keep_lines: bool) -> Report {
    let mut options = Options {
        servers: 4,
        clients: 2,
        actors: 3,
        ..Options::default()
    };
    if scenario != MoveScenario::Nobody {
        options.faults.crashes = 1;
    }
    let mut world = World::new(seed, &options, keep_lines);
    let mut random = Random::new(seed);
    let moved = actor(0);
    let pause = |world: &mut World, after: Duration| world.run_until(world.now + after);
    pause(&mut world, Duration::from_millis(50));
    send_some(&mut world, &mut random, 20);
    pause(&mut world, Duration::from_millis(50));
    let source = world.host_of(&moved).expect("it was called");
    let owner = world.directory_of(&moved);
    let target = world
        .servers()
        .into_iter()
        .find(|node| *node != source && *node != owner)
        .expect("there are four servers");
    let before = [source, target, owner].map(|node| world.commands.get(&node).copied().unwrap_or(0));
    let crash = match scenario {
        MoveScenario::Nobody => None,
        MoveScenario::Source(after) => Some((source, after)),
        MoveScenario::Target(after) => Some((target, after)),
        MoveScenario::Directory(after) => Some((owner, after)),
    };
    world.crash_point = crash.map(|(node, after_commands)| CrashPoint { node, after_commands });
    send_some(&mut world, &mut random, 10);
    world.move_actor(&moved, target);
    for _ in 0..20 {
        send_some(&mut world, &mut random, 3);
        pause(&mut world, Duration::from_micros(700));
    }
    let after = [source, target, owner].map(|node| world.commands.get(&node).copied().unwrap_or(0));
    settle(&mut world, &options);
    if world.checkers.violations.is_empty() {
        send_some(&mut world, &mut random, 10);
        settle(&mut world, &options);
    }
    let mut report = finish(seed, world);
    for (name, index) in [
        ("source commands", 0),
        ("target commands", 1),
        ("directory commands", 2),
    ] {
        report.counters.insert(name, after[index] - before[index]);
    }
    report
}

fn send_some(world: &mut World, random: &mut Random, count: u64) {
    let clients: Vec<NodeId> = world.clients();
    for _ in 0..count {
        let client = *random.pick(&clients).expect("there are clients");
        let (to, tells) = match random.below(3) {
            0 => (actor(0), vec![actor(1), actor(2)]),
            1 => (actor(1), vec![actor(0)]),
            _ => (actor(0), Vec::new()),
        };
        let one_way = random.chance(50);
        world.client_sends(client, &to, tells, one_way);
    }
}
