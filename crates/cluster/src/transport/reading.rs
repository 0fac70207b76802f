//! The receiving end of a connection, and the task that reads it.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use elastin_runtime::{Caution, Errand};
use elastin_types::NodeId;
use tokio::io::AsyncReadExt;
use tokio::task::yield_now;

use super::dialled::Dialled;
use super::gathering::Gathering;
use super::input::Input;
use super::link::Link;
use super::readers::Readers;
use super::replies::{Outlook, Replies};
use super::{Following, Inner};
use crate::frame::{FrameError, Frames, Taken};
use crate::security::{Reader, Writer};

/// How many frames are taken in together: enough that it pays, few enough that the first ones are not held up by the last.
const FRAMES_AT_ONCE: usize = 128;

/// An errand that takes longer than this for each frame that it was brought by is slow: waking a worker for it would have cost
/// less than the wait of what comes behind it.
const SLOW_PER_FRAME: Duration = Duration::from_micros(100);

/// Who reads a connection.
#[derive(Clone)]
pub(crate) enum ReadBy {
    /// Threads of our own, which also run actors.
    Readers(&'static Readers),
    /// A task of tokio's, or whoever waits for a reply alone. They run no errands.
    Callers(Dialled, Arc<Outlook>),
}

impl ReadBy {
    /// What the task says of what it has to expect, if others want to know.
    fn outlook(&self) -> Option<&Outlook> {
        match self {
            ReadBy::Readers(_) => None,
            ReadBy::Callers(_, outlook) => Some(outlook),
        }
    }
}

/// The receiving end of a connection.
pub(super) struct Reading {
    inner: Arc<Inner>,
    read_by: ReadBy,
    peer: NodeId,
    link: Arc<Link>,
    reader: Reader,
    /// A sending end that is not used: a half-closed stream would look broken to the peer.
    _writer: Option<Writer>,
    input: Input,
    caution: Caution,
}

impl Reading {
    pub(super) fn new(inner: &Arc<Inner>, read_by: ReadBy, peer: NodeId, link: &Arc<Link>, reader: Reader) -> Self {
        Self {
            inner: Arc::clone(inner),
            read_by,
            peer,
            link: Arc::clone(link),
            reader,
            _writer: None,
            input: Input::default(),
            caution: Caution::default(),
        }
    }

    /// Keeps the sending end open as long as this is read.
    pub(super) fn keeping(self, writer: Writer) -> Self {
        Self {
            _writer: Some(writer),
            ..self
        }
    }

