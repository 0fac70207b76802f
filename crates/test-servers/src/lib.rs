//! Real servers and faults for tests: an etcd cluster, a PostgreSQL server, a proxy in
//! between, a network that can be cut, a disk that can be filled, and clocks that are wrong.
//!
//! Each runs in a directory and on ports of its own and ends when its value is dropped. The programs come from
//! the system: Debian's packages `etcd-server`, `postgresql`, `iproute2`, `nftables` and `faketime`.

mod certificates;
mod clock;
mod disk;
mod etcd;
mod network;
mod port;
mod postgres;
mod process;
mod proxy;
mod skip;
mod turn;

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
