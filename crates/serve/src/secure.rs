//! TLS for connections, if a certificate is configured.

use std::io::Result;
use std::path::Path;

/// TLS acceptor.
#[derive(Clone)]
pub struct Secure {
    #[cfg(feature = "tls")]
    pub(crate) acceptor: tokio_rustls::TlsAcceptor,
}

impl Secure {
    /// Loads a certificate, followed by intermediate ones up to its CA, and its key, both in PEM.
    ///
    /// # Errors
    /// A file cannot be read or is invalid; the key is readable by others; `Unsupported`: built without TLS.
    pub fn new(cert: &Path, key: &Path) -> Result<Self> {
        #[cfg(feature = "tls")]
        {
            let files = linerate_tls::Files { ca: None, cert: Some(cert.into()), key: Some(key.into()) };
            Ok(Secure { acceptor: linerate_tls::Server::new(&files)?.config().into() })
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (cert, key);
            let text = "this program was built without TLS (feature tls)";
            Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text))
        }
    }
}
