//! Options of a run.

use std::time::Duration;

use crate::random::Random;

/// Options of a run. Together with the seed they determine everything.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of servers at the start.
    pub servers: usize,
    /// The number of clients.
    pub clients: usize,
    /// Whether one member that hosts nothing owns the whole directory, like the supervisor of an embedded cluster.
    /// Otherwise the servers share it.
    pub supervisor: bool,
    /// The number of actors.
    pub actors: u64,
    /// Whether every other actor saves its state after each turn, before the reply leaves.
    pub saves: bool,
    /// The duration of the workload.
    pub duration: Duration,
    /// Calls and tells of clients per second; actors send more in turn.
    pub calls_per_second: u64,
    /// Moves per second.
    pub moves_per_second: u64,
    /// The longest delay of a frame.
    pub delay_most: Duration,
    /// The time that a member may act after a keep-alive.
    pub lease_ttl: Duration,
    /// Every frame takes exactly `delay_most` and everything else no time, for counting message delays.
    pub exact: bool,
    /// Tables and queues are small enough for their bounds to be reached.
    pub tight: bool,
    /// The faults.
    pub faults: Faults,
    /// A bug planted into every node.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<elastin_protocol::Bug>,
}

/// Rates of faults, in percent per second (100: once per second on average; 0: never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Crashes of servers. A new one joins for each.
    pub crashes: u64,
    /// Pauses of processes, also longer than their lease.
    pub pauses: u64,
    /// Clock jumps ahead.
    pub jumps: u64,
    /// Broken connections.
    pub breaks: u64,
    /// Directions between two nodes that drop everything for a while.
    pub cuts: u64,
    /// Nodes that are partitioned from half of the others for a while.
    pub partitions: u64,
    /// Duplicated frames, per million.
    pub duplicates: u64,
    /// Nodes that can't reach the coordination service for a while.
    pub cut_offs: u64,
    /// Outages of the coordination service.
    pub outages: u64,
    /// Changes of the coordination service's leader.
    pub leader_changes: u64,
    /// Replies of the coordination service that are lost or very late, in percent of all.
    pub lost_answers: u64,
    /// Live nodes with a lease that another node ends.
    pub suspicions: u64,
    /// Requests to the state store that fail, in percent of all.
    pub failed_saves: u64,
    /// Requests to the state store that take very long, in percent of all.
    pub slow_saves: u64,
    /// Passivations.
    pub passivations: u64,
    /// Servers that join, or that are drained and leave.
    pub resizes: u64,
}

impl Faults {
    /// Whether nodes may be lost, and messages with them. A drained server that leaves is not a loss.
    pub fn may_lose(&self) -> bool {
        let ends_nodes = [
            self.crashes,
            self.pauses,
            self.jumps,
            self.cut_offs,
            self.outages,
            self.lost_answers,
            self.suspicions,
            self.failed_saves,
        ];
        ends_nodes.iter().any(|rate| *rate > 0)
    }
}

impl Options {
    /// The same world with a quarter of the duration and four times the fault rates. Many more runs fit into an hour,
    /// but slow developments are covered less.
    pub fn shortened(mut self) -> Self {
        self.duration /= 4;
        let faults = &mut self.faults;
        for rate in [
            &mut faults.crashes,
            &mut faults.pauses,
            &mut faults.jumps,
            &mut faults.breaks,
            &mut faults.cuts,
            &mut faults.partitions,
            &mut faults.cut_offs,
            &mut faults.outages,
            &mut faults.leader_changes,
            &mut faults.suspicions,
            &mut faults.passivations,
            &mut faults.resizes,
        ] {
            *rate *= 4;
        }
        self
    }

    /// Whether a message may be lost or refused.
    pub fn may_lose(&self) -> bool {
        self.tight || self.faults.may_lose()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: 3,
            clients: 2,
            supervisor: false,
            actors: 20,
            saves: false,
            duration: Duration::from_secs(2),
            calls_per_second: 500,
            moves_per_second: 50,
            delay_most: Duration::from_millis(2),
            lease_ttl: Duration::from_millis(300),
            exact: false,
            tight: false,
            faults: Faults::default(),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}

/// The options of a seed in a sweep: each seed draws its own size, load and faults, so that many seeds cover many
/// worlds.
pub fn options_of_seed(seed: u64) -> Options {
    let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut rate = |percent: u64, most: u64| {
        if random.chance(percent) {
            1 + random.below(most)
        } else {
            0
        }
    };
    let mut faults = Faults {
        crashes: rate(40, 200),
        pauses: rate(25, 300),
        jumps: rate(15, 200),
        breaks: rate(50, 1000),
        cuts: rate(30, 500),
        partitions: rate(15, 200),
        duplicates: rate(30, 50_000),
        cut_offs: rate(20, 300),
        outages: rate(15, 150),
        leader_changes: rate(15, 200),
        lost_answers: rate(20, 30),
        suspicions: rate(20, 150),
        failed_saves: rate(20, 10),
        slow_saves: rate(25, 20),
        passivations: rate(50, 3000),
        resizes: rate(40, 300),
    };
    // Some worlds lose nothing, so that any loss is a violation.
    if random.chance(25) {
        faults = Faults {
            breaks: faults.breaks,
            cuts: faults.cuts,
            partitions: faults.partitions,
            duplicates: faults.duplicates,
            leader_changes: faults.leader_changes,
            slow_saves: faults.slow_saves,
            passivations: faults.passivations,
            resizes: faults.resizes,
            ..Faults::default()
        };
    }
    Options {
        servers: 2 + random.below(4) as usize,
        clients: 1 + random.below(3) as usize,
        supervisor: random.chance(25),
        actors: 1 + random.below(30),
        saves: random.chance(60),
        duration: Duration::from_millis(400 + random.below(1200)),
        calls_per_second: 50 + random.below(1200),
        moves_per_second: random.below(400),
        delay_most: Duration::from_micros(100 + random.below(5000)),
        lease_ttl: Duration::from_millis(100 + random.below(300)),
        exact: false,
        tight: random.chance(10),
        faults,
        #[cfg(feature = "planted-bugs")]
        bug: None,
    }
}
