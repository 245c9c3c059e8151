//! Deduplication settings of a table, queried once at the start.

use super::{ClickHouse, Http, Refusal, Spool, code, escaped};
use std::collections::BTreeMap;
use std::time::Duration;

/// Deduplication window of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The settings are not readable.
    Unknown,
    /// Length of the window.
    For(Duration),
    /// Disabled unless this setting is set.
    Nothing(&'static str),
    /// Not supported by its engine.
    OfEngine,
}

const REPLICATED: &str = "replicated_deduplication_window";
const SECONDS: &str = "replicated_deduplication_window_seconds";
const NON_REPLICATED: &str = "non_replicated_deduplication_window";

impl ClickHouse {
    /// Queries the deduplication window, and reports a missing one.
    pub(super) fn ask(&mut self, http: &mut Http, spool: &Spool) -> std::result::Result<(), Refusal> {
        let (database, table) = match self.path.split_once('.') {
            Some((database, table)) => (format!("'{database}'"), table),
            None => ("currentDatabase()".to_owned(), self.path.as_str()),
        };
        let of_table =
            format!("SELECT engine, engine_full FROM system.tables WHERE database = {database} AND name = '{table}'");
        let of_server = "SELECT name, value FROM system.merge_tree_settings WHERE name LIKE '%deduplication_window%'";
        let mut answers = Vec::new();
        for query in [&of_table, of_server] {
            http.connect()?;
            http.post(&format!("/?query={}", escaped(query)), &self.head, &[]);
            let answer = http.answer().map_err(|error| Refusal::Later(error.to_string()))?;
            // Without the right to query, the inserts report any problem.
            answers.push(if answer.status == 200 && code(&answer).is_none() { answer.body } else { String::new() });
        }
        let engine = answers[0].split('\t').next().unwrap_or_default();
        let engine: String = engine.chars().filter(char::is_ascii_alphanumeric).take(60).collect();
        let notify = spool.terms.notify;
        let name = &self.name;
        match memory(&answers[0], &answers[1]) {
            Memory::Unknown => {}
            Memory::For(span) => self.window = self.window.min(span),
            Memory::Nothing(setting) => {
                self.window = Duration::ZERO;
                let table = &self.table;
                notify(format!(
                    "{name}: no deduplication in this table; retried batches may be duplicated; run \
                     ALTER TABLE {table} MODIFY SETTING {setting} = 10000"
                ));
            }
            Memory::OfEngine => {
                self.window = Duration::ZERO;
                notify(format!(
                    "{name}: no deduplication in tables with engine {engine}; retried batches may be duplicated; \
                     use a MergeTree table"
                ));
            }
        }
        self.was_asked = true;
        Ok(())
    }
}

/// Parses the row of `system.tables` and the rows of `system.merge_tree_settings`.
fn memory(table: &str, settings: &str) -> Memory {
    let Some((engine, full)) = table.trim_end().split_once('\t') else { return Memory::Unknown };
    let settings: BTreeMap<&str, &str> = settings.lines().filter_map(|line| line.split_once('\t')).collect();
    let value = |name: &str| {
        let of_table = full.match_indices(name).find_map(|(at, _)| {
            let is_whole = !full[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
            let rest = full[at + name.len()..].trim_start().strip_prefix('=').filter(|_| is_whole)?;
            let rest = rest.trim_start();
            Some(rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default())
        });
        of_table.or_else(|| settings.get(name).copied()).and_then(|value| value.parse::<u64>().ok())
    };
    let is_replicated = engine.starts_with("Replicated") || engine.starts_with("Shared");
    match if is_replicated { value(REPLICATED) } else { value(NON_REPLICATED) } {
        _ if !engine.ends_with("MergeTree") => Memory::OfEngine,
        Some(1..) if is_replicated => Memory::For(Duration::from_secs(value(SECONDS).unwrap_or(u64::MAX))),
        Some(1..) => Memory::For(Duration::MAX),
        None if is_replicated => Memory::Unknown,
        _ => Memory::Nothing(if is_replicated { REPLICATED } else { NON_REPLICATED }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deduplication_settings_are_parsed() {
        let new = "replicated_deduplication_window\t10000\nreplicated_deduplication_window_seconds\t3600\nnon_replicated_deduplication_window\t0\n";
        let old = "replicated_deduplication_window\t100\nreplicated_deduplication_window_seconds\t604800\n";
        let span = |seconds| Memory::For(Duration::from_secs(seconds));
        for (table, settings, wanted) in [
            ("", new, Memory::Unknown),
            (
                "MergeTree\tMergeTree PARTITION BY d ORDER BY a SETTINGS index_granularity = 8192\n",
                new,
                Memory::Nothing(NON_REPLICATED),
            ),
            (
                "MergeTree\tMergeTree ORDER BY a SETTINGS index_granularity = 8192\n",
                old,
                Memory::Nothing(NON_REPLICATED),
            ),
            (
                "MergeTree\tMergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100, x = 1\n",
                new,
                Memory::For(Duration::MAX),
            ),
            (
                "SummingMergeTree\tSummingMergeTree ORDER BY a SETTINGS non_replicated_deduplication_window=0\n",
                new,
                Memory::Nothing(NON_REPLICATED),
            ),
            ("ReplicatedMergeTree\tReplicatedMergeTree(\\'/a\\', \\'b\\') ORDER BY a\n", new, span(3600)),
            ("ReplicatedMergeTree\tReplicatedMergeTree(\\'/a\\', \\'b\\') ORDER BY a\n", "", Memory::Unknown),
            (
                "SharedMergeTree\tSharedMergeTree ORDER BY a SETTINGS replicated_deduplication_window_seconds = 7\n",
                old,
                span(7),
            ),
            (
                "ReplicatedMergeTree\tReplicatedMergeTree ORDER BY a SETTINGS replicated_deduplication_window = 0\n",
                new,
                Memory::Nothing(REPLICATED),
            ),
            ("Distributed\tDistributed(fleet, default, flows)\n", new, Memory::OfEngine),
            ("Null\tNull\n", new, Memory::OfEngine),
        ] {
            assert_eq!(memory(table, settings), wanted, "{table}");
        }
    }
}
