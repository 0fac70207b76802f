//! The bugs that can be planted into the model of a node's driver. Without the feature `planted-bugs` there are none.

use super::World;

macro_rules! driver_bugs {
    ($($(#[$says:meta])* $name:ident is $bug:ident;)*) => {
        impl World {
            $(
                $(#[$says])*
                #[cfg(feature = "planted-bugs")]
                pub(super) fn $name(&self) -> bool {
                    self.options.bug == Some(elastin_protocol::Bug::$bug)
                }

                $(#[$says])*
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
    /// Turns start after the lease may have run out.
    runs_past_lease is RunPastLease;
    /// Saves leave after the lease may have run out.
    saves_past_lease is SavePastLease;
    /// A turn whose effect could not be saved is answered as if it had been.
    swallows_failed_save is SwallowFailedSave;
    /// What waited for an activation that is lost is sent again.
    resends_lost_mail is ResendLostMail;
    /// A turn starts before the one before it has ended.
    overlaps_turns is OverlapTurns;
    /// What is refused because a mailbox is full gets into it all the same.
    runs_refused is RunRefused;
}
