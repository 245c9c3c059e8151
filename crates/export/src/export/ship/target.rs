//! Targets of brokers and databases.

use super::super::host::host_and_port;
use super::crc32c;
use std::io::{Error, ErrorKind, Result};
use std::net::IpAddr;

/// Parsed target: `SCHEME://[USER@]HOST[:PORT][,HOST...]/PATH`.
pub(super) struct Target {
    pub user: Option<String>,
    pub hosts: Vec<(String, u16)>,
    pub path: String,
}

impl Target {
    /// Returns whether all traffic stays on this host.
    pub(super) fn is_loopback(&self) -> bool {
        self.hosts.iter().all(|(host, _)| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        })
    }
}

/// Parses a target.
pub(super) fn target(name: &str) -> Result<Target> {
    let wrong = || {
        let text =
            "invalid target; expected kafka://HOST:9092,HOST2/TOPIC or clickhouse://USER@HOST:8123/DATABASE.TABLE";
        Error::new(ErrorKind::InvalidInput, format!("{name}: {text}"))
    };
    let (scheme, rest) = name.split_once("://").ok_or_else(wrong)?;
    let (hosts, path) = rest.split_once('/').ok_or_else(wrong)?;
    let (user, hosts) = hosts.rsplit_once('@').map_or((None, hosts), |(user, hosts)| (Some(user), hosts));
    if user.is_some_and(|user| user.contains(':')) {
        let text = "passwords in targets are visible to all users of this host; use --ship password=FILE";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    if user.is_some_and(|user| user.is_empty() || user.bytes().any(|byte| byte.is_ascii_control())) {
        return Err(wrong());
    }
    let usual = match scheme {
        "kafka" => 9092,
        "kafka+tls" => 9093,
        "clickhouse+https" => 8443,
        _ => 8123,
    };
    let host = |host: &str| {
        let whole = format!("{scheme}://{host}");
        let (host, port) = host_and_port(&whole, usual).map_err(|_| wrong())?;
        Ok((host.to_owned(), port))
    };
    let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>>>()?;
    Ok(Target { user: user.map(str::to_owned), hosts, path: path.to_owned() })
}

/// Returns the spool subdirectory of a target, unique per target.
pub(super) fn folder_of(name: &str) -> String {
    let keep = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let short: String = name.replace("://", "-").chars().map(keep).take(100).collect();
    format!("{short}-{:08x}", crc32c(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_hosts_and_a_path_and_no_password() {
        let of = |name: &str| target(name).map(|target| (target.user, target.hosts, target.path));
        let hosts =
            |hosts: &[(&str, u16)]| hosts.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect::<Vec<_>>();
        assert_eq!(of("kafka://a,b:1/t").unwrap(), (None, hosts(&[("a", 9092), ("b", 1)]), "t".into()));
        let wanted = (Some("u@x".into()), hosts(&[("::1", 8123)]), "d.t".into());
        assert_eq!(of("clickhouse://u@x@[::1]/d.t").unwrap(), wanted);
        for wrong in ["kafka://a", "kafka:///t", "kafka://a,/t", "kafka://a:x/t", "kafka://@a/t", "clickhouse://a b/t"]
        {
            assert!(of(wrong).unwrap_err().to_string().contains("invalid target"), "{wrong}");
        }
        assert!(of("clickhouse://u:p@h/t").unwrap_err().to_string().contains("--ship password=FILE"));
    }

    #[test]
    fn loopback_is_recognised_by_address() {
        let is_loopback = |host: &str| target(&format!("clickhouse://{host}/t")).unwrap().is_loopback();
        for host in ["127.0.0.1", "127.9.9.9:81", "[::1]", "[::ffff:127.0.0.1]", "localhost:8123"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example", "[2001:db8::1]", "127.example", "127.0.0.1,10.0.0.1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn folders_of_targets_are_names_and_differ() {
        let names =
            ["kafka://a:1/t", "kafka://a-1/t", "clickhouse://../../etc/x", "clickhouse://../..-etc/x"].map(folder_of);
        assert_eq!(names[0], "kafka-a-1-t-".to_owned() + names[0].rsplit('-').next().unwrap());
        assert!(names.iter().all(|name| !name.contains('/') && !name.starts_with('.')));
        assert!((0..4).all(|one| (0..one).all(|other| names[one] != names[other])), "{names:?}");
    }
}
