//! A proxy between clients and a server. It can delay, hold and break connections, and records the first bytes of each
//! client.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The size of the forwarding buffer.
const CHUNK_BYTES: usize = 16 << 10;

/// The most recorded bytes of a client: more than any greeting.
const RECORDING_BYTES_MAX: usize = 64 << 10;

/// The number of clients that are recorded: the first ones.
const RECORDINGS_MAX: usize = 16;

/// Forwards bytes between clients and a server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    silent: bool,
    ended: bool,
    streams: Vec<TcpStream>,
    recordings: Vec<Arc<Mutex<Vec<u8>>>>,
}

impl Proxy {
    /// Starts a proxy before this server, on its own port.
    pub fn start(server: SocketAddr) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Ok(Proxy { address, shared })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays every chunk by this from now on, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Holds all traffic without closing anything, or forwards it again with the held bytes.
    pub fn silence(&self, silent: bool) {
        self.shared.state().silent = silent;
        self.shared.changed.notify_all();
    }

    /// The first bytes of each client, in the order of their connections.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        let recordings = self.shared.state().recordings.clone();
        recordings.iter().map(|recording| locked(recording).clone()).collect()
    }

    /// Breaks all connections. New ones are accepted.
    pub fn break_connections(&self) {
        for stream in self.shared.state().streams.drain(..) {
            // The connection may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.break_connections();
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// A recording for another client, if there is one left.
    fn new_recording(&self) -> Option<Arc<Mutex<Vec<u8>>>> {
        let mut state = self.state();
        if state.recordings.len() == RECORDINGS_MAX {
            return None;
        }
        state.recordings.push(Arc::default());
        state.recordings.last().cloned()
    }

    /// Waits until a chunk may be forwarded.
    fn await_forwarding(&self) {
        let state = self.state();
        let delay = state.delay;
        drop(state);
        std::thread::sleep(delay);
        let mut state = self.state();
        while state.silent && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.state().ended {
            return;
        }
        let Ok(client) = stream else { continue };
        // If the server is gone, the client sees its connection close at once.
        let Ok(server) = TcpStream::connect(shared.server) else {
            continue;
        };
        let recording = shared.new_recording();
        for (from, to, recording) in [(&client, &server, recording), (&server, &client, None)] {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
                continue;
            };
            let _ = from.set_nodelay(true);
            shared.state().streams.push(kept);
            let shared = Arc::clone(shared);
            std::thread::spawn(move || forward(from, to, recording.as_deref(), &shared));
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, recording: Option<&Mutex<Vec<u8>>>, shared: &Shared) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        if let Some(mut recording) = recording.map(locked) {
            let room = RECORDING_BYTES_MAX - recording.len();
            recording.extend(&chunk[..bytes.min(room)]);
        }
        shared.await_forwarding();
        if to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    // Propagates the end of the stream.
    let _ = to.shutdown(Shutdown::Write);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
