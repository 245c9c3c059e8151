//! File names of a recording: dates and times of their first frames, in UTC.

use crate::compression::Compression;
use crate::date;
use linerate_burst::Nanos;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Default name.
const USUAL: &str = "%Y%m%d-%H%M%S";

/// Supported conversions of strftime(3).
const CONVERSIONS: &str = "%Y %m %d %H %M %S %y %j %F %T %s, and %% for a percent sign";

/// Pattern of file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Folder; empty for the current one.
    pub folder: PathBuf,
    /// Name with conversions.
    name: String,
    /// Last name without a number, and the number of its next use.
    last: (String, u32),
}

impl Pattern {
    /// Parses a path as given by the user. After `DIR/` names are dates and times with this extension; a name without
    /// conversions gets date and time before its extension. Conversions in folders are not expanded.
    pub(super) fn new(path: &str, ending: &str) -> Result<Self> {
        let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
        let folder = if folder.is_empty() && path.starts_with('/') { "/" } else { folder };
        let name = match name {
            "" => format!("{USUAL}{ending}"),
            name if name.contains('%') => name.to_owned(),
            name => {
                let (stem, ending) = split(name);
                format!("{stem}-{USUAL}{ending}")
            }
        };
        let pattern = Pattern { folder: Path::new(folder).to_owned(), name, last: (String::new(), 1) };
        match pattern.expand(Nanos::ZERO) {
            Some(name) if !name.contains('/') => Ok(pattern),
            _ => {
                let text = format!("{path}: invalid conversion in the file name; supported are {CONVERSIONS}");
                Err(Error::new(ErrorKind::InvalidInput, text))
            }
        }
    }

    /// Returns candidate names for a file that starts at a time, each once; one will be free.
    pub(super) fn next(&mut self, time: Nanos) -> String {
        let plain = self.expand(time).unwrap_or_default();
        if self.last.0 != plain {
            self.last = (plain, 1);
        }
        let (plain, number) = &mut self.last;
        let name = match *number {
            1 => plain.clone(),
            // Sorts after the plain name.
            number => {
                let (stem, ending) = split(plain);
                format!("{stem}_{number:03}{ending}")
            }
        };
        *number += 1;
        name
    }

    /// Expands the name for a time; `None` for an unknown conversion.
    fn expand(&self, time: Nanos) -> Option<String> {
        let seconds = time.seconds();
        let [year, month, day] = date(seconds);
        let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
        let mut name = String::new();
        let mut letters = self.name.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                name.push(letter);
                continue;
            }
            name += &match letters.next()? {
                'Y' => format!("{year:04}"),
                'y' => format!("{:02}", year % 100),
                'm' => format!("{month:02}"),
                'd' => format!("{day:02}"),
                'H' => format!("{hour:02}"),
                'M' => format!("{minute:02}"),
                'S' => format!("{second:02}"),
                'j' => format!("{:03}", day_of_year(seconds, year)),
                'F' => format!("{year:04}-{month:02}-{day:02}"),
                'T' => format!("{hour:02}:{minute:02}:{second:02}"),
                's' => seconds.to_string(),
                '%' => "%".to_owned(),
                _ => return None,
            };
        }
        Some(name)
    }
}

/// Splits a name from its extensions: `all` and `.pcapng.zst`.
fn split(name: &str) -> (&str, &str) {
    let (_, plain) = Compression::of_path(name);
    name.split_at(plain.rfind('.').filter(|at| *at > 0).unwrap_or(plain.len()))
}

fn day_of_year(seconds: u64, year: u64) -> u64 {
    let days = seconds / 86_400;
    (0..366).find(|back| *back == days || date((days - back - 1) * 86_400)[0] != year).map_or(1, |back| back + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// 2026-11-22 21:05:54.
    const TIME: Nanos = Nanos(1_795_381_554_123_456_789);

    fn first(path: &str) -> String {
        let mut pattern = Pattern::new(path, ".pcapng").unwrap();
        let name = pattern.next(TIME);
        format!("{}|{name}", pattern.folder.display())
    }

    #[test]
    fn names_are_dates_and_times() {
        for (path, wanted) in [
            ("kept/", "kept|20261122-210554.pcapng"),
            ("/", "/|20261122-210554.pcapng"),
            ("all.pcapng.zst", "|all-20261122-210554.pcapng.zst"),
            ("/var/all.pcap", "/var|all-20261122-210554.pcap"),
            ("a.b/all", "a.b|all-20261122-210554"),
            ("x/eth0-%F_%T.pcap", "x|eth0-2026-11-22_21:05:54.pcap"),
            ("50%/%j-%y-%s-100%%.pcap", "50%|326-26-1795381554-100%.pcap"),
        ] {
            assert_eq!(first(path), wanted, "{path}");
        }
        for path in ["%", "%Q.pcap", "a%", "x/%5Y.pcap"] {
            assert!(Pattern::new(path, "").is_err(), "{path}");
        }
        assert_eq!(day_of_year(0, 1970), 1);
        assert_eq!(day_of_year(951_868_799, 2000), 60);
        assert_eq!(day_of_year(978_307_199, 2000), 366);
    }

    #[test]
    fn equal_names_get_numbers_and_sort() {
        let mut pattern = Pattern::new("a-%H.pcapng.gz", "").unwrap();
        let names: Vec<String> = [0, 1, 2, 3600, 3601].map(|s| pattern.next(Nanos::from_parts(s, 0))).into();
        assert_eq!(
            names,
            ["a-00.pcapng.gz", "a-00_002.pcapng.gz", "a-00_003.pcapng.gz", "a-01.pcapng.gz", "a-01_002.pcapng.gz",]
        );
        assert!(names.is_sorted());
    }

    proptest! {
        #[test]
        fn usual_names_are_unique_and_in_the_order_of_times(mut times in prop::collection::vec(0u64..4_000_000_000, 1..50)) {
            times.sort_unstable();
            let mut pattern = Pattern::new("x.pcap", "").unwrap();
            let names: Vec<String> = times.iter().map(|s| pattern.next(Nanos::from_parts(*s, 5))).collect();
            prop_assert!(names.is_sorted(), "{names:?}");
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
    }
}
