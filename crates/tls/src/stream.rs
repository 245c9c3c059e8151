//! A connection.

use super::files::{Client, Server};
use super::words::told;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// A client's end of a connection: read from it, and write to it, as to its socket; what its socket's timeouts say holds. Beside it why
/// the other side has refused us, once it has said so.
pub struct Stream(StreamOwned<ClientConnection, TcpStream>, Option<String>);

impl Client {
    /// Makes a connection over a socket that is connected, and verifies who is there. The socket has timeouts: after each `goes_on` is
    /// asked whether to wait longer.
    ///
    /// # Errors
    /// Nobody who is believed is there, by this name; `TimedOut`: it did not say so in time.
    pub fn connect(&self, host: &str, socket: TcpStream, mut goes_on: impl FnMut() -> bool) -> Result<Stream> {
        let wrong = |_| Error::new(ErrorKind::InvalidInput, format!("{host}: no name that a certificate can have"));
        let name = ServerName::try_from(host.to_owned()).map_err(wrong)?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !goes_on() {
                        return Err(Error::new(ErrorKind::TimedOut, "no answer of TLS in time"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    let text = "it ended the connection before TLS was agreed on (perhaps it speaks none)";
                    return Err(Error::new(ErrorKind::ConnectionAborted, text));
                }
                Err(error) => return Err(Stream(stream, None).why(error)),
            }
        }
        Ok(Stream(stream, None))
    }
}

impl Stream {
    /// Its socket.
    pub fn socket(&self) -> &TcpStream {
        &self.0.sock
    }

    /// Whether nothing has come, and the other side has not closed. What TLS says of itself is nothing.
    pub fn is_quiet(&mut self) -> bool {
        loop {
            match recv(&self.0.sock, &mut [0_u8; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Ok((1.., _)) => {}
                Ok(_) | Err(_) => return false,
            }
            let came = self.0.conn.read_tls(&mut self.0.sock).is_ok_and(|count| count > 0);
            match self.0.conn.process_new_packets() {
                Ok(state) if came && state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                _ => return false,
            }
        }
        self.0.conn.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() == 0)
    }

    /// Waits as long as the socket does for what the other side says first: by TLS 1.3 that it does not believe our certificate.
    ///
    /// # Errors
    /// It ends the connection, and why.
    pub fn heard(&mut self) -> Result<()> {
        match self.0.conn.read_tls(&mut self.0.sock) {
            Ok(0) => return Err(Error::new(ErrorKind::ConnectionAborted, "it ended the connection")),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.0.conn.process_new_packets().map(drop).map_err(|error| told(Error::other(error)))
    }

    /// Why nothing can be written or read any more: what the other side has said before it ended the connection, if it has. It says so
    /// once, and that is kept.
    fn why(&mut self, error: Error) -> Error {
        let is_over = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        if is_over && self.1.is_none() {
            let said = self.heard().err().filter(|said| said.kind() == ErrorKind::PermissionDenied);
            self.1 = said.map(|said| said.to_string());
        }
        match &self.1 {
            Some(said) if is_over => Error::new(ErrorKind::PermissionDenied, said.clone()),
            _ => told(error),
        }
    }

    /// Says that nothing more comes.
    pub fn end(&mut self) {
        self.0.conn.send_close_notify();
        // One that does not read it ends all the same.
        let _ = self.0.flush();
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.0.read(bytes).map_err(|error| self.why(error))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes).map_err(|error| self.why(error))
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(|error| self.why(error))
    }
}

/// A server's end of a connection whose socket never blocks.
pub struct Session(ServerConnection);

impl Server {
    /// A session that has not begun.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn session(&self) -> Result<Session> {
        ServerConnection::new(self.config()).map(Session).map_err(Error::other)
    }
}

impl Session {
    /// Whether it is not agreed on yet who is there.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Whether something is to be written once the socket takes it.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Takes what the socket has, says what is to be said, and appends what was sent inside; false: that was all.
    ///
    /// # Errors
    /// The socket's; what came is no TLS, or not from one who is believed.
    pub fn take(&mut self, mut socket: &TcpStream, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut ended = false;
        match self.0.read_tls(&mut socket) {
            Ok(0) => ended = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let state = self.0.process_new_packets().map_err(|error| told(Error::other(error)));
        // An alert says why.
        let said = self.say(socket);
        let inside = state?.plaintext_bytes_to_read();
        said?;
        let before = bytes.len();
        bytes.resize(before + inside, 0);
        match self.0.reader().read_exact(&mut bytes[before..]) {
            Ok(()) => {}
            Err(_) => bytes.truncate(before),
        }
        Ok(!ended)
    }

    /// Writes what is to be said, as far as the socket takes it.
    ///
    /// # Errors
    /// The socket's.
    pub fn say(&mut self, mut socket: &TcpStream) -> Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
