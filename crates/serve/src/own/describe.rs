//! The description of all paths for machines. What documents are like stands in `schemas.json`: by names, and by methods with paths.
//! Those of the model have a description of their own.

use crate::api::{self, JSON};
use linerate_otg::MODEL;
use serde_json::{Value, json};

const SCHEMAS: &str = include_str!("schemas.json");

/// What may stand behind the `?` of a path, what it says, and whether it is a number.
const QUERY: &[(&str, &str, bool)] = &[
    ("from", "The first stream, by the order of streams from 0.", true),
    ("count", "How many streams at most.", true),
    ("name", "The one stream of this name.", false),
];

/// The description of all paths (OpenAPI 3.1).
pub fn openapi() -> Value {
    let mut all: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    refer(&mut all);
    let mut paths = serde_json::Map::new();
    for known in api::paths() {
        let own = &all[format!("{} {}", known.method, known.path)];
        let schema = |way: &str| own.get(way).map_or_else(|| json!({}), |schema| json!({"schema": schema}));
        let mut one = json!({"summary": known.about, "responses": {
            "200": {"description": "done", "content": {known.kind: schema("gives")}},
            "default": {"description": "refused: code, kind and errors", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
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
            "Documents of paths outside /api/v1 are those of the Open Traffic Generator model (docs/otg.md); docs/serve-api.md tells of the others."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"bearer": []}, {"basic": []}]
    })
}

/// Makes names of schemas references to where they are in the description.
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
