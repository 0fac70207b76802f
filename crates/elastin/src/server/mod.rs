//! A server: hosts actors, measures them, and lets its local elasticity manager decide about them. One of the servers of a
//! cluster without a supervisor also runs the global manager.
//!
//! `joining` makes it a member, `server` is what it has and how it hears of things, `managers` carries out what elasticity managers want, `period` measures,
//! `leaving` empties it and lets it go.

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

/// How long a server that was told to go lets its actors finish and be saved: well within what its supervisor waits for it.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// What a server is started with.
pub(crate) struct NodeOptions {
    /// The server's name.
    pub(crate) name: String,
    /// The share of a core that it may use.
    pub(crate) cpu_share: Option<f64>,
    /// Whether it may look for mail for a moment before it sleeps, if its cores are its own.
    pub(crate) busy_poll: bool,
    /// Where it accepts connections.
    pub(crate) listen: SocketAddr,
    /// Where others reach it, if that is not where it listens.
    pub(crate) advertise: Option<SocketAddr>,
    /// How long it may be silent before it counts as dead.
    pub(crate) lease_ttl: Duration,
    /// The elasticity period of the cluster, if this is its first server.
    pub(crate) period: Duration,
    /// What it does wrong on purpose.
    pub(crate) planted: Planted,
    /// What the network can carry, in megabits per second.
    pub(crate) net_mbit: Option<f64>,
    /// Where to serve metrics.
    pub(crate) metrics: Option<SocketAddr>,
    /// Its clock.
    pub(crate) clock: Clock,
}

/// Runs a server as a process, until its supervisor or a signal ends it or it is no longer a member.
pub(crate) async fn run(app: App, address: ClusterAddress, options: NodeOptions) -> anyhow::Result<()> {
    let credentials = address.credentials(app.cluster_name())?;
    let stores = address.open(app.cluster_name(), &credentials).await?;
    let supervised = address.is_supervised();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let told_to_leave = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            // An interrupt from the keyboard goes to a whole embedded cluster, whose supervisor ends its servers.
            _ = interrupt.recv(), if !supervised => {}
        }
    };
    let place = Place {
        stores,
        security: credentials.security,
        supervised,
    };
    let told_to_end = async move {
        match supervised {
            true => supervisor_ended().await,
            false => std::future::pending().await,
        }
    };
    serve(app, place, options, told_to_leave, told_to_end, |_, _| {}).await
}

/// The cluster that a server is part of.
pub(crate) struct Place {
    pub(crate) stores: Stores,
    pub(crate) security: Security,
    /// Whether there is a supervisor that starts and ends servers.
    pub(crate) supervised: bool,
}

/// Runs a server until it has left, which it begins to do when it is told to; until it is told to end with what it has; or
/// until it is no longer a member. `joined` gets its parts when it takes part.
pub(crate) async fn serve(
    app: App,
    place: Place,
    options: NodeOptions,
    told_to_leave: impl Future<Output = ()>,
    told_to_end: impl Future<Output = ()>,
    joined: impl FnOnce(&Runtime, &NodeDriver),
) -> anyhow::Result<()> {
    let (mut told_to_leave, mut told_to_end) = (pin!(told_to_leave), pin!(told_to_end));
    let Stores { coordination, state } = place.stores;
    let settings = if place.supervised {
        ClusterSettings::load(&coordination).await?
    } else {
        let settings = ClusterSettings::of_first_server(app.policy_source().clone(), options.period);
        settings.load_or_store(&coordination).await?
    };
    trust::agree(&coordination, &place.security).await?;
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
        looks: options.busy_poll && !capacity.is_rationed(),
        listen: options.listen,
        advertise: options.advertise,
        lease_ttl: options.lease_ttl,
        clock: options.clock,
        ..MemberOptions::new(
            options.name.clone(),
            Role::Server,
            coordination,
            state.clone(),
            place.security,
        )
    };
    // Others may know it, and send to it, before it knows that it has joined: so it leaves as any other, once it has.
    let mut was_told_to_leave = false;
    let told_and_stuck = async {
        told_to_leave.as_mut().await;
        was_told_to_leave = true;
        tokio::time::sleep(SHUTDOWN_TIME_MAX).await;
    };
    let (member, roster) = tokio::select! {
        takes_part = joining::take_part(&app, &member) => takes_part?,
        () = told_and_stuck => {
            tracing::warn!("this server was told to leave while it joined, and does not wait for its coordination store");
            return Ok(());
        }
        () = &mut told_to_end => return Ok(()),
    };
    let told_to_leave = async {
        if !was_told_to_leave {
            told_to_leave.await;
        }
    };
    tracing::info!(name = options.name, node = %member.me, "this server has joined");
    joined(&member.runtime, &member.peer);
    let (membership, runtime) = (member.membership.clone(), member.runtime.clone());
    let last_period = Arc::new(Mutex::new(LastPeriod::default()));
    let metrics = ServerMetrics {
        name: options.name,
        runtime: member.runtime.clone(),
        peer: member.peer.clone(),
        state,
        last_period: Arc::clone(&last_period),
    };
    let _metrics = metrics.serve(options.metrics).await;
    let mut server = Server::new(member, policy, settings, capacity);
    server.last_period = last_period;
    tokio::select! {
        ended = server.run(roster, told_to_leave) => ended?,
        () = &mut told_to_end => {}
    }
    if !runtime.shutdown(SHUTDOWN_TIME_MAX).await {
        tracing::warn!("some actors did not come to an end in time");
    }
    membership.leave().await;
    tracing::info!("this server has left");
    Ok(())
}

/// Ends when standard input does: it is a pipe that the supervisor holds.
async fn supervisor_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
