//! The chat room of the paper's table 3: users send lines to a room, which keeps and formats its history and tells the
//! others.

use anyhow::Result;
use elastin::{Actor, Ctx, Ref, handlers};
use serde::{Deserialize, Serialize};

/// How many users the paper has.
pub(crate) const USERS: [u64; 3] = [8, 16, 32];

/// After how many lines the room is waited for. Users tell the room and it calls them: if they filled its mailbox, they
/// would wait for each other.
const LINES_AHEAD: u64 = 64;

/// How many lines a room and a user keep.
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

/// Keeps a line, and formats it as people see it.
fn keep(history: &mut Vec<String>, author: u64, line: &str) {
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
        keep(&mut self.history, author, &line);
        for member in &self.members {
            member.hear(author, line.clone()).await.expect("a user hears");
        }
    }
}

#[handlers]
impl User {
    async fn say(&mut self, ctx: &Ctx, me: u64, line: String) {
        let room = self.room.get_or_insert_with(|| ctx.actor("room"));
        room.post(me, line).tell().await.expect("a room takes a line");
    }

    fn hear(&mut self, author: u64, line: String) {
        keep(&mut self.history, author, &line);
    }
}

/// Lets the users say so many lines in turn.
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
            user.say(message % users, format!("line {message} of what there is to say"))
                .await?;
            if message % LINES_AHEAD == 0 {
                room.lines().await?;
            }
        }
        // The room has no more mail when this is answered.
        room.lines().await?;
        anyhow::Ok(())
    })
}
