//! Validates names. They become file names, sysctl paths and words of `ip -batch`, so the rules are narrower than the
//! kernel's, and all input (options, TOML, state files) is checked here.

/// Maximum length of a lab or host name: two of them and a dash fit a file name.
const LONGEST_NAME: usize = 24;

/// Maximum length of an interface name: `IFNAMSIZ` - 1 (linux/if.h).
const LONGEST_INTERFACE: usize = 15;

/// Checks the name of a lab or host. The error has the valid form.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(legal) && !name.starts_with('-') {
        return Ok(());
    }
    Err(format!("invalid name {name:?}; expected 1 to {LONGEST_NAME} of a-z, 0-9 and '-', not starting with '-'"))
}

/// Checks the name of an interface in a lab. The error has the valid form.
///
/// The kernel accepts nearly any byte (`dev_valid_name`, net/core/dev.c); `lo`, `all` and `default` exist in every
/// namespace or in its sysctl tree.
pub(crate) fn check_interface(name: &str) -> Result<(), String> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    let letter_first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    if !letter_first || name.len() > LONGEST_INTERFACE || !name.bytes().all(legal) {
        return Err(format!(
            "{name:?} is not an interface name: 1 to {LONGEST_INTERFACE} of a-z, A-Z, 0-9, '_', '.' and '-', \
             beginning with a letter"
        ));
    }
    if matches!(name, "lo" | "all" | "default") {
        return Err(format!("interface name {name:?} is reserved; use another one"));
    }
    Ok(())
}

/// Checks a name in `/run/netns`. Wider than [`check_name`]: it may be any namespace.
pub(crate) fn check_namespace(name: &str) -> Result<(), String> {
    let legal = !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']) && name != "." && name != "..";
    if legal { Ok(()) } else { Err(format!("invalid namespace name {name:?}; expected 1 to 255 bytes without '/'")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_and_host_names() {
        for good in ["a", "left", "t12-3", "0", &"x".repeat(24)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "A", "a b", "a/b", "..", "a_b", "é", "a\n", &"x".repeat(25)] {
            assert!(check_name(bad).unwrap_err().contains("1 to 24"), "{bad}");
        }
    }

    #[test]
    fn interface_names() {
        for good in ["e", "eth0", "enp3s0f1np1", "veth.10", "a_b-c", "all0", "lo1", &"x".repeat(15)] {
            assert_eq!(check_interface(good), Ok(()), "{good}");
        }
        for bad in ["", "0eth", "-a", "a b", "a/b", "..", "eth%d", "a:b", "lo", "all", "default", &"x".repeat(16)] {
            assert!(check_interface(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespace_names() {
        for good in ["a", "My_Namespace", "...", "a.b"] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "../a", "a/b", "a\0b", &"x".repeat(256)] {
            assert!(check_namespace(bad).is_err(), "{bad}");
        }
    }
}
