//! What every member of a cluster is made of, whether it hosts actors, only calls them, or supervises: membership, a
//! driver on the network, and a runtime.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_clock::Clock;
use elastin_cluster::{
    Class, MemberRecord, Membership, MembershipHandle, MembershipUpdate, NodeCallbacks, NodeDriver, NodeDriverConfig,
    Planted, Role, Security,
};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_protocol::{Limits, MoveError, MoveId, NodeConfig};
use elastin_runtime::{Runtime, Settings};
use elastin_types::{ActivationEpoch, ActorId, Caller, NodeId};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::App;
use crate::retrying_remote::RetryingRemote;
use crate::usage::Capacity;
use crate::wire_versions;

/// How long a member may be silent before it counts as dead. Short, because processes on one machine are quick to answer;
/// a server whose process ends is noticed at once.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(3);

/// How long a server may be silent before others take over from it, unless somebody says otherwise.
pub(crate) const LEASE: Duration = Duration::from_secs(2 * LEASE_TTL.as_secs());

/// The time to live of a member from whom others are to take over when it has been silent for this long. Its lease lasts for the
/// first half. In the second half the others wait: somebody may have ended the lease early, and the member acts on for as long.
pub(crate) fn ttl_of(lease: Duration) -> Duration {
    lease / 2
}

/// A free port of this machine that others can't reach.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long a call waits that was given no deadline, so that a caller never waits for ever for what was lost on the way.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the driver of a member has for the part that steers it.
pub(crate) enum NodeEvent {
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
    to: mpsc::UnboundedSender<NodeEvent>,
    room: Arc<Semaphore>,
}

impl PassOn {
    fn new() -> (Self, mpsc::UnboundedReceiver<NodeEvent>) {
        let (to, below) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(FRAMES_WAITING_BYTES_MAX as usize));
        (Self { to, room }, below)
    }

    fn pass(&self, below: NodeEvent) {
        // A member that has ended needs nothing more.
        let _ = self.to.send(below);
    }
}

impl NodeCallbacks for PassOn {
    fn frame(&self, from: NodeId, class: Class, payload: Bytes) {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX).max(FRAME_BYTES_MIN);
        match Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            Ok(room) => self.pass(NodeEvent::Frame {
                from,
                class,
                payload,
                _room: room,
            }),
            Err(_) => tracing::warn!(%from, ?class, "a frame was dropped: too many wait already"),
        }
    }

    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        self.pass(NodeEvent::NeedPlacement {
            actor,
            caller,
            caller_node,
        });
    }

    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>) {
        self.pass(NodeEvent::MoveEnded { id, result });
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
    /// Whether who reads connections may look for frames for a moment before it sleeps.
    pub(crate) looks: bool,
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
            looks: !Capacity::find(None, None).is_rationed(),
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
    pub(crate) peer: NodeDriver,
    pub(crate) runtime: Runtime,
    /// What its driver has for whoever steers it, who takes it once.
    pub(crate) below: Option<mpsc::UnboundedReceiver<NodeEvent>>,
    pub(crate) heard: Option<mpsc::UnboundedReceiver<MembershipUpdate>>,
    pub(crate) membership: MembershipHandle,
    /// What it does wrong on purpose.
    pub(crate) planted: Planted,
    /// How its calls leave, if it hosts nobody.
    calls: Option<Arc<RetryingRemote>>,
}

/// A member that has joined, and has no runtime yet.
struct Joined {
    me: NodeId,
    peer: NodeDriver,
    below: mpsc::UnboundedReceiver<NodeEvent>,
    membership: Membership,
    planted: Planted,
}

impl Joined {
    /// Joins the application's cluster.
    async fn join(app: &App, options: MemberOptions) -> anyhow::Result<Joined> {
        let (listener, address) = match options.role {
            Role::Client => (None, None),
            Role::Server | Role::Supervisor => {
                check_addresses(options.listen, options.advertise, options.security.is_plain())?;
                let listener = TcpListener::bind(options.listen).await?;
                let address = options.advertise.map_or_else(|| listener.local_addr(), Ok)?;
                (Some(listener), Some(address))
            }
        };
        let mut record = MemberRecord::new(options.name, options.role, address);
        record.certificate = options.security.own_certificate();
        let versions = options.planted.wire_versions();
        record.wire_versions = Some(versions);
        wire_versions::check(&*options.coordination, versions).await?;
        let membership = Membership::join(options.coordination, record, options.lease_ttl, &options.clock).await?;
        let me = membership.me();
        let (pass_on, below) = PassOn::new();
        let config = NodeDriverConfig {
            cluster: app.cluster_name().into(),
            node: NodeConfig {
                me,
                hosts: options.role == Role::Server,
                limits: Limits::default(),
            },
            saved_types: app.saved_types().clone(),
            security: options.security,
            listener,
            looks: options.looks && app.busy_polls(),
            state: options.state,
            planted: options.planted,
        };
        Ok(Joined {
            me,
            peer: NodeDriver::new(config, Arc::new(pass_on)),
            below,
            membership,
            planted: options.planted,
        })
    }

    /// Takes part.
    fn take_part(self, runtime: Runtime, calls: Option<Arc<RetryingRemote>>) -> Member {
        self.peer.attach(runtime.clone());
        let (membership, heard) = self.membership.attend(self.peer.clone());
        Member {
            me: self.me,
            peer: self.peer,
            runtime,
            below: Some(self.below),
            heard: Some(heard),
            membership,
            planted: self.planted,
            calls,
        }
    }
}

