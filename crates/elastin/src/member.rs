//! A member of a cluster: membership, a node driver and a runtime. Servers, clients and supervisors are all built on
//! it.

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

/// Default lease TTL of a member. Short, because processes on one machine answer quickly, and a supervisor notices the
/// end of a server's process at once.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(3);

/// Default time without a renewal after which other servers take over from a member.
pub(crate) const LEASE: Duration = Duration::from_secs(2 * LEASE_TTL.as_secs());

/// The TTL of a member whose actors are taken over `lease` after its last renewal.
///
/// The lease covers the first half. The others wait for the second half: an operator may have revoked the lease early,
/// and the member acts on it until its own copy expires.
pub(crate) fn ttl_of(lease: Duration) -> Duration {
    lease / 2
}

/// An ephemeral port on the loopback interface.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The deadline of calls that were given none, so that a lost reply never blocks a caller for ever.
const DEADLINE: Duration = Duration::from_secs(30);

/// An event that the node driver passes to the member's event loop.
pub(crate) enum NodeEvent {
    /// A frame of class control or admin.
    Frame {
        from: NodeId,
        class: Class,
        payload: Bytes,
        /// The frame's share of [`PENDING_FRAME_BYTES_MAX`], held until the frame is handled.
        _permit: OwnedSemaphorePermit,
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

/// The bytes of control and admin frames that may be pending for the event loop. Peers decide how much they send, so
/// frames beyond it are dropped. Managers send again in their next period, and operators retry.
const PENDING_FRAME_BYTES_MAX: u32 = 64 << 20;

/// The least that a frame counts for, so that many small frames can't fill memory either.
const FRAME_BYTES_MIN: u32 = 256;

/// Queues events for the member's event loop, so that the driver never blocks on it.
struct EventForwarder {
    events: mpsc::UnboundedSender<NodeEvent>,
    frame_budget: Arc<Semaphore>,
}

impl EventForwarder {
    fn new() -> (Self, mpsc::UnboundedReceiver<NodeEvent>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let frame_budget = Arc::new(Semaphore::new(PENDING_FRAME_BYTES_MAX as usize));
        (Self { events, frame_budget }, receiver)
    }

    fn forward(&self, event: NodeEvent) {
        // Fails only after the event loop has ended, when events no longer matter.
        let _ = self.events.send(event);
    }
}

impl NodeCallbacks for EventForwarder {
    fn frame(&self, from: NodeId, class: Class, payload: Bytes) {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX).max(FRAME_BYTES_MIN);
        match Arc::clone(&self.frame_budget).try_acquire_many_owned(bytes) {
            Ok(permit) => self.forward(NodeEvent::Frame {
                from,
                class,
                payload,
                _permit: permit,
            }),
            Err(_) => tracing::warn!(%from, ?class, "dropped a frame: too many are pending"),
        }
    }

    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        self.forward(NodeEvent::NeedPlacement {
            actor,
            caller,
            caller_node,
        });
    }

    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>) {
        self.forward(NodeEvent::MoveEnded { id, result });
    }
}

/// Options for joining as a member.
#[derive(Clone)]
pub(crate) struct MemberOptions {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cpu_share: Option<f64>,
    /// Whether connection readers may busy-poll before they park.
    pub(crate) busy_poll: bool,
    /// The address that a server or supervisor accepts connections on.
    pub(crate) listen: SocketAddr,
    /// The address that other members dial, if it differs from `listen`.
    pub(crate) advertise: Option<SocketAddr>,
    /// The TTL of its lease.
    pub(crate) lease_ttl: Duration,
    /// The clock of its leases, deadlines and timers.
    pub(crate) clock: Clock,
    /// The authentication of other members.
    pub(crate) security: Security,
    /// Planted bugs, for tests.
    pub(crate) planted: Planted,
}

impl MemberOptions {
    /// Defaults: a loopback listener and no CPU limit.
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
            busy_poll: !Capacity::find(None, None).is_rationed(),
            listen: LOOPBACK,
            advertise: None,
            lease_ttl: LEASE_TTL,
            clock: Clock::start(),
            security,
            planted: Planted::default(),
        }
    }
}

/// A running member of a cluster, with the receivers of its events.
pub(crate) struct Member {
    pub(crate) me: NodeId,
    pub(crate) driver: NodeDriver,
    pub(crate) runtime: Runtime,
    /// Events of the driver; `None` once the event loop has taken them.
    pub(crate) events: Option<mpsc::UnboundedReceiver<NodeEvent>>,
    /// Changes of the membership; `None` once the event loop has taken them.
    pub(crate) membership_updates: Option<mpsc::UnboundedReceiver<MembershipUpdate>>,
    pub(crate) membership: MembershipHandle,
    /// Planted bugs, for tests.
    pub(crate) planted: Planted,
    /// Retries undelivered calls; only for members that host no actors.
    calls: Option<Arc<RetryingRemote>>,
}

