//! Loads certificates and keys from files.

use linerate_burst::input;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a file of certificates or of a key.
const MOST: u64 = 16 << 20;

/// PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Trusted CA certificates. Without: clients trust the system's CAs, servers do not request client certificates.
    pub ca: Option<PathBuf>,
    /// Our own certificate, followed by its intermediate ones.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Configuration of client connections.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<ClientConfig>);

/// Configuration of server connections.
#[derive(Clone, Debug)]
pub struct Server(pub(crate) Arc<ServerConfig>);

impl Client {
    /// Returns a client that trusts these CAs, with its own certificate if configured.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub fn new(files: &Files) -> Result<Self> {
        let provider = Arc::new(default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
        let config = config.map_err(Error::other)?.with_root_certificates(trusted(files.ca.as_deref())?);
        let config = match own(files)? {
            None => config.with_no_client_auth(),
            Some((certs, key)) => {
                config.with_client_auth_cert(certs, key).map_err(|error| key_mismatch(files, &error.to_string()))?
            }
        };
        Ok(Client(Arc::new(config)))
    }
}

impl Server {
    /// Returns a server with this certificate; with a CA it requires client certificates signed by that.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid; if other users may read the key.
    pub fn new(files: &Files) -> Result<Self> {
        let none = || {
            Error::new(
                ErrorKind::InvalidInput,
                "a TLS server needs a certificate and its key; set cert=FILE and key=FILE",
            )
        };
        let (certs, key) = own(files)?.ok_or_else(none)?;
        let provider = Arc::new(default_provider());
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13, &TLS12]);
        let config = config.map_err(Error::other)?;
        let config = match &files.ca {
            None => config.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(trusted(Some(ca))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| at(ca, &error.to_string()))?)
            }
        };
        let config = config.with_single_cert(certs, key).map_err(|error| key_mismatch(files, &error.to_string()))?;
        Ok(Server(Arc::new(config)))
    }

    /// Returns the configuration, for servers with their own event loop.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

/// Returns the trusted CAs.
fn trusted(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match ca {
        Some(path) => {
            for cert in certificates(path)? {
                store.add(cert).map_err(|error| at(path, &format!("unusable certificate: {error}")))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                let text =
                    "no CA certificates on this system; install them (Debian: ca-certificates) or set --tls ca=FILE";
                return Err(Error::new(ErrorKind::NotFound, text));
            }
        }
    }
    Ok(store)
}

type OwnIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own(files: &Files) -> Result<Option<OwnIdentity>> {
    match (&files.cert, &files.key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((certificates(cert)?, private_key(key)?))),
        _ => Err(Error::new(ErrorKind::InvalidInput, "certificate and key are needed together; set both")),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(input::open(path), path)?;
    let certs: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certs = certs.map_err(|error| at(path, &format!("invalid PEM: {error}")))?;
    if certs.is_empty() {
        return Err(at(path, "no certificate found; expected PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(certs)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let file = input::open(path);
    if let Ok(file) = &file {
        let mode = rustix::fs::fstat(file)?.st_mode;
        if mode & 0o007 != 0 {
            let path = path.display();
            let text = format!("{path}: key is readable by all users; run chmod o= {path}");
            return Err(Error::new(ErrorKind::PermissionDenied, text));
        }
    }
    let bytes = read(file, path)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| at(path, "no unencrypted PEM key found; convert it with openssl pkey -in FILE -out NEW"))
}

fn read(file: Result<File>, path: &Path) -> Result<Vec<u8>> {
    let failed = |error: Error| Error::new(error.kind(), format!("{}: cannot read: {error}", path.display()));
    let mut bytes = Vec::new();
    file.map_err(failed)?.take(MOST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn at(path: &Path, text: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{}: {text}", path.display()))
}

fn key_mismatch(files: &Files, text: &str) -> Error {
    at(files.key.as_deref().unwrap_or(Path::new("key")), &format!("key does not match the certificate: {text}"))
}
