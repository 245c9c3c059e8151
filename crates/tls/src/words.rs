//! What went wrong, in words.

use rustls::{AlertDescription, CertificateError, Error as Tls};
use std::io::{Error, ErrorKind};

/// An error of a connection as a sentence that says what to do. Of those that only people can mend the kind is `PermissionDenied`.
pub fn told(error: Error) -> Error {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) else { return error };
    let (is_to_mend, text) = match tls {
        Tls::InvalidCertificate(why) => (true, certificate(why)),
        Tls::InvalidMessage(_) => (true, "the other side speaks no TLS".to_owned()),
        Tls::PeerIncompatible(_) => (true, format!("TLS 1.2 or later is needed, with a usual cipher: {tls}")),
        Tls::NoCertificatesPresented => (true, "it shows no certificate, and has to".to_owned()),
        Tls::AlertReceived(AlertDescription::CertificateRequired) => {
            (true, "it wants a certificate of ours: name it by cert=FILE, and its key by key=FILE".to_owned())
        }
        Tls::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied),
        ) => (true, format!("it does not believe our certificate ({alert:?})")),
        Tls::AlertReceived(alert) => (false, format!("it ends the connection of TLS: {alert:?}")),
        other => (false, format!("TLS: {other}")),
    };
    Error::new(if is_to_mend { ErrorKind::PermissionDenied } else { ErrorKind::ConnectionAborted }, text)
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is signed by nobody who is believed here: ca=FILE names the CA".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name than the one asked for".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: String = presented.join(", ").chars().filter(|letter| !letter.is_control()).take(200).collect();
            format!("its certificate is for another name than the one asked for: {names}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: it needs a new one (or a clock is wrong)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet (a clock may be wrong)".to_owned()
        }
        other => format!("its certificate is not believed: {other}"),
    }
}
