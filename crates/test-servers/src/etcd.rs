//! An etcd cluster.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::permit::Permit;
use crate::port::free_port;
use crate::process::{BackendError, Process};

/// The most attempts to start: another process may take a port that was free.
const STARTS_MAX: u32 = 5;
/// Heartbeat interval and election timeout in milliseconds: short, so that tests do not wait long for a new leader.
const HEARTBEAT_MS: u32 = 50;
const ELECTION_MS: u32 = 500;

/// An etcd cluster on this machine.
#[derive(Debug)]
pub struct EtcdCluster {
    address: Ipv4Addr,
    members: Vec<Member>,
    directory: TempDir,
    certificates: Option<Certificates>,
    /// The storage quota of a member, if not the default.
    quota_bytes: Option<u64>,
    // Last, so that the next cluster starts only when this one has ended.
    _permit: Permit,
}

#[derive(Debug)]
struct Member {
    name: String,
    client: u16,
    peer: u16,
    process: Option<Process>,
}

impl EtcdCluster {
    /// Starts a cluster with this number of members, and waits until they accept connections.
    pub fn start(members: usize) -> Result<EtcdCluster, BackendError> {
        Self::start_at(Ipv4Addr::LOCALHOST, members)
    }

    /// Like [`EtcdCluster::start`], at an address of this machine.
    pub fn start_at(address: Ipv4Addr, members: usize) -> Result<EtcdCluster, BackendError> {
        Self::start_with(address, members, false, None)
    }

    /// Starts one member with this storage quota, which includes the history.
    pub fn start_small(quota_bytes: u64) -> Result<EtcdCluster, BackendError> {
        Self::start_with(Ipv4Addr::LOCALHOST, 1, false, Some(quota_bytes))
    }

    /// Like [`EtcdCluster::start`], with members that require TLS with client certificates.
    pub fn start_secured(members: usize) -> Result<EtcdCluster, BackendError> {
        Self::start_with(Ipv4Addr::LOCALHOST, members, true, None)
    }

    fn start_with(
        address: Ipv4Addr,
        members: usize,
        secured: bool,
        quota_bytes: Option<u64>,
    ) -> Result<EtcdCluster, BackendError> {
        let mut tried = 0;
        loop {
            tried += 1;
            match Self::try_start(address, members, secured, quota_bytes) {
                Err(BackendError::Failed { .. }) if tried < STARTS_MAX => {}
                started => return started,
            }
        }
    }

    fn try_start(
        address: Ipv4Addr,
        members: usize,
        secured: bool,
        quota_bytes: Option<u64>,
    ) -> Result<EtcdCluster, BackendError> {
        let member = |index| Member {
            name: format!("etcd-{index}"),
            client: free_port(),
            peer: free_port(),
            process: None,
        };
        let mut cluster = EtcdCluster {
            address,
            members: (0..members).map(member).collect(),
            directory: tempfile::tempdir()?,
            certificates: secured.then(|| Certificates::make(address)).transpose()?,
            quota_bytes,
            _permit: Permit::wait(),
        };
        for index in 0..members {
            let process = cluster.launch(index)?;
            cluster.members[index].process = Some(process);
        }
        for index in 0..members {
            cluster.await_member(index)?;
        }
        Ok(cluster)
    }

    fn launch(&self, index: usize) -> Result<Process, BackendError> {
        let url = |port: u16| format!("http://{}:{port}", self.address);
        let all: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}={}", member.name, url(member.peer)))
            .collect();
        let member = &self.members[index];
        let (client, peer) = (self.endpoint(index), url(member.peer));
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(self.directory.path().join(&member.name))
            .args(["--name", &member.name])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()]);
        if let Some(certificates) = &self.certificates {
            command
                .arg("--cert-file")
                .arg(certificates.server())
                .arg("--key-file")
                .arg(certificates.server_key())
                .arg("--trusted-ca-file")
                .arg(certificates.authority())
                .arg("--client-cert-auth");
        }
        if let Some(bytes) = self.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        Process::start(&mut command, &self.log(index)).map_err(|error| match error {
            BackendError::Io(io) if io.kind() == std::io::ErrorKind::NotFound => BackendError::NotInstalled {
                program: "etcd".to_owned(),
                package: "etcd-server",
            },
            error => error,
        })
    }

    fn log(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("{}.log", self.members[index].name))
    }

    fn await_member(&mut self, index: usize) -> Result<(), BackendError> {
        let log = self.log(index);
        let address = self.address(index);
        let process = self.members[index].process.as_mut().expect("it was just launched");
        process.await_port(address, &log)
    }

    /// The address of a member for clients.
    pub fn address(&self, member: usize) -> SocketAddr {
        SocketAddr::from((self.address, self.members[member].client))
    }

    /// The URLs of the members for clients.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|member| self.endpoint(member)).collect()
    }

    fn endpoint(&self, member: usize) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address(member))
    }

    /// The certificates, if it speaks TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].process = None;
    }

    /// Restarts a killed member from its disk.
    pub fn restart(&mut self, member: usize) -> Result<(), BackendError> {
        self.kill(member);
        self.members[member].process = Some(self.launch(member)?);
        self.await_member(member)
    }

    /// Compacts the history up to this revision.
    pub fn compact(&self, revision: u64) -> Result<(), BackendError> {
        let request = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        self.manage("/v3/kv/compaction", &request).map(drop)
    }

    /// Recovers a member without space, as an operator would: compacts, defragments and clears the alarm.
    pub fn make_room(&self, revision: u64) -> Result<(), BackendError> {
        self.compact(revision)?;
        self.manage("/v3/maintenance/defragment", "{}")?;
        let alarms = self.manage("/v3/maintenance/alarm", r#"{"action":"GET"}"#)?;
        for alarm in alarms.split(r#""memberID":""#).skip(1) {
            let member = alarm.split('"').next().unwrap_or_default();
            let disarm = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
            self.manage("/v3/maintenance/alarm", &disarm)?;
        }
        Ok(())
    }

    /// Sends a maintenance request to the first member and returns its raw answer.
    fn manage(&self, path: &str, request: &str) -> Result<String, BackendError> {
        let address = self.address(0);
        let mut stream = TcpStream::connect(address)?;
        let length = request.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{request}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200") {
            return Ok(answer);
        }
        let reason = format!("{path} {request} was refused");
        Err(BackendError::Failed { reason, log: answer })
    }

    /// A member's process.
    ///
    /// # Panics
    /// If it was killed.
    pub fn process(&self, member: usize) -> &Process {
        self.members[member].process.as_ref().expect("the member runs")
    }
}
