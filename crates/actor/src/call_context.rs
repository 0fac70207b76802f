//! The context that calls inherit from the turn that makes them, and the context of a message.
//!
//! Both are created at every call, so they are small. Rare parts are behind one shared pointer. A chain gets its id
//! only when a comparison becomes possible. The full [`Header`] is only built for messages that leave the process.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{CallId, Caller, ChainId, Header, Message, NodeId, RequestContext, TenantId, Time, TraceContext};

use crate::host::Host;
use crate::tuning::VALUES_MAX;

/// The deadline of a call that has none.
pub(crate) const NEVER: Time = Time(u64::MAX);

/// Additions of a call to the inherited context. Boxed, because most calls add nothing.
pub(crate) type AddedValues = Option<Box<Added>>;

/// Additions of a call to the inherited context.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// Values of the request context.
    pub(crate) values: Vec<(Box<str>, Box<str>)>,
    /// Overrides the trace context of the calling turn.
    pub(crate) trace: Option<TraceContext>,
}

/// The chain of a call context without an id. INVARIANT: a chain gets an id before any of its calls waits off the calling
/// turn's stack, so turns that could wait for each other always have one.
const NEW_CHAIN: ChainId = ChainId(CallId {
    origin: NodeId(u64::MAX),
    sequence: u64::MAX,
});

/// The context that a turn passes on to the calls it makes.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    /// [`NEW_CHAIN`] if it has no id.
    chain: ChainId,
    /// [`NEVER`] if there is none.
    pub(crate) deadline: Time,
    pub(crate) tenant: TenantId,
    extras: Option<Arc<Extras>>,
}

/// The rare parts of a call context.
#[derive(Clone, Debug, Default)]
struct Extras {
    trace: Option<TraceContext>,
    source_time_ms: u64,
    values: Option<RequestContext>,
}

impl CallContext {
    /// The context of a call outside any turn.
    pub(crate) const fn new(tenant: TenantId) -> Self {
        Self {
            chain: NEW_CHAIN,
            deadline: NEVER,
            tenant,
            extras: None,
        }
    }

    /// The chain's id, if it has one.
    #[inline]
    pub(crate) fn chain(&self) -> Option<ChainId> {
        (self.chain != NEW_CHAIN).then_some(self.chain)
    }

    /// Sets the chain's id.
    pub(crate) fn set_chain(&mut self, chain: ChainId) {
        self.chain = chain;
    }

    /// The context of a tell: a new chain and no deadline. Its sender does not wait, so it can't close a cycle and may
    /// outlive the sending turn.
    #[inline]
    pub(crate) fn detached(&self) -> Self {
        Self {
            extras: self.extras.clone(),
            ..Self::new(self.tenant)
        }
    }

    /// Applies a call's additions.
    #[inline]
    pub(crate) fn add(&mut self, added: AddedValues) {
        if let Some(added) = added {
            self.add_extras(*added);
        }
    }

    #[cold]
    fn add_extras(&mut self, added: Added) {
        let mut extras = self.extras.take().map_or_else(Extras::default, Arc::unwrap_or_clone);
        if !added.values.is_empty() {
            extras.values = Some(with_added(extras.values.as_ref(), added.values));
        }
        extras.trace = added.trace.or(extras.trace);
        self.extras = Some(Arc::new(extras));
    }

    /// The trace context.
    #[inline]
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.extras.as_ref()?.trace
    }

    /// Replaces the trace context.
    pub(crate) fn set_trace(&mut self, trace: TraceContext) {
        let mut extras = self.extras.take().map_or_else(Extras::default, Arc::unwrap_or_clone);
        extras.trace = Some(trace);
        self.extras = Some(Arc::new(extras));
    }

    /// The request context values.
    pub(crate) fn values(&self) -> Option<&RequestContext> {
        self.extras.as_ref()?.values.as_ref()
    }

    /// Drops all parts that are not plain data.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.extras.is_some() {
            self.extras = None;
        }
    }

    fn of_header(header: &Header) -> (Self, Origin) {
        let has_extras = header.trace.is_some() || header.source_time_ms != 0 || header.context.is_some();
        let extras = has_extras.then(|| {
            Arc::new(Extras {
                trace: header.trace,
                source_time_ms: header.source_time_ms,
                values: header.context.clone(),
            })
        });
        let call_context = Self {
            chain: header.chain,
            deadline: header.deadline.unwrap_or(NEVER),
            tenant: header.tenant,
            extras,
        };
        let origin = Origin {
            caller: header.caller.clone(),
            from: header.call.origin,
        };
        (call_context, origin)
    }
}

/// The request context values of a call: the inherited ones, overridden and extended by the call's own. The oldest are
/// dropped beyond [`VALUES_MAX`].
fn with_added(inherited: Option<&RequestContext>, added: Vec<(Box<str>, Box<str>)>) -> RequestContext {
    let is_added = |name: &str| added.iter().any(|(new, _)| **new == *name);
    let kept = inherited.into_iter().flat_map(|values| values.iter());
    let mut values: Vec<_> = kept.filter(|(name, _)| !is_added(name)).cloned().collect();
    values.extend(added);
    let surplus = values.len().saturating_sub(VALUES_MAX);
    values.split_off(surplus).into()
}

/// The caller and its node.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) caller: Caller,
    /// The caller's node, or [`HERE`].
    pub(crate) from: NodeId,
}

