//! The published schema of reports, as far as it has words of JSON Schema.

use serde_json::{Map, Value};

/// Panics where a report of `measure` is not as its schema has it, or has something that is not told there: others may add keys, this
/// program may not without a word.
pub fn assert_reported(report: &Value) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/measure.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    check(&schema, &schema, report, "report");
}

fn check(all: &Value, schema: &Value, value: &Value, at: &str) {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (word, meant) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "$ref" => check(all, all.pointer(&meant.as_str().unwrap()[1..]).unwrap(), value, at),
            "type" => {
                let types = meant.as_array().map_or_else(|| vec![meant.clone()], Clone::clone);
                assert!(types.iter().any(|one| is_a(value, one.as_str().unwrap())), "{at} is {value}, and no {meant}");
            }
            "const" => assert_eq!(value, meant, "{at}"),
            "enum" => assert!(meant.as_array().unwrap().contains(value), "{at} is {value}, and none of {meant}"),
            "minimum" => {
                assert!(value.as_f64().is_none_or(|number| number >= meant.as_f64().unwrap()), "{at}: {value}")
            }
            "maximum" => {
                assert!(value.as_f64().is_none_or(|number| number <= meant.as_f64().unwrap()), "{at}: {value}")
            }
            "required" => {
                let missing = meant.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
                assert!(missing.is_none(), "{at} lacks {missing:?}");
            }
            "properties" => {
                for (key, value) in value.as_object().unwrap_or(&none) {
                    let known = meant.get(key).unwrap_or_else(|| panic!("{at}.{key} is not told of"));
                    check(all, known, value, &format!("{at}.{key}"));
                }
            }
            "additionalProperties" if properties.is_none() => {
                let values = value.as_object().unwrap_or(&none).iter();
                values.for_each(|(key, value)| check(all, meant, value, &format!("{at}.{key}")));
            }
            "items" => {
                let values = value.as_array().into_iter().flatten().enumerate();
                values.for_each(|(place, value)| check(all, meant, value, &format!("{at}[{place}]")));
            }
            other => panic!("{other:?} in the schema of {at} is not checked here"),
        }
    }
}

fn is_a(value: &Value, named: &str) -> bool {
    match named {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
