//! ClickHouse: one HTTP `INSERT` per batch, with a deduplication token that makes a second insert of the same batch a
//! no-op. Several are in flight, over as many connections; their order does not matter.
//!
//! A table remembers tokens for a limited time and number of inserts. The time of the first attempt is noted on disk: a
//! batch sent again much later is counted as possibly duplicated.

mod memory;

use super::super::secure::Secure;
use super::form::Form;
use super::http::{Http, HttpResponse};
use super::journal::Id;
use super::link::RunDeadline;
use super::spool::Spool;
use super::state::SpooledBatch;
use super::target::Target;
use super::{DeliveryOptions, Destination, Refusal};
use crate::encode::rowbinary;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Number of unknown answers after which a batch is considered rejected.
const UNKNOWN: u32 = 20;
/// Environment variable for a password that is not in a file.
const PASSWORD: &str = "LINERATE_CLICKHOUSE_PASSWORD";

/// Temporary errors of ClickHouse (src/Common/ErrorCodes.cpp): no memory, too busy, no replica, no keeper, no space,
/// shutdown.
const PASSING: &[u32] = &[
    3, 159, 160, 173, 201, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 254, 279, 285, 286, 289, 319, 335, 364,
    373, 394, 415, 425, 439, 473, 499, 574, 677, 692, 710, 735, 744, 745, 999, 1000, 1001,
];
/// Errors of a batch: its bytes are malformed, or do not match the types of the table.
const OF_BATCH: &[u32] = &[
    6, 20, 26, 27, 32, 33, 36, 38, 41, 53, 69, 70, 72, 85, 117, 128, 131, 190, 321, 349, 407, 427, 441, 469, 636, 675,
    691,
];
/// Errors of the setup: unknown table or column, unknown user, access denied.
const TO_MEND: &[u32] = &[8, 10, 16, 47, 48, 60, 62, 73, 81, 115, 164, 192, 193, 194, 195, 291, 452, 497, 516];

/// Too many parts, which is temporary; or too many partitions in an insert, which is not.
const PARTS: u32 = 252;
const MIXED: &str = "too many partitions for single insert block";

/// Errors after which no part of a batch was inserted: too many queries, read only, too many parts.
const SURE: &[u32] = &[202, 242, PARTS];
/// Default deduplication window, slightly below the hour of new tables, as clocks differ.
const WINDOW_OF_TABLE: Duration = Duration::from_secs(3000);

/// Inserts in flight, each over its own connection.
const WINDOW: usize = 4;

pub(super) struct ClickHouse {
    /// Target, for messages.
    name: String,
    /// Idle connections, and those with a posted batch, the oldest first.
    idle: Vec<Http>,
    busy: VecDeque<Http>,
    table: String,
    /// Database, if given, and table.
    path: String,
    head: String,
    /// Number of unknown answers for the same batch.
    unknown: u32,
    /// Deduplication window of the table, and whether it was queried.
    window: Duration,
    was_asked: bool,
}

/// Returns the quoted database and table of a target.
pub(super) fn table(target: &Target) -> Result<String> {
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    let names: Vec<&str> = target.path.split('.').collect();
    if names.len() > 2 || !names.iter().all(|name| is_name(name)) {
        let text =
            "missing or invalid table; expected clickhouse://HOST:8123/flows or clickhouse://USER@HOST/DATABASE.flows";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("."))
}

/// Returns whether credentials are sent.
pub(super) fn has_secret(target: &Target, ship: &DeliveryOptions) -> bool {
    target.user.is_some() || ship.password.is_some() || std::env::var_os(PASSWORD).is_some()
}

