//! What a run is like.

use std::time::Duration;

use crate::random::Random;

/// What a run is like. Together with the seed it decides everything.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many servers there are at the start.
    pub servers: usize,
    /// How many clients there are.
    pub clients: usize,
    /// Whether one member that hosts nothing keeps the whole directory, as the supervisor of an embedded cluster does;
    /// otherwise the servers share it.
    pub supervisor: bool,
    /// How many actors are called.
    pub actors: u64,
    /// For how long calls are made.
    pub duration: Duration,
    /// Calls and tells from clients per second; actors send more in turn.
    pub calls_per_second: u64,
    /// Moves per second.
    pub moves_per_second: u64,
    /// The longest that a frame is on its way.
    pub delay_most: Duration,
    /// Every frame takes exactly `delay_most`, and everything else no time: for counting message delays.
    pub exact: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// A bug that is planted into every node.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<elastin_protocol::Bug>,
}

/// What goes wrong, per second on average (0: never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Servers that crash, in percent of a second's chance. A new one joins for each.
    pub crashes: u64,
    /// Connections that break, likewise.
    pub breaks: u64,
    /// Directions between two nodes in which nothing gets through for a while, likewise.
    pub cuts: u64,
    /// Activations that end by themselves, likewise.
    pub passivations: u64,
    /// Servers that join, or that are emptied and give up their part of the directory, likewise.
    pub resizes: u64,
}

impl Faults {
    /// Whether messages may be lost.
    pub fn may_lose(&self) -> bool {
        self.crashes > 0
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: 3,
            clients: 2,
            supervisor: false,
            actors: 20,
            duration: Duration::from_secs(2),
            calls_per_second: 500,
            moves_per_second: 50,
            delay_most: Duration::from_millis(2),
            exact: false,
            faults: Faults::default(),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}

/// The options of a sweep's run: each seed draws its own size, load and faults, so that many seeds meet many worlds.
pub fn options_of_seed(seed: u64) -> Options {
    let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut rate = |percent: u64, most: u64| {
        if random.chance(percent) {
            1 + random.below(most)
        } else {
            0
        }
    };
    let faults = Faults {
        crashes: rate(50, 200),
        breaks: rate(50, 1000),
        cuts: rate(40, 500),
        passivations: rate(50, 3000),
        resizes: rate(40, 300),
    };
    Options {
        servers: 2 + random.below(4) as usize,
        clients: 1 + random.below(3) as usize,
        supervisor: random.chance(25),
        actors: 1 + random.below(30),
        duration: Duration::from_millis(500 + random.below(1500)),
        calls_per_second: 50 + random.below(1500),
        moves_per_second: random.below(400),
        delay_most: Duration::from_micros(100 + random.below(5000)),
        exact: false,
        faults,
        #[cfg(feature = "planted-bugs")]
        bug: None,
    }
}
