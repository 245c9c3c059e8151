//! OpenAPI description of all paths. `schemas.json` has the schemas of documents, by name, and by method and path. The
//! OTG model has a description of its own.

use crate::api::{self, JSON};
use linerate_otg::MODEL;
use serde_json::{Value, json};

const SCHEMAS: &str = include_str!("schemas.json");

/// Query parameters: name, description, and whether it is a number.
const QUERY: &[(&str, &str, bool)] = &[
    ("from", "Index of the first stream, from 0.", true),
    ("count", "Maximum number of streams.", true),
    ("name", "Name of a single stream.", false),
];

/// Returns the description of all paths (OpenAPI 3.1).
pub fn openapi() -> Value {
    let mut all: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    refer(&mut all);
    let mut paths = serde_json::Map::new();
    for known in api::paths() {
        let own = &all[format!("{} {}", known.method, known.path)];
        let schema = |way: &str| own.get(way).map_or_else(|| json!({}), |schema| json!({"schema": schema}));
        let mut one = json!({"summary": known.about, "responses": {
            "200": {"description": "done", "content": {known.kind: schema("gives")}},
            "default": {"description": "error: code, kind and errors", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
        }});
        let parameter = |(name, about, is_number): &(&str, &str, bool)| {
            let schema = if *is_number { json!({"type": "integer", "minimum": 0}) } else { json!({"type": "string"}) };
            json!({"name": name, "in": "query", "required": false, "description": about, "schema": schema})
        };
        let parameters = QUERY.iter().filter(|(name, ..)| known.query.contains(name)).map(parameter);
        if !known.query.is_empty() {
            one["parameters"] = parameters.collect();
        }
        if known.method != "GET" {
            one["requestBody"] = json!({"required": true, "content": {JSON: schema("takes")}});
        }
        let entry = paths.entry(known.path).or_insert_with(|| json!({}));
        entry[known.method.to_ascii_lowercase()] = one;
    }
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let error = json!({"type": "object", "required": ["code", "kind", "errors"], "properties": {
        "code": {"type": "integer"}, "kind": {"enum": ["validation", "internal"]}, "errors": strings}});
    let mut schemas: serde_json::Map<String, Value> = match all {
        Value::Object(all) => all.into_iter().filter(|(name, _)| !name.contains(' ')).collect(),
        _ => serde_json::Map::new(),
    };
    schemas.insert("Error".to_owned(), error);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "linerate serve", "version": MODEL, "description":
            "Documents of paths outside /api/v1 are those of the Open Traffic Generator model (docs/otg.md); docs/serve-api.md describes the others."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"bearer": []}, {"basic": []}]
    })
}

/// Converts schema names to references within the description.
fn refer(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get_mut("$ref") {
                *name = format!("#/components/schemas/{name}");
            }
            fields.values_mut().for_each(refer);
        }
        Value::Array(values) => values.iter_mut().for_each(refer),
        _ => {}
    }
}
