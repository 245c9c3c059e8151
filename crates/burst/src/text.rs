//! Text for users: quoting for shells, characters that terminals do not display, and names that were probably meant.

use std::borrow::Cow;

/// Quotes a word for a shell, if necessary.
///
/// ```
/// use linerate_burst::text::quoted;
/// assert_eq!((quoted("eth0.5"), quoted("e;$(x)")), ("eth0.5".into(), "'e;$(x)'".into()));
/// ```
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:@-/+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}

/// Returns the name of which `wrong` is probably a misspelling: at most a third of its letters are inserted, deleted, replaced or
/// swapped with a neighbour.
///
/// ```
/// use linerate_burst::text::nearest;
/// assert_eq!((nearest("Dprt", ["sport", "dport"]), nearest("dns", ["ip", "udp"])), (Some("dport"), None));
/// ```
pub fn nearest<T: AsRef<str> + Ord>(wrong: &str, names: impl IntoIterator<Item = T>) -> Option<T> {
    let wrong: String = wrong.chars().take(255).collect::<String>().to_lowercase();
    let (steps, name) = names.into_iter().map(|name| (strsim::osa_distance(&wrong, name.as_ref()), name)).min()?;
    (steps <= name.as_ref().len().div_ceil(3)).then_some(name)
}

/// Returns whether a terminal would interpret a character instead of displaying it, or display its neighbours
/// differently: control characters (C0, DEL, C1), line and paragraph separators, and category Cf of Unicode 16, which
/// includes those that change the direction of text.
pub fn is_unseen(character: char) -> bool {
    const FORMAT: [(u32, u32); 21] = [
        (0xad, 0xad),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x6dd, 0x6dd),
        (0x70f, 0x70f),
        (0x890, 0x891),
        (0x8e2, 0x8e2),
        (0x180e, 0x180e),
        (0x200b, 0x200f),
        (0x2028, 0x202e),
        (0x2060, 0x2064),
        (0x2066, 0x206f),
        (0xfeff, 0xfeff),
        (0xfff9, 0xfffb),
        (0x110bd, 0x110bd),
        (0x110cd, 0x110cd),
        (0x13430, 0x1343f),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0001, 0xe0001),
        (0xe0020, 0xe007f),
    ];
    let number = u32::from(character);
    character.is_control() || number >= 0xad && FORMAT.iter().any(|(first, last)| (*first..=*last).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_name_is_offered() {
        for (name, meant) in
            [("UDP", Some("udp")), ("dhcp", None), ("ipp", Some("ip")), ("tpc", Some("tcp")), ("dns", None)]
        {
            assert_eq!(nearest(name, ["ip", "udp", "tcp", "hip"]), meant, "{name}");
        }
    }

    #[test]
    fn misleading_characters_are_recognised() {
        let unseen = "\0\x07\t\n\r\x1b\x7f\u{80}\u{85}\u{9b}\u{ad}\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}";
        for character in unseen.chars() {
            assert!(is_unseen(character), "{}", character.escape_unicode());
        }
        for character in " ~az\u{e4}\u{df}\u{20ac}\u{6f22}\u{1f980}\u{a0}\u{2065}\u{fffd}".chars() {
            assert!(!is_unseen(character), "{}", character.escape_unicode());
        }
    }
}
