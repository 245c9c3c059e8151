//! Client authentication: PLAIN (RFC 4616), SCRAM-SHA-256 (RFC 7677) and SCRAM-SHA-512.
//!
//! With SCRAM the password is not sent, and the server has to prove that it knows it too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::io::{Error, ErrorKind, Result};
use std::num::NonZeroU32;

/// Authentication mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Plaintext password.
    Plain,
    /// SCRAM with SHA-256.
    Sha256,
    /// SCRAM with SHA-512.
    Sha512,
}

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 3] = [Mechanism::Plain, Mechanism::Sha256, Mechanism::Sha512];
/// Accepted iteration counts: fewer are weaker than the RFC allows, more are a denial of service.
const ROUNDS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;

impl Mechanism {
    /// Returns the SASL name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Sha256 => "SCRAM-SHA-256",
            Mechanism::Sha512 => "SCRAM-SHA-512",
        }
    }
}

/// Returns the only message of PLAIN.
pub fn plain(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

/// A SCRAM exchange.
pub struct Scram {
    pbkdf2: pbkdf2::Algorithm,
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
    password: String,
    nonce: String,
    /// First message without the channel binding header.
    first: String,
    /// Expected server signature.
    shown: Vec<u8>,
}

impl Scram {
    /// Starts an exchange; `None` for PLAIN, which has only one message.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(mechanism: Mechanism, user: &str, password: &str) -> Result<Option<Self>> {
        let mut random = [0; 24];
        SystemRandom::new().fill(&mut random).map_err(|_| Error::other("no random numbers available"))?;
        Ok(Scram::with_nonce(mechanism, user, password, STANDARD.encode(random)))
    }

    fn with_nonce(mechanism: Mechanism, user: &str, password: &str, nonce: String) -> Option<Self> {
        let (pbkdf2, hmac, digest) = match mechanism {
            Mechanism::Plain => return None,
            Mechanism::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256, &digest::SHA256),
            Mechanism::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512, &digest::SHA512),
        };
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        Some(Scram { pbkdf2, hmac, digest, password: password.to_owned(), nonce, first, shown: Vec::new() })
    }

    /// Returns the first message (RFC 5802, section 7).
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first).into_bytes()
    }

    /// Returns the second message, given the server's answer to the first.
    ///
    /// # Errors
    /// If the answer is invalid or a rejection.
    pub fn second(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        let message = text(message)?;
        let [nonce, salt, rounds] =
            ["r=", "s=", "i="].map(|name| message.split(',').find_map(|part| part.strip_prefix(name)));
        let nonce = nonce.filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or_else(|| failed("nonce mismatch"))?;
        let salt = salt.and_then(|salt| STANDARD.decode(salt).ok()).ok_or_else(|| failed("missing salt"))?;
        let rounds = rounds.and_then(|rounds| rounds.parse().ok()).filter(|rounds| ROUNDS.contains(rounds));
        let rounds = rounds.and_then(NonZeroU32::new);
        let rounds = rounds.ok_or_else(|| failed("iteration count out of range"))?;
        let mut salted = vec![0; self.digest.output_len()];
        pbkdf2::derive(self.pbkdf2, rounds, &salt, self.password.as_bytes(), &mut salted);
        let sign = |key: &[u8], what: &[u8]| hmac::sign(&hmac::Key::new(self.hmac, key), what);
        let key = sign(&salted, b"Client Key");
        let stored = digest::digest(self.digest, key.as_ref());
        let last = format!("c=biws,r={nonce}");
        let all = format!("{},{message},{last}", self.first);
        let signature = sign(stored.as_ref(), all.as_bytes());
        let proof: Vec<u8> = key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        self.shown = sign(sign(&salted, b"Server Key").as_ref(), all.as_bytes()).as_ref().to_vec();
        Ok(format!("{last},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Verifies by the server's last message that it knows the password too.
    ///
    /// # Errors
    /// If it does not, or rejects ours.
    pub fn verify(&self, message: &[u8]) -> Result<()> {
        let message = text(message)?;
        let shown = message.strip_prefix("v=").and_then(|rest| STANDARD.decode(rest.split(',').next()?).ok());
        match shown {
            Some(shown) if !self.shown.is_empty() && shown == self.shown => Ok(()),
            _ => Err(failed("server signature mismatch")),
        }
    }
}

fn text(message: &[u8]) -> Result<&str> {
    let message = str::from_utf8(message).map_err(|_| failed("invalid UTF-8 from the server"))?;
    match message.strip_prefix("e=") {
        Some(why) => {
            Err(failed(&format!("refused: {}", why.chars().filter(|c| !c.is_control()).take(100).collect::<String>())))
        }
        None => Ok(message),
    }
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, format!("authentication failed: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7677, section 3.
    #[test]
    fn scram_matches_the_rfc() {
        let begin = || Scram::with_nonce(Mechanism::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO".into()).unwrap();
        let mut scram = begin();
        assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let wanted = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(scram.second(server).unwrap()).unwrap(), wanted);
        scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        assert!(scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=").is_err());
        assert!(scram.verify(b"e=invalid-proof").unwrap_err().to_string().contains("refused: invalid-proof"));
        for other in [
            "r=rOprNGfwEbeRWgbNEkqO,s=AA==,i=4096",
            "r=x,s=AA==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=AA==,i=1",
            "r=rOprNGfwEbeRWgbNEkqOx,s=AA==,i=4000000000",
            "r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096",
            "",
        ] {
            begin().second(other.as_bytes()).unwrap_err();
        }
        assert!(begin().verify(b"v=").is_err(), "no signature is accepted before the exchange");
    }

    #[test]
    fn names_are_escaped_and_nonces_differ() {
        let of = |user: &str| Scram::new(Mechanism::Sha512, user, "p").unwrap().unwrap();
        assert!(of("a=b,c").first().starts_with(b"n,,n=a=3Db=2Cc,r="));
        assert!(of("a").first() != of("a").first());
        assert!(Scram::new(Mechanism::Plain, "a", "b").unwrap().is_none());
        assert_eq!(plain("a", "b"), b"\0a\0b");
        assert_eq!(MECHANISMS.map(Mechanism::name), ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
    }

    proptest! {
        #[test]
        fn hostile_servers_are_rejected(message: Vec<u8>, last: Vec<u8>) {
            let mut scram = Scram::with_nonce(Mechanism::Sha512, "u", "p", "n".into()).unwrap();
            prop_assert!(scram.second(&message).is_err());
            prop_assert!(scram.verify(&last).is_err());
        }
    }
}
