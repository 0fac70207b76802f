//! The resource usage of this process, relative to its capacity.

mod control_group;

use std::path::Path;
use std::time::{Duration, Instant};

use elastin_types::Usage;

use control_group::Limits;

/// Measures the resource usage of a server between two samples.
pub(crate) struct UsageMeter {
    last_sample: Instant,
    last_traffic_bytes: u64,
    capacity: Capacity,
}

/// The capacity of this process: that of the machine, within the limits of its control groups and its configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Capacity {
    /// Processor time, in cores.
    cores: f64,
    /// Whether a limit restricts the processor time, so that none of it should be spent on busy-polling.
    is_rationed: bool,
    /// Memory, in bytes.
    memory_bytes: Option<f64>,
    /// Network, in bytes per second, if configured.
    network_bytes_s: Option<f64>,
}

impl Capacity {
    /// Finds the capacity, given the configured CPU share in cores and network capacity in megabits per second.
    pub(crate) fn find(cpu_share: Option<f64>, net_mbit: Option<f64>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let memory_bytes = proc_value("/proc/meminfo", "MemTotal:").map(|kib| kib * 1024.0);
        Self::within(Limits::read(Path::new("/")), cores, memory_bytes, cpu_share, net_mbit)
    }

    fn within(
        limits: Limits,
        cores: f64,
        memory_bytes: Option<f64>,
        cpu_share: Option<f64>,
        net_mbit: Option<f64>,
    ) -> Self {
        Self {
            is_rationed: limits.cores.is_some() || cpu_share.is_some(),
            cores: [limits.cores, cpu_share].into_iter().flatten().fold(cores, f64::min),
            memory_bytes: memory_bytes.into_iter().chain(limits.memory_bytes).reduce(f64::min),
            network_bytes_s: net_mbit.map(|mbit| mbit * 1e6 / 8.0),
        }
    }
}

impl Capacity {
    /// Whether a limit restricts the processor time, so that none of it should be spent on busy-polling.
    pub(crate) fn is_rationed(&self) -> bool {
        self.is_rationed
    }
}

impl UsageMeter {
    pub(crate) fn start(capacity: Capacity) -> Self {
        Self {
            last_sample: Instant::now(),
            last_traffic_bytes: 0,
            capacity,
        }
    }

    /// Processor time in CPU milliseconds per second, with its capacity.
    pub(crate) fn processor(&self, used: f64) -> Usage {
        Usage {
            used,
            capacity: Some(self.capacity.cores * 1000.0),
        }
    }

    /// Memory currently in use, with its capacity.
    pub(crate) fn memory(&self) -> Usage {
        let used = proc_value("/proc/self/status", "VmRSS:").unwrap_or(0.0) * 1024.0;
        Usage {
            used,
            capacity: self.capacity.memory_bytes,
        }
    }

    /// Network traffic per second since the last sample, given the total so far. Its capacity is known only if
    /// configured.
    pub(crate) fn network(&mut self, traffic_bytes: u64) -> Usage {
        let span = self.last_sample.elapsed().max(Duration::from_millis(1));
        let bytes = traffic_bytes.saturating_sub(self.last_traffic_bytes);
        self.last_sample = Instant::now();
        self.last_traffic_bytes = traffic_bytes;
        Usage {
            used: bytes as f64 / span.as_secs_f64(),
            capacity: self.capacity.network_bytes_s,
        }
    }
}

/// A number from a file of `Name: number unit` lines.
fn proc_value(file: &str, name: &str) -> Option<f64> {
    value_in(&std::fs::read_to_string(file).ok()?, name)
}

fn value_in(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "VmPeak:\t  12 kB\nVmRSS:\t    4096 kB\n";
        assert_eq!(value_in(text, "VmRSS:"), Some(4096.0));
        assert_eq!(value_in(text, "VmSwap:"), None);
    }

    #[test]
    fn the_smallest_limit_is_the_capacity() {
        let limits = |cores, memory_bytes| Limits { cores, memory_bytes };
        let machine = Capacity::within(limits(None, None), 4.0, Some(100.0), None, None);
        assert_eq!(
            (machine.cores, machine.memory_bytes, machine.network_bytes_s),
            (4.0, Some(100.0), None)
        );
        let limited = Capacity::within(limits(Some(1.5), Some(50.0)), 4.0, Some(100.0), None, Some(8.0));
        assert_eq!(
            (limited.cores, limited.memory_bytes, limited.network_bytes_s),
            (1.5, Some(50.0), Some(1e6))
        );
        let shared = Capacity::within(limits(Some(1.5), None), 4.0, None, Some(0.25), None);
        assert_eq!((shared.cores, shared.memory_bytes), (0.25, None));
        assert_eq!(
            [machine, limited, shared].map(|capacity| capacity.is_rationed()),
            [false, true, true]
        );
    }

    #[test]
    fn traffic_is_a_rate_and_a_percentage_if_the_capacity_is_known() {
        let percent = |net_mbit| {
            let mut meter = UsageMeter::start(Capacity::find(None, net_mbit));
            meter.last_sample -= Duration::from_secs(2);
            let usage = meter.network(2_000_000);
            assert!((usage.used - 1_000_000.0).abs() < 50_000.0, "{usage:?}");
            usage.percent()
        };
        assert_eq!(percent(None), None);
        assert!((percent(Some(80.0)).unwrap() - 10.0).abs() < 1.0);
    }
}
