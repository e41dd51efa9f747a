//! The configuration reference, rendered from a type's JSON schema so that it cannot drift from
//! the code.

use std::fmt::Write as _;

use schemars::Schema;
use serde_json::{Map, Value};

/// Markdown tables of every key: type, default, meaning. `title` heads the section.
#[must_use]
pub fn markdown(title: &str, schema: &Schema) -> String {
    let root = schema.as_value();
    let mut out = String::new();
    let _infallible = writeln!(out, "## {title}");
    table(root, root, "", &mut out);
    out
}

fn resolve<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let Some(path) = node.get("$ref").and_then(Value::as_str) else { return node };
    root.pointer(path.trim_start_matches('#')).unwrap_or(node)
}

fn properties(node: &Value) -> Option<&Map<String, Value>> {
    node.get("properties").and_then(Value::as_object)
}

/// One table of plain keys, then a section for each nested table.
fn table(root: &Value, node: &Value, prefix: &str, out: &mut String) {
    let Some(all) = properties(node) else { return };
    let required: Vec<&str> = node
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut nested = Vec::new();
    let mut rows = String::new();
    for (name, property) in all {
        let (target, repeated) = target(root, property);
        if properties(target).is_some() {
            nested.push((name, property, target, repeated));
            continue;
        }
        let default = match (property.get("default"), required.contains(&name.as_str())) {
            (_, true) => "required".to_owned(),
            (None | Some(Value::Null), false) => "none".to_owned(),
            (Some(value), false) => format!("`{value}`"),
        };
        let _infallible = writeln!(
            rows,
            "| `{name}` | {} | {default} | {} |",
            kind(root, property),
            description(property)
        );
    }
    if !rows.is_empty() {
        let _infallible =
            write!(out, "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}");
    }
    for (name, property, target, repeated) in nested {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let heading = if repeated { format!("[[{path}]]") } else { format!("[{path}]") };
        let _infallible = write!(out, "\n### `{heading}`\n\n{}\n", description(property));
        table(root, target, &path, out);
    }
}

/// The schema behind a property: through references, options and arrays.
fn target<'a>(root: &'a Value, property: &'a Value) -> (&'a Value, bool) {
    if let Some(items) = property.get("items") {
        return (resolve(root, items), true);
    }
    let some = property.get("anyOf").and_then(Value::as_array).and_then(|any| any.first());
    (resolve(root, some.unwrap_or(property)), false)
}

fn kind(root: &Value, property: &Value) -> String {
    let (schema, repeated) = target(root, property);
    let choices: Vec<String> = schema
        .get("oneOf")
        .or_else(|| schema.get("enum"))
        .and_then(Value::as_array)
        .map(|all| {
            all.iter()
                .map(|one| one.get("const").unwrap_or(one))
                .map(|v| format!("`{v}`"))
                .collect()
        })
        .unwrap_or_default();
    let plain = schema
        .get("format")
        .filter(|format| matches!(format.as_str(), Some("duration" | "size")))
        .or_else(|| schema.get("type"))
        .map(|kind| match kind {
            Value::Array(kinds) => {
                kinds.first().and_then(Value::as_str).unwrap_or("any").to_owned()
            }
            other => other.as_str().unwrap_or("any").to_owned(),
        })
        .unwrap_or_else(|| "any".to_owned());
    let one = if choices.is_empty() { plain } else { choices.join(" \\| ") };
    if repeated { format!("list of {one}") } else { one }
}

fn description(property: &Value) -> String {
    let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
    text.replace('\n', " ").replace('|', "\\|")
}
