//! Resources and their usage.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A resource that policies can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Processor time, in CPU milliseconds per second.
    Cpu,
    /// Memory, in bytes.
    Mem,
    /// Network between nodes, in bytes per second, in and out together.
    Net,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::Cpu, Resource::Mem, Resource::Net];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Mem => "mem",
            Resource::Net => "net",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One value for each resource, in the units that [`Resource`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerResource<T> {
    /// For the processor.
    pub cpu: T,
    /// For memory.
    pub mem: T,
    /// For the network.
    pub net: T,
}

impl<T> Index<Resource> for PerResource<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Mem => &self.mem,
            Resource::Net => &self.net,
        }
    }
}

impl<T> IndexMut<Resource> for PerResource<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Mem => &mut self.mem,
            Resource::Net => &mut self.net,
        }
    }
}

/// Usage and actual capacity of one resource of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The used amount.
    pub used: f64,
    /// The capacity, if it is configured or could be detected.
    pub capacity: Option<f64>,
}

impl Usage {
    /// The usage in percent of the capacity; `None` if the capacity is unknown or zero.
    pub fn percent(&self) -> Option<f64> {
        percent(self.used, self.capacity)
    }
}

/// `part` in percent of `whole`; `None` if the whole is unknown or zero.
fn percent(part: f64, whole: Option<f64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0.0).map(|whole| 100.0 * part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_capacity_makes_the_percentage_unknown() {
        assert_eq!(
            Usage {
                used: 5.0,
                capacity: None
            }
            .percent(),
            None
        );
        assert_eq!(
            Usage {
                used: 5.0,
                capacity: Some(0.0)
            }
            .percent(),
            None
        );
        assert_eq!(
            Usage {
                used: 5.0,
                capacity: Some(20.0)
            }
            .percent(),
            Some(25.0)
        );
    }
}
