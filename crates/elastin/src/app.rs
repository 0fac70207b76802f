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

/// Where an application starts.
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

/// An application: its actors and its policy. The same program runs as a node, as the supervisor of an embedded cluster, and
/// as a tool that checks policies: see [`App::main`].
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

/// What is wrong with an application. It can't be run before that is mended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Its actor types don't go together.
    #[error(transparent)]
    Actors(#[from] SchemaError),
    /// Its policy is wrong; the text shows where and why.
    #[error("{0}")]
    Policy(String),
}

impl App {
    /// Gives the application a name; its cluster is called so too.
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

    /// Ends the activations of actors that have been idle for so long. The next message activates them again, from what
    /// was saved. Without it they stay in memory for as long as their server lives.
    pub fn passivate_after(mut self, idle_max: Duration) -> Self {
        self.idle_max = Some(idle_max);
        self
    }

    /// Lets servers and clients sleep at once when there is no mail, or no reply yet, instead of looking for it for up to 100 µs, as
    /// long as that pays. They use less of the processor then, and lone calls take longer. Processes whose control group rations
    /// their cores never look.
    pub fn without_busy_poll(mut self) -> Self {
        self.busy_poll = false;
        self
    }

    /// Whether processes may look for mail before they sleep.
    pub(crate) fn busy_polls(&self) -> bool {
        self.busy_poll
    }

    /// The actor types: what policies can name.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Checks the actors and the policy that comes with them. What is odd about the policy but no error comes back as text
    /// for people; it is empty if there is nothing to say.
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

    /// Runs the program as its arguments say: as an embedded cluster, as a node, or as a tool. `--help` lists what there is.
    pub fn main(self) -> ExitCode {
        crate::command::main(self)
    }

    /// Runs the program as a node if the arguments after the program's own say so: `arguments` begins with `node`. For
    /// programs that have subcommands of their own and start servers with
    /// [`EmbeddedBuilder::node_arguments`](crate::EmbeddedBuilder::node_arguments).
    pub fn run(self, arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
        crate::command::run(self, arguments)
    }

    /// What its cluster is called.
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
