use serde_json::json;

use super::*;

#[test]
fn only_values_that_look_like_secrets_are_masked() {
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
    assert_eq!(value, once, "masked text is read back unchanged");
}

#[test]
fn common_forms_of_secrets_are_masked_inside_strings_and_tails() {
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
        ("{\"command\":[\"ipmitool\",\"-P\",\"hunter2\",\"power\"],\"x", "[\"ipmitool\",\"-P\",\"***\",\"power\"],\"x"),
        ("[\"curl\",\"--token\",\"hunter2\"", "[\"curl\",\"--token\",\"***"),
        ("--bmc-password hunter2 --verbose", "--bmc-password *** --verbose"),
    ] {
        let output = masked(text);
        assert!(output.contains(shown) && !output.contains("hunter2"), "{text:?} became {output:?}");
        assert_eq!(masked(&output), output, "masked twice");
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
fn urls_are_shown_without_user_info() {
    assert_eq!(url("http://admin:admin@10.0.0.1:6443/x"), "http://10.0.0.1:6443/x");
    assert_eq!(url("http://admin@h"), "http://h");
    assert_eq!((url("https://10.0.0.1:6443").as_str(), url("h:1").as_str()), ("https://10.0.0.1:6443", "h:1"));
}

/// A secret in its usual forms, long enough that any part of it would be found.
const FORMS: [&str; 12] = [
    "ipmitool -H 10.0.0.1 -P hunter2hunter2 power cycle",
    "PASSWORD='hunter2hunter2 hunter2hunter2' cmd",
    "PASSWORD=\"hunter2hunter2 hunter2hunter2\" cmd",
    "curl -H 'X-Auth-Token: hunter2hunter2' https://bmc",
    "Authorization: Basic hunter2hunter2",
    "sent {\"UserName\":\"root\",\"Password\":\"hunter2hunter2\"} to it",
    "GET https://root:hunter2hunter2@bmc/redfish failed",
    "GET http://bmc/?token=hunter2hunter2&n=1 failed",
    "{\"command\":[\"ipmitool\",\"-P\",\"hunter2hunter2\"],",
    "login with password: hunter2hunter2",
    "--bmc-password hunter2hunter2 --verbose",
    "-----BEGIN PRIVATE KEY-----\nhunter2hunter2\n-----END PRIVATE KEY-----\n",
];

/// Any text around it, and any position of the window and the cut.
#[test]
fn a_secret_at_any_offset_is_masked() {
    let around = ["word ", "x", "it's ", "say \"so ", "a='b ", "n=1&", "[\"", "\n", "{\"k\":\"v\"} "];
    let mut rng = fastrand::Rng::with_seed(15);
    for form in FORMS {
        for most in [20, 80, 300] {
            let window = 4 * most + WINDOW;
            let places = (0..2 * most).step_by(3).chain(window - 90..window + 20).chain([2 * window]);
            for place in places {
                let filler = around[rng.usize(..around.len())];
                // A separate word, as programs print it. An open quote before it is ordinary text.
                let before: String = filler.chars().cycle().take(place).collect::<String>() + " \n";
                let text = format!("{before}{form} {}", filler.repeat(40));
                let shown = beginning(text.as_bytes(), most);
                assert!(!shown.contains("hunter2"), "{form:?} behind {place} of {filler:?}: {shown:?}");
                assert!(shown.chars().count() <= most);
                for cut in [0, place / 2, place, place + 5, text.len().saturating_sub(WINDOW + most)] {
                    let tail = text.get(cut..).unwrap_or_default();
                    let far = tail.len() >= WINDOW + most || cut == 0;
                    let shown = end(tail, most, cut == 0);
                    assert!(!far || !shown.contains("hunter2"), "{form:?}, tail from {cut}: {shown:?}");
                }
            }
        }
    }
}

/// The output of a running command is shown again and again while it grows, byte by byte or in larger chunks.
#[test]
fn no_part_of_a_secret_is_shown_while_its_line_grows() {
    let long = "word \n".repeat(2 * WINDOW / 6);
    for (i, form) in FORMS.into_iter().enumerate() {
        // The window moves only in a long text, which takes long to mask again and again.
        for before in ["", "starting\n", "50%\r", &long].iter().take(if i % 4 == 0 { 4 } else { 3 }) {
            let text = format!("{before}{form}\ndone\n");
            for until in (before.len()..=text.len()).filter(|until| text.is_char_boundary(*until)) {
                let from = until.saturating_sub(WINDOW + 300);
                let shown = end_so_far(&text[from..until], 300, from == 0);
                assert!(!shown.contains("hunter"), "{form:?} up to {until}: {shown:?}");
            }
        }
    }
    assert_eq!(end_so_far("one\ntwo", 300, true), "one\n");
    assert_eq!(end_so_far("one\rtwo\r", 300, true), "one\rtwo\r");
}

/// Steps are counted, not timed. The texts open quotes, names and lists without closing them.
#[test]
fn masking_takes_a_bounded_number_of_steps_per_byte() {
    let pieces = [
        "=\"",
        "='",
        ":\"",
        "\\\"",
        "[\"",
        "\",\"",
        "\"]",
        " ",
        "\n",
        "token=",
        "://",
        "&",
        "-P",
        "a",
        "{",
        "}",
        "Authorization:",
        "@",
        "'",
    ];
    let cost = |text: &str| {
        steps::COUNTED.set(0);
        let _ = masked(text);
        steps::COUNTED.get()
    };
    let mut rng = fastrand::Rng::with_seed(45);
    for round in 0..300 {
        let chosen: Vec<&str> = (0..rng.usize(1..5)).map(|_| pieces[rng.usize(..pieces.len())]).collect();
        let mut text: String = if round % 2 == 0 {
            chosen.concat().repeat(20_000 / chosen.concat().len())
        } else {
            (0..5_000).map(|_| chosen[rng.usize(..chosen.len())]).collect()
        };
        if round % 3 == 0 {
            text.push_str("://x");
        }
        let steps = cost(&text);
        assert!(steps <= 40 * text.len() + 1_000, "{steps} steps for {} bytes of {chosen:?}", text.len());
    }
    // An unreadable entry of the largest size that etcd takes: only a window of it is examined.
    let entry = format!("{{\"index\": \"1\", {}", "\"a\":\"b c\",".repeat(110_000));
    steps::COUNTED.set(0);
    assert_eq!(beginning(entry.as_bytes(), 80).chars().count(), 80);
    assert!(steps::COUNTED.get() < 40 * (WINDOW + 400), "{}", steps::COUNTED.get());
}
