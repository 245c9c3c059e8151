//! Sockets to peers, with TLS where a target requires it.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;

/// PEM files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of trusted CAs; `None`: those of the system, and clients need no certificate.
    pub ca: Option<PathBuf>,
    /// Our own certificate, followed by intermediate ones up to its CA.
    pub cert: Option<PathBuf>,
    /// Private key of the certificate.
    pub key: Option<PathBuf>,
}

impl Tls {
    /// Parses `ca=FILE,cert=FILE,key=FILE`; each part is optional.
    ///
    /// # Errors
    /// A part is unknown.
    pub fn parse(text: &str) -> Result<Self> {
        let mut tls = Tls::default();
        for word in text.split(',') {
            let place = match word.split_once('=') {
                Some(("ca", file)) if !file.is_empty() => (&mut tls.ca, file),
                Some(("cert", file)) if !file.is_empty() => (&mut tls.cert, file),
                Some(("key", file)) if !file.is_empty() => (&mut tls.key, file),
                _ => {
                    let text = format!("{word:?}: expected ca=FILE, cert=FILE or key=FILE");
                    return Err(Error::new(ErrorKind::InvalidInput, text));
                }
            };
            *place.0 = Some(place.1.into());
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "certificate and key must be given together: cert=FILE,key=FILE",
            ));
        }
        Ok(tls)
    }

    /// Returns the files for the connection code.
    #[cfg(feature = "tls")]
    pub(crate) fn files(&self) -> linerate_tls::Files {
        linerate_tls::Files { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() }
    }
}

/// Returns whether a target uses TLS.
pub fn is_secure(target: &str) -> bool {
    super::scheme(target).is_some_and(|scheme| scheme.ends_with("+tls") || scheme.ends_with("+https"))
}

/// Error of a program that was built without TLS.
#[cfg(not(feature = "tls"))]
pub(crate) fn without<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "this program was built without TLS and SASL (feature tls)"))
}

/// Connection security of a target.
#[derive(Clone, Debug)]
pub(super) enum Secure {
    No,
    #[cfg(feature = "tls")]
    Yes(linerate_tls::Client),
}

impl Secure {
    /// Returns the security for a target.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub(super) fn of(target: &str, tls: &Tls) -> Result<Self> {
        if !is_secure(target) {
            return Ok(Secure::No);
        }
        #[cfg(feature = "tls")]
        return linerate_tls::Client::new(&tls.files()).map(Secure::Yes);
        #[cfg(not(feature = "tls"))]
        {
            let _ = tls;
            without()
        }
    }

    /// Starts a session over a connected socket with timeouts; `goes_on` is called after each of them.
    pub(super) fn begin(&self, host: &str, socket: TcpStream, goes_on: impl FnMut() -> bool) -> Result<Stream> {
        match self {
            Secure::No => {
                let _ = (host, goes_on);
                Ok(Stream::Plain(socket))
            }
            #[cfg(feature = "tls")]
            Secure::Yes(client) => client.connect(host, socket, goes_on).map(|stream| Stream::Tls(Box::new(stream))),
        }
    }

    /// Returns whether TLS is used.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Secure::No)
    }
}

/// Connection to a peer.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<linerate_tls::Stream>),
}

impl Stream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.socket(),
        }
    }

    /// Returns whether nothing was received and the peer has not closed.
    pub(super) fn is_idle(&mut self) -> bool {
        match self {
            Stream::Plain(socket) => {
                let looked = recv(socket, &mut [0_u8; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK);
                matches!(looked, Err(Errno::AGAIN | Errno::INTR))
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.is_idle(),
        }
    }

    /// Returns whether the peer has closed; received data is discarded.
    pub(super) fn is_closed(&mut self) -> bool {
        match self {
            Stream::Plain(socket) => match recv(socket, &mut [0_u8; 16], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count == 0,
                Err(error) => error != Errno::AGAIN && error != Errno::INTR,
            },
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => !stream.is_idle(),
        }
    }

    /// Waits briefly for an alert of the peer.
    pub(super) fn await_alert(&mut self) -> Result<()> {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            const MOMENT: std::time::Duration = std::time::Duration::from_millis(300);
            stream.socket().set_read_timeout(Some(MOMENT))?;
            return stream.await_alert();
        }
        Ok(())
    }

    /// Closes the sending direction.
    pub(super) fn end(&mut self) {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            stream.end();
        }
        // A closed peer needs no notification.
        let _ = self.socket().shutdown(Shutdown::Write);
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parsed_and_unknown_ones_rejected() {
        let tls = Tls::parse("ca=/etc/ca.pem,cert=a b.pem,key=k").unwrap();
        let wanted = Tls { ca: Some("/etc/ca.pem".into()), cert: Some("a b.pem".into()), key: Some("k".into()) };
        assert_eq!(tls, wanted);
        for wrong in ["", "ca", "ca=", "password=x", "cert=a", "key=a"] {
            assert_eq!(Tls::parse(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
        for (target, wanted) in
            [("kafka+tls://h/t", true), ("clickhouse+https://h/t", true), ("kafka://h/t", false), ("a+tls", false)]
        {
            assert_eq!(is_secure(target), wanted, "{target}");
        }
    }
}
