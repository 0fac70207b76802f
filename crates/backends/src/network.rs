//! A network of hosts on this machine, each in a network namespace of its own, that can be cut in pieces.
//!
//! ```text
//!   this process, servers ── bridge 10.x.y.1 ──┬── host 10.x.y.2
//!                                              └── host 10.x.y.3
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::process::{BackendError, run};

/// A network of hosts. It and its hosts go when it is dropped.
#[derive(Debug)]
pub struct Network {
    /// What the names of all its parts start with: networks of several processes don't meet.
    prefix: String,
    /// The first three numbers of its addresses.
    subnet: (u8, u8, u8),
    hosts: BTreeMap<String, Ipv4Addr>,
}

impl Network {
    /// An empty network. An error most likely says that this user may not make one.
    pub fn create() -> Result<Network, BackendError> {
        let process = std::process::id();
        let part = |shift: u32| (process >> shift & 0x7f) as u8;
        let network = Network {
            prefix: format!("el{process}"),
            // Of the private addresses, some that few use.
            subnet: (10, 128 + part(7), part(0)),
            hosts: BTreeMap::new(),
        };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.hub()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        Ok(network)
    }

    /// The address of this process, and of the servers that it starts outside of hosts.
    pub fn hub(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Adds a host, and gives its address.
    pub fn add_host(&mut self, name: &str) -> Result<Ipv4Addr, BackendError> {
        let number = self.hosts.len() as u8 + 2;
        let address = self.address(number);
        let (space, cable) = (self.space(name), self.cable(address));
        ip(&["netns", "add", &space])?;
        self.hosts.insert(name.to_owned(), address);
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &space,
        ])?;
        ip(&["link", "set", &cable, "master", &self.bridge(), "up"])?;
        ip(&["-n", &space, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(&["-n", &space, "link", "set", "lo", "up"])?;
        ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        Ok(address)
    }

    /// A program that will run on a host.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host)]).arg(program);
        command
    }

    /// Cuts two hosts off from each other: what one sends the other does not get.
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
        ip(&["-n", &self.space(from), "route", what, "blackhole", &to])
    }

    /// Cuts a host off from everybody, or connects it again.
    pub fn isolate(&self, host: &str, isolated: bool) -> Result<(), BackendError> {
        let state = if isolated { "down" } else { "up" };
        ip(&["-n", &self.space(host), "link", "set", "eth0", state])
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }

    /// This machine's end of a host's cable.
    fn cable(&self, host: Ipv4Addr) -> String {
        format!("{}v{}", self.prefix, host.octets()[3])
    }

    fn space(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        let (a, b, c) = self.subnet;
        Ipv4Addr::new(a, b, c, host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What is not there need not go; what can't go stays, and says so.
        for (host, address) in &self.hosts {
            // Connections that are still closing keep a namespace for a while, but need no cable.
            let _ = ip(&["link", "del", &self.cable(*address)]);
            let _ = ip(&["netns", "del", &self.space(host)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), BackendError> {
    run(Command::new("ip").args(arguments))
}
