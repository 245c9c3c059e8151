//! Checks that accepted requests, and their answers, match the published description.

use serde_json::{Value, json};
use std::sync::LazyLock;

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serve.openapi.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
});

/// Compares a request and its answer with the description.
///
/// # Panics
/// If one of them does not match.
pub(super) fn compare(method: &str, path: &str, taken: &[u8], given: &Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if !path.starts_with("/api/v1/") {
        return;
    }
    let one = &DESCRIPTION["paths"][path][method.to_ascii_lowercase()];
    assert!(one.is_object(), "{method} {path} is not described");
    let known = |name: &str| one["parameters"].as_array().is_some_and(|all| all.iter().any(|own| own["name"] == name));
    let names = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names.for_each(|name| {
        assert!(
            name.is_empty() || name.starts_with('%') || known(name),
            "{path} has no parameter {name:?} in its description"
        )
    });
    let json = "application/json";
    let fits = |schema: &Value, value: &Value, what: &str| {
        if schema.is_object()
            && let Err(wrong) = fits(schema, value)
        {
            panic!("{what} of {method} {path} does not match the description: {wrong}");
        }
    };
    let body: Value = serde_json::from_slice(taken).unwrap_or_default();
    fits(&one["requestBody"]["content"][json]["schema"], &body, "a request");
    fits(&one["responses"]["200"]["content"][json]["schema"], given, "an answer");
}

/// Checks a value against a schema (JSON Schema 2020-12, the keywords that the description uses).
fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = DESCRIPTION.pointer(name.trim_start_matches('#'));
        return fits(found.unwrap_or_else(|| panic!("{name} is not described")), value);
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("unknown type {kind}"),
    };
    let kinds = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), |kinds| kinds);
    if !schema["type"].is_null() && !kinds.iter().any(is) {
        return Err(format!("{value} is not of type {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|some| !some.contains(value)) {
        return Err(format!("{value} is not one of {}", schema["enum"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        value.get(name).ok_or_else(|| format!("{name} is missing in {value}"))?;
    }
    for (name, inside) in value.as_object().into_iter().flatten() {
        fits(&schema["properties"][name], inside).map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    value.as_array().into_iter().flatten().try_for_each(|inside| fits(&schema["items"], inside))
}

#[test]
fn mismatches_with_the_description_are_found() {
    let wrong = |method: &str, path: &str, taken: Value, given: Value| {
        let taken = taken.to_string();
        std::panic::catch_unwind(|| compare(method, path, taken.as_bytes(), &given)).is_err()
    };
    assert!(!wrong("POST", "/api/v1/traffic", json!({"do": "start", "streams": ["a"]}), json!({})));
    assert!(wrong("POST", "/api/v1/traffic", json!({"do": "explode"}), json!({})));
    assert!(wrong("POST", "/api/v1/traffic", json!({"do": "start", "streams": [7]}), json!({})));
    assert!(wrong("POST", "/api/v1/traffic", json!({}), json!({})));
    assert!(wrong("GET", "/api/v1/streams?color=red", Value::Null, json!({"streams": [], "streams_in_all": 0})));
    assert!(wrong("GET", "/api/v1/streams", Value::Null, json!({"streams": [{"name": "a"}], "streams_in_all": 0})));
    assert!(wrong("GET", "/api/v1/nothing", Value::Null, json!({})));
}
