//! TLS connections.

use super::errors::explain;
use super::files::{Client, Server};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// Client side of a connection, read and written like its socket, with the socket's timeouts. Also holds the peer's
/// reason for rejecting us, once received.
pub struct Stream(StreamOwned<ClientConnection, TcpStream>, Option<String>);

impl Client {
    /// Performs the handshake over a connected socket, and verifies the server. After each timeout of the socket
    /// `goes_on` decides whether to wait longer.
    ///
    /// # Errors
    /// If the server is not trusted, or has another name; `TimedOut` if it did not answer in time.
    pub fn connect(&self, host: &str, socket: TcpStream, mut goes_on: impl FnMut() -> bool) -> Result<Stream> {
        let wrong = |_| Error::new(ErrorKind::InvalidInput, format!("{host}: invalid host name for TLS"));
        let name = ServerName::try_from(host.to_owned()).map_err(wrong)?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !goes_on() {
                        return Err(Error::new(ErrorKind::TimedOut, "TLS handshake timed out"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    let text = "the peer closed the connection during the TLS handshake (does it speak TLS?)";
                    return Err(Error::new(ErrorKind::ConnectionAborted, text));
                }
                Err(error) => return Err(Stream(stream, None).why(error)),
            }
        }
        Ok(Stream(stream, None))
    }
}

impl Stream {
    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        &self.0.sock
    }

    /// Returns whether no data was received and the peer has not closed. TLS control messages do not count.
    pub fn is_idle(&mut self) -> bool {
        loop {
            match recv(&self.0.sock, &mut [0_u8; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Ok((1.., _)) => {}
                Ok(_) | Err(_) => return false,
            }
            let has_read = self.0.conn.read_tls(&mut self.0.sock).is_ok_and(|count| count > 0);
            match self.0.conn.process_new_packets() {
                Ok(state) if has_read && state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                _ => return false,
            }
        }
        self.0.conn.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() == 0)
    }

    /// Waits for the first message of the peer, with the timeout of the socket: with TLS 1.3 this may be the rejection
    /// of our certificate.
    ///
    /// # Errors
    /// If the peer closes the connection, with its reason.
    pub fn await_alert(&mut self) -> Result<()> {
        match self.0.conn.read_tls(&mut self.0.sock) {
            Ok(0) => return Err(Error::new(ErrorKind::ConnectionAborted, "the peer closed the connection")),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.0.conn.process_new_packets().map(drop).map_err(|error| explain(Error::other(error)))
    }

    /// Returns the cause of a failed read or write: the reason that the peer sent before it closed the connection, if
    /// any. It is sent only once, so it is stored.
    fn why(&mut self, error: Error) -> Error {
        let is_over = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        if is_over && self.1.is_none() {
            let said = self.await_alert().err().filter(|said| said.kind() == ErrorKind::PermissionDenied);
            self.1 = said.map(|said| said.to_string());
        }
        match &self.1 {
            Some(said) if is_over => Error::new(ErrorKind::PermissionDenied, said.clone()),
            _ => explain(error),
        }
    }

    /// Sends close_notify.
    pub fn end(&mut self) {
        self.0.conn.send_close_notify();
        // The connection ends even if the peer does not read it.
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

/// Server side of a connection on a non-blocking socket.
pub struct Session(ServerConnection);

impl Server {
    /// Returns a session before its handshake.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn session(&self) -> Result<Session> {
        ServerConnection::new(self.config()).map(Session).map_err(Error::other)
    }
}

impl Session {
    /// Returns whether the handshake is not complete yet.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Returns whether data is waiting to be written to the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Reads from the socket, writes pending TLS messages, and appends the decrypted data; false at the end of the
    /// stream.
    ///
    /// # Errors
    /// Those of the socket; if the data is not TLS, or the client is not trusted.
    pub fn take(&mut self, mut socket: &TcpStream, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut ended = false;
        match self.0.read_tls(&mut socket) {
            Ok(0) => ended = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let state = self.0.process_new_packets().map_err(|error| explain(Error::other(error)));
        // Sends an alert with the reason.
        let said = self.write_pending(socket);
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

    /// Writes pending TLS messages, as far as the socket accepts them.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn write_pending(&mut self, mut socket: &TcpStream) -> Result<()> {
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