impl ClickHouse {
    pub(super) fn new(
        name: &str,
        target: &Target,
        ship: &DeliveryOptions,
        password: Option<String>,
        over: RunDeadline,
        secure: &Secure,
    ) -> Result<Self> {
        let table = table(target)?;
        let (host, port) = &target.hosts[0];
        let password = password.or_else(|| std::env::var(PASSWORD).ok());
        let mut head = "Content-Type: application/octet-stream\r\n".to_owned();
        for (name, value) in [("X-ClickHouse-User", &target.user), ("X-ClickHouse-Key", &password)] {
            let Some(value) = value else { continue };
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(Error::new(ErrorKind::InvalidInput, "user or password contains a control character"));
            }
            head += &format!("{name}: {value}\r\n");
        }
        let idle = (0..WINDOW).map(|_| Http::new(host, *port, over.clone(), secure.clone())).collect();
        Ok(ClickHouse {
            name: name.to_owned(),
            idle,
            busy: VecDeque::new(),
            table,
            path: target.path.clone(),
            head,
            unknown: 0,
            window: ship.window.unwrap_or(WINDOW_OF_TABLE),
            was_asked: false,
        })
    }

    /// Sends a batch, after noting the attempt.
    fn send(
        &mut self,
        http: &mut Http,
        spool: &Spool,
        waiting: &SpooledBatch,
        bytes: &[u8],
    ) -> std::result::Result<(), Refusal> {
        let (batch, clock) = (&waiting.batch, spool.terms.clock);
        let target = self.place(Form::of(batch)?, batch.id);
        http.connect()?;
        if !self.was_asked {
            self.ask(http, spool)?;
            http.connect()?;
        }
        if waiting.tried.is_some() {
            spool.count(|tally| tally.resent += 1);
        }
        let is_late = waiting.tried.is_some_and(|at| !clock.is_within(at, self.window));
        if is_late {
            spool.count(|tally| tally.maybe_duplicated += u64::from(batch.rows));
        }
        if waiting.tried.is_none() || is_late {
            spool.tried(batch.id, Some(clock.now()))?;
        }
        http.post(&target, &self.head, bytes);
        Ok(())
    }

    /// Returns the URL for a batch, which an earlier run may have encoded in another form.
    fn place(&self, form: Form, Id { run, number }: Id) -> String {
        let columns = if form == Form::RowBinary { format!(" ({})", rowbinary::names()) } else { String::new() };
        let query = escaped(&format!("INSERT INTO {}{columns} FORMAT {}", self.table, form.in_clickhouse()));
        match form {
            // Servers that need this form do not know these settings: they deduplicate by content.
            Form::RowBinary => format!("/?query={query}"),
            _ => format!(
                "/?query={query}&async_insert=0&wait_end_of_query=1&insert_deduplicate=1\
                 &deduplicate_blocks_in_dependent_materialized_views=1&insert_deduplication_token={run:016x}-{number}"
            ),
        }
    }
}

impl Destination for ClickHouse {
    fn window(&self) -> usize {
        WINDOW
    }

    fn begin(&mut self, spool: &Spool, waiting: &SpooledBatch, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let Some(mut http) = self.idle.pop() else { return Err(Refusal::Again) };
        let sent = self.send(&mut http, spool, waiting, bytes);
        if sent.is_ok() {
            self.busy.push_back(http)
        } else {
            self.idle.push(http)
        }
        sent
    }

    fn end(&mut self, spool: &Spool, waiting: &SpooledBatch) -> std::result::Result<(), Refusal> {
        let Some(mut http) = self.busy.pop_front() else { return Err(Refusal::Again) };
        let answer = http.answer();
        self.idle.push(http);
        let answer = answer.map_err(|error| Refusal::Later(error.to_string()))?;
        let refusal = classify_response(&answer, &mut self.unknown);
        if refusal.is_err() && code(&answer).is_some_and(|code| SURE.contains(&code)) {
            spool.tried(waiting.batch.id, None)?;
        }
        if !matches!(refusal, Err(Refusal::Later(_))) {
            self.unknown = 0;
        }
        refusal
    }

    fn settle(&mut self, _: &Spool) -> Result<()> {
        Ok(())
    }
}

/// Interprets an answer; `unknown` counts unknown ones.
fn classify_response(answer: &HttpResponse, unknown: &mut u32) -> std::result::Result<(), Refusal> {
    let code = code(answer);
    if answer.status == 200 && code.is_none() {
        return Ok(());
    }
    let first = answer.body.lines().next().unwrap_or_default();
    let text: String = first.chars().filter(|letter| !letter.is_control()).take(300).collect();
    let text = format!("HTTP status {}: {text}", answer.status);
    match (code, answer.status) {
        (Some(PARTS), _) if answer.body.to_ascii_lowercase().contains(MIXED) => Err(Refusal::TooMixed(text)),
        (Some(code), _) if PASSING.contains(&code) => Err(Refusal::Later(text)),
        (Some(code), _) if OF_BATCH.contains(&code) => Err(Refusal::Never(text)),
        (Some(code), _) if TO_MEND.contains(&code) => Err(Refusal::NeedsFix(text)),
        (None, 401 | 403 | 404) => Err(Refusal::NeedsFix(text)),
        // From a proxy, or from a database that is shutting down.
        (None, 413) => Err(Refusal::TooLong(text)),
        (None, 408 | 425 | 429 | 500..) => Err(Refusal::Later(text)),
        _ => {
            *unknown += 1;
            Err(if *unknown >= UNKNOWN { Refusal::Never(text) } else { Refusal::Later(text) })
        }
    }
}

