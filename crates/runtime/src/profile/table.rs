//! Measurements of one activation in a period.

use std::time::Duration;

use elastin_actor::TurnMeasure;
use elastin_types::{ActorId, CallIn, CallOut, Caller, FunctionStats, Method, NodeId, References};

use crate::profile::heavy_hitters::HeavyHitters;
use crate::tuning::{EXACT_TURNS, MANY_TURNS, STRIDE, STRIDE_OF_MANY};

/// Measurements of one activation, for snapshots.
#[derive(Default)]
pub(crate) struct Profile {
    /// Measurements of this period; freed after a period without any.
    tables: Option<Box<Tables>>,
    /// The last known state size and references, if the actor is listed.
    noted: Option<Box<StateNote>>,
}

impl Profile {
    /// The tables of this period. `first` is called when there were none, and registers the cell for the next snapshot.
    pub(crate) fn tables(&mut self, first: impl FnOnce()) -> &mut Tables {
        self.tables.get_or_insert_with(|| {
            first();
            Box::default()
        })
    }

    /// Takes the tables of the period that ends.
    pub(crate) fn end_period(&mut self) -> Option<Box<Tables>> {
        self.tables.take()
    }

    /// Records the state's size and references.
    pub(crate) fn note(&mut self, state_bytes: u64, references: Vec<References>) {
        let noted = self.noted.get_or_insert_default();
        noted.state_bytes = state_bytes;
        noted.references = references;
    }

    /// The last known state size and references, for the report of a period; `None` if already reported.
    pub(crate) fn report_note(&mut self, period: u32) -> Option<StateNote> {
        let noted = self.noted.get_or_insert_default();
        (std::mem::replace(&mut noted.reported, period) != period).then(|| StateNote::clone(noted))
    }

    /// Merges measurements made concurrently.
    pub(crate) fn merge(&mut self, other: Profile) {
        match (&mut self.tables, other.tables) {
            (Some(own), Some(theirs)) => own.merge(*theirs),
            (own, theirs) => *own = own.take().or(theirs),
        }
        self.noted = other.noted.or(self.noted.take());
    }

    /// Whether there are no measurements.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_none() && self.noted.is_none()
    }

    /// Ends the activation: its measurements do not apply to the next one. The tables stay, empty, because the cell is
    /// registered for the next snapshot.
    pub(crate) fn activation_ended(&mut self) {
        if let Some(tables) = &mut self.tables {
            **tables = Tables::default();
        }
        self.noted = None;
    }
}

/// Measurements of one activation in a period. Only active actors have them.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) turns: u64,
    pub(crate) busy: Duration,
    rng: u32,
    calls_in: HeavyHitters<(Caller, Method), NodeId>,
    calls_out: HeavyHitters<(ActorId, Method), ()>,
    /// By function: at most those of the type, and its hooks.
    functions: Vec<FunctionStats>,
}

/// Whether two callers count as one. All clients do, because policies treat them as one and there may be very many.
fn same_caller(one: &Caller, other: &Caller) -> bool {
    match (one, other) {
        (Caller::Client(_), Caller::Client(_)) => true,
        (one, other) => one == other,
    }
}

/// Size and references of an actor's state between two turns.
#[derive(Clone, Default)]
pub(crate) struct StateNote {
    pub(crate) state_bytes: u64,
    pub(crate) references: Vec<References>,
    /// The last period it was reported for; the first is 1.
    reported: u32,
}

impl Tables {
    /// Records a measured turn; returns how many turns the next measured one stands for.
    pub(crate) fn turn(&mut self, turn: &TurnMeasure) -> u16 {
        let weight = u64::from(turn.weight);
        self.turns += weight;
        self.busy += turn.busy * turn.weight;
        self.calls_in.add(
            |(caller, method)| *method == turn.method && same_caller(caller, &turn.caller),
            || (turn.caller.clone(), turn.method),
            weight,
            turn.bytes * weight,
            turn.from,
        );
        self.function(turn);
        if self.turns < EXACT_TURNS {
            1
        } else {
            self.next_stride()
        }
    }

    fn function(&mut self, turn: &TurnMeasure) {
        let known = self.functions.iter().position(|known| known.method == turn.method);
        let index = known.unwrap_or_else(|| {
            self.functions.push(FunctionStats::new(turn.method));
            self.functions.len() - 1
        });
        let function = &mut self.functions[index];
        function.count += u64::from(turn.weight);
        function.latency_sum += turn.latency * turn.weight;
        function.latency_max = function.latency_max.max(turn.latency);
    }

    /// Latencies per function.
    pub(crate) fn take_functions(&mut self) -> Vec<FunctionStats> {
        std::mem::take(&mut self.functions)
    }

    /// Uniformly distributed between half and one and a half strides (a linear congruential generator).
    fn next_stride(&mut self) -> u16 {
        self.rng = self.rng.wrapping_mul(0x5851_f42d).wrapping_add(0x1405_7b7f);
        let stride = if self.turns < MANY_TURNS {
            STRIDE
        } else {
            STRIDE_OF_MANY
        };
        stride / 2 + (self.rng >> 16) as u16 % (stride + 1)
    }

    /// Records a call that a measured turn made.
    pub(crate) fn call(&mut self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        let weight = u64::from(weight);
        self.calls_out.add(
            |(known, known_method)| *known_method == method && known == callee,
            || (callee.clone(), method),
            weight,
            bytes * weight,
            (),
        );
    }

