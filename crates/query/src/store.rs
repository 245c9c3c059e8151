//! Queries of Parquet files: several threads, a row group each.

use crate::answer::{PartialAnswer, RecordPosition};
use crate::columns::{Batch, Id, Values, Word, all};
use crate::file::{File, GroupOutcome};
use crate::filter::{Filter, Memo};
use crate::folder::RecordFile;
use crate::question::{Measure, Question};
use linerate_export::decode::{self, Value};
use linerate_meter::Flow;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};

/// Statistics of a scan: files, row groups and records read and skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Files opened.
    pub files: u64,
    /// Files skipped because their folders are of another time.
    pub files_passed: u64,
    /// Row groups of the opened files.
    pub groups: u64,
    /// Row groups skipped by their statistics.
    pub groups_passed: u64,
    /// Row groups of which only columns of the filter were read.
    pub groups_empty: u64,
    /// Records in row groups that were read.
    pub rows: u64,
    /// Records in all row groups of the opened files.
    pub stored: u64,
    /// Columns of keys and filter that have a value in some record.
    pub present: BTreeSet<Id>,
    /// The first errors of files that were not read completely.
    pub failures: Vec<String>,
    /// Number of such files.
    pub failed: u64,
}

/// Maximum number of errors kept.
const MOST_FAILURES: usize = 5;
/// Returns false to stop a run.
pub type KeepRunning<'a> = &'a (dyn Fn() -> bool + Sync);

/// Files, filtered by time.
#[derive(Clone, Debug)]
pub struct Store {
    files: Vec<RecordFile>,
    passed: u64,
    /// Bytes of all files, including skipped ones, and bytes read.
    bytes: u64,
    read: Arc<AtomicU64>,
}

impl Scan {
    fn join(&mut self, other: Scan) {
        self.files += other.files;
        self.groups += other.groups;
        self.groups_passed += other.groups_passed;
        self.groups_empty += other.groups_empty;
        self.rows += other.rows;
        self.stored += other.stored;
        self.present.extend(other.present);
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.sort();
        self.failures.truncate(MOST_FAILURES);
    }

    fn fail(&mut self, file: &RecordFile, error: &str) {
        self.failed += 1;
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(format!("{}: {error}", file.path.display()));
        }
    }

    fn open(&mut self, file: &File, columns: &BTreeSet<Id>) {
        self.files += 1;
        for group in 0..file.groups() {
            self.stored += file.rows(group).unwrap_or(0) as u64;
            let has_value = |id: &&Id| survive(|| Ok(file.has_value(group, **id))).unwrap_or(true);
            self.present.extend(columns.iter().filter(has_value));
        }
    }

    fn count(&mut self, looked: GroupOutcome, rows: usize) {
        self.groups += 1;
        match looked {
            GroupOutcome::Passed => self.groups_passed += 1,
            GroupOutcome::Nothing => self.groups_empty += 1,
            GroupOutcome::Taken => {}
        }
        self.rows += if looked == GroupOutcome::Passed { 0 } else { rows as u64 };
    }
}

/// Work queue of the threads.
struct WorkQueue {
    next_file: usize,
    /// Threads that are opening files, and may add row groups.
    opening: usize,
    groups: VecDeque<(usize, Arc<File>, usize)>,
}

impl Store {
    /// Selects the files that may have records of a time, in ns since 1970.
    pub fn new(files: Vec<RecordFile>, since: u64, until: u64) -> Self {
        let all = files.len();
        // A missing file is reported when it is opened.
        let bytes = files.iter().filter_map(|file| std::fs::metadata(&file.path).ok()).map(|of| of.len()).sum();
        let files: Vec<RecordFile> = files.into_iter().filter(|file| file.may_have(since, until)).collect();
        Store { passed: (all - files.len()) as u64, files, bytes, read: Arc::default() }
    }

    /// Returns the bytes read so far, and those of all files.
    pub fn bytes_read(&self) -> [u64; 2] {
        [self.read.load(Ordering::Relaxed), self.bytes]
    }