impl Member {
    /// Joins the application's cluster.
    pub(crate) async fn join(app: &App, options: MemberOptions) -> anyhow::Result<Member> {
        let (cpu_share, clock) = (options.cpu_share, options.clock.clone());
        let hosts = options.role == Role::Server;
        let joined = Joined::join(app, options).await?;
        let settings = Settings {
            node: joined.me,
            cpu_share,
            default_deadline: Some(DEADLINE),
            idle_max: app.idle_max(),
            ..Settings::default()
        };
        let builder = Runtime::builder().settings(settings).clock(clock.clone());
        // Only a server knows the types: for everybody else every actor is elsewhere.
        if hosts {
            let runtime = app.register(builder).outside(joined.peer.outside()).build()?;
            return Ok(joined.take_part(runtime, None));
        }
        let calls = RetryingRemote::over(joined.me, joined.peer.outside(), clock);
        let runtime = builder.workers(1).outside(calls.clone()).build()?;
        calls.attach(&runtime.host());
        Ok(joined.take_part(runtime, Some(calls)))
    }

    /// Joins again, as a new member, after this one has [ended](NodeDriver::end). Whoever makes calls through this one's runtime makes
    /// them as the new one.
    ///
    /// # Panics
    /// If this one hosts actors: they ended with it.
    pub(crate) async fn join_again(&self, app: &App, options: MemberOptions) -> anyhow::Result<Member> {
        let calls = self.calls.clone().expect("a member that hosts nobody joins again");
        let joined = Joined::join(app, options).await?;
        let (me, outside) = (joined.me, joined.peer.outside());
        let member = joined.take_part(self.runtime.clone(), Some(Arc::clone(&calls)));
        calls.turn_to(me, outside);
        Ok(member)
    }

    /// The next thing that it hears of its cluster, before anybody steers it.
    pub(crate) async fn hear(&mut self) -> Option<MembershipUpdate> {
        self.heard.as_mut()?.recv().await
    }

    /// What the member hears, for whoever steers it.
    ///
    /// # Panics
    /// If somebody has taken it before.
    pub(crate) fn take_ears(
        &mut self,
    ) -> (
        mpsc::UnboundedReceiver<NodeEvent>,
        mpsc::UnboundedReceiver<MembershipUpdate>,
    ) {
        let receivers = self.below.take().zip(self.heard.take());
        receivers.expect("a member is steered by one task")
    }
}

/// Whether others can reach a member that listens at one address and says that it is at another, and whether nobody else can:
/// in plain text whoever reaches it is served. Both count, because nobody has to go by what it says.
fn check_addresses(listen: SocketAddr, advertise: Option<SocketAddr>, is_plain: bool) -> anyhow::Result<()> {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    let reached_at = advertise.unwrap_or(listen);
    anyhow::ensure!(
        !reached_at.ip().to_canonical().is_unspecified(),
        "others can't reach {reached_at}: say with `--advertise` where they can"
    );
    let leaves = [listen, reached_at].into_iter().find(|address| !is_loopback(*address));
    match leaves {
        Some(address) if is_plain => anyhow::bail!(
            "plain text does not leave the machine: {address} is not on the loopback interface, such as 127.0.0.1; to be reached \
             there a member needs `--certificates`, which `elastin ca issue` makes"
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, advertise: Option<&str>, is_plain: bool) -> Result<(), String> {
        let parse = |text: &str| text.parse().unwrap();
        check_addresses(parse(listen), advertise.map(parse), is_plain).map_err(|error| error.to_string())
    }

    #[test]
    fn plain_text_stays_on_the_loopback_interface_whatever_is_advertised() {
        for (listen, advertise) in [
            ("127.0.0.1:0", None),
            ("127.0.0.1:7700", Some("127.0.0.1:7701")),
            ("[::1]:0", None),
            ("[::ffff:127.0.0.1]:0", None),
        ] {
            assert_eq!(check(listen, advertise, true), Ok(()), "{listen} {advertise:?}");
        }
        for (listen, advertise, named) in [
            ("0.0.0.0:7700", Some("127.0.0.1:7700"), "0.0.0.0:7700"),
            ("[::]:7700", Some("[::1]:7700"), "[::]:7700"),
            ("10.0.0.11:7700", None, "10.0.0.11:7700"),
            ("10.0.0.11:7700", Some("127.0.0.1:7700"), "10.0.0.11:7700"),
            ("127.0.0.1:7700", Some("10.0.0.11:7700"), "10.0.0.11:7700"),
        ] {
            let refused = check(listen, advertise, true).expect_err("others could reach it");
            assert!(
                refused.contains(&format!("{named} is not on the loopback interface"))
                    && refused.contains("`--certificates`"),
                "{refused}"
            );
            assert_eq!(check(listen, advertise, false), Ok(()), "{listen} {advertise:?} in TLS");
        }
    }

    #[test]
    fn a_member_says_where_others_reach_it() {
        for (listen, advertise) in [
            ("0.0.0.0:7700", None),
            ("[::]:7700", None),
            ("[::ffff:0.0.0.0]:7700", None),
            ("10.0.0.11:7700", Some("0.0.0.0:7700")),
        ] {
            let refused = check(listen, advertise, false).expect_err("nobody can reach it");
            assert!(refused.contains("`--advertise`"), "{refused}");
        }
        assert_eq!(check("0.0.0.0:7700", Some("10.0.0.11:7700"), false), Ok(()));
    }

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
