//! Error messages of TLS.

use rustls::{AlertDescription, CertificateError, Error as Tls};
use std::io::{Error, ErrorKind};

/// Converts a TLS error to a message with a remedy. The kind is `PermissionDenied` if only the user can fix it.
pub fn explain(error: Error) -> Error {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) else { return error };
    let (needs_user, text) = match tls {
        Tls::InvalidCertificate(why) => (true, certificate(why)),
        Tls::InvalidMessage(_) => (true, "the peer does not speak TLS".to_owned()),
        Tls::PeerIncompatible(_) => {
            (true, format!("no common TLS version or cipher; TLS 1.2 or later is required: {tls}"))
        }
        Tls::NoCertificatesPresented => (true, "the peer sent no certificate, but one is required".to_owned()),
        Tls::AlertReceived(AlertDescription::CertificateRequired) => {
            (true, "the peer requires a client certificate; set cert=FILE and key=FILE".to_owned())
        }
        Tls::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied),
        ) => (true, format!("the peer rejected our certificate ({alert:?})")),
        Tls::AlertReceived(alert) => (false, format!("the peer closed the TLS connection: {alert:?}")),
        other => (false, format!("TLS: {other}")),
    };
    Error::new(if needs_user { ErrorKind::PermissionDenied } else { ErrorKind::ConnectionAborted }, text)
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the peer's certificate is not signed by a trusted CA; set ca=FILE".to_owned()
        }
        CertificateError::NotValidForName => {
            "the peer's certificate is for another name than the one requested".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: String = presented.join(", ").chars().filter(|letter| !letter.is_control()).take(200).collect();
            format!("the peer's certificate is for another name than the one requested: {names}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the peer's certificate has expired; renew it, or check the clock".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the peer's certificate is not valid yet; check the clock".to_owned()
        }
        other => format!("the peer's certificate was rejected: {other}"),
    }
}
