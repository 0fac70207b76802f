//! The chat room of the paper's table 3: users send lines to a room, which stores and formats its history and forwards
//! them to the other users.

use anyhow::Result;
use elastin::{Actor, Ctx, Ref, handlers};
use serde::{Deserialize, Serialize};

/// The numbers of users in the paper.
pub(crate) const USERS: [u64; 3] = [8, 16, 32];

/// The number of lines after which the room is awaited. Users tell the room and it calls them, so a full mailbox of the
/// room would deadlock both.
const LINES_AHEAD: u64 = 64;

/// The most lines that a room or a user stores.
const HISTORY_MAX: usize = 100;

#[derive(Actor, Serialize, Deserialize, Default)]
struct Room {
    members: Vec<Ref<User>>,
    history: Vec<String>,
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct User {
    room: Option<Ref<Room>>,
    history: Vec<String>,
}

/// Stores a line, formatted for display.
fn store(history: &mut Vec<String>, author: u64, line: &str) {
    if history.len() == HISTORY_MAX {
        history.remove(0);
    }
    history.push(format!("[{:>6}] user {author}: {line}", history.len()));
}

#[handlers]
impl Room {
    fn join(&mut self, ctx: &Ctx, user: u64) {
        self.members.push(ctx.actor(user));
    }

    fn lines(&self) -> usize {
        self.history.len()
    }

    async fn post(&mut self, author: u64, line: String) {
        store(&mut self.history, author, &line);
        for member in &self.members {
            member.receive(author, line.clone()).await.expect("a user receives a line");
        }
    }
}

#[handlers]
impl User {
    async fn post_line(&mut self, ctx: &Ctx, me: u64, line: String) {
        let room = self.room.get_or_insert_with(|| ctx.actor("room"));
        room.post(me, line).tell().await.expect("a room accepts a line");
    }

    fn receive(&mut self, author: u64, line: String) {
        store(&mut self.history, author, &line);
    }
}

/// Lets the users send this many lines in turn.
pub(crate) fn run(users: u64, messages: u64, profiling: bool) -> Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    tokio.block_on(async {
        let builder = crate::builder(1, profiling).register::<Room>().register::<User>();
        let runtime = builder.build()?;
        let client = runtime.client();
        let room: Ref<Room> = client.actor("room");
        for user in 0..users {
            room.join(user).await?;
        }
        for message in 0..messages {
            let user: Ref<User> = client.actor(message % users);
            user.post_line(message % users, format!("line {message} of a long conversation."))
                .await?;
            if message % LINES_AHEAD == 0 {
                room.lines().await?;
            }
        }
        // The room's mailbox is empty when this is answered.
        room.lines().await?;
        anyhow::Ok(())
    })
}