    /// Evaluates the question over all files with `threads` threads. A file that cannot be read is reported, and
    /// records read before count. Without keys, `list` selects records for [`Store::records`], by a measure or the first
    /// ones.
    pub fn ask(
        &self,
        question: &Arc<Question>,
        list: Option<Option<&Measure>>,
        threads: usize,
        goes_on: KeepRunning<'_>,
    ) -> (PartialAnswer, Scan) {
        let waiting = Mutex::new(WorkQueue { next_file: 0, opening: 0, groups: VecDeque::new() });
        let (changed, parts) = (Condvar::new(), ordered(&question.filter));
        let new = || {
            let mut asked = PartialAnswer::new(question, threads);
            if let Some(measure) = list.flatten() {
                asked.best.by(measure);
            }
            asked
        };
        let work = || {
            let (mut asked, mut scan, mut memo) = (new(), Scan::default(), Memo::default());
            let mut wanted = question.group_columns();
            wanted.extend(list.iter().flat_map(|_| asked.best.columns()));
            let wanted: Vec<Id> = wanted.into_iter().collect();
            while let Some((number, file, group)) = self.next(&waiting, &changed, &mut scan, question, goes_on) {
                let mut show = |batch: &Batch, chosen: Option<&[bool]>, at: usize| {
                    asked.add(batch, chosen);
                    if list.is_some() {
                        asked.best.take(batch, chosen, (number, group, at));
                    }
                    goes_on()
                };
                let looked = survive(|| file.look(group, &parts, &wanted, list.is_some(), &mut memo, &mut show));
                match looked {
                    Ok(looked) => scan.count(looked, file.rows(group).unwrap_or(0)),
                    Err(error) => scan.fail(&self.files[number], &error),
                }
            }
            (asked, scan)
        };
        let mut sum = (new(), Scan { files_passed: self.passed, ..Scan::default() });
        let done: Vec<(PartialAnswer, Scan)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().filter_map(|thread| thread.join().ok());
            std::iter::once(own).chain(others).collect()
        });
        for (asked, scan) in done {
            sum.0.join(asked);
            sum.1.join(scan);
        }
        sum
    }

    /// Returns the next row group to read, of an open file or one that is opened for it.
    fn next(
        &self,
        waiting: &Mutex<WorkQueue>,
        changed: &Condvar,
        scan: &mut Scan,
        question: &Question,
        goes_on: KeepRunning<'_>,
    ) -> Option<(usize, Arc<File>, usize)> {
        let mut state = locked(waiting);
        loop {
            if !goes_on() {
                return None;
            }
            if let Some(found) = state.groups.pop_front() {
                return Some(found);
            }
            let number = state.next_file;
            let Some(stored) = self.files.get(number) else {
                if state.opening == 0 {
                    changed.notify_all();
                    return None;
                }
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.next_file += 1;
            state.opening += 1;
            drop(state);
            let opened = survive(|| File::open(&stored.path, &self.read));
            let mut found = Vec::new();
            match opened {
                Ok(file) => {
                    let file = Arc::new(file);
                    for group in 0..file.groups() {
                        let may_have = survive(|| Ok(file.may_have(group, &question.filter))).unwrap_or(true);
                        if may_have {
                            found.push((number, Arc::clone(&file), group));
                        } else {
                            scan.count(GroupOutcome::Passed, 0);
                        }
                    }
                    scan.open(&file, &question.named_columns());
                }
                Err(error) => scan.fail(stored, &error),
            }
            state = locked(waiting);
            state.opening -= 1;
            state.groups.extend(found);
            changed.notify_all();
        }
    }

    /// Returns the selected records, in their order.
    ///
    /// # Errors
    /// One of them can no longer be read.
    pub fn records(&self, asked: PartialAnswer) -> Result<Vec<Flow>, String> {
        let places = asked.best.places();
        let mut flows: Vec<Option<Flow>> = vec![None; places.len()];
        let mut order: Vec<(RecordPosition, usize)> =
            places.into_iter().enumerate().map(|(rank, place)| (place, rank)).collect();
        order.sort_unstable();
        for of_group in order.chunk_by(|one, other| (one.0.0, one.0.1) == (other.0.0, other.0.1)) {
            let (number, group, _) = of_group[0].0;
            let named = |error| format!("{}: {error}", self.files[number].path.display());
            let rows: Vec<usize> = of_group.iter().map(|((_, _, row), _)| *row).collect();
            let file = survive(|| File::open(&self.files[number].path, &self.read)).map_err(named)?;
            let mut ranks = of_group.iter().map(|(_, rank)| *rank);
            let columns = every_column();
            let mut show = |batch: &Batch, chosen: Option<&[bool]>, _: usize| {
                flows_of(batch, chosen, &mut |flow| {
                    if let Some(rank) = ranks.next() {
                        flows[rank] = Some(flow);
                    }
                });
            };
            survive(|| file.rows_of(group, &rows, &columns, &mut show)).map_err(named)?;
        }
        Ok(flows.into_iter().flatten().collect())
    }

    /// Passes all matching records in stored order, in one thread.
    pub fn each(&self, filter: &Filter, goes_on: KeepRunning<'_>, out: &mut dyn FnMut(Flow)) -> Scan {
        let mut scan = Scan { files_passed: self.passed, ..Scan::default() };
        let (parts, columns, mut memo) = (ordered(filter), every_column(), Memo::default());
        for stored in &self.files {
            let file = match survive(|| File::open(&stored.path, &self.read)) {
                Ok(file) => file,
                Err(error) => {
                    scan.fail(stored, &error);
                    continue;
                }
            };
            scan.open(&file, &filter.columns());
            for group in 0..file.groups() {
                if !goes_on() {
                    return scan;
                }
                let mut show = |batch: &Batch, chosen: Option<&[bool]>, _: usize| {
                    flows_of(batch, chosen, out);
                    goes_on()
                };
                match survive(|| file.look(group, &parts, &columns, false, &mut memo, &mut show)) {
                    Ok(looked) => scan.count(looked, file.rows(group).unwrap_or(0)),
                    Err(error) => {
                        scan.fail(stored, &error);
                        break;
                    }
                }
            }
        }
        scan
    }
}

