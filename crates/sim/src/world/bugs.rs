//! Bugs that can be planted into the model of a node's driver. Without the feature `planted-bugs` there are none.

use super::World;

macro_rules! driver_bugs {
    ($($(#[$doc:meta])* $name:ident is $bug:ident;)*) => {
        impl World {
            $(
                $(#[$doc])*
                #[cfg(feature = "planted-bugs")]
                pub(super) fn $name(&self) -> bool {
                    self.options.bug == Some(elastin_protocol::Bug::$bug)
                }

                $(#[$doc])*
                #[cfg(not(feature = "planted-bugs"))]
                pub(super) fn $name(&self) -> bool {
                    false
                }
            )*
        }
    };
}

driver_bugs! {
    /// An activation runs and writes without having claimed its epoch.
    skips_claim is SkipClaim;
    /// An actor answers before its state has been saved.
    answers_before_save is AnswerBeforeSave;
    /// Turns start after the lease may have expired.
    runs_past_lease is RunPastLease;
    /// Saves are sent after the lease may have expired.
    saves_past_lease is SavePastLease;
    /// A turn is answered although its effect could not be saved.
    swallows_failed_save is SwallowFailedSave;
    /// Messages queued for a lost activation are sent again.
    resends_lost_mail is ResendLostMail;
    /// A turn starts before the previous one has ended.
    overlaps_turns is OverlapTurns;
    /// A message that a full mailbox rejects is enqueued nevertheless.
    runs_refused is RunRefused;
}
