//! Real servers and faults for tests: an etcd cluster, a PostgreSQL server, a proxy, a network that can be cut, a disk
//! that can be filled, and wrong clocks.
//!
//! Each has its own directory and ports, and ends when its value is dropped. The programs come from the system:
//! Debian's packages `etcd-server`, `postgresql`, `iproute2`, `nftables` and `faketime`.

mod certificates;
mod clock;
mod disk;
mod etcd;
mod network;
mod permit;
mod port;
mod postgres;
mod process;
mod proxy;
mod skip;

pub use certificates::Certificates;
pub use clock::with_wrong_clock;
pub use disk::Disk;
pub use etcd::EtcdCluster;
pub use network::Network;
pub use port::free_port;
pub use postgres::PostgresServer;
pub use process::{BackendError, Process};
pub use proxy::Proxy;
pub use skip::skipped;
