//! Who we are to a broker, and whether it is one we know: TLS, and signing in by SASL (SaslHandshake 1, SaslAuthenticate 0).

use super::super::super::secure::Secure;
use super::super::Shipping;
use super::super::target::Target;
use super::broker::Broker;
use std::io::Result;
#[cfg(feature = "tls")]
use {
    super::super::words::Sasl,
    super::wire::{self, Ask},
    linerate_tls::sasl::{Mechanism, Scram, plain},
    std::io::{Error, ErrorKind},
};

/// Where a password is looked for that no file has.
#[cfg(feature = "tls")]
const PASSWORD: &str = "LINERATE_KAFKA_PASSWORD";

pub(in super::super) struct Access {
    pub secure: Secure,
    #[cfg(feature = "tls")]
    sign: Option<(Mechanism, String, String)>,
}

impl Access {
    /// That of a target.
    ///
    /// # Errors
    /// There is no password.
    #[cfg(feature = "tls")]
    pub(crate) fn of(target: &Target, ship: &Shipping, password: Option<String>, secure: Secure) -> Result<Self> {
        let Some((sasl, user)) = ship.sasl.zip(target.user.clone()) else { return Ok(Access { secure, sign: None }) };
        let mechanism = match sasl {
            Sasl::Plain => Mechanism::Plain,
            Sasl::ScramSha256 => Mechanism::Sha256,
            Sasl::ScramSha512 => Mechanism::Sha512,
        };
        let none = || {
            let text =
                format!("signing in takes a password: --ship password=FILE names a file that has it, or {PASSWORD}");
            Error::new(ErrorKind::InvalidInput, text)
        };
        let password = password.or_else(|| std::env::var(PASSWORD).ok()).ok_or_else(none)?;
        Ok(Access { secure, sign: Some((mechanism, user, password)) })
    }

    #[cfg(not(feature = "tls"))]
    pub fn of(_: &Target, _: &Shipping, _: Option<String>, secure: Secure) -> Result<Self> {
        Ok(Access { secure })
    }

    /// Signs in, where one has to.
    ///
    /// # Errors
    /// `PermissionDenied`: the broker does not know us, or we not it.
    pub(super) fn sign_in(&self, broker: &mut Broker) -> Result<()> {
        #[cfg(feature = "tls")]
        if let Some((mechanism, user, password)) = &self.sign {
            return sign_in(broker, *mechanism, user, password);
        }
        let _ = broker;
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn sign_in(broker: &mut Broker, mechanism: Mechanism, user: &str, password: &str) -> Result<()> {
    let answer = broker.ask(Ask::SaslHandshake, &wire::handshake(mechanism.name()))?;
    let (error, known) = wire::mechanisms(&answer).ok_or_else(|| broker.garbage())?;
    if error != 0 {
        let known: String = known.join(", ").chars().filter(|letter| !letter.is_control()).take(200).collect();
        let text = format!("one does not sign in by {} there; it has {known} (error {error})", mechanism.name());
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    let mut say = |message: &[u8]| {
        let answer = broker.ask(Ask::SaslAuthenticate, &wire::sign(message))?;
        let (error, why, said) = wire::signed(&answer).ok_or_else(|| broker.garbage())?;
        let why: String = why.chars().filter(|letter| !letter.is_control()).take(200).collect();
        let text = format!("signing in as {user}: {why} (error {error}): is the password right?");
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
