//! How much of the machine this process uses.

use std::time::{Duration, Instant};

use elastin_types::Usage;

/// Measures memory and network between two looks.
pub(crate) struct UsageMeter {
    last_look: Instant,
    last_traffic_bytes: u64,
    memory_capacity: Option<f64>,
}

impl UsageMeter {
    pub(crate) fn start() -> Self {
        let memory_capacity = proc_value("/proc/meminfo", "MemTotal:").map(|kib| kib * 1024.0);
        Self {
            last_look: Instant::now(),
            last_traffic_bytes: 0,
            memory_capacity,
        }
    }

    /// Memory in use now, out of the machine's.
    pub(crate) fn memory(&self) -> Usage {
        let used = proc_value("/proc/self/status", "VmRSS:").unwrap_or(0.0) * 1024.0;
        Usage {
            used,
            capacity: self.memory_capacity,
        }
    }

    /// Bytes per second since the last look, given all bytes so far. What the network could carry is not known.
    pub(crate) fn network(&mut self, traffic_bytes: u64) -> Usage {
        let span = self.last_look.elapsed().max(Duration::from_millis(1));
        let bytes = traffic_bytes.saturating_sub(self.last_traffic_bytes);
        self.last_look = Instant::now();
        self.last_traffic_bytes = traffic_bytes;
        Usage {
            used: bytes as f64 / span.as_secs_f64(),
            capacity: None,
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
    fn traffic_is_a_rate() {
        let mut meter = UsageMeter::start();
        meter.last_look -= Duration::from_secs(2);
        let usage = meter.network(2_000_000);
        assert!((usage.used - 1_000_000.0).abs() < 50_000.0, "{usage:?}");
        assert_eq!(usage.percent(), None);
    }
}