/// Returns the error code of an answer, if any.
fn code(answer: &HttpResponse) -> Option<u32> {
    let named = answer.head.iter().find(|(name, _)| name == "x-clickhouse-exception-code");
    named.and_then(|(_, code)| code.parse().ok()).or_else(|| code_of(&answer.body))
}

/// Finds `Code: 60. DB::Exception: ...` at the start of a line: an error may follow a success status.
fn code_of(body: &str) -> Option<u32> {
    let rest = body.lines().find_map(|line| line.strip_prefix("Code: "))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Percent-encodes a value for the query of a URL (RFC 3986).
fn escaped(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_classified() {
        let class = |status, head: &[(&str, &str)], body: &str, unknown: u32| {
            let head = head.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let answer = HttpResponse { status, head, body: body.to_owned() };
            match classify_response(&answer, &mut { unknown }) {
                Ok(()) => "taken",
                Err(Refusal::Later(_)) => "later",
                Err(Refusal::Never(_)) => "never",
                Err(Refusal::TooLong(_)) => "too long",
                Err(Refusal::TooMixed(_)) => "too mixed",
                Err(Refusal::NeedsFix(_)) => "setup",
                Err(other) => panic!("{other:?}"),
            }
        };
        let old = "Code: 242, e.displayText() = DB::Exception: Table is in readonly mode, e.what() = DB::Exception\n";
        let mixed =
            "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100). The limit is\n";
        for (status, body, wanted) in [
            (500, mixed, "too mixed"),
            (
                500,
                "Code: 252. DB::Exception: Too many parts (300). Merges are processing slower than inserts\n",
                "later",
            ),
            (200, "", "taken"),
            (200, "something else\n", "taken"),
            (500, old, "later"),
            (200, "Code: 60. DB::Exception: no table\n", "setup"),
            (404, "Code: 60. DB::Exception: no table\n", "setup"),
            (400, "Code: 33. DB::Exception: Cannot read all data\n", "never"),
            (403, "", "setup"),
            (503, "", "later"),
            (500, "Code: 4711. DB::Exception: what is this\n", "later"),
        ] {
            assert_eq!(class(status, &[], body, 0), wanted, "{status} {body}");
        }
        assert_eq!(class(500, &[("x-clickhouse-exception-code", "516")], "", 0), "setup");
        assert_eq!(class(500, &[], "Code: 4711. DB::Exception", UNKNOWN - 1), "never");
        // Proxy errors are temporary, however often they occur.
        for status in [408, 425, 429, 500, 502, 503, 504, 521, 599] {
            assert_eq!(class(status, &[], "<html>", UNKNOWN - 1), "later", "{status}");
        }
        assert_eq!(class(413, &[], "<html>", 0), "too long");
        assert_eq!((class(405, &[], "", 0), class(405, &[], "", UNKNOWN - 1)), ("later", "never"));
    }

    #[test]
    fn only_tables_are_accepted() {
        let table = |target: &str| super::super::target::target(target).and_then(|target| table(&target));
        assert_eq!(table("clickhouse://h/flows").unwrap(), "`flows`");
        assert_eq!(table("clickhouse://u@h:1/a_1.flows").unwrap(), "`a_1`.`flows`");
        for wrong in
            ["clickhouse://h/a.b.c", "clickhouse://h/a;b", "clickhouse://h/a`", "clickhouse://h/1", "clickhouse://h/a."]
        {
            table(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(escaped("INSERT INTO `a` FORMAT X"), "INSERT%20INTO%20%60a%60%20FORMAT%20X");
    }
}