/// A member that has joined and has no runtime yet.
struct Joined {
    me: NodeId,
    driver: NodeDriver,
    events: mpsc::UnboundedReceiver<NodeEvent>,
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
        let (forwarder, events) = EventForwarder::new();
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
            busy_poll: options.busy_poll && app.busy_polls(),
            state: options.state,
            planted: options.planted,
        };
        Ok(Joined {
            me,
            driver: NodeDriver::new(config, Arc::new(forwarder)),
            events,
            membership,
            planted: options.planted,
        })
    }

    /// Attaches the runtime and starts to follow the membership.
    fn activate(self, runtime: Runtime, calls: Option<Arc<RetryingRemote>>) -> Member {
        self.driver.attach(runtime.clone());
        let (membership, membership_updates) = self.membership.attend(self.driver.clone());
        Member {
            me: self.me,
            driver: self.driver,
            runtime,
            events: Some(self.events),
            membership_updates: Some(membership_updates),
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
        // Only servers register actor types. For clients and supervisors every actor is remote.
        if hosts {
            let runtime = app.register(builder).remote(joined.driver.remote()).build()?;
            return Ok(joined.activate(runtime, None));
        }
        let calls = RetryingRemote::over(joined.me, joined.driver.remote(), clock);
        let runtime = builder.workers(1).remote(calls.clone()).build()?;
        calls.attach(&runtime.host());
        Ok(joined.activate(runtime, Some(calls)))
    }

    /// Rejoins as a new member, after this one has [ended](NodeDriver::end). The new member takes over the runtime, so
    /// existing clients keep working.
    ///
    /// # Panics
    /// If this member hosts actors: they ended with it.
    pub(crate) async fn rejoin(&self, app: &App, options: MemberOptions) -> anyhow::Result<Member> {
        let calls = self.calls.clone().expect("only a member without actors rejoins");
        let joined = Joined::join(app, options).await?;
        let (me, remote) = (joined.me, joined.driver.remote());
        let member = joined.activate(self.runtime.clone(), Some(Arc::clone(&calls)));
        calls.switch_to(me, remote);
        Ok(member)
    }

    /// The next membership update, for use before an event loop has taken the receivers.
    pub(crate) async fn next_update(&mut self) -> Option<MembershipUpdate> {
        self.membership_updates.as_mut()?.recv().await
    }

    /// Hands the receivers to the member's event loop.
    ///
    /// # Panics
    /// If they were taken before.
    pub(crate) fn take_receivers(
        &mut self,
    ) -> (
        mpsc::UnboundedReceiver<NodeEvent>,
        mpsc::UnboundedReceiver<MembershipUpdate>,
    ) {
        let receivers = self.events.take().zip(self.membership_updates.take());
        receivers.expect("a member has one event loop")
    }
}

/// Checks that other members can reach the advertised address, and that plain text stays on the loopback interface.
///
/// In plain text every process that can connect is served. So both addresses count: a process may dial the listener
/// directly.
fn check_addresses(listen: SocketAddr, advertise: Option<SocketAddr>, is_plain: bool) -> anyhow::Result<()> {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    let reached_at = advertise.unwrap_or(listen);
    anyhow::ensure!(
        !reached_at.ip().to_canonical().is_unspecified(),
        "other members can't reach {reached_at}: pass the address that they can reach with `--advertise`"
    );
    let leaves = [listen, reached_at].into_iter().find(|address| !is_loopback(*address));
    match leaves {
        Some(address) if is_plain => anyhow::bail!(
            "{address} is not on the loopback interface, and plain text must not leave the machine: pass `--certificates` with a \
             directory that `elastin ca issue` has made, or use an address such as 127.0.0.1"
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
    fn plain_text_is_refused_off_the_loopback_interface() {
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
            let refused = check(listen, advertise, true).expect_err("other machines could reach it");
            assert!(
                refused.contains(&format!("{named} is not on the loopback interface"))
                    && refused.contains("`--certificates`"),
                "{refused}"
            );
            assert_eq!(check(listen, advertise, false), Ok(()), "{listen} {advertise:?} in TLS");
        }
    }

    #[test]
    fn an_unspecified_address_can_not_be_advertised() {
        for (listen, advertise) in [
            ("0.0.0.0:7700", None),
            ("[::]:7700", None),
            ("[::ffff:0.0.0.0]:7700", None),
            ("10.0.0.11:7700", Some("0.0.0.0:7700")),
        ] {
            let refused = check(listen, advertise, false).expect_err("the address is unreachable");
            assert!(refused.contains("`--advertise`"), "{refused}");
        }
        assert_eq!(check("0.0.0.0:7700", Some("10.0.0.11:7700"), false), Ok(()));
    }

    #[test]
    fn pending_frames_are_bounded_until_they_are_handled() {
        let (forwarder, mut events) = EventForwarder::new();
        let payload = Bytes::from(vec![0; 16 << 20]);
        let receive = |payload: &Bytes| forwarder.frame(NodeId(7), Class::Admin, payload.clone());
        for _ in 0..5 {
            receive(&payload);
        }
        assert_eq!(events.len(), 4, "the fifth frame is dropped");
        receive(&Bytes::new());
        assert_eq!(events.len(), 4, "an empty frame counts too");
        forwarder.move_ended(MoveId(1), Err(MoveError::Ended));
        assert_eq!(events.len(), 5, "events of the node itself are never dropped");
        drop(events.try_recv());
        receive(&payload);
        assert_eq!(events.len(), 5);
    }
}
