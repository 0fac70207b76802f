//! A network of hosts on this machine, each in a network namespace of its own, that can be cut in pieces.
//!
//! ```text
//!   this process, servers ── bridge 10.x.y.1 ──┬── host 10.x.y.2
//!                                              └── host 10.x.y.3
//! ```
//!
//! All changes happen in the hosts' own namespaces; the machine's network is not touched.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::process::{BackendError, run};

/// The hub's hardware address: a locally administered one.
const HUB_MAC: &str = "02:00:00:00:00:01";
/// The packet filter of a host, to which rules that drop packets are added.
const FILTER: &str = "table ip faults { chain in { type filter hook input priority 0; }; \
                     chain out { type filter hook output priority 0; }; }";

/// A network of hosts. It and its hosts are removed when it is dropped.
#[derive(Debug)]
pub struct Network {
    /// The prefix of interface and namespace names, so that networks of several processes do not clash.
    prefix: String,
    /// The first three numbers of its addresses.
    subnet: (u8, u8, u8),
    hosts: BTreeMap<String, Ipv4Addr>,
}

impl Network {
    /// Creates an empty network. An error most likely means that this user may not create one.
    pub fn create() -> Result<Network, BackendError> {
        let process = std::process::id();
        let part = |shift: u32| (process >> shift & 0x7f) as u8;
        let network = Network {
            prefix: format!("el{process}"),
            // Private addresses that are rarely used.
            subnet: (10, 128 + part(7), part(0)),
            hosts: BTreeMap::new(),
        };
        let bridge = network.bridge();
        // A bridge without its own address takes the lowest one of its links, which changes when a host is added. Hosts
        // that have cached the old address would not reach the hub for half a minute.
        ip(&["link", "add", &bridge, "address", HUB_MAC, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.hub()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        Ok(network)
    }

    /// The address of this process, and of the servers that it starts outside of hosts.
    pub fn hub(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Adds a host, and returns its address.
    pub fn add_host(&mut self, name: &str) -> Result<Ipv4Addr, BackendError> {
        let number = self.hosts.len() as u8 + 2;
        let address = self.address(number);
        let (namespace, link) = (self.namespace(name), self.link(address));
        ip(&["netns", "add", &namespace])?;
        self.hosts.insert(name.to_owned(), address);
        ip(&[
            "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace,
        ])?;
        ip(&["link", "set", &link, "master", &self.bridge(), "up"])?;
        ip(&["-n", &namespace, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        self.nft(name, &[FILTER])?;
        Ok(address)
    }

    /// A command that runs a program on a host.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    /// Cuts two hosts off from each other: senders get an unreachable error at once.
    pub fn cut(&self, one: &str, other: &str) -> Result<(), BackendError> {
        self.route(one, "add", other)?;
        self.route(other, "add", one)
    }

    /// Connects two hosts again.
    pub fn mend(&self, one: &str, other: &str) -> Result<(), BackendError> {
        self.route(one, "del", other)?;
        self.route(other, "del", one)
    }

    fn route(&self, from: &str, what: &str, to: &str) -> Result<(), BackendError> {
        let to = format!("{}/32", self.hosts[to]);
        ip(&["-n", &self.namespace(from), "route", what, "blackhole", &to])
    }

    /// Isolates a host, or reconnects it.
    pub fn isolate(&self, host: &str, isolated: bool) -> Result<(), BackendError> {
        let state = if isolated { "down" } else { "up" };
        ip(&["-n", &self.namespace(host), "link", "set", "eth0", state])
    }

    /// Drops this percentage (1 to 100) of the packets from one host to another silently. The other direction is
    /// unaffected.
    pub fn lose(&self, from: &str, to: &str, percent: u8) -> Result<(), BackendError> {
        let (from, percent) = (self.hosts[from].to_string(), (percent - 1).to_string());
        let lost = ["numgen", "random", "mod", "100", "<=", &percent, "drop"];
        let rule = [&["add", "rule", "ip", "faults", "in", "ip", "saddr", &from], &lost[..]];
        self.nft(to, &rule.concat())
    }

    /// Drops everything silently between a host and a port of the hub.
    pub fn lose_port(&self, host: &str, port: u16) -> Result<(), BackendError> {
        let (hub, port) = (self.hub().to_string(), port.to_string());
        let (add, drop) = (["add", "rule", "ip", "faults"], "drop");
        let out = ["out", "ip", "daddr", &hub, "tcp", "dport", &port, drop];
        let back = ["in", "ip", "saddr", &hub, "tcp", "sport", &port, drop];
        self.nft(host, &[&add, &out[..]].concat())?;
        self.nft(host, &[&add, &back[..]].concat())
    }

    /// Ends all packet loss.
    pub fn lose_nothing(&self) -> Result<(), BackendError> {
        let mut hosts = self.hosts.keys();
        hosts.try_for_each(|host| self.nft(host, &["flush", "table", "ip", "faults"]))
    }

    /// Changes a host's packet filter.
    fn nft(&self, host: &str, arguments: &[&str]) -> Result<(), BackendError> {
        run(self.command(host, "nft").args(arguments))
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }

    /// The interface of the hub that leads to a host.
    fn link(&self, host: Ipv4Addr) -> String {
        format!("{}v{}", self.prefix, host.octets()[3])
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        let (a, b, c) = self.subnet;
        Ipv4Addr::new(a, b, c, host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Failures are ignored: some parts may not exist.
        for (host, address) in &self.hosts {
            // Connections that are still closing keep a namespace for a while, but not its link.
            let _ = ip(&["link", "del", &self.link(*address)]);
            let _ = ip(&["netns", "del", &self.namespace(host)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), BackendError> {
    run(Command::new("ip").args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(link: &str) -> String {
        std::fs::read_to_string(format!("/sys/class/net/{link}/address")).expect("there is such a link")
    }

    #[test]
    fn adding_a_host_keeps_the_hardware_address_of_the_hub() {
        let mut network = match Network::create() {
            Ok(network) => network,
            Err(error) => return crate::skipped(&format!("this user may not create a network: {error}")),
        };
        let hub = mac(&network.bridge());
        for host in ["a", "b"] {
            network.add_host(host).expect("a host can be added");
            assert_eq!(mac(&network.bridge()), hub);
        }
    }
}
