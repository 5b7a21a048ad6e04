//! Checks saved forms against the committed schemas, in tests.

use serde_json::Value;

/// A file of `docs/benchmarks`.
pub(crate) fn committed(path: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks");
    let text = std::fs::read_to_string(std::path::Path::new(folder).join(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// In which places `value` does not fit `schema`.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    faults_at(schema, schema, value, "$")
}

/// As much of JSON Schema as the committed file uses. A field that the schema does not know is a
/// fault here, so that no field is added without being documented.
fn faults_at(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        return faults_at(root, &root["$defs"][name], value, at);
    }
    let mut found = Vec::new();
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec![],
    };
    let is = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    if !types.is_empty() && !types.iter().any(is) {
        found.push(format!("{at}: {value} is none of {types:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{at}: {value} is not {}", schema["const"]));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            if !object.contains_key(name) {
                found.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, inner) in object {
            let at = format!("{at}.{name}");
            let known = schema["properties"].get(name);
            match known.or_else(|| schema.get("additionalProperties")) {
                Some(inner_schema) => found.extend(faults_at(root, inner_schema, inner, &at)),
                None => found.push(format!("{at} is not in the schema")),
            }
        }
    }
    for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(faults_at(
            root,
            &schema["items"],
            inner,
            &format!("{at}[{index}]"),
        ));
    }
    found
}
