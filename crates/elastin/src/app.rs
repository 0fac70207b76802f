//! An application: its actors and its policy.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use elastin_actor::{Handlers, schema_of};
use elastin_policy::{Compiled, Policy};
use elastin_runtime::Builder;
use elastin_types::{ActorType, Schema, SchemaError};

use crate::PolicySource;
use crate::embedded::EmbeddedBuilder;
use crate::in_process::InProcessBuilder;

/// The entry point: [`Elastin::app`].
pub struct Elastin;

impl Elastin {
    /// An application without actors.
    pub fn app() -> App {
        App {
            name: "app".into(),
            registrations: Vec::new(),
            schema: Schema::default(),
            saved_types: BTreeSet::new(),
            first_error: None,
            policy: PolicySource::none(),
            idle_max: None,
            busy_poll: true,
        }
    }
}

/// An application: its actors and its policy. The same program runs as a node, as the supervisor of an embedded
/// cluster, and as a tool that checks policies: see [`App::main`].
#[derive(Clone)]
pub struct App {
    name: String,
    registrations: Vec<fn(Builder) -> Builder>,
    schema: Schema,
    saved_types: BTreeSet<ActorType>,
    first_error: Option<SchemaError>,
    policy: PolicySource,
    idle_max: Option<Duration>,
    busy_poll: bool,
}

/// An error in an application's definition. The application can't run until it is fixed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Its actor types conflict.
    #[error(transparent)]
    Actors(#[from] SchemaError),
    /// Its policy has errors; the text shows where and why.
    #[error("{0}")]
    Policy(String),
}

impl App {
    /// Sets the name of the application and of its cluster.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an actor type. Adding one twice is an error that shows when the application starts.
    pub fn actor<A: Handlers>(mut self) -> Self {
        match self.schema.add(schema_of::<A>()) {
            Ok(()) => self.registrations.push(|builder| builder.register::<A>()),
            Err(error) => drop(self.first_error.get_or_insert(error)),
        }
        if A::PERSIST.is_kept() {
            self.saved_types.insert(A::KIND);
        }
        self
    }

    /// Sets the policy of a new cluster: `.policy(policy!("folder.epl"))`.
    pub fn policy(mut self, policy: PolicySource) -> Self {
        self.policy = policy;
        self
    }

    /// Passivates actors that have been idle for this long. The next message activates them again, from their saved
    /// state. Without it, actors stay in memory for as long as their server runs.
    pub fn passivate_after(mut self, idle_max: Duration) -> Self {
        self.idle_max = Some(idle_max);
        self
    }

    /// Makes servers and clients park at once when no message or reply is pending, instead of busy-polling for a
    /// moment: ordinary tokio tasks read and write their connections. They use less CPU time while they wait, and
    /// single calls take longer. Processes whose control group limits their cores never busy-poll.
    pub fn without_busy_poll(mut self) -> Self {
        self.busy_poll = false;
        self
    }

    /// Whether processes may busy-poll before they park.
    pub(crate) fn busy_polls(&self) -> bool {
        self.busy_poll
    }

    /// The actor types that policies can name.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Checks the actors and their policy. Returns the policy's warnings as text, which is empty if there are none.
    pub fn check(&self) -> Result<String, AppError> {
        if let Some(error) = &self.first_error {
            return Err(error.clone().into());
        }
        self.compile_and_warn(&self.policy)
            .map(|compiled| compiled.warnings.render())
    }

    /// An embedded cluster of this application: server processes of this program on this machine.
    pub fn embedded(&self) -> EmbeddedBuilder {
        EmbeddedBuilder::new(self.clone())
    }

    /// A cluster of this application whose servers are all in this process, for tests.
    pub fn in_process(&self) -> InProcessBuilder {
        InProcessBuilder::new(self.clone())
    }

    /// Runs the program with the arguments of the process: as an embedded cluster, as a node, or as a tool. `--help`
    /// lists the commands.
    pub fn main(self) -> ExitCode {
        crate::command::main(self)
    }

    /// Runs the program with these arguments, which begin with `node`. For programs that have subcommands of their own
    /// and start servers with [`EmbeddedBuilder::node_arguments`](crate::EmbeddedBuilder::node_arguments).
    pub fn run(self, arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
        crate::command::run(self, arguments)
    }

    /// The name of its cluster.
    pub fn cluster_name(&self) -> &str {
        &self.name
    }

    pub(crate) fn saved_types(&self) -> &BTreeSet<ActorType> {
        &self.saved_types
    }

    pub(crate) fn idle_max(&self) -> Option<Duration> {
        self.idle_max
    }

    pub(crate) fn policy_source(&self) -> &PolicySource {
        &self.policy
    }

    pub(crate) fn register(&self, builder: Builder) -> Builder {
        self.registrations
            .iter()
            .fold(builder, |builder, register| register(builder))
    }

    pub(crate) fn compile(&self, source: &PolicySource) -> Result<Policy, AppError> {
        self.compile_and_warn(source).map(|compiled| compiled.policy)
    }

    fn compile_and_warn(&self, source: &PolicySource) -> Result<Compiled, AppError> {
        elastin_policy::compile(&source.file_name, &source.text, &self.schema)
            .map_err(|diagnostics| AppError::Policy(diagnostics.render()))
    }
}
