//! A relay that changes one byte of a server's answers to a path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Picks the offset of the byte of a body to change, or none.
pub(super) type Choose = fn(&[u8]) -> Option<usize>;

/// Starts a relay to a server and returns its address; flips a bit of a byte of answers to paths ending in `path`.
pub(super) fn relay(server: &str, path: &'static str, choose: Choose) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = server.clone();
            std::thread::spawn(move || serve(client, &server, path, choose));
        }
    });
    own
}

/// Relays the requests of a connection one by one until it closes.
fn serve(client: TcpStream, server: &str, path: &str, choose: Choose) -> Option<()> {
    let (mut asking, mut client) = (BufReader::new(client.try_clone().ok()?), client);
    let mut server = TcpStream::connect(server).ok()?;
    let mut answering = BufReader::new(server.try_clone().ok()?);
    loop {
        let (head, body) = message(&mut asking)?;
        server.write_all(&[head.as_bytes(), &body].concat()).ok()?;
        let asked = head.split(' ').nth(1)?.to_owned();
        let (head, mut body) = message(&mut answering)?;
        if asked.ends_with(path)
            && let Some(at) = choose(&body)
        {
            body[at] ^= 1;
        }
        client.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    }
}

/// Reads a head and the body of its Content-Length.
fn message(from: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    Some((head, body))
}
