//! Authentication of client and broker: TLS, and SASL (SaslHandshake 1, SaslAuthenticate 0).

use super::super::super::secure::Secure;
use super::super::DeliveryOptions;
use super::super::target::Target;
use super::broker::Broker;
use std::io::Result;
#[cfg(feature = "tls")]
use {
    super::super::options::Sasl,
    super::wire::{self, RequestKind},
    linerate_tls::sasl::{Mechanism, Scram, plain},
    std::io::{Error, ErrorKind},
};

/// Environment variable for a password that is not in a file.
#[cfg(feature = "tls")]
const PASSWORD: &str = "LINERATE_KAFKA_PASSWORD";

pub(in super::super) struct Access {
    pub(crate) secure: Secure,
    #[cfg(feature = "tls")]
    sign: Option<(Mechanism, String, String)>,
}

impl Access {
    /// Returns the authentication for a target.
    ///
    /// # Errors
    /// The password is missing.
    #[cfg(feature = "tls")]
    pub(crate) fn of(
        target: &Target,
        ship: &DeliveryOptions,
        password: Option<String>,
        secure: Secure,
    ) -> Result<Self> {
        let Some((sasl, user)) = ship.sasl.zip(target.user.clone()) else { return Ok(Access { secure, sign: None }) };
        let mechanism = match sasl {
            Sasl::Plain => Mechanism::Plain,
            Sasl::ScramSha256 => Mechanism::Sha256,
            Sasl::ScramSha512 => Mechanism::Sha512,
        };
        let none = || {
            let text = format!("SASL needs a password; set --ship password=FILE or {PASSWORD}");
            Error::new(ErrorKind::InvalidInput, text)
        };
        let password = password.or_else(|| std::env::var(PASSWORD).ok()).ok_or_else(none)?;
        Ok(Access { secure, sign: Some((mechanism, user, password)) })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn of(_: &Target, _: &DeliveryOptions, _: Option<String>, secure: Secure) -> Result<Self> {
        Ok(Access { secure })
    }

    /// Authenticates, if required.
    ///
    /// # Errors
    /// `PermissionDenied`: the broker rejected us, or failed to authenticate itself.
    pub(super) fn authenticate(&self, broker: &mut Broker) -> Result<()> {
        #[cfg(feature = "tls")]
        if let Some((mechanism, user, password)) = &self.sign {
            return authenticate(broker, *mechanism, user, password);
        }
        let _ = broker;
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn authenticate(broker: &mut Broker, mechanism: Mechanism, user: &str, password: &str) -> Result<()> {
    let answer = broker.ask(RequestKind::SaslHandshake, &wire::handshake(mechanism.name()))?;
    let (error, known) = wire::mechanisms(&answer).ok_or_else(|| broker.garbage())?;
    if error != 0 {
        let known: String = known.join(", ").chars().filter(|letter| !letter.is_control()).take(200).collect();
        let text = format!("{} not supported by the broker, only {known} (error {error})", mechanism.name());
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    let mut say = |message: &[u8]| {
        let answer = broker.ask(RequestKind::SaslAuthenticate, &wire::sign(message))?;
        let (error, why, said) = wire::signed(&answer).ok_or_else(|| broker.garbage())?;
        let why: String = why.chars().filter(|letter| !letter.is_control()).take(200).collect();
        let text = format!("authentication as {user} failed: {why} (error {error}); check the password");
        if error == 0 { Ok(said) } else { Err(Error::new(ErrorKind::PermissionDenied, text)) }
    };
    match Scram::new(mechanism, user, password)? {
        None => say(&plain(user, password)).map(drop),
        Some(mut scram) => {
            let said = say(&scram.first())?;
            let said = say(&scram.second(&said)?)?;
            scram.verify(&said)
        }
    }
}
