//! The fields of a document and the values that they have, a line each: what a program that reads it depends on.

use std::collections::BTreeMap;

use serde_json::Value;

/// The fields by their paths, each with its different values in their order.
pub(crate) fn fields(document: &Value) -> String {
    let mut found = BTreeMap::new();
    walk("", document, &mut found);
    found.into_iter().map(|(path, values)| format!("{path}: {}\n", values.join(", "))).collect()
}

fn walk(path: &str, value: &Value, found: &mut BTreeMap<String, Vec<String>>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| walk(&format!("{path}.{name}"), value, found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| walk(&format!("{path}[]"), item, found));
        }
        value => {
            let (values, value) = (found.entry(path.to_owned()).or_default(), value.to_string());
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
}
