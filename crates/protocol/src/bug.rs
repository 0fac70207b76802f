//! Bugs that tests can plant to show that the simulator finds them. Without the feature `planted-bugs` every check for
//! a bug is `false` at compile time.

/// A bug that can be planted into a [`Node`](crate::Node).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-bugs"),
    expect(unreachable_pub, reason = "it is public with the feature")
)]
pub enum Bug {
    /// A moved actor may send again before the messages it sent from its old host have arrived.
    SkipSettling,
    /// An activation opens before earlier messages of callers on its node have arrived.
    OpenTooEarly,
    /// A host accepts messages for another activation.
    TakeAnyEpoch,
    /// An acknowledgement takes effect before the frame that carries it has been handled.
    AcknowledgeTooEarly,
    /// After the deadline of a move the source resumes the actor without asking the directory whether the move was
    /// decided.
    ResumeUndecided,
    /// The directory commits a move without checking the actor's location.
    CommitBlindly,
    /// A new owner opens a slot before all hosts have reported their activations.
    OpenSlotTooEarly,
    /// An owner hands over a slot without its entries.
    HandOverNothing,
    /// The queue of a moved actor is lost.
    LoseQueue,
    /// Messages held for an actor that does not arrive are dropped.
    ForgetHeld,
    /// A call that was lost with a node is reported as not delivered.
    DenyLost,
    /// A duplicate frame is handled again.
    HandleTwice,
    /// The queue of a moved actor is delivered after messages sent to its new host.
    QueueLast,
    /// Returned messages are resent after held ones.
    ReturnedLast,
    /// A node handles frames sent in a view that it does not know yet.
    IgnoreViews,
    /// Several messages go through the directory at the same time.
    AskForMany,
    /// A target accepts an actor before messages of its local callers have arrived at the source.
    AcceptTooEarly,
    /// A message kept for an arriving actor counts as settled.
    KeepSilently,
    /// A member whose lease has ended is dropped from the view at once.
    SkipHold,
    /// The hold starts at the member's last sign of life, not when the end of its lease was observed.
    HoldFromRecord,
    /// A node counts its lease from the arrival of the reply, not from the request.
    CountLeaseFromAnswer,
    /// A node checks its lease on its timer only, not on every event.
    TrustLeaseTimer,
    /// Every node publishes views without comparing with the stored one.
    PublishBlindly,
    /// A view claims to cover every member that joined before it was written, not before it was computed.
    ViewTooNew,
    /// Two activations of an actor get the same epoch.
    ReuseEpoch,
    /// A moved actor starts without its state.
    ForgetState,
    /// A tell that was in flight on a broken connection is not retransmitted.
    LoseTells,
    /// An actor whose move was aborted stays frozen.
    StayFrozen,
    /// A moved actor loses its deduplication records.
    ForgetRequests,
    /// A node reports requests as settled whose calls may still be retried.
    SettleTooEarly,
    /// Actors of a group move independently.
    SplitGroup,
    /// A node leaves without notifying its peers.
    GoSilently,
    /// For drivers: a node starts turns after its lease may have expired.
    #[cfg(feature = "planted-bugs")]
    RunPastLease,
    /// For drivers: a node saves after its lease may have expired.
    #[cfg(feature = "planted-bugs")]
    SavePastLease,
    /// For drivers: a turn whose effect could not be saved is answered as if it had been.
    #[cfg(feature = "planted-bugs")]
    SwallowFailedSave,
    /// For drivers: messages queued in a lost activation are resent.
    #[cfg(feature = "planted-bugs")]
    ResendLostMail,
    /// For drivers: a turn starts before the previous one has ended.
    #[cfg(feature = "planted-bugs")]
    OverlapTurns,
    /// For drivers: a message that is rejected by a full mailbox is enqueued nonetheless.
    #[cfg(feature = "planted-bugs")]
    RunRefused,
    /// For drivers: an activation runs and writes without having claimed its epoch.
    #[cfg(feature = "planted-bugs")]
    SkipClaim,
    /// For drivers: an actor replies before its state has been saved.
    #[cfg(feature = "planted-bugs")]
    AnswerBeforeSave,
}

impl Bug {
    /// All bugs.
    #[cfg(feature = "planted-bugs")]
    pub const ALL: [Bug; 40] = [
        Bug::SkipSettling,
        Bug::OpenTooEarly,
        Bug::TakeAnyEpoch,
        Bug::AcknowledgeTooEarly,
        Bug::ResumeUndecided,
        Bug::CommitBlindly,
        Bug::OpenSlotTooEarly,
        Bug::HandOverNothing,
        Bug::LoseQueue,
        Bug::ForgetHeld,
        Bug::DenyLost,
        Bug::HandleTwice,
        Bug::QueueLast,
        Bug::ReturnedLast,
        Bug::IgnoreViews,
        Bug::AskForMany,
        Bug::AcceptTooEarly,
        Bug::KeepSilently,
        Bug::SkipHold,
        Bug::HoldFromRecord,
        Bug::CountLeaseFromAnswer,
        Bug::TrustLeaseTimer,
        Bug::PublishBlindly,
        Bug::ViewTooNew,
        Bug::ReuseEpoch,
        Bug::ForgetState,
        Bug::LoseTells,
        Bug::StayFrozen,
        Bug::ForgetRequests,
        Bug::SettleTooEarly,
        Bug::SplitGroup,
        Bug::GoSilently,
        Bug::RunPastLease,
        Bug::SavePastLease,
        Bug::SwallowFailedSave,
        Bug::ResendLostMail,
        Bug::OverlapTurns,
        Bug::RunRefused,
        Bug::SkipClaim,
        Bug::AnswerBeforeSave,
    ];
}

/// The planted bug, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) bug: Option<Bug>,
}

impl Planted {
    /// Whether this bug is planted.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is planted: never in this build.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn is(self, _bug: Bug) -> bool {
        false
    }
}
