//! Takes secrets out of what is shown: states, timelines, pictures, logs, messages. The settings' own passwords and keys
//! are never among what is shown; but a definition may have some in its command lines, a program may print them, and a
//! URL may have a user part.

mod words;

use serde_json::Value;

/// What stands in their place: one word, so that what was masked is read back as it is.
const MASKED: &str = "***";

/// A text – a command line, the end of an output, a sentence – without what looks like a secret: by the option or the
/// name before it, or by its own form.
pub fn masked(text: &str) -> String {
    if text.contains("PRIVATE KEY-----") || text.contains("client-key-data:") {
        return MASKED.to_owned();
    }
    // values of etcd that are kept as they were written
    if text.starts_with(['{', '['])
        && let Ok(mut value) = serde_json::from_str::<Value>(text)
    {
        let before = value.clone();
        mask(&mut value);
        return if value == before { text.to_owned() } else { value.to_string() };
    }
    words::of_text(text)
}

/// A command line for people: its words, separated by spaces.
pub fn argv(words: &[String]) -> String {
    words::of_argv(words.iter().map(String::as_str)).join(" ")
}

/// Masks a document in place; lists of strings are taken for command lines.
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
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let words = words::of_argv(list.iter().filter_map(Value::as_str));
            *list = words.into_iter().map(Value::String).collect();
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::String(text) => *text = masked(text),
        _ => {}
    }
}

/// A URL as messages name it: without user and password.
pub fn url(url: &str) -> String {
    match user_part(url) {
        Some((from, to)) => format!("{}{}", &url[..from], &url[to..]),
        None => url.to_owned(),
    }
}

/// Where the user part of the first URL in a word lies, its `@` included.
fn user_part(word: &str) -> Option<(usize, usize)> {
    let from = word.find("://")? + 3;
    let rest = &word[from..];
    let authority = rest.find(['/', '?', '#', '"', '\'', ',', ';', ')']).unwrap_or(rest.len());
    let at = rest[..authority].rfind('@').filter(|at| *at > 0);
    // a password that was not encoded may hold any of these; behind the colon of a host stands a port
    let odd = || {
        let before = &rest[..rest.find('@')?];
        let password = before[..authority.min(before.len())].split_once(':')?.1;
        (!password.is_empty() && !password.bytes().all(|b| b.is_ascii_digit())).then_some(before.len())
    };
    let at = at.or_else(odd)?;
    Some((from, from + at + 1))
}

