//! Ports that nobody uses.

use std::net::TcpListener;

/// A port of the loopback interface that was free a moment ago. Somebody else may take it before it is used: whoever
/// starts a server on it tries again with another one then.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
    listener.local_addr().expect("it is bound").port()
}
