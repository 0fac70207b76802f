//! A server: hosts actors, measures them, and lets its local elasticity manager decide about them. In a cluster without
//! a supervisor one of the servers also runs the global manager.
//!
//! `joining` makes it a member, `event_loop` holds its state and handles events, `managers` executes the commands of
//! the elasticity managers, `period` measures, and `leaving` drains it.

mod evacuation;
mod event_loop;
mod joining;
#[cfg(test)]
mod joining_tests;
mod leaving;
mod managers;
mod period;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use elastin_clock::Clock;
use elastin_cluster::{NodeDriver, Planted, Role, Security};
use elastin_runtime::Runtime;
use elastin_stores::MeasuredState;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use crate::App;
use crate::address::{ClusterAddress, Stores};
use crate::member::MemberOptions;
use crate::metrics::{LastPeriod, ServerMetrics};
use crate::settings::ClusterSettings;
use crate::trust;
use crate::usage::Capacity;
use event_loop::Server;

/// The time in which a stopping server lets its actors finish and save: well within the time that its supervisor waits
/// for it.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// Options of a server.
pub(crate) struct NodeOptions {
    /// The server's name.
    pub(crate) name: String,
    /// The share of a core that it may use.
    pub(crate) cpu_share: Option<f64>,
    /// Whether its connection readers may busy-poll, if it has unrestricted use of its cores.
    pub(crate) busy_poll: bool,
    /// The address that it accepts connections on.
    pub(crate) listen: SocketAddr,
    /// The address that other members dial, if it differs from `listen`.
    pub(crate) advertise: Option<SocketAddr>,
    /// The TTL of its lease.
    pub(crate) lease_ttl: Duration,
    /// The elasticity period of the cluster, if this is its first server.
    pub(crate) period: Duration,
    /// Planted bugs, for tests.
    pub(crate) planted: Planted,
    /// The capacity of the network, in megabits per second.
    pub(crate) net_mbit: Option<f64>,
    /// The address to serve metrics at.
    pub(crate) metrics: Option<SocketAddr>,
    /// Its clock.
    pub(crate) clock: Clock,
}

/// Runs a server as a process, until its supervisor or a signal ends it, or it is no longer a member.
pub(crate) async fn run(app: App, address: ClusterAddress, options: NodeOptions) -> anyhow::Result<()> {
    let credentials = address.credentials(app.cluster_name())?;
    let stores = address.open(app.cluster_name(), &credentials).await?;
    let supervised = address.is_supervised();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let leave_signal = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            // An interrupt from the keyboard reaches the whole process group, and the supervisor ends its servers.
            _ = interrupt.recv(), if !supervised => {}
        }
    };
    let context = ClusterContext {
        stores,
        security: credentials.security,
        supervised,
    };
    let stop_signal = async move {
        match supervised {
            true => supervisor_ended().await,
            false => std::future::pending().await,
        }
    };
    serve(app, context, options, leave_signal, stop_signal, |_, _| {}).await
}

/// The cluster that a server belongs to.
pub(crate) struct ClusterContext {
    pub(crate) stores: Stores,
    pub(crate) security: Security,
    /// Whether there is a supervisor that starts and ends servers.
    pub(crate) supervised: bool,
}

/// Runs a server until it has left or is no longer a member.
///
/// `leave_signal` drains it before it leaves, `stop_signal` stops it with the actors that it has. `joined` is called
/// with its parts once it has joined.
pub(crate) async fn serve(
    app: App,
    context: ClusterContext,
    options: NodeOptions,
    leave_signal: impl Future<Output = ()>,
    stop_signal: impl Future<Output = ()>,
    joined: impl FnOnce(&Runtime, &NodeDriver),
) -> anyhow::Result<()> {
    let (mut leave_signal, mut stop_signal) = (pin!(leave_signal), pin!(stop_signal));
    let Stores { coordination, state } = context.stores;
    let settings = if context.supervised {
        ClusterSettings::load(&coordination).await?
    } else {
        let settings = ClusterSettings::of_first_server(app.policy_source().clone(), options.period);
        settings.load_or_store(&coordination).await?
    };
    trust::agree(&coordination, &context.security).await?;
    let policy = Arc::new(app.compile(&settings.policy)?);
    #[cfg(feature = "planted-bugs")]
    let state = if options.planted.no_store_fence {
        crate::unfenced::Unfenced::over(state)
    } else {
        state
    };
    let state = Arc::new(MeasuredState::new(state));
    let capacity = Capacity::find(options.cpu_share, options.net_mbit);
    let member = MemberOptions {
        planted: options.planted,
        cpu_share: options.cpu_share,
        busy_poll: options.busy_poll && !capacity.is_rationed(),
        listen: options.listen,
        advertise: options.advertise,
        lease_ttl: options.lease_ttl,
        clock: options.clock,
        ..MemberOptions::new(
            options.name.clone(),
            Role::Server,
            coordination,
            state.clone(),
            context.security,
        )
    };
    // Other members may already route to this server before its own join returns. So a signal during the join does not
    // abort it: the server joins first and then leaves like any other.
    let mut leave_requested = false;
    let leave_timeout = async {
        leave_signal.as_mut().await;
        leave_requested = true;
        tokio::time::sleep(SHUTDOWN_TIME_MAX).await;
    };
    let (member, roster) = tokio::select! {
        joined = joining::join(&app, &member) => joined?,
        () = leave_timeout => {
            tracing::warn!("stopping before the join completed: the coordination store does not answer");
            return Ok(());
        }
        () = &mut stop_signal => return Ok(()),
    };
    let leave_signal = async {
        if !leave_requested {
            leave_signal.await;
        }
    };
    tracing::info!(name = options.name, node = %member.me, "this server has joined");
    joined(&member.runtime, &member.driver);
    let (membership, runtime) = (member.membership.clone(), member.runtime.clone());
    let last_period = Arc::new(Mutex::new(LastPeriod::default()));
    let metrics = ServerMetrics {
        name: options.name,
        runtime: member.runtime.clone(),
        driver: member.driver.clone(),
        state,
        last_period: Arc::clone(&last_period),
    };
    let _metrics = metrics.serve(options.metrics).await;
    let mut server = Server::new(member, policy, settings, capacity);
    server.last_period = last_period;
    tokio::select! {
        ended = server.run(roster, leave_signal) => ended?,
        () = &mut stop_signal => {}
    }
    if !runtime.shutdown(SHUTDOWN_TIME_MAX).await {
        tracing::warn!("some actors did not finish in time");
    }
    membership.leave().await;
    tracing::info!("this server has left");
    Ok(())
}

/// Completes at the end of standard input, which is a pipe that the supervisor holds open.
async fn supervisor_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
