//! Folders and files.

use std::collections::BTreeMap;
use std::hint::black_box;

use elastin::prelude::*;

/// The cost of opening a folder (permissions, path), as hash rounds.
const OPEN_ROUNDS: u32 = 120_000;

/// The cost of reading a file's metadata.
const STAT_ROUNDS: u32 = 360_000;

/// A folder and its files.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Folder {
    files: Vec<Ref<File>>,
    opened: u64,
    /// The last request of each client, to check their order.
    last_request: BTreeMap<u32, u64>,
    out_of_order: u64,
}

/// The result of an audit of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The number of times that it was opened.
    pub opened: u64,
    /// The number of requests that arrived after a later one of the same client.
    pub out_of_order: u64,
}

/// A file's metadata, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The file's position in its folder.
    pub file: u32,
    /// Its metadata.
    pub stat: Stat,
}

/// The reason why a folder could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OpenError {
    /// It has no file at this position.
    #[error("the folder has no file {0}")]
    NoSuchFile(u32),
    /// The file could not be read.
    #[error("the file could not be read: {0}")]
    Unreadable(CallError),
}

#[handlers]
impl Folder {
    /// Creates the folder's files, unless it has them.
    async fn fill(&mut self, ctx: &Ctx, folder: u64, files: u32) {
        if self.files.is_empty() {
            self.files = (0..u64::from(files))
                .map(|file| ctx.actor::<File>(folder * 1000 + file))
                .collect();
        }
    }

    /// Opens the folder for a client and reads one of its files.
    async fn open(&mut self, client: u32, request: u64, file: u32) -> Result<Entry, OpenError> {
        self.note_order(client, request);
        self.opened += 1;
        work(OPEN_ROUNDS);
        let found = self.files.get(file as usize).ok_or(OpenError::NoSuchFile(file))?;
        let stat = found.stat().await.map_err(OpenError::Unreadable)?;
        Ok(Entry { file, stat })
    }

    /// Records a client's one-way request, for the check of their order.
    async fn glance(&mut self, client: u32, request: u64) {
        self.note_order(client, request);
    }

    /// The audit of the folder.
    async fn audit(&self) -> Audit {
        Audit {
            opened: self.opened,
            out_of_order: self.out_of_order,
        }
    }
}

impl Folder {
    fn note_order(&mut self, client: u32, request: u64) {
        let last = self.last_request.entry(client).or_default();
        if request < *last {
            self.out_of_order += 1;
        }
        *last = request.max(*last);
    }
}

/// A file.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct File {
    reads: u64,
}

/// A file's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The number of times that it was read.
    pub reads: u64,
    /// A checksum over it.
    pub checksum: u64,
}

#[handlers]
impl File {
    /// Reads the file's metadata.
    async fn stat(&mut self) -> Stat {
        self.reads += 1;
        Stat {
            reads: self.reads,
            checksum: work(STAT_ROUNDS),
        }
    }
}

/// Real work for the processor: rounds of a hash.
fn work(rounds: u32) -> u64 {
    (0..rounds).fold(0xcbf2_9ce4_8422_2325, |hash: u64, round| {
        (black_box(hash) ^ u64::from(round)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
