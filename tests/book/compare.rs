//! Compares the output that a page shows with the real output.
//!
//! - Words and whole numbers must be equal; the amount of white space is ignored.
//! - A number with a decimal point is a time, a rate or a share, and matches any such number: `0.044 s`,
//!   `255.4 k packets/s`. So does a number before `packets/s`, `b/s` and `ms` with any unit prefix.
//! - `...` as a line matches any number of lines, in a line any number of words, in a word any letters.
//! - Interval lines are ignored if the page shows none: on a slow machine a command takes seconds.
//! - If the page shows no output for a command, any output matches.

/// Describes the difference between a page and a run; `None` if they match.
pub(super) fn difference(wanted: &[String], printed: &str) -> Option<String> {
    let wanted: Vec<Vec<String>> = wanted.iter().map(|line| words(line)).filter(|line| !line.is_empty()).collect();
    let mut lines: Vec<Vec<String>> = printed.lines().map(words).filter(|line| !line.is_empty()).collect();
    if !wanted.iter().any(|line| is_live(line)) {
        lines.retain(|line| !is_live(line));
    }
    if wanted.is_empty()
        || matches(&wanted, &lines, &|one, other| matches(one, other, &|one, other| is_word(one, other)))
    {
        return None;
    }
    let shown = |lines: &[Vec<String>]| lines.iter().map(|line| line.join(" ")).collect::<Vec<_>>().join("\n");
    Some(format!(
        "the page:\n{}\nprinted, times and rates as #:\n{}\nas it is:\n{printed}",
        shown(&wanted),
        shown(&lines)
    ))
}

/// Items that can be a wildcard.
trait Any {
    fn is_any(&self) -> bool;
}

impl Any for String {
    fn is_any(&self) -> bool {
        self == "..."
    }
}

impl Any for Vec<String> {
    fn is_any(&self) -> bool {
        self.len() == 1 && self[0].is_any()
    }
}

fn matches<T: Any>(wanted: &[T], printed: &[T], same: &dyn Fn(&T, &T) -> bool) -> bool {
    match wanted.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.is_any() => (0..=printed.len()).any(|at| matches(rest, &printed[at..], same)),
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(one, others)| same(first, one) && matches(rest, others, same))
        }
    }
}

/// Returns whether it is an interval line, such as `   1 s            502 captured ...`.
fn is_live(line: &[String]) -> bool {
    line.len() > 4 && line[0] == "#" && line[1] == "s"
}

fn is_word(wanted: &str, printed: &str) -> bool {
    match wanted.split_once("...") {
        Some((begin, end)) => {
            printed.len() >= begin.len() + end.len() && printed.starts_with(begin) && printed.ends_with(end)
        }
        None => wanted == printed,
    }
}

/// Words of a line, with dates, times and rates as `#` and without unit prefixes.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let plain = word.trim_end_matches([',', ':', ';', ')']);
        let is_number = plain.starts_with(|c: char| c.is_ascii_digit())
            && plain.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
        let before_is_number =
            words.last().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit() || c == '#'));
        let unit = match plain {
            "kb/s" | "Mb/s" | "Gb/s" | "b/s" => "b/s",
            "ns" | "us" | "ms" => "s",
            _ => plain,
        };
        let shape: String = plain.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        if shape == "0000-00-00" || shape == "00:00:00.000" || is_number && plain.matches('.').count() == 1 {
            words.push(word.replace(plain, "#"));
        } else if before_is_number && ["k", "M", "G"].contains(&plain) {
            // Prefix of the following unit.
        } else {
            if before_is_number && ["b/s", "packets/s", "frames/s", "s"].contains(&unit) {
                let last = words.last_mut().expect("a word before");
                *last = last.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c == '#').to_owned();
                last.insert(0, '#');
            }
            words.push(word.replace(plain, unit));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(page: &str, printed: &str) -> bool {
        let lines: Vec<String> = page.lines().map(str::to_owned).collect();
        difference(&lines, printed).is_none()
    }

    #[test]
    fn times_and_rates_match_any() {
        assert!(same("sent in 0.044 s: 255.4 k packets/s, 9 b/s", "sent in   1.2 s: 980 packets/s, 0.3 Gb/s"));
        assert!(same("p99 12 us", "p99 1.3 ms"));
        assert!(same("TCP 2026-11-29 16:52:04.301 9", "TCP  2027-01-02 03:04:05.060  9"));
        assert!(!same("4 frames in 0.1 s", "5 frames in 0.1 s"));
        assert!(!same("10.0.0.1 here", "10.0.0.2 here"));
        assert!(!same("0 lost", "1 lost"));
    }

    #[test]
    fn dots_match_lines_and_words() {
        assert!(same("a\n...\nd", "a\nb\nc\nd"));
        assert!(same("...\nd", "d"));
        assert!(!same("a\n...\nd", "a\nb\nc"));
        assert!(same("written to ... by now", "written to /tmp/x 7 by now"));
        assert!(!same("written to ... by now", "written to /tmp/x"));
        assert!(same("as x...z: it", "as x/y/z: it"));
        assert!(!same("as x...z: it", "as x/y: it"));
    }

    #[test]
    fn whole_output_is_compared() {
        assert!(!same("a", "a\nb"));
        assert!(!same("a b", "a"));
        assert!(same("", "anything"));
    }

    #[test]
    fn interval_lines_are_ignored_unless_shown() {
        assert!(same("begin\nend", "begin\n   1 s  502 captured  499 packets/s  1.5 Mb/s L1  0 lost\nend"));
        assert!(!same("1 s 502 captured 9 packets/s", "   1 s  503 captured  499 packets/s"));
    }
}