/// Returns the conditions that must all hold: first those on words, since a dictionary may exclude all of them at once;
/// the rest combined, which is read in one pass.
fn ordered(filter: &Filter) -> Vec<Filter> {
    let is_of_words = |part: &Filter| {
        let columns = part.columns();
        let is_word = |id: &Id| matches!(all()[*id].kind(), crate::columns::Kind::Address | crate::columns::Kind::Text);
        !columns.is_empty() && columns.iter().all(is_word)
    };
    let (mut words, rest): (Vec<Filter>, Vec<Filter>) = filter.clone().parts().into_iter().partition(is_of_words);
    if !rest.is_empty() {
        words.push(Filter::All(rest));
    }
    words
}

fn every_column() -> Vec<Id> {
    // Derived columns need not be read.
    let is_put_back = |id: &Id| decode::set(all()[*id].field.path).is_some();
    (0..all().len()).filter(is_put_back).collect()
}

/// Converts the records of a batch to flows.
fn flows_of(batch: &Batch, chosen: Option<&[bool]>, out: &mut dyn FnMut(Flow)) {
    let setters: Vec<_> = all()
        .iter()
        .enumerate()
        .filter_map(|(id, column)| Some((column, decode::set(column.field.path)?, batch.get(id)?)))
        .collect();
    for row in (0..batch.rows).filter(|row| chosen.is_none_or(|chosen| chosen[*row])) {
        let mut flow = decode::nothing();
        for (column, set, values) in &setters {
            if values.is_absent(row) {
                continue;
            }
            let is_bit = column.bit.0 != 0;
            let value = match values {
                Values::Numbers(numbers, _) if is_bit => {
                    if numbers[row] == 0 {
                        continue;
                    }
                    Value::Quality(column.bit)
                }
                Values::Numbers(numbers, _) => Value::Number(numbers[row]),
                Values::Reals(reals, _) => Value::Real(reals[row]),
                Values::Words(places, words) => match &words[places[row] as usize] {
                    Word::Address(address) => Value::Address(*address),
                    Word::Text(text) => Value::Text(text),
                },
                Values::Lists(lists) => Value::List(&lists[row]),
            };
            set(&mut flow, column.side, value);
        }
        out(flow);
    }
}

fn locked(waiting: &Mutex<WorkQueue>) -> MutexGuard<'_, WorkQueue> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// True while a panic of this thread is caught as one of a damaged file.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync>;

/// Wraps a hook to ignore panics that are caught as those of damaged files.
fn quiet(hook: Hook) -> Hook {
    Box::new(move |panic| {
        if !IS_CAUGHT.get() {
            hook(panic);
        }
    })
}

/// Catches panics: a damaged file may violate an assumption of its reader. Only the error is reported: without a hook
/// the location and the backtrace would be printed before it.
fn survive<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| panic::set_hook(quiet(panic::take_hook())));
    let outer = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    result.unwrap_or_else(|_| Err("damaged: the Parquet reader failed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_reported_by_its_error_only() {
        static PRINTED: AtomicU64 = AtomicU64::new(0);
        // The wrapped hook is installed before this one.
        let _ = survive(|| Ok(()));
        let wrapped = panic::take_hook();
        panic::set_hook(quiet(Box::new(|_| {
            PRINTED.fetch_add(1, Ordering::Relaxed);
        })));
        let survived = survive::<()>(|| panic!("on purpose"));
        let printed = PRINTED.load(Ordering::Relaxed);
        let others = catch_unwind(|| panic!("on purpose"));
        panic::set_hook(wrapped);
        assert_eq!((survived, printed), (Err("damaged: the Parquet reader failed".to_owned()), 0));
        assert!(others.is_err() && PRINTED.load(Ordering::Relaxed) == 1, "a bug is printed");
    }
}
