//! TLS around connections, where a certificate is named.

use std::io::Result;
use std::path::Path;

/// What connections begin with.
#[derive(Clone)]
pub struct Secure {
    #[cfg(feature = "tls")]
    pub(crate) acceptor: tokio_rustls::TlsAcceptor,
}

impl Secure {
    /// By a certificate, those between it and its CA behind it, and its key, both in PEM.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be; others may read the key; `Unsupported`: there is no TLS here.
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
