//! Authorisation of requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use std::net::{IpAddr, SocketAddr};

/// Token that clients must send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// None required.
    None,
    /// This text.
    Text(String),
}

/// Authorisation rules.
#[derive(Clone, Debug)]
pub struct Guard {
    token: Token,
    address: SocketAddr,
    /// Names of this host, in addition to its addresses.
    names: Vec<String>,
    /// True for TLS connections.
    is_secure: bool,
}

/// Reason of a rejection: HTTP status and sentence.
pub type Refusal = (u16, &'static str);

impl Guard {
    /// Creates the rules of a server at this address; `names` are its host names.
    pub fn new(token: Token, address: SocketAddr, names: Vec<String>) -> Self {
        Guard { token, address, names, is_secure: false }
    }

    /// Sets that connections use TLS.
    #[must_use]
    pub fn secure(self) -> Self {
        Guard { is_secure: true, ..self }
    }

    /// Checks the head of a request; `has_body`: its method has a document.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn check(&self, headers: &HeaderMap, has_body: bool) -> Result<(), Refusal> {
        self.check_host(headers)?;
        if !self.may(headers) {
            return Err((
                401,
                "token missing or wrong; send Authorization: Bearer TOKEN or use http://:TOKEN@HOST:PORT",
            ));
        }
        let kind = text(headers, &CONTENT_TYPE).unwrap_or_default();
        if has_body && kind.split(';').next().map(str::trim) != Some("application/json") {
            return Err((415, "unsupported content type; expected application/json"));
        }
        Ok(())
    }

    /// Checks a request for a path without a token: it must be for this host, and not from a page of another origin.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, &HOST).unwrap_or_default();
        if headers.get_all(HOST).iter().count() != 1 || !self.is_own_host(host) {
            return Err((403, "Host header names another host; start the server with --name NAME to allow a name"));
        }
        let scheme = if self.is_secure { "https" } else { "http" };
        if headers.contains_key(ORIGIN)
            && text(headers, &ORIGIN).is_none_or(|origin| origin != format!("{scheme}://{host}"))
        {
            return Err((403, "cross-origin requests are not allowed"));
        }
        Ok(())
    }

    /// Returns whether a host, with or without port, is this one.
    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let own = self.address.ip();
        match name.parse::<IpAddr>() {
            // DNS rebinding cannot produce an address in the Host header.
            Ok(address) => address == own || own.is_unspecified() || own.is_loopback() && address.is_loopback(),
            Err(_) => {
                let is_local = name == "localhost" && (own.is_loopback() || own.is_unspecified());
                // With TLS the browser has verified a certificate for the name: rebinding of another name fails.
                let is_certified = self.is_secure && !name.is_empty();
                is_local || is_certified || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
            }
        }
    }

    fn may(&self, headers: &HeaderMap) -> bool {
        let Token::Text(token) = &self.token else { return true };
        let Some(given) = text(headers, &AUTHORIZATION) else { return false };
        let (kind, value) = given.split_once(' ').unwrap_or((given, ""));
        let brought = match kind.to_ascii_lowercase().as_str() {
            "bearer" => value.trim().as_bytes().to_vec(),
            "basic" => {
                let pair = STANDARD.decode(value.trim()).unwrap_or_default();
                let password = pair.iter().position(|byte| *byte == b':').map(|at| pair[at + 1..].to_vec());
                password.unwrap_or_default()
            }
            _ => return false,
        };
        is_same(&brought, token.as_bytes())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in constant time for equal lengths.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn requests_for_other_hosts_are_rejected() {
        let address = "127.0.0.1:8443".parse().unwrap();
        let guard = Guard::new(Token::Text("secret".into()), address, Vec::new());
        let bearer = ("authorization", "Bearer secret");
        let status = |all: &[(&'static str, &str)], body| {
            guard.check(&headers(all), body).map_or_else(|refusal| refusal.0, |()| 200)
        };
        for host in ["127.0.0.1:8443", "localhost:8443", "localhost", "[::1]:1"] {
            assert_eq!(status(&[("host", host), bearer], false), 200, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8443", "10.0.0.1", "", "[", "localhost.evil.example"] {
            assert_eq!(status(&[("host", host), bearer], false), 403, "{host}");
        }
        let named = Guard::new(Token::None, "0.0.0.0:8443".parse().unwrap(), vec!["lab.example".into()]);
        for (host, is_own_host) in
            [("Lab.Example:8443", true), ("lab.example.evil.example", false), ("10.0.0.1:8443", true)]
        {
            assert_eq!(named.check_host(&headers(&[("host", host)])).is_ok(), is_own_host, "{host}");
        }
        let host = ("host", "localhost:8443");
        assert_eq!(status(&[bearer], false), 403);
        assert_eq!(status(&[host, bearer, ("origin", "http://localhost:8443")], false), 200);
        for origin in ["http://evil.example", "null", "https://localhost:8443", "http://localhost:8444"] {
            assert_eq!(status(&[host, bearer, ("origin", origin)], false), 403, "{origin}");
        }
        let secure = guard.clone().secure();
        let status_of = |all: &[(&'static str, &str)]| {
            secure.check(&headers(all), false).map_or_else(|refusal| refusal.0, |()| 200)
        };
        let named = ("host", "lab.example:8443");
        assert_eq!(status_of(&[named, bearer, ("origin", "https://lab.example:8443")]), 200);
        for (host, origin) in [
            ("lab.example:8443", "http://lab.example:8443"),
            ("lab.example:8443", "https://evil.example"),
            ("10.0.0.1", "https://10.0.0.1"),
            ("", "https://"),
        ] {
            assert_eq!(status_of(&[("host", host), bearer, ("origin", origin)]), 403, "{host} {origin}");
        }
        for wrong in
            ["Bearer secre", "Bearer secrets", "Bearer ", "Basic secret", "Basic c2VjcmV0", "secret", "Digest x"]
        {
            assert_eq!(status(&[host, ("authorization", wrong)], false), 401, "{wrong}");
        }
        assert_eq!(status(&[host], false), 401);
        assert_eq!(status(&[host, ("authorization", "Basic OnNlY3JldA==")], false), 200);
        assert_eq!(status(&[host, bearer], true), 415);
        assert_eq!(status(&[host, bearer, ("content-type", "text/plain")], true), 415);
        assert_eq!(status(&[host, bearer, ("content-type", "application/json; charset=utf-8")], true), 200);
    }
}
