//! ClickHouse: `INSERT` over HTTP, a batch each, under a token that makes a second one of the same batch no second one. Several are under way
//! at a time, over as many connections: whichever is done first, each is known by its token.

use super::super::secure::Secure;
use super::form::Form;
use super::http::{Answer, Http};
use super::journal::Id;
use super::link::Over;
use super::spool::Spool;
use super::state::Waiting;
use super::target::Target;
use super::{Destination, Refusal};
use crate::encode::rowbinary;
use std::collections::{BTreeSet, VecDeque};
use std::io::{Error, ErrorKind, Result};

/// How often an answer that nobody knows is taken for one that may change.
const UNKNOWN: u32 = 20;
/// Where a password is looked for that no file has.
const PASSWORD: &str = "LINERATE_CLICKHOUSE_PASSWORD";

/// Errors of ClickHouse (src/Common/ErrorCodes.cpp) that pass: no memory, too busy, no replica, no keeper, no room, shutting down.
const PASSING: &[u32] = &[
    3, 159, 160, 173, 201, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 254, 279, 285, 286, 289, 319, 335, 364,
    373, 394, 415, 425, 439, 473, 499, 574, 677, 692, 710, 735, 744, 745, 999, 1000, 1001,
];
/// That are of the batch: its bytes are none of the format, or do not fit the types of the table.
const OF_BATCH: &[u32] = &[
    6, 20, 26, 27, 32, 33, 36, 38, 41, 53, 69, 70, 72, 85, 117, 128, 131, 190, 321, 349, 407, 427, 441, 469, 636, 675,
    691,
];
/// That somebody has to mend: no such table or column, no such user, nothing allowed.
const TO_MEND: &[u32] = &[8, 10, 16, 47, 48, 60, 62, 73, 81, 115, 164, 192, 193, 194, 195, 291, 452, 497, 516];

/// Inserts that are under way at a time, each over a connection of its own.
const WINDOW: usize = 4;

pub(super) struct ClickHouse {
    /// That nobody waits at, and those that were posted to, the oldest first.
    idle: Vec<Http>,
    busy: VecDeque<Http>,
    table: String,
    head: String,
    /// Answers that nobody knows, for the same batch.
    unknown: u32,
    /// Batches that were sent, and may be there.
    unanswered: BTreeSet<Id>,
}

/// Database and table, as they are named in a target.
pub(super) fn table(target: &Target) -> Result<String> {
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    let names: Vec<&str> = target.path.split('.').collect();
    if names.len() > 2 || !names.iter().all(|name| is_name(name)) {
        let text =
            "name a table behind the host, as in clickhouse://HOST:8123/flows or clickhouse://USER@HOST/DATABASE.flows";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("."))
}

