//! Bugs that can be planted to show that the simulator finds them. Without the feature `planted-bugs` there are none: the
//! question is answered at compile time.

/// A bug that can be planted into a [`Node`](crate::Node).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-bugs"),
    expect(unreachable_pub, reason = "it is public with the feature")
)]
pub enum Bug {
    /// A moved actor may send again before what it sent from its old host has arrived.
    SkipSettling,
    /// An activation runs before what callers on its node have sent to it earlier has arrived.
    OpenTooEarly,
    /// A host takes messages that are meant for another activation.
    TakeAnyEpoch,
    /// An acknowledgement counts before what was said with it has been handled.
    AcknowledgeTooEarly,
    /// After the deadline of a move the source goes on without asking the directory whether it was decided.
    ResumeUndecided,
    /// The directory moves an actor without looking where it is.
    CommitBlindly,
    /// A new owner of a slot answers before it has heard what all nodes host.
    OpenSlotTooEarly,
    /// An owner hands over a slot without what it knows.
    HandOverNothing,
    /// The queue of a moved actor stays behind.
    LoseQueue,
    /// What waited for an actor that does not come after all is forgotten.
    ForgetHeld,
    /// A call that was lost with a node is said not to have been delivered.
    DenyLost,
    /// A frame that came twice is handled twice.
    HandleTwice,
    /// The queue of a moved actor comes after what was sent to its new host.
    QueueLast,
    /// What came back is sent after what was held.
    ReturnedLast,
    /// A node listens to what was sent in a view that it does not know yet.
    IgnoreViews,
    /// Several messages take the way through the directory at once.
    AskForMany,
    /// A node takes an actor before what its callers have sent to it has arrived.
    AcceptTooEarly,
    /// A message that is kept for the time being passes for settled.
    KeepSilently,
    /// A member whose lease was ended is dropped from the view at once.
    SkipHold,
    /// The hold counts from when the member was last heard of, not from when its lease was seen to have ended.
    HoldFromRecord,
    /// A node believes in its lease from when the answer came, not from when it asked.
    CountLeaseFromAnswer,
    /// A node looks at its lease when its timer fires, and not at every event.
    TrustLeaseTimer,
    /// Everybody publishes views, whatever the one is that is there.
    PublishBlindly,
    /// A view claims to know of every member that joined before it was written, not before it was put together.
    ViewTooNew,
    /// Two activations of an actor get the same epoch.
    ReuseEpoch,
    /// A moved actor begins anew at its new host.
    ForgetState,
    /// A tell that was on a connection when it broke is not transmitted again.
    LoseTells,
    /// An actor whose move is called off stays frozen.
    StayFrozen,
    /// What an actor knows of requests stays behind when it is moved.
    ForgetRequests,
    /// A node says that requests are settled whose calls may be made again.
    SettleTooEarly,
    /// Actors that are to move together move each for itself.
    SplitGroup,
    /// A node goes without telling anybody.
    GoSilently,
    /// For drivers: a node starts turns after its lease may have run out.
    #[cfg(feature = "planted-bugs")]
    RunPastLease,
    /// For drivers: a node saves after its lease may have run out.
    #[cfg(feature = "planted-bugs")]
    SavePastLease,
    /// For drivers: a turn whose effect could not be saved is answered as if it had been.
    #[cfg(feature = "planted-bugs")]
    SwallowFailedSave,
    /// For drivers: what waited for an activation that is lost is sent again.
    #[cfg(feature = "planted-bugs")]
    ResendLostMail,
    /// For drivers: a turn starts before the one before it has ended.
    #[cfg(feature = "planted-bugs")]
    OverlapTurns,
    /// For drivers: a message that is refused because a mailbox is full gets into it all the same.
    #[cfg(feature = "planted-bugs")]
    RunRefused,
    /// For drivers: an activation runs and writes without having claimed its epoch.
    #[cfg(feature = "planted-bugs")]
    SkipClaim,
    /// For drivers: an actor answers before its state has been saved.
    #[cfg(feature = "planted-bugs")]
    AnswerBeforeSave,
}

impl Bug {
    /// All of them.
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

/// The bug that is planted, if any.
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

    /// Whether this bug is planted: it is not.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn is(self, _bug: Bug) -> bool {
        false
    }
}
