//! Reads a definition as people write it, YAML or JSON, into plain JSON.

use serde_json::{Map, Number, Value};

/// Reads one YAML or JSON document. The error is a sentence with line and column where there are any.
pub fn parse(text: &str) -> Result<Value, String> {
    let yaml = serde_yaml::from_str::<serde_yaml::Value>(text);
    // JSON has escapes that YAML lacks; but a field given twice is an error only to the YAML reader
    if text.trim_start().starts_with('{')
        && let Ok(json) = serde_json::from_str::<Value>(text)
        && !matches!(&yaml, Err(e) if e.to_string().contains("duplicate"))
    {
        return Ok(json);
    }
    let mut yaml = yaml.map_err(|e| format!("is neither YAML nor JSON: {e}"))?;
    yaml.apply_merge().map_err(|e| format!("has a merge key that cannot be read: {e}"))?;
    json(yaml)
}

fn json(yaml: serde_yaml::Value) -> Result<Value, String> {
    use serde_yaml::Value as Yaml;
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::String(text) => Value::String(text),
        Yaml::Number(n) => {
            if let Some(n) = n.as_i64() {
                n.into()
            } else if let Some(n) = n.as_u64() {
                n.into()
            } else {
                let number = n.as_f64().and_then(Number::from_f64);
                Value::Number(number.ok_or_else(|| format!("holds {n}, which JSON cannot hold"))?)
            }
        }
        Yaml::Sequence(items) => Value::Array(items.into_iter().map(json).collect::<Result<_, _>>()?),
        Yaml::Mapping(fields) => {
            let mut out = Map::new();
            for (key, value) in fields {
                let key = match key {
                    Yaml::String(text) => text,
                    Yaml::Bool(flag) => flag.to_string(),
                    Yaml::Number(n) => n.to_string(),
                    other => return Err(format!("has a key that is no word: {other:?}")),
                };
                out.insert(key, json(value)?);
            }
            Value::Object(out)
        }
        Yaml::Tagged(tagged) => return Err(format!("has a YAML tag, which means nothing here: {}", tagged.tag)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_read_the_same() {
        let yaml = parse("name: x\nnodes:\n- {address: 10.0.0.1, control_plane: true}\n").unwrap();
        let json =
            parse("{\n\t\"name\": \"x\", \"nodes\": [{\"address\": \"10.0.0.1\", \"control_plane\": true}]}").unwrap();
        assert_eq!(yaml, json);
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        assert!(parse("name: x\n  nodes: [").unwrap_err().contains("line 2"));
        assert!(parse("name: a\nname: b\n").unwrap_err().contains("duplicate"));
        assert!(parse(r#"{"name": "a", "name": "b"}"#).unwrap_err().contains("duplicate"));
        assert!(parse("a: .nan\n").unwrap_err().contains("JSON cannot hold"));
    }
}
