//! What every member of a cluster is made of, whether it hosts actors, only calls them, or supervises: membership, a
//! driver on the network, and a runtime.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_clock::Clock;
use elastin_cluster::{
    Above, Class, Heard, MemberRecord, Membership, MembershipHandle, Peer, PeerConfig, Planted, Role, Security,
};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_protocol::{Limits, MoveError, MoveId, NodeConfig};
use elastin_runtime::{Runtime, Settings};
use elastin_types::{ActivationEpoch, ActorId, Caller, NodeId};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::App;
use crate::retrying::Retrying;

/// How long a member may be silent before it counts as dead. Short, because processes on one machine are quick to answer;
/// a server whose process ends is noticed at once.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(3);

/// A free port of this machine that others can't reach.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long a call waits that was given no deadline, so that a caller never waits for ever for what was lost on the way.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the driver of a member has for the part that steers it.
pub(crate) enum Below {
    /// A frame of class control or admin.
    Frame {
        from: NodeId,
        class: Class,
        payload: Bytes,
        /// What it takes of the room for frames, for as long as it waits.
        _room: OwnedSemaphorePermit,
    },
    /// A new actor needs a place.
    NeedPlacement {
        actor: ActorId,
        caller: Caller,
        caller_node: NodeId,
    },
    /// A move has ended.
    MoveEnded {
        id: MoveId,
        result: Result<ActivationEpoch, MoveError>,
    },
}

/// The bytes of frames that may wait for the task that steers a member. Peers choose how many they send, and beyond it theirs are
/// dropped, so that they can't fill memory: managers speak again in their next period, and operators ask again.
const FRAMES_WAITING_BYTES_MAX: u32 = 64 << 20;

/// A frame counts for as much at least, so that small ones can't fill memory either.
const FRAME_BYTES_MIN: u32 = 256;

/// Passes everything on to the task that steers the member, so that the driver never waits for it.
struct PassOn {
    to: mpsc::UnboundedSender<Below>,
    room: Arc<Semaphore>,
}

impl PassOn {
    fn new() -> (Self, mpsc::UnboundedReceiver<Below>) {
        let (to, below) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(FRAMES_WAITING_BYTES_MAX as usize));
        (Self { to, room }, below)
    }

    fn pass(&self, below: Below) {
        // A member that has ended needs nothing more.
        let _ = self.to.send(below);
    }
}

impl Above for PassOn {
    fn frame(&self, from: NodeId, class: Class, payload: Bytes) {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX).max(FRAME_BYTES_MIN);
        match Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            Ok(room) => self.pass(Below::Frame {
                from,
                class,
                payload,
                _room: room,
            }),
            Err(_) => tracing::warn!(%from, ?class, "a frame was dropped: too many wait already"),
        }
    }

    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        self.pass(Below::NeedPlacement {
            actor,
            caller,
            caller_node,
        });
    }

    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>) {
        self.pass(Below::MoveEnded { id, result });
    }
}

/// What a member is made with.
#[derive(Clone)]
pub(crate) struct MemberOptions {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cpu_share: Option<f64>,
    /// Where connections are accepted, if it can be dialled.
    pub(crate) listen: SocketAddr,
    /// Where others reach it, if that is not where it listens.
    pub(crate) advertise: Option<SocketAddr>,
    /// How long it may be silent before it counts as dead.
    pub(crate) lease_ttl: Duration,
    /// Its clock, which leases, deadlines and timers are on.
    pub(crate) clock: Clock,
    /// How it makes sure that it talks to members.
    pub(crate) security: Security,
    /// What it does wrong on purpose.
    pub(crate) planted: Planted,
}

impl MemberOptions {
    /// A member that is reached over loopback, if at all, and has the whole machine.
    pub(crate) fn new(
        name: impl Into<String>,
        role: Role,
        coordination: Arc<dyn Coordination>,
        state: Arc<dyn StateStore>,
        security: Security,
    ) -> Self {
        Self {
            name: name.into(),
            role,
            coordination,
            state,
            cpu_share: None,
            listen: LOOPBACK,
            advertise: None,
            lease_ttl: LEASE_TTL,
            clock: Clock::start(),
            security,
            planted: Planted::default(),
        }
    }
}