/// Placeholder for this node's id, which saves the lookup of the real one.
pub(crate) const HERE: NodeId = NodeId(u64::MAX);

/// The context of a message: everything but its arguments.
#[derive(Debug)]
pub struct MessageContext(Inner);

#[derive(Debug)]
enum Inner {
    /// Sent within this process.
    Here {
        caller: Caller,
        call_context: CallContext,
        one_way: bool,
    },
    /// Received from another process; it may have to be forwarded unchanged. Only the header of the message is left.
    Received(Arc<Message>),
}

impl MessageContext {
    #[inline]
    pub(crate) fn here(caller: Caller, call_context: CallContext, one_way: bool) -> Self {
        Self(Inner::Here {
            caller,
            call_context,
            one_way,
        })
    }

    /// The context of a turn without a caller, such as a hook: it runs for the actor's own tenant and has no reply.
    pub fn own(caller: Caller, tenant: TenantId) -> Self {
        Self::here(caller, CallContext::new(tenant), true)
    }

    /// The context of a received message. Drops the encoded arguments if the message is not shared.
    pub(crate) fn received(mut message: Arc<Message>) -> Self {
        if let Some(message) = Arc::get_mut(&mut message) {
            message.body = Bytes::new();
        }
        Self(Inner::Received(message))
    }

    /// Whether no reply is expected.
    #[inline]
    pub fn one_way(&self) -> bool {
        match &self.0 {
            Inner::Here { one_way, .. } => *one_way,
            Inner::Received(message) => message.header.one_way,
        }
    }

    /// The sender.
    pub fn caller(&self) -> &Caller {
        match &self.0 {
            Inner::Here { caller, .. } => caller,
            Inner::Received(message) => &message.header.caller,
        }
    }

    /// The call chain's id; `None` while no other message can belong to the chain.
    #[inline]
    pub fn chain(&self) -> Option<ChainId> {
        match &self.0 {
            Inner::Here { call_context, .. } => call_context.chain(),
            Inner::Received(message) => Some(message.header.chain),
        }
    }

    /// Whether the deadline has passed. The clock is only read if there is one.
    #[inline]
    pub fn has_expired(&self, now: impl FnOnce() -> Time) -> bool {
        let deadline = match &self.0 {
            Inner::Here { call_context, .. } => call_context.deadline,
            Inner::Received(message) => message.header.deadline.unwrap_or(NEVER),
        };
        deadline != NEVER && deadline <= now()
    }

    /// The deadline, or [`NEVER`].
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        match &self.0 {
            Inner::Here { call_context, .. } => call_context.deadline,
            Inner::Received(message) => message.header.deadline.unwrap_or(NEVER),
        }
    }

    /// Splits it into call context and origin, for the turn that is about to run.
    #[inline]
    pub(crate) fn into_call_context(self) -> (CallContext, Origin) {
        match self.0 {
            Inner::Here {
                caller, call_context, ..
            } => (call_context, Origin { caller, from: HERE }),
            Inner::Received(message) => CallContext::of_header(&message.header),
        }
    }

    /// The header of the encoded message.
    pub(crate) fn into_header(self, host: &dyn Host) -> Header {
        let (caller, call_context, one_way) = match self.0 {
            Inner::Received(message) => return Arc::unwrap_or_clone(message).header,
            Inner::Here {
                caller,
                call_context,
                one_way,
            } => (caller, call_context, one_way),
        };
        let call = host.next_call();
        let extras = call_context.extras.as_deref();
        Header {
            call,
            chain: call_context.chain().unwrap_or(ChainId(call)),
            caller,
            tenant: call_context.tenant,
            deadline: (call_context.deadline != NEVER).then_some(call_context.deadline),
            one_way,
            expected_cost: None,
            trace: extras.and_then(|extras| extras.trace),
            source_time_ms: extras.map_or(0, |extras| extras.source_time_ms),
            context: extras.and_then(|extras| extras.values.clone()),
            request: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, value: &str) -> (Box<str>, Box<str>) {
        (Box::from(name), Box::from(value))
    }

    fn added(values: Vec<(Box<str>, Box<str>)>) -> AddedValues {
        let trace = None;
        Some(Box::new(Added { values, trace }))
    }

    #[test]
    fn values_are_inherited_and_overridden() {
        let mut call_context = CallContext::new(TenantId(0));
        call_context.add(None);
        assert!(call_context.values().is_none());
        call_context.add(added(vec![value("user", "ada"), value("page", "1")]));
        let mut inner = call_context.clone();
        inner.add(added(vec![value("user", "eve")]));
        let expected: RequestContext = vec![value("page", "1"), value("user", "eve")].into();
        assert_eq!(inner.values(), Some(&expected));
        assert_eq!(
            call_context.values().map(|values| &*values[0].1),
            Some("ada"),
            "the outer context is unchanged"
        );
        let many = (0..VALUES_MAX).map(|index| value(&index.to_string(), "")).collect();
        inner.add(added(many));
        let values = inner.values().expect("there are values");
        assert_eq!(values.len(), VALUES_MAX);
        assert!(values.iter().all(|(name, _)| **name != *"user"));
    }

    #[test]
    fn contexts_stay_small() {
        // Every byte is copied at every call, so raise these limits only for a good reason.
        assert!(size_of::<CallContext>() <= 40, "{}", size_of::<CallContext>());
        assert!(size_of::<MessageContext>() <= 80, "{}", size_of::<MessageContext>());
    }
}
