//! An actor that sets reminders and records those that it has acted on.

use std::collections::BTreeSet;
use std::time::Duration;

use elastin::prelude::*;

/// Acts once on each reminder, however often it is delivered.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
pub struct ReminderActor {
    fired: BTreeSet<Reminder>,
    delivered: u64,
}

#[handlers]
impl ReminderActor {
    /// Sets a reminder.
    async fn set(&mut self, ctx: &Ctx, name: String, after_ms: u64) -> Result<Reminder, String> {
        let set = ctx.remind(&name, Duration::from_millis(after_ms)).await;
        set.map_err(|error| error.to_string())
    }

    /// Sets a repeated reminder.
    async fn repeat(&mut self, ctx: &Ctx, name: String, every_ms: u64) -> Result<Reminder, String> {
        let set = ctx.remind_every(&name, Duration::from_millis(every_ms)).await;
        set.map_err(|error| error.to_string())
    }

    /// Cancels a reminder; returns whether there was one.
    async fn forget(&mut self, ctx: &Ctx, name: String) -> Result<bool, String> {
        ctx.forget(&name).await.map_err(|error| error.to_string())
    }

    #[on(reminder)]
    async fn fire(&mut self, reminder: Reminder) {
        self.delivered += 1;
        self.fired.insert(reminder);
    }

    /// Reminders that it has acted on.
    async fn fired(&self) -> BTreeSet<Reminder> {
        self.fired.clone()
    }

    /// Number of deliveries.
    async fn delivered(&self) -> u64 {
        self.delivered
    }
}