/// A member of a cluster, and what it hears.
pub(crate) struct Member {
    pub(crate) me: NodeId,
    pub(crate) peer: Peer,
    pub(crate) runtime: Runtime,
    /// What its driver has for whoever steers it, who takes it once.
    pub(crate) below: Option<mpsc::UnboundedReceiver<Below>>,
    pub(crate) heard: Option<mpsc::UnboundedReceiver<Heard>>,
    pub(crate) membership: MembershipHandle,
    /// What it does wrong on purpose.
    pub(crate) planted: Planted,
}

impl Member {
    /// Joins the application's cluster.
    pub(crate) async fn join(app: &App, options: MemberOptions) -> anyhow::Result<Member> {
        let listener = match options.role {
            Role::Client => None,
            Role::Server | Role::Supervisor => Some(TcpListener::bind(options.listen).await?),
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let address = address.map(|own| options.advertise.unwrap_or(own));
        anyhow::ensure!(
            !address.is_some_and(|address| address.ip().is_unspecified()),
            "others can't reach {}: say with `--advertise` where they can",
            options.listen
        );
        anyhow::ensure!(
            !options.security.is_plain() || address.is_none_or(|address| address.ip().is_loopback()),
            "plain text does not leave the machine: to listen on {} give the members certificates",
            options.listen
        );
        let mut record = MemberRecord::new(options.name, options.role, address);
        record.certificate = options.security.own_certificate();
        let hosts = options.role == Role::Server;
        let planted = options.planted;
        let membership = Membership::join(options.coordination, record, options.lease_ttl, &options.clock).await?;
        let me = membership.me();
        let (pass_on, below) = PassOn::new();
        let config = PeerConfig {
            cluster: app.cluster_name().into(),
            node: NodeConfig {
                me,
                hosts,
                limits: Limits::default(),
            },
            saved_types: app.saved_types().clone(),
            security: options.security,
            listener,
            state: options.state,
            planted,
        };
        let peer = Peer::new(config, Arc::new(pass_on));
        let settings = Settings {
            node: me,
            cpu_share: options.cpu_share,
            default_deadline: Some(DEADLINE),
            idle_max: app.idle_max(),
            ..Settings::default()
        };
        let builder = Runtime::builder().settings(settings).clock(options.clock.clone());
        // Only a server knows the types: for everybody else every actor is elsewhere.
        let runtime = if hosts {
            app.register(builder).outside(peer.outside()).build()?
        } else {
            let outside = Retrying::over(peer.outside(), options.clock);
            let runtime = builder.workers(1).outside(outside.clone()).build()?;
            outside.attach(&runtime.host());
            runtime
        };
        peer.attach(runtime.clone());
        let (membership, heard) = membership.attend(peer.clone());
        Ok(Member {
            me,
            peer,
            runtime,
            below: Some(below),
            heard: Some(heard),
            membership,
            planted,
        })
    }

    /// The next thing that it hears of its cluster, before anybody steers it.
    pub(crate) async fn hear(&mut self) -> Option<Heard> {
        self.heard.as_mut()?.recv().await
    }

    /// What the member hears, for whoever steers it.
    ///
    /// # Panics
    /// If somebody has taken it before.
    pub(crate) fn take_ears(&mut self) -> (mpsc::UnboundedReceiver<Below>, mpsc::UnboundedReceiver<Heard>) {
        let ears = self.below.take().zip(self.heard.take());
        ears.expect("a member is steered by one task")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_wait_are_bounded_and_what_is_taken_makes_room() {
        let (pass_on, mut below) = PassOn::new();
        let payload = Bytes::from(vec![0; 16 << 20]);
        let comes = |payload: &Bytes| pass_on.frame(NodeId(7), Class::Admin, payload.clone());
        for _ in 0..5 {
            comes(&payload);
        }
        assert_eq!(below.len(), 4, "the fifth is dropped");
        comes(&Bytes::new());
        assert_eq!(below.len(), 4, "there is no room for a small one either");
        pass_on.move_ended(MoveId(1), Err(MoveError::Ended));
        assert_eq!(below.len(), 5, "what is no peer's is never dropped");
        drop(below.try_recv());
        comes(&payload);
        assert_eq!(below.len(), 5);
    }
}
