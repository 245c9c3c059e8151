//! Conversion of Arrow arrays to column values.

use crate::columns::{Id, Kind, Values, Word, all, of_name};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int32Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, StringArray};
use arrow_schema::{DataType, Field, TimeUnit};
use std::sync::Arc;

/// Reads texts of records as dictionaries: each is converted once for all its rows.
pub(crate) fn coded(field: &Field) -> Field {
    let is_text = of_name(field.name()).is_some_and(|id| matches!(all()[id].kind(), Kind::Text | Kind::Address));
    if is_text && *field.data_type() == DataType::Utf8 {
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        return Field::new(field.name(), coded, field.is_nullable());
    }
    field.clone()
}

pub(crate) fn is_of(data: &DataType, id: Id) -> bool {
    match all()[id].kind() {
        Kind::Number => matches!(data, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64),
        Kind::Flag => *data == DataType::Boolean,
        Kind::Real => *data == DataType::Float64,
        Kind::Time => matches!(data, DataType::Timestamp(TimeUnit::Nanosecond, _)),
        Kind::Address | Kind::Text => matches!(data, DataType::Dictionary(_, _)),
        Kind::List => matches!(data, DataType::List(item) if *item.data_type() == DataType::UInt64),
    }
}

/// A dictionary array, which is kept so that another cannot have the same address, and its words.
pub(crate) type Dictionary = (StringArray, Arc<Vec<Word>>);

/// Converts the values of a column.
pub(crate) fn values(array: &ArrayRef, id: Id, known: &mut Option<Dictionary>) -> Result<Values, String> {
    let column = &all()[id];
    let strange = || format!("column {}: unexpected type {}", column.name, array.data_type());
    Ok(match array.data_type() {
        DataType::UInt8 => numbers::<UInt8Type>(array, u64::from),
        DataType::UInt16 => numbers::<UInt16Type>(array, u64::from),
        DataType::UInt32 => numbers::<UInt32Type>(array, u64::from),
        DataType::UInt64 => numbers::<UInt64Type>(array, |number| number),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            numbers::<TimestampNanosecondType>(array, |time| u64::try_from(time).unwrap_or(0))
        }
        DataType::Boolean => {
            let flags = array.as_boolean();
            let numbers = (0..flags.len()).map(|row| (!flags.is_null(row) && flags.value(row)).into()).collect();
            Values::Numbers(numbers, absent(array))
        }
        DataType::Float64 => {
            let reals = array.as_primitive::<Float64Type>();
            let numbers = (0..reals.len()).map(|row| if reals.is_null(row) { 0.0 } else { reals.value(row) }).collect();
            Values::Reals(numbers, (0..reals.len()).map(|row| reals.is_null(row)).collect())
        }
        DataType::Dictionary(_, _) => {
            let coded = array.as_dictionary_opt::<Int32Type>().ok_or_else(strange)?;
            let texts = coded.values().as_string_opt::<i32>().ok_or_else(strange)?;
            let words = match known {
                Some((of, words)) if is_same(of, texts) => Arc::clone(words),
                _ => {
                    let words = Arc::new(words(texts, id)?);
                    *known = Some((texts.clone(), Arc::clone(&words)));
                    words
                }
            };
            let none = words.len() as u32;
            let keys = coded.keys();
            // An empty word is allowed, but no row may refer to it.
            if all()[id].kind() == Kind::Address && keys.iter().flatten().any(|key| is_empty(words.get(key as usize))) {
                return Err(format!("column {}: invalid address \"\"", all()[id].name));
            }
            let place = |row: usize| if keys.is_null(row) { none } else { (keys.value(row) as u32).min(none) };
            Values::Words((0..keys.len()).map(place).collect(), words)
        }
        DataType::List(_) => {
            let lists = array.as_list_opt::<i32>().ok_or_else(strange)?;
            let list = |row: usize| {
                if lists.is_null(row) {
                    return Ok(Vec::new());
                }
                let list = lists.value(row);
                Ok(list.as_primitive_opt::<UInt64Type>().ok_or_else(strange)?.values().to_vec())
            };
            Values::Lists((0..lists.len()).map(list).collect::<Result<_, String>>()?)
        }
        _ => return Err(strange()),
    })
}

fn absent(array: &ArrayRef) -> Vec<bool> {
    if array.null_count() == 0 { Vec::new() } else { (0..array.len()).map(|row| array.is_null(row)).collect() }
}

/// Absent values are 0.
fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef, wide: impl Fn(T::Native) -> u64) -> Values {
    let numbers: &PrimitiveArray<T> = array.as_primitive();
    let absent = absent(array);
    let mut wide: Vec<u64> = numbers.values().iter().map(|number| wide(*number)).collect();
    wide.iter_mut().zip(&absent).filter(|(_, is)| **is).for_each(|(number, _)| *number = 0);
    Values::Numbers(wide, absent)
}

fn is_same(one: &StringArray, other: &StringArray) -> bool {
    one.len() == other.len()
        && std::ptr::eq(one.value_data().as_ptr(), other.value_data().as_ptr())
        && std::ptr::eq(one.value_offsets().as_ptr(), other.value_offsets().as_ptr())
}

fn is_empty(word: Option<&Word>) -> bool {
    matches!(word, Some(Word::Text(text)) if text.is_empty())
}

fn words(texts: &StringArray, id: Id) -> Result<Vec<Word>, String> {
    let is_address = all()[id].kind() == Kind::Address;
    let word = |row: usize| {
        let text = if texts.is_null(row) { "" } else { texts.value(row) };
        if !is_address || text.is_empty() {
            return Ok(Word::Text(text.into()));
        }
        let address = text.parse().map(Word::Address);
        address.map_err(|_| format!("column {}: invalid address {text:?}", all()[id].name))
    };
    (0..texts.len()).map(word).collect()
}
