//! Whole runs: a random workload with faults, and a single move with a crash at every step.

use std::time::Duration;

use elastin_types::{CallId, NodeId, Time};

use crate::check::{check_at_rest, check_bounds, check_moves};
use crate::random::Random;
use crate::world::{CrashPoint, World, actor};
use crate::{Options, Report, Violation};

/// The step of the workload and the faults.
const STEP: Duration = Duration::from_millis(1);
/// After the last fault everything must settle within this time: members agree, calls have ended, tables are empty.
/// Most of it is the sum of leases, holds, and deadlines of moves and calls.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// The interval of checks for that.
const SETTLE_STEP: Duration = Duration::from_millis(100);
/// The time within which every actor must answer a call afterwards.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Runs a random workload with the faults of the options, then heals everything and requires progress.
pub fn run(seed: u64, options: &Options) -> Report {
    run_world(seed, options, false)
}

/// Like [`run`], with the last lines of the log.
pub fn run_traced(seed: u64, options: &Options) -> Report {
    run_world(seed, options, true)
}

fn run_world(seed: u64, options: &Options, keep_lines: bool) -> Report {
    let mut world = World::new(seed, options, keep_lines);
    let mut random = Random::new(seed ^ 0x5eed);
    let end = world.now + options.duration;
    let mut steps = 0_u32;
    while world.now < end && world.checkers.violations.is_empty() {
        step_workload(&mut world, &mut random, options);
        inject_faults(&mut world, &mut random, options);
        let next = world.now + STEP;
        world.run_until(next);
        steps += 1;
        if steps.is_multiple_of(50) {
            world.check_tables();
        }
    }
    settle(&mut world);
    probe(&mut world, options);
    finish(seed, world)
}

/// One step of the workload.
fn step_workload(world: &mut World, random: &mut Random, options: &Options) {
    let clients = world.clients();
    let steps_per_second = 1000;
    let mut calls = options.calls_per_second / steps_per_second;
    calls += u64::from(random.below(steps_per_second) < options.calls_per_second % steps_per_second);
    for _ in 0..calls {
        let Some(client) = random.pick(&clients).copied() else {
            break;
        };
        let to = actor(random.below(options.actors));
        let tells = (0..random.below(3))
            .map(|_| actor(random.below(options.actors)))
            .collect();
        match random.below(8) {
            0 => world.client_requests(client, &to, tells),
            kind => drop(world.client_sends(client, &to, tells, kind < 5)),
        }
    }
    if random.below(steps_per_second) < options.moves_per_second {
        let servers = world.servers();
        if let Some(to) = random.pick(&servers).copied() {
            world.move_actor(&actor(random.below(options.actors)), to);
        }
        match random.below(20) {
            0 => world.exchange(),
            1 | 2 => world.move_together(),
            _ => {}
        }
    }
    if random.chance(2) {
        world.drain_step();
    }
}

/// Injects a fault.
type Fault = fn(&mut World);

/// Injects the faults of one step.
fn inject_faults(world: &mut World, random: &mut Random, options: &Options) {
    let faults = options.faults;
    let kinds: [(u64, Fault); 10] = [
        (faults.pauses, World::pause),
        (faults.jumps, World::jump),
        (faults.breaks, World::break_link),
        (faults.cuts, World::cut),
        (faults.partitions, World::partition),
        (faults.cut_offs, World::cut_off),
        (faults.outages, World::outage),
        (faults.leader_changes, World::change_leader),
        (faults.passivations, World::passivate_one),
        (faults.suspicions, World::suspect),
    ];
    let is_due = |random: &mut Random, rate: u64| rate > 0 && random.below(100_000) < rate;
    for (rate, inject) in kinds {
        if is_due(random, rate) {
            inject(world);
        }
    }
    if is_due(random, faults.crashes)
        && let Some(server) = random.pick(&world.servers()).copied()
    {
        world.crash(server);
    }
    if is_due(random, faults.resizes) {
        match random.pick(&world.servers()).copied() {
            Some(server) if random.chance(50) && world.has_spare_server() => world.retire(server),
            _ => world.add_server(),
        }
    }
}