    /// Has it read until the connection breaks or is closed; if the peer has talked nonsense, only after a pause.
    pub(super) fn start(self) {
        let (read_by, link, handle) = (self.read_by.clone(), Arc::clone(&self.link), self.inner.handle.clone());
        let read = async move {
            let pause = self.inner.pause_before_reading(self.peer);
            if !pause.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.link.closed() => return,
                }
            }
            self.run().await;
        };
        match read_by {
            ReadBy::Readers(readers) => readers.spawn(&handle, read),
            ReadBy::Callers(socket, outlook) => link.is_read_by(Replies::spawn(&handle, socket, outlook, read)),
        }
    }

    /// Reads until the connection breaks or is closed, or until another task reads on.
    async fn run(self) {
        let (inner, peer, link) = (Arc::clone(&self.inner), self.peer, Arc::clone(&self.link));
        tokio::select! {
            biased;
            end = self.read() => match end {
                End::Broken => inner.break_link(peer, &link),
                End::HandedOver => {}
            },
            () = link.closed() => {}
        }
    }

    async fn read(mut self) -> End {
        let peer = self.peer;
        let mut gathering = None;
        loop {
            let comes_again = match self.read_by {
                ReadBy::Callers(..) => Some(poll_fn(|context| Poll::Ready(context.waker().clone())).await),
                ReadBy::Readers(_) => None,
            };
            let (frames, errand) = match self.hear(comes_again.as_ref(), &mut gathering) {
                Ok(heard) => heard,
                Err(error) => {
                    tracing::warn!(%peer, %error, "dropped a connection");
                    self.inner.distrust(peer);
                    return End::Broken;
                }
            };
            if let Some(errand) = errand {
                match self.run_errand(errand, frames) {
                    Some(reading) => self = reading,
                    None => return End::HandedOver,
                }
            }
            if frames == FRAMES_AT_ONCE {
                // Other connections get their turn.
                give_way(&mut gathering).await;
                continue;
            }
            match self.read_more(&mut gathering).await {
                Ok(0) => return End::Broken,
                Ok(read) => {
                    self.input.filled(read);
                    if self.input.is_full() {
                        yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "a connection broke");
                    return End::Broken;
                }
            }
        }
    }

    /// Reads what comes next. Until it is there, what callers leave is sent.
    async fn read_more(&mut self, gathering: &mut Option<Gathering>) -> io::Result<usize> {
        while gathering.is_some() {
            give_way(gathering).await;
            let mut read = pin!(self.reader.read(self.input.room()));
            if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
                return read;
            }
        }
        if let Some(outlook) = self.read_by.outlook() {
            outlook.callers_have_sent(self.link.is_written_by_senders());
        }
        self.reader.read(self.input.room()).await
    }

    /// Hands on what has come so far; how many frames that is, and what this thread may run of what came of it. If callers are to
    /// leave what they send to a task that `comes_again`, they do.
    fn hear(
        &mut self,
        comes_again: Option<&Waker>,
        gathering: &mut Option<Gathering>,
    ) -> Result<(usize, Option<Errand>), FrameError> {
        if self.input.unread().is_empty() {
            return Ok((0, None));
        }
        let began = Instant::now();
        let mut frames = Frames::new(self.input.unread(), FRAMES_AT_ONCE);
        let outlook = self.read_by.outlook();
        let errand = match self.inner.receiver.frames(self.peer, &mut frames, comes_again) {
            Some(Following::Errand(errand)) => Some(errand),
            Some(Following::Outcome) => {
                outlook.inspect(|outlook| outlook.set(Outlook::TO_BE_TOLD));
                None
            }
            Some(Following::Calls) => {
                outlook.inspect(|outlook| outlook.set(Outlook::CALLERS));
                *gathering = Some(Gathering::goes_on(gathering.take(), &self.inner.receiver));
                None
            }
            None => None,
        };
        let Taken { frames, bytes } = frames.end()?;
        if frames > 0 {
            self.inner.stages.received.passed(frames, bytes, began.elapsed());
            self.link.heard(bytes);
        }
        self.input.pass(bytes);
        Ok((frames, errand))
    }

    /// Runs an errand on this thread, or leaves it to the workers. Gives back the connection, unless another task has taken
    /// it over because this took too long.
    fn run_errand(mut self, errand: Errand, frames: usize) -> Option<Self> {
        let ReadBy::Readers(readers) = self.read_by else {
            return Some(self);
        };
        // Other connections do not wait for it, as far as is known.
        if readers.has_ready() || self.caution.leaves_next() {
            return Some(self);
        }
        let inner = Arc::clone(&self.inner);
        let ticket = match readers.put_down(self) {
            Ok(ticket) => ticket,
            Err(reading) => return Some(reading),
        };
        let began = Instant::now();
        inner.receiver.run(errand);
        let mut reading = readers.take_back(ticket)?;
        match began.elapsed() > SLOW_PER_FRAME * frames as u32 {
            true => reading.caution.went_wrong(),
            false => reading.caution.went_well(),
        }
        Some(reading)
    }
}

/// Lets others run, and sends what callers leave.
async fn give_way(gathering: &mut Option<Gathering>) {
    match gathering.take() {
        Some(begun) => *gathering = begun.give_way_and_send().await,
        None => yield_now().await,
    }
}

/// Why a task does not read a connection any longer.
enum End {
    Broken,
    HandedOver,
}

/// Goes on reading a connection whose reader is held up by what it runs.
pub(super) fn read_on(readers: &'static Readers, mut reading: Reading) {
    let handle = reading.inner.handle.clone();
    readers.spawn(&handle, async move {
        reading.inner.receiver.catch_up();
        reading.caution.did_harm();
        reading.run().await;
    });
}