impl ClickHouse {
    pub fn new(target: &Target, password: Option<String>, over: Over, secure: &Secure) -> Result<Self> {
        let table = table(target)?;
        let (host, port) = &target.hosts[0];
        let password = password.or_else(|| std::env::var(PASSWORD).ok());
        let mut head = "Content-Type: application/octet-stream\r\n".to_owned();
        for (name, value) in [("X-ClickHouse-User", &target.user), ("X-ClickHouse-Key", &password)] {
            let Some(value) = value else { continue };
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(Error::new(ErrorKind::InvalidInput, "the user or the password has a control character"));
            }
            head += &format!("{name}: {value}\r\n");
        }
        let idle = (0..WINDOW).map(|_| Http::new(host, *port, over.clone(), secure.clone())).collect();
        Ok(ClickHouse { idle, busy: VecDeque::new(), table, head, unknown: 0, unanswered: BTreeSet::new() })
    }

    /// Where a batch is posted to, which a run before may have written in another form.
    fn place(&self, form: Form, Id { run, number }: Id) -> String {
        let columns = if form == Form::RowBinary { format!(" ({})", rowbinary::names()) } else { String::new() };
        let query = escaped(&format!("INSERT INTO {}{columns} FORMAT {}", self.table, form.in_clickhouse()));
        match form {
            // Versions that know no other format know none of the settings either: they compare the bytes.
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

    fn begin(&mut self, spool: &Spool, waiting: &Waiting, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let (id, target) = (waiting.batch.id, self.place(Form::of(&waiting.batch)?, waiting.batch.id));
        let Some(mut http) = self.idle.pop() else { return Err(Refusal::Again) };
        if let Err(error) = http.post(&target, &self.head, bytes) {
            self.idle.push(http);
            return Err(error.into());
        }
        if !self.unanswered.insert(id) {
            spool.count(|tally| tally.resent += 1);
        }
        self.busy.push_back(http);
        Ok(())
    }

    fn end(&mut self, _: &Spool, waiting: &Waiting) -> std::result::Result<(), Refusal> {
        let Some(mut http) = self.busy.pop_front() else { return Err(Refusal::Again) };
        let answer = http.answer();
        self.idle.push(http);
        let refusal = judge(&answer.map_err(|error| Refusal::Later(error.to_string()))?, &mut self.unknown);
        self.unanswered.remove(&waiting.batch.id);
        if !matches!(refusal, Err(Refusal::Later(_))) {
            self.unknown = 0;
        }
        refusal
    }

    fn settle(&mut self, _: &Spool) -> Result<()> {
        Ok(())
    }
}

/// What an answer means; `unknown` counts those that nobody knows.
fn judge(answer: &Answer, unknown: &mut u32) -> std::result::Result<(), Refusal> {
    let named = answer.head.iter().find(|(name, _)| name == "x-clickhouse-exception-code");
    let code = named.and_then(|(_, code)| code.parse().ok()).or_else(|| code_of(&answer.body));
    if answer.status == 200 && code.is_none() {
        return Ok(());
    }
    let first = answer.body.lines().next().unwrap_or_default();
    let text: String = first.chars().filter(|letter| !letter.is_control()).take(300).collect();
    let text = format!("HTTP status {}: {text}", answer.status);
    match (code, answer.status) {
        (Some(code), _) if PASSING.contains(&code) => Err(Refusal::Later(text)),
        (Some(code), _) if OF_BATCH.contains(&code) => Err(Refusal::Never(text)),
        (Some(code), _) if TO_MEND.contains(&code) => Err(Refusal::ToMend(text)),
        (None, 401 | 403 | 404) => Err(Refusal::ToMend(text)),
        (None, 429 | 502..=504) => Err(Refusal::Later(text)),
        _ => {
            *unknown += 1;
            Err(if *unknown >= UNKNOWN { Refusal::Never(text) } else { Refusal::Later(text) })
        }
    }
}

/// `Code: 60. DB::Exception: ...`, at the begin of a line: an error may come behind a status that says there was none.
fn code_of(body: &str) -> Option<u32> {
    let rest = body.lines().find_map(|line| line.strip_prefix("Code: "))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// As a value in a query of a URL (RFC 3986).
fn escaped(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_of_a_class() {
        let class = |status, head: &[(&str, &str)], body: &str, unknown: u32| {
            let head = head.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let answer = Answer { status, head, body: body.to_owned() };
            match judge(&answer, &mut { unknown }) {
                Ok(()) => "taken",
                Err(Refusal::Later(_)) => "later",
                Err(Refusal::Never(_)) => "never",
                Err(Refusal::ToMend(_)) => "to mend",
                Err(other) => panic!("{other:?}"),
            }
        };
        let old = "Code: 242, e.displayText() = DB::Exception: Table is in readonly mode, e.what() = DB::Exception\n";
        for (status, body, wanted) in [
            (200, "", "taken"),
            (200, "something else\n", "taken"),
            (500, old, "later"),
            (200, "Code: 60. DB::Exception: no table\n", "to mend"),
            (404, "Code: 60. DB::Exception: no table\n", "to mend"),
            (400, "Code: 33. DB::Exception: Cannot read all data\n", "never"),
            (403, "", "to mend"),
            (503, "", "later"),
            (500, "Code: 4711. DB::Exception: what is this\n", "later"),
        ] {
            assert_eq!(class(status, &[], body, 0), wanted, "{status} {body}");
        }
        assert_eq!(class(500, &[("x-clickhouse-exception-code", "516")], "", 0), "to mend");
        assert_eq!(class(500, &[], "Code: 4711. DB::Exception", UNKNOWN - 1), "never");
    }

    #[test]
    fn a_table_is_named_and_nothing_else_is() {
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