/// Heals everything and requires that all calls end, that nothing is lost where nothing can be, and that the tables
/// empty.
fn settle(world: &mut World) {
    if !world.checkers.violations.is_empty() {
        return;
    }
    world.heal();
    let end = world.now + SETTLE_MAX;
    loop {
        let next = world.now + SETTLE_STEP;
        world.run_until(next);
        if !world.checkers.violations.is_empty() {
            return;
        }
        let left = check_at_rest(world);
        if left.is_ok() || world.now >= end {
            world.checkers.note(left);
            break;
        }
    }
    let moves = check_moves(&world.moves, world.now, |node| world.is_alive(node));
    world.checkers.note(moves);
}

/// Calls every actor: all must answer. A refused call is retried, as a caller would, and a call that ended with its
/// caller is made by another client: a lease that expired unnoticed during the faults may still end any node.
fn probe(world: &mut World, options: &Options) {
    let end = world.now + PROBE_MAX;
    let mut calls: Vec<Option<CallId>> = vec![None; options.actors as usize];
    while world.checkers.violations.is_empty() {
        if let Some(client) = world.clients().first().copied() {
            for (number, call) in (0..).zip(&mut calls) {
                let waits = call.is_some_and(|call| !world.ended.contains_key(&call) && world.is_alive(call.origin));
                let was_answered = call.is_some_and(|call| world.checkers.outcome.was_answered(call));
                if !waits && !was_answered {
                    *call = Some(world.client_sends(client, &actor(number), Vec::new(), false));
                }
            }
        }
        let next = world.now + SETTLE_STEP;
        world.run_until(next);
        let was_answered = |call: &Option<CallId>| call.is_some_and(|call| world.checkers.outcome.was_answered(call));
        let Some(first) = calls.iter().position(|call| !was_answered(call)) else {
            return;
        };
        if world.now >= end {
            world.checkers.note(Err(Violation {
                invariant: "everything is served",
                what: format!("actor {first} does not answer in a healed world"),
                actor: Some(actor(first as u64)),
            }));
        }
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

impl World {
    /// Checks that all tables are within their limits.
    fn check_tables(&mut self) {
        for (node, sizes) in self.table_sizes() {
            let result = check_bounds(node, &sizes, &self.limits(), self.mailbox_max());
            self.checkers.note(result);
        }
    }
}

/// The participant that crashes during a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveScenario {
    /// No crash.
    NoCrash,
    /// The node that has the actor, after this many of its commands.
    Source(u64),
    /// The node that the actor moves to.
    Target(u64),
    /// The owner of the actor's directory slot, on a third node.
    Directory(u64),
}

/// Moves one busy actor between nodes while clients and another actor send to it and it sends to others, with a crash
/// at one step. The counters include the number of commands that each side executed during the move.
pub fn crash_in_a_move(seed: u64, scenario: MoveScenario, keep_lines: bool) -> Report {
    let mut options = Options {
        servers: 4,
        clients: 2,
        actors: 3,
        ..Options::default()
    };
    // Nothing crashes at random, but messages may be lost.
    options.faults.crashes = u64::from(scenario != MoveScenario::NoCrash);
    let mut world = World::new(seed, &options, keep_lines);
    let mut random = Random::new(seed);
    let moved = actor(0);
    let pause = |world: &mut World, after: Duration| world.run_until(world.now + after);
    pause(&mut world, Duration::from_millis(50));
    send_some(&mut world, &mut random, 20);
    pause(&mut world, Duration::from_millis(50));
    let source = world.host_of(&moved).expect("it was activated by the calls");
    let owner = world.directory_of(&moved);
    let target = world
        .servers()
        .into_iter()
        .find(|node| *node != source && *node != owner)
        .expect("there are four servers");
    let before = [source, target, owner].map(|node| world.commands.get(&node).copied().unwrap_or(0));
    let crash = match scenario {
        MoveScenario::NoCrash => None,
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
    settle(&mut world);
    if world.checkers.violations.is_empty() {
        send_some(&mut world, &mut random, 10);
        settle(&mut world);
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
