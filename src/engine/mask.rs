//! Takes secrets out of what is printed for others. The snapshot holds none of our own – passwords and keys are in the
//! local settings –, but a definition may have some in its command lines, a URL in its user part.

use serde_json::Value;

/// What stands in their place.
const MASKED: &str = "(left out)";

/// Replaces what looks like a secret, by the name of its field, the option before it, or its own form.
pub fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if names_a_secret(key) && !text.is_empty() => MASKED.clone_into(text),
                    other => mask(other),
                }
            }
        }
        Value::Array(list) => {
            let mut hide = false;
            for value in list {
                match value {
                    Value::String(text) if hide => MASKED.clone_into(text),
                    _ => mask(value),
                }
                hide = value.as_str().is_some_and(|word| word.starts_with('-') && names_a_secret(word));
            }
        }
        Value::String(text) => mask_text(text),
        _ => {}
    }
}

fn names_a_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let lower = plain.to_ascii_lowercase();
    // ipmitool's -P
    name == "-P"
        || ["password", "passwd", "passphrase", "secret", "token", "privatekey", "keydata"]
            .iter()
            .any(|w| lower.ends_with(w))
}

fn mask_text(text: &mut String) {
    if text.contains("PRIVATE KEY-----") || text.contains("client-key-data:") {
        return MASKED.clone_into(text);
    }
    // values of etcd that are kept as they were written
    if text.starts_with('{') {
        if let Ok(mut value) = serde_json::from_str::<Value>(text) {
            let before = value.clone();
            mask(&mut value);
            if value != before {
                *text = value.to_string();
            }
        }
        return;
    }
    if let Some((name, _)) = text.split_once('=').filter(|(name, rest)| names_a_secret(name) && !rest.is_empty()) {
        *text = format!("{name}={MASKED}");
    } else if let Some((scheme, rest)) = text.split_once("://") {
        let end = rest.find('/').unwrap_or(rest.len());
        if let Some(at) = rest[..end].rfind('@').filter(|at| *at > 0) {
            *text = format!("{scheme}://{MASKED}{}", &rest[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_left_out_and_nothing_else() {
        let mut value = json!({
            "argv": ["ipmitool", "-U", "root", "-P", "hunter2", "--token=abc", "power", "cycle"],
            "url": "https://user:pw@sabakan.example:80/graphql", "plain": "http://sabakan/graphql",
            "bmc_password": "x", "options": "{\"kube-api\":{\"token\":\"y\",\"n\":1}}", "empty_token": "",
            "key": "-----BEGIN PRIVATE KEY-----", "reason": "rotate the token", "tokens": ["a"],
        });
        mask(&mut value);
        assert_eq!(
            value,
            json!({
                "argv": ["ipmitool", "-U", "root", "-P", MASKED, format!("--token={MASKED}"), "power", "cycle"],
                "url": format!("https://{MASKED}@sabakan.example:80/graphql"), "plain": "http://sabakan/graphql",
                "bmc_password": MASKED, "options": format!("{{\"kube-api\":{{\"token\":\"{MASKED}\",\"n\":1}}}}"),
                "empty_token": "", "key": MASKED, "reason": "rotate the token", "tokens": ["a"],
            })
        );
        let once = value.clone();
        mask(&mut value);
        assert_eq!(value, once, "what was masked is read back as it is");
    }
}