    /// Merges measurements made concurrently.
    fn merge(&mut self, other: Tables) {
        self.turns += other.turns;
        self.busy += other.busy;
        for entry in other.calls_in.into_entries() {
            let same = |known: &(Caller, Method)| *known == entry.key;
            self.calls_in
                .add(same, || entry.key.clone(), entry.count, entry.bytes, entry.tag);
        }
        for entry in other.calls_out.into_entries() {
            let same = |known: &(ActorId, Method)| *known == entry.key;
            self.calls_out
                .add(same, || entry.key.clone(), entry.count, entry.bytes, ());
        }
        for function in other.functions {
            let same = self.functions.iter_mut().find(|known| known.method == function.method);
            match same {
                Some(known) => {
                    known.count += function.count;
                    known.latency_sum += function.latency_sum;
                    known.latency_max = known.latency_max.max(function.latency_max);
                }
                None => self.functions.push(function),
            }
        }
    }

    /// The heaviest callers and callees, heaviest first. `node_of` locates a callee.
    pub(crate) fn edges(self, node_of: impl Fn(&ActorId) -> Option<NodeId>) -> (Vec<CallIn>, Vec<CallOut>) {
        let mut calls_in: Vec<_> = self
            .calls_in
            .into_entries()
            .into_iter()
            .map(|entry| CallIn {
                caller: entry.key.0,
                method: entry.key.1,
                count: entry.count,
                bytes: entry.bytes,
                node: Some(entry.tag),
            })
            .collect();
        calls_in.sort_by(|one, other| (other.count, &one.caller).cmp(&(one.count, &other.caller)));
        let mut calls_out: Vec<_> = self
            .calls_out
            .into_entries()
            .into_iter()
            .map(|entry| CallOut {
                node: node_of(&entry.key.0),
                callee: entry.key.0,
                method: entry.key.1,
                count: entry.count,
                bytes: entry.bytes,
            })
            .collect();
        calls_out.sort_by(|one, other| (other.count, &one.callee).cmp(&(one.count, &other.callee)));
        (calls_in, calls_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(client: u64, method: &str, weight: u32) -> TurnMeasure {
        TurnMeasure {
            weight,
            busy: Duration::from_micros(1),
            latency: Duration::from_micros(2),
            caller: Caller::Client(NodeId(client)),
            method: Method::of(method),
            bytes: 1,
            from: NodeId(client),
        }
    }

    #[test]
    fn clients_count_as_one_caller() {
        let mut profile = Tables::default();
        for client in 0..100 {
            profile.turn(&turn(client, "open", 1));
        }
        let (calls_in, _) = profile.edges(|_| None);
        assert_eq!(calls_in.len(), 1);
        assert_eq!((calls_in[0].count, calls_in[0].node), (100, Some(NodeId(99))));
    }

    #[test]
    fn concurrent_measurements_add_up() {
        let (mut one, mut other) = (Tables::default(), Tables::default());
        one.turn(&turn(1, "open", 1));
        other.turn(&turn(1, "open", 2));
        other.turn(&turn(1, "glance", 1));
        one.merge(other);
        assert_eq!((one.turns, one.busy), (4, Duration::from_micros(4)));
        let (calls_in, _) = one.edges(|_| None);
        let counts: Vec<_> = calls_in.iter().map(|call| (call.method, call.count)).collect();
        assert_eq!(counts, [(Method::of("open"), 3), (Method::of("glance"), 1)]);
    }

    #[test]
    fn alternating_functions_are_sampled_equally() {
        let mut profile = Tables::default();
        let (mut turns, mut weight) = (0_u64, 1);
        while turns < 100_000 {
            turns += u64::from(weight);
            weight = u32::from(profile.turn(&turn(1, if turns % 2 == 0 { "open" } else { "glance" }, weight)));
        }
        let (calls_in, _) = profile.edges(|_| None);
        let opened = calls_in
            .iter()
            .find(|call| call.method == Method::of("open"))
            .expect("the function was called")
            .count;
        let share = opened as f64 / turns as f64;
        assert!((0.47..0.53).contains(&share), "{share}");
    }

    /// Counts turns of two functions in random order, as a cell would; returns the relative error of the first one's
    /// count.
    fn sampling_error(turns: u64, share: f64, seed: u64) -> f64 {
        let mut profile = Tables::default();
        let mut state = seed;
        let mut random = || {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        let (mut exact, mut unmeasured, mut stride) = (0_u64, 0_u16, 1_u16);
        for _ in 0..turns {
            let first = random() < share;
            exact += u64::from(first);
            if unmeasured > 0 {
                unmeasured -= 1;
                continue;
            }
            let name = if first { "first" } else { "second" };
            stride = profile.turn(&turn(1, name, u32::from(stride)));
            unmeasured = stride - 1;
        }
        let (calls_in, _) = profile.edges(|_| None);
        let counted = calls_in.iter().find(|call| call.method == Method::of("first"));
        (counted.map_or(0.0, |call| call.count as f64) - exact as f64) / exact as f64
    }

    #[test]
    fn the_sampling_error_is_as_stated() {
        // As in docs/observability.md: two standard deviations are about twice the square root of the stride divided by
        // the turns of that function.
        let cases = [
            (1_000, 0.5, STRIDE),
            (20_000, 0.5, STRIDE_OF_MANY),
            (100_000, 0.1, STRIDE_OF_MANY),
            (100_000, 0.5, STRIDE_OF_MANY),
        ];
        for (turns, share, stride) in cases {
            let stated = 2.0 * (f64::from(stride) / (turns as f64 * share)).sqrt();
            let errors: Vec<f64> = (1..=100).map(|seed| sampling_error(turns, share, seed)).collect();
            let outside = errors.iter().filter(|error| error.abs() > stated).count();
            assert!(outside <= 10, "{outside} of 100 exceed the stated error {stated}");
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            assert!(mean.abs() < stated / 5.0, "the mean error {mean} is biased");
        }
    }
}
