//! Free ports.

use std::net::TcpListener;

/// A port of the loopback interface that was free a moment ago. Another process may take it before it is used: a server
/// that fails to bind must retry with another port.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
    listener.local_addr().expect("it is bound").port()
}
