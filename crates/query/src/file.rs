//! One Parquet file: its row groups that may match, and their columns.
//!
//! Columns are found by name; one that a file does not have is absent, one of another type is an error.

use crate::arrays::{Dictionary, coded, is_of, values};
use crate::columns::{Batch, Id, Values, all, of_name, own};
use crate::filter::{Filter, Memo, Range};
use crate::pages;
use crate::positioned_read::Pieces;
use arrow_schema::{Field, Schema};
use linerate_burst::input::open_regular;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::statistics::Statistics;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Records per batch: their columns fit in the cache.
const BATCH: usize = 8192;
/// Maximum number of rows of a row group: ours have 131,072.
const MOST_ROWS: i64 = 1 << 24;
/// If fewer than one in this many rows of a row group are left, only these are read of further columns.
const SPARSE: usize = 8;

/// An open file.
pub(crate) struct File {
    file: Pieces,
    metadata: ArrowReaderMetadata,
    /// Position of each column in the file: among all columns, and among those with statistics.
    places: Vec<Option<(usize, Option<usize>)>>,
}

/// Outcome of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupOutcome {
    /// Its statistics exclude a match.
    Passed,
    /// Some columns were read, and no row was left.
    Nothing,
    /// Matching records were read.
    Taken,
}

/// Callback for batches: with a mark for each record that passes, and the batch's first row.
pub(crate) type BatchCallback<'a, R> = dyn FnMut(&Batch, Option<&[bool]>, usize) -> R + 'a;

