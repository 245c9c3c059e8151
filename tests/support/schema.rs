//! Validator for the published schema of reports, for the JSON Schema keywords that it uses.

use serde_json::{Map, Value};

/// Checks that a report of `measure` matches its schema and has no undocumented key: other programs may add keys, but
/// linerate must document its own.
pub fn assert_reported(report: &Value) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/measure.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    check(&schema, &schema, report, "report");
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (keyword, expected) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "$ref" => check(root, root.pointer(&expected.as_str().unwrap()[1..]).unwrap(), value, at),
            "type" => {
                let types = expected.as_array().map_or_else(|| vec![expected.clone()], Clone::clone);
                assert!(
                    types.iter().any(|kind| is_a(value, kind.as_str().unwrap())),
                    "{at} is {value}, not {expected}"
                );
            }
            "const" => assert_eq!(value, expected, "{at}"),
            "enum" => assert!(expected.as_array().unwrap().contains(value), "{at} is {value}, not one of {expected}"),
            "minimum" => {
                assert!(value.as_f64().is_none_or(|number| number >= expected.as_f64().unwrap()), "{at}: {value}")
            }
            "maximum" => {
                assert!(value.as_f64().is_none_or(|number| number <= expected.as_f64().unwrap()), "{at}: {value}")
            }
            "required" => {
                let missing =
                    expected.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
                assert!(missing.is_none(), "{at} lacks {missing:?}");
            }
            "properties" => {
                for (key, value) in value.as_object().unwrap_or(&empty) {
                    let known = expected.get(key).unwrap_or_else(|| panic!("{at}.{key} is not in the schema"));
                    check(root, known, value, &format!("{at}.{key}"));
                }
            }
            "additionalProperties" if properties.is_none() => {
                let values = value.as_object().unwrap_or(&empty).iter();
                values.for_each(|(key, value)| check(root, expected, value, &format!("{at}.{key}")));
            }
            "items" => {
                let values = value.as_array().into_iter().flatten().enumerate();
                values.for_each(|(index, value)| check(root, expected, value, &format!("{at}[{index}]")));
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
