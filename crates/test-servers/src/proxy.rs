//! A proxy between a client and a server, which can delay, hold or close, and records the first bytes of each client.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of the forwarding buffer.
const PIECE_BYTES: usize = 16 << 10;

/// Recorded bytes per client: more than any greeting.
const TAPE_BYTES_MAX: usize = 64 << 10;

/// Number of clients that are recorded, the first ones.
const TAPES_MAX: usize = 16;

/// Passes bytes on between clients and a server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    weather: Mutex<Weather>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Weather {
    delay: Duration,
    silent: bool,
    ended: bool,
    streams: Vec<TcpStream>,
    tapes: Vec<Arc<Mutex<Vec<u8>>>>,
}

impl Proxy {
    /// A proxy before this server, on a port of its own.
    pub fn start(server: SocketAddr) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            weather: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Ok(Proxy { address, shared })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on every piece takes this long, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.weather().delay = delay;
    }

    /// Holds all traffic without closing anything, or forwards it again with the held bytes.
    pub fn silence(&self, silent: bool) {
        self.shared.weather().silent = silent;
        self.shared.changed.notify_all();
    }

    /// The first bytes of each client, in the order of their connections.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        let tapes = self.shared.weather().tapes.clone();
        tapes.iter().map(|tape| locked(tape).clone()).collect()
    }

    /// Breaks all connections. New ones are accepted.
    pub fn break_connections(&self) {
        for stream in self.shared.weather().streams.drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.break_connections();
        self.shared.weather().ended = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn weather(&self) -> MutexGuard<'_, Weather> {
        locked(&self.weather)
    }

    /// A recording for another client, if there is one left.
    fn new_tape(&self) -> Option<Arc<Mutex<Vec<u8>>>> {
        let mut weather = self.weather();
        if weather.tapes.len() == TAPES_MAX {
            return None;
        }
        weather.tapes.push(Arc::default());
        weather.tapes.last().cloned()
    }

    /// Waits until a piece may pass.
    fn await_passage(&self) {
        let weather = self.weather();
        let delay = weather.delay;
        drop(weather);
        std::thread::sleep(delay);
        let mut weather = self.weather();
        while weather.silent && !weather.ended {
            weather = self.changed.wait(weather).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.weather().ended {
            return;
        }
        let Ok(client) = stream else { continue };
        // If the server is gone, the client sees its connection close at once.
        let Ok(server) = TcpStream::connect(shared.server) else {
            continue;
        };
        let tape = shared.new_tape();
        for (from, to, tape) in [(&client, &server, tape), (&server, &client, None)] {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
                continue;
            };
            let _ = from.set_nodelay(true);
            shared.weather().streams.push(kept);
            let shared = Arc::clone(shared);
            std::thread::spawn(move || pass(from, to, tape.as_deref(), &shared));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, tape: Option<&Mutex<Vec<u8>>>, shared: &Shared) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        if let Some(mut tape) = tape.map(locked) {
            let room = TAPE_BYTES_MAX - tape.len();
            tape.extend(&piece[..bytes.min(room)]);
        }
        shared.await_passage();
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    // Propagates the end of the stream.
    let _ = to.shutdown(Shutdown::Write);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