impl File {
    /// Opens a file; `read` counts the bytes read from it.
    pub(crate) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, String> {
        let file = open_regular(path).and_then(|file| Pieces::of(file, read));
        let file = file.map_err(|error| error.to_string())?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = ArrowReaderMetadata::load(&file, options.clone()).map_err(|error| error.to_string())?;
        let fields: Vec<Field> = plain.schema().fields().iter().map(|field| coded(field)).collect();
        let options = options.with_schema(Arc::new(Schema::new(fields)));
        let metadata =
            ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options).map_err(|error| error.to_string())?;
        let mut places = vec![None; all().len()];
        for (place, field) in metadata.schema().fields().iter().enumerate() {
            let Some(id) = of_name(field.name()) else { continue };
            if !is_of(field.data_type(), id) {
                let text = format!("column {}: unexpected type {}", field.name(), field.data_type());
                return Err(text);
            }
            let schema = metadata.metadata().file_metadata().schema_descr();
            let leaf = (0..schema.num_columns()).find(|leaf| {
                schema.get_column_root_idx(*leaf) == place && schema.column(*leaf).path().parts().len() == 1
            });
            places[id] = Some((place, leaf));
        }
        for name in ["first_time", "last_time", "orig_address", "resp_address", "protocol"] {
            if places[own(name)].is_none() {
                return Err(format!("not a file of flow records: column {name} is missing"));
            }
        }
        Ok(File { file, metadata, places })
    }

    pub(crate) fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    pub(crate) fn rows(&self, group: usize) -> Result<usize, String> {
        let rows = self.metadata.metadata().row_group(group).num_rows();
        usize::try_from(rows)
            .ok()
            .filter(|_| rows <= MOST_ROWS)
            .ok_or_else(|| format!("row group {group}: invalid row count {rows}"))
    }

    /// Returns the minimum and maximum of a column.
    fn range(&self, group: usize, id: Id) -> Option<Range> {
        let Some((_, leaf)) = self.places[id] else { return Some(Range::Nothing) };
        let group = self.metadata.metadata().row_group(group);
        let statistics = group.column(leaf?).statistics()?;
        let absent = statistics.null_count_opt();
        if absent.is_some_and(|absent| absent >= group.num_rows() as u64) {
            return Some(Range::Nothing);
        }
        if statistics.is_min_max_deprecated() {
            return None;
        }
        let is_whole = absent == Some(0);
        let numbers = |least: u64, most: u64| (least <= most).then_some(Range::Numbers(least, most, is_whole));
        match statistics {
            Statistics::Boolean(of) => numbers((*of.min_opt()?).into(), (*of.max_opt()?).into()),
            // The bits of unsigned numbers.
            Statistics::Int32(of) => numbers((*of.min_opt()? as u32).into(), (*of.max_opt()? as u32).into()),
            Statistics::Int64(of) => numbers(*of.min_opt()? as u64, *of.max_opt()? as u64),
            Statistics::ByteArray(of) => {
                Some(Range::Texts(of.min_opt()?.data().to_vec(), of.max_opt()?.data().to_vec()))
            }
            _ => None,
        }
    }

    /// Returns whether a record of a row group may have a value in a column.
    pub(crate) fn has_value(&self, group: usize, id: Id) -> bool {
        !matches!(self.range(group, id), Some(Range::Nothing))
    }

    /// Checks the page headers of a column.
    fn check(&self, group: usize, place: usize) -> Result<(), String> {
        let schema = self.metadata.metadata().file_metadata().schema_descr();
        let group = self.metadata.metadata().row_group(group);
        let leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == place);
        leaves.map(|leaf| group.column(leaf)).try_for_each(|column| {
            let data = column.data_page_offset();
            let start =
                column.dictionary_page_offset().filter(|start| *start > 0).map_or(data, |start| start.min(data));
            pages::check(&self.file, start, column.compressed_size())
        })
    }

    /// Returns whether a row group may have a matching record.
    pub(crate) fn may_have(&self, group: usize, filter: &Filter) -> bool {
        filter.outlook(&|id| self.range(group, id)).may
    }

    /// Filters a row group by `parts`, each of which leaves fewer records, and shows the `wanted` columns of the rest:
    /// batches with a mark for each record that passes, and the batch's first row. With `whole`, batches include all
    /// records.
    pub(crate) fn look(
        &self,
        group: usize,
        parts: &[Filter],
        wanted: &[Id],
        whole: bool,
        memo: &mut Memo,
        show: &mut BatchCallback<'_, bool>,
    ) -> Result<GroupOutcome, String> {
        let rows = self.rows(group)?;
        if rows == 0 {
            return Ok(GroupOutcome::Nothing);
        }
        let mut left: Option<Vec<bool>> = None;
        for part in parts {
            let outlook = part.outlook(&|id| self.range(group, id));
            if !outlook.may {
                return Ok(GroupOutcome::Passed);
            }
            if outlook.must {
                continue;
            }
            let ids: Vec<Id> = part.columns().into_iter().collect();
            let mut next = vec![false; rows];
            self.read(group, &ids, left.as_deref(), false, &mut |batch, marks, at| {
                let chosen = part.choose(batch, memo);
                match marks {
                    BatchRows::Rows(places) => places.iter().zip(chosen).for_each(|(row, one)| next[*row] = one),
                    BatchRows::Of(before) => {
                        for (row, one) in chosen.into_iter().enumerate() {
                            next[at + row] = one && before.is_none_or(|before| before[row]);
                        }
                    }
                }
                true
            })?;
            if !next.contains(&true) {
                return Ok(GroupOutcome::Nothing);
            }
            left = Some(next);
        }
        self.read(group, wanted, left.as_deref(), whole, &mut |batch, marks, at| match marks {
            BatchRows::Rows(_) => show(batch, None, at),
            BatchRows::Of(marks) => show(batch, marks, at),
        })?;
        Ok(GroupOutcome::Taken)
    }

    /// Shows columns of these rows of a row group.
    pub(crate) fn rows_of(
        &self,
        group: usize,
        rows: &[usize],
        wanted: &[Id],
        show: &mut BatchCallback<'_, ()>,
    ) -> Result<(), String> {
        let mut left = vec![false; self.rows(group)?];
        for row in rows {
            *left.get_mut(*row).ok_or_else(|| format!("row group {group}: row {row} no longer exists"))? = true;
        }
        self.read(group, wanted, Some(&left), false, &mut |batch, marks, at| {
            match marks {
                BatchRows::Rows(_) | BatchRows::Of(None) => show(batch, None, at),
                BatchRows::Of(marks) => show(batch, marks, at),
            }
            true
        })
    }

    /// Shows columns of a row group: of all rows, with marks for those that are left; or only of these, with their row
    /// numbers, if they are few.
    fn read(
        &self,
        group: usize,
        ids: &[Id],
        left: Option<&[bool]>,
        whole: bool,
        show: &mut dyn FnMut(&Batch, BatchRows<'_>, usize) -> bool,
    ) -> Result<(), String> {
        let rows = self.rows(group)?;
        let few: Option<Vec<usize>> = left.filter(|_| !whole).and_then(|left| {
            let count = left.iter().filter(|one| **one).count();
            (count < rows / SPARSE).then(|| (0..rows).filter(|row| left[*row]).collect())
        });
        let there: BTreeSet<(usize, Id)> = ids.iter().filter_map(|id| Some((self.places[*id]?.0, *id))).collect();
        let schema = self.metadata.metadata().file_metadata().schema_descr();
        there.iter().try_for_each(|(place, _)| self.check(group, *place))?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
            .with_row_groups(vec![group])
            .with_batch_size(BATCH)
            .with_projection(ProjectionMask::roots(schema, there.iter().map(|(place, _)| *place)));
        if let Some(few) = &few {
            builder = builder.with_row_selection(selection(few));
        }
        let none: Vec<Id> = ids.iter().copied().filter(|id| self.places[*id].is_none()).collect();
        let mut dictionaries: Vec<Option<Dictionary>> = there.iter().map(|_| None).collect();
        let (mut at, mut goes_on) = (0, true);
        let all_rows = few.as_ref().map_or(rows, Vec::len);
        if there.is_empty() {
            // Only the number of rows is needed.
            while at < all_rows && goes_on {
                let count = BATCH.min(all_rows - at);
                let mut batch = Batch::new(count);
                none.iter().for_each(|id| batch.put(*id, Values::none(all()[*id].kind(), count)));
                goes_on = show(&batch, BatchRows::part(few.as_deref(), left, at, count), at);
                at += count;
            }
            return Ok(());
        }
        for read in builder.build().map_err(|error| error.to_string())? {
            let read = read.map_err(|error| error.to_string())?;
            let count = read.num_rows();
            if at + count > all_rows {
                return Err(format!("row group {group}: more rows than its metadata states"));
            }
            let mut batch = Batch::new(count);
            for (((_, id), array), dictionary) in there.iter().zip(read.columns()).zip(&mut dictionaries) {
                batch.put(*id, values(array, *id, dictionary)?);
            }
            none.iter().for_each(|id| batch.put(*id, Values::none(all()[*id].kind(), count)));
            goes_on = show(&batch, BatchRows::part(few.as_deref(), left, at, count), at);
            at += count;
            if !goes_on {
                break;
            }
        }
        if goes_on && at < all_rows {
            Err(format!("row group {group}: fewer rows than its metadata states"))
        } else {
            Ok(())
        }
    }
}

/// Rows of a batch that are selected.
enum BatchRows<'a> {
    /// All of it, which are these rows.
    Rows(&'a [usize]),
    /// The marked ones.
    Of(Option<&'a [bool]>),
}

impl<'a> BatchRows<'a> {
    fn part(few: Option<&'a [usize]>, left: Option<&'a [bool]>, at: usize, count: usize) -> Self {
        match few {
            Some(few) => BatchRows::Rows(&few[at..at + count]),
            None => BatchRows::Of(left.map(|left| &left[at..at + count])),
        }
    }
}

fn selection(rows: &[usize]) -> RowSelection {
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut next = 0;
    for run in rows.chunk_by(|one, other| one + 1 == *other) {
        if run[0] > next {
            selectors.push(RowSelector::skip(run[0] - next));
        }
        selectors.push(RowSelector::select(run.len()));
        next = run[0] + run.len();
    }
    selectors.into()
}
