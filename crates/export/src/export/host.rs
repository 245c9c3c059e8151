//! Hosts in targets: `SCHEME://HOST:PORT`.

use std::io::{Error, ErrorKind, Result};

/// Parses a target without resolving its host: the part after `://`, and a port unless it is the default.
pub(super) fn host_and_port(target: &str, usual: u16) -> Result<(&str, u16)> {
    let wrong = || {
        let text = format!("{target}: invalid target; expected SCHEME://HOST:PORT, with IPv6 addresses in brackets");
        Error::new(ErrorKind::InvalidInput, text)
    };
    let (_, rest) = target.split_once("://").ok_or_else(wrong)?;
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(usual), str::parse).map_err(|_| wrong())?;
    let is_host =
        !host.is_empty() && !host.contains(['/', '?', '@', ' ']) && (rest.starts_with('[') || !host.contains(':'));
    if is_host && port != 0 { Ok((host, port)) } else { Err(wrong()) }
}

/// Returns the registered port.
pub(super) fn default_port(target: &str) -> u16 {
    match () {
        () if target.starts_with("netflow9") => 2055,
        () if target.starts_with("ipfix+tls") => 4740,
        () => 4739,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_host_and_a_port() {
        for (target, host, port) in [
            ("ipfix+udp://collector:9995", "collector", 9995),
            ("ipfix+tcp://192.0.2.1", "192.0.2.1", 4739),
            ("ipfix+udp://[2001:db8::1]:1", "2001:db8::1", 1),
            ("ipfix+udp://[::1]", "::1", 4739),
        ] {
            assert_eq!(host_and_port(target, 4739).unwrap(), (host, port), "{target}");
        }
        for target in
            ["a://", "a://:9", "a://h:0", "a://h:x", "a://[::1", "a://[::1]9", "a://::1", "a://h/p:1", "a://h?b:1"]
        {
            let error = host_and_port(target, 4739).unwrap_err().to_string();
            assert!(error.contains("SCHEME://HOST:PORT"), "{target}: {error}");
        }
    }
}
