//! From files to what connections are made with.

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

/// The most bytes of a file of certificates or of a key.
const MOST: u64 = 16 << 20;

/// Files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Certificates of those who are believed to sign others; none: of a server those that the system has, of clients none is asked for.
    pub ca: Option<PathBuf>,
    /// Our own certificate, with those between it and the CA behind it.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Makes connections.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<ClientConfig>);

/// Takes connections.
#[derive(Clone, Debug)]
pub struct Server(pub(crate) Arc<ServerConfig>);

impl Client {
    /// One that believes these, and has a certificate if one is named.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn new(files: &Files) -> Result<Self> {
        let provider = Arc::new(default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
        let config = config.map_err(Error::other)?.with_root_certificates(believed(files.ca.as_deref())?);
        let config = match own(files)? {
            None => config.with_no_client_auth(),
            Some((certs, key)) => {
                config.with_client_auth_cert(certs, key).map_err(|error| no_pair(files, &error.to_string()))?
            }
        };
        Ok(Client(Arc::new(config)))
    }
}

impl Server {
    /// One with this certificate; with a CA clients have to bring a certificate that it signed.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be; others may read the key.
    pub fn new(files: &Files) -> Result<Self> {
        let none = || Error::new(ErrorKind::InvalidInput, "a server of TLS needs a certificate and its key");
        let (certs, key) = own(files)?.ok_or_else(none)?;
        let provider = Arc::new(default_provider());
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13, &TLS12]);
        let config = config.map_err(Error::other)?;
        let config = match &files.ca {
            None => config.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(believed(Some(ca))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| at(ca, &error.to_string()))?)
            }
        };
        let config = config.with_single_cert(certs, key).map_err(|error| no_pair(files, &error.to_string()))?;
        Ok(Server(Arc::new(config)))
    }

    /// What a server with an own loop is set up with.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

/// Whose signatures count.
fn believed(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match ca {
        Some(path) => {
            for cert in certificates(path)? {
                store.add(cert).map_err(|error| at(path, &format!("a certificate that cannot be used: {error}")))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                let text = "this system has no certificates of CAs (Debian: ca-certificates): --tls ca=FILE names one";
                return Err(Error::new(ErrorKind::NotFound, text));
            }
        }
    }
    Ok(store)
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own(files: &Files) -> Result<Option<Own>> {
    match (&files.cert, &files.key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((certificates(cert)?, private_key(key)?))),
        _ => Err(Error::new(ErrorKind::InvalidInput, "a certificate and its key go together: name both")),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(input::open(path), path)?;
    let certs: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certs = certs.map_err(|error| at(path, &format!("no certificates in PEM: {error}")))?;
    if certs.is_empty() {
        return Err(at(path, "no certificate in it: it begins with -----BEGIN CERTIFICATE-----"));
    }
    Ok(certs)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let file = input::open(path);
    if let Ok(file) = &file {
        let mode = rustix::fs::fstat(file)?.st_mode;
        if mode & 0o007 != 0 {
            let path = path.display();
            let text = format!("{path}: everybody on this machine may read the key: chmod o= {path}");
            return Err(Error::new(ErrorKind::PermissionDenied, text));
        }
    }
    let bytes = read(file, path)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| at(path, "no key in PEM without a password: openssl pkey -in FILE -out NEW makes one"))
}

fn read(file: Result<File>, path: &Path) -> Result<Vec<u8>> {
    let told = |error: Error| Error::new(error.kind(), format!("{}: cannot be read: {error}", path.display()));
    let mut bytes = Vec::new();
    file.map_err(told)?.take(MOST).read_to_end(&mut bytes).map_err(told)?;
    Ok(bytes)
}

fn at(path: &Path, text: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{}: {text}", path.display()))
}

fn no_pair(files: &Files, text: &str) -> Error {
    at(files.key.as_deref().unwrap_or(Path::new("key")), &format!("not the key of the certificate: {text}"))
}