/// Whether what a field, a variable or an option of this name holds is a secret.
fn names_a_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let plain: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let ends = [
        "password",
        "passwd",
        "passphrase",
        "sshpass",
        "secret",
        "token",
        "privatekey",
        "keydata",
        "apikey",
        "accesskey",
        "secretkey",
    ];
    let mut parts = lower.rsplit(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let last = parts.next().unwrap_or_default();
    // PWD alone is a folder
    ends.iter().any(|end| plain.ends_with(end))
        || matches!(last, "pass" | "pw" | "kgkey")
        || (last == "pwd" && parts.next().is_some())
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
            "sh": ["sh", "-c", "ipmitool -P hunter2 power cycle", "10.0.0.1"], "at": "2026-11-21T10:00:00Z",
        });
        mask(&mut value);
        assert_eq!(
            value,
            json!({
                "argv": ["ipmitool", "-U", "root", "-P", "***", "--token=***", "power", "cycle"],
                "url": "https://***@sabakan.example:80/graphql", "plain": "http://sabakan/graphql",
                "bmc_password": "***", "options": "{\"kube-api\":{\"token\":\"***\",\"n\":1}}",
                "empty_token": "", "key": "***", "reason": "rotate the token", "tokens": ["a"],
                "sh": ["sh", "-c", "ipmitool -P *** power cycle", "10.0.0.1"], "at": "2026-11-21T10:00:00Z",
            })
        );
        let once = value.clone();
        mask(&mut value);
        assert_eq!(value, once, "what was masked is read back as it is");
    }

    #[test]
    fn every_common_form_of_a_secret_is_masked_inside_strings_and_tails() {
        for (text, shown) in [
            ("ipmitool -I lanplus -H 10.0.0.1 -U root -P hunter2 power cycle", "-P *** power cycle"),
            ("/usr/bin/ipmitool -Phunter2 power cycle", "ipmitool -P*** power"),
            ("curl -u root:hunter2 https://bmc/redfish/v1", "-u root:*** https://bmc/redfish/v1"),
            ("curl -uroot:hunter2 https://bmc", "-uroot:*** https://bmc"),
            ("curl --user=root:hunter2 https://bmc", "--user=root:*** https://bmc"),
            ("A=1 PASSWORD=hunter2 IPMI_PASSWORD='hunter2 x' cmd", "A=1 PASSWORD=*** IPMI_PASSWORD='***' cmd"),
            ("sshpass -p hunter2 ssh -p 22 root@bmc", "sshpass -p *** ssh -p 22 root@bmc"),
            ("sshpass -phunter2 ssh -p 22 root@bmc", "sshpass -p*** ssh -p 22 root@bmc"),
            ("racadm -r 10.0.0.1 -u root -p hunter2 serveraction powercycle", "-u root -p *** serveraction"),
            ("sh -c 'cd /tmp && ipmitool -P hunter2 x'", "'cd /tmp && ipmitool -P *** x'"),
            ("curl -H 'X-Auth-Token: hunter2' https://bmc", "-H 'X-Auth-Token: ***' https://bmc"),
            ("curl -H \"Authorization: Bearer hunter2\" x", "\"Authorization: Bearer ***\" x"),
            ("curl -H Authorization:hunter2 x", "Authorization:*** x"),
            ("login with password: hunter2\nnext line", "password: ***\nnext line"),
            ("sent {\"UserName\": \"root\", \"Password\": \"hunter2\"} to it", "\"Password\": \"***\"} to it"),
            ("sent {\"UserName\":\"root\",\"Password\":\"hunter2\"} to it", "\"Password\":\"***\"} to it"),
            ("curl -d \"{\\\"Password\\\":\\\"hunter2\\\"}\" x", "{\\\"Password\\\":\\\"***\\\"}\" x"),
            ("GET https://root:hunter2@bmc/redfish failed", "GET https://***@bmc/redfish failed"),
            ("GET http://bmc/?token=hunter2&n=1 failed", "?token=***&n=1 failed"),
            ("http://root:hunt/er2@bmc", "http://***@bmc"),
            ("\u{300c}password=hunter2 x", "\u{300c}password=*** x"),
            ("wei\u{df}\u{e9}token:hunter2", "\u{e9}token:***"),
            ("--bmc-password hunter2 --verbose", "--bmc-password *** --verbose"),
        ] {
            let said = masked(text);
            assert!(said.contains(shown) && !said.contains("hunter2"), "{text:?} became {said:?}");
            assert_eq!(masked(&said), said, "masked twice");
        }
        for plain in [
            "evict: 2 pods of w12 (10.0.0.12): shop/web-1",
            "rotate the token, it's old; don't touch 'this' one",
            "PWD=/root --password-file /etc/pw -p 22 at 10:20:30",
            "https://10.0.0.1:6443/readyz?x=1 npm@8.1",
        ] {
            assert_eq!(masked(plain), plain);
        }
    }

    #[test]
    fn urls_are_named_without_their_user() {
        assert_eq!(url("http://admin:admin@10.0.0.1:6443/x"), "http://10.0.0.1:6443/x");
        assert_eq!(url("http://admin@h"), "http://h");
        assert_eq!((url("https://10.0.0.1:6443").as_str(), url("h:1").as_str()), ("https://10.0.0.1:6443", "h:1"));
    }
}
