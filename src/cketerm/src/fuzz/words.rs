//! Short texts from operators and scripts: arguments, windows, groups, durations, selectors.

use std::ffi::OsString;

use cketerm_fuzz::{Fuzz, Took};
use cketerm_model::{
    freeze::Groups, host::RebootAnnotations, reboot_signals::Signals, selector::Selector, time, window::Windows,
};
use clap::Parser as _;

use crate::cli::Cli;

#[test]
fn arguments() {
    let seeds = [
        "cketerm reboot-queue add - --reason x",
        "cketerm reboot-queue cancel 0x10",
        "cketerm rq list -o json --etcd-endpoints http://h:1",
        "cketerm repair-queue add unreachable IPMI-2.0 10.0.0.1 SERIAL",
        "cketerm repair-queue list --simple",
        "cketerm constraints set minimum-workers -5",
        "cketerm sabakan set-url http://h/graphql",
        "cketerm auto-repair set-variables f",
        "cketerm cluster set f",
        "cketerm history -n 5 --follow",
        "cketerm leader",
        "cketerm --sandbox --nodes 5000 --seed 7 --speed 3",
        "cketerm --daemon --http 127.0.0.1:1 --config=c -v",
        "cketerm --observe --view nodes --theme auto --color never --",
        "cketerm screenshot --view reboots --size 200x60 --keys 'j enter'",
        "cketerm windows --at 2026-01-01T00:00:00Z --days 3",
        "cketerm policy set windows -",
        "cketerm audit --since 90m",
    ];
    Fuzz::new("arguments", 100).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes).replace('\0', "");
        let read = Cli::try_parse_from(text.split(' '));
        let words: Vec<OsString> = text.split(' ').map(Into::into).collect();
        if let Some(short) = Cli::without_subcommand(&words)
            && read.as_ref().ok().map(|whole| format!("{whole:?}")) != Some(format!("{short:?}"))
        {
            return Err(format!("the parsers differ: {short:?}"));
        }
        if let Err(why) = &read
            && why.to_string().trim().is_empty()
        {
            return Err("refused without a message".to_owned());
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn reboot_signals() {
    let seeds = [
        "[kured, flatcar, node-problem-detector]",
        "- {condition: KernelDeadlock, status: \"True\"}\n- annotation: a.example/b\n- {label: c, value: d}\n",
        "[{\"kernel\":\"6.12.60\"},{\"os_image\":\"Flatcar 4230\"}]",
    ];
    Fuzz::new("reboot-signals", 300).seeds(seeds).run(|bytes| {
        let read = Signals::read(&String::from_utf8_lossy(bytes));
        match &read {
            Ok(signals) => {
                let again = serde_json::to_value(signals).unwrap();
                if serde_json::from_value::<Signals>(again).ok().as_ref() != Some(signals) {
                    return Err("the signals change when written and read back".to_owned());
                }
            }
            Err(why) if why.is_empty() => return Err("refused without a message".to_owned()),
            Err(_) => {}
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn windows() {
    let seeds = [
        "time_zone: Asia/Tokyo\nallow: [\"* 0-5 * * mon-fri\", \"*/7 1,2,3 1-7 jan sun\"]\ndeny: [\"* * 31 12 *\"]\nmargin_seconds: 60\n",
        "time_zone: Europe/Berlin\nallow: [\"0-59/2 * * * *\"]\nmachines: [{name: own, rack: \"2\", allow: [\"30 3 29 2 *\"]}]\nqueues: [reboot]\n",
        "{\"time_zone\":\"UTC\",\"allow\":[\"* * * * 7\"],\"x-later\":1}",
    ];
    let times: Vec<jiff::Timestamp> =
        ["2026-03-29T00:59:59Z", "2026-10-25T01:00:00Z", "9999-12-30T21:59:59Z", "-009999-01-03T00:00:00Z"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect();
    Fuzz::new("windows", 300).seeds(seeds).run(|bytes| {
        let read = Windows::read(&String::from_utf8_lossy(bytes));
        match &read {
            Ok(windows) => {
                for (at, (_, window)) in times.iter().flat_map(|at| windows.all().map(move |one| (*at, one))) {
                    let open = window.open(at);
                    let (next, closes) = (window.next_open(at), window.closes(at));
                    if !open && next.is_some_and(|next| next <= at) || open && closes.is_some_and(|end| end <= at) {
                        return Err(format!("at {at}: open {open}, opens {next:?}, closes {closes:?}"));
                    }
                }
                let _ = windows.unusable_reason(times[0]);
                let again = serde_json::to_value(windows).unwrap();
                if serde_json::from_value::<Windows>(again).ok().as_ref() != Some(windows) {
                    return Err("the windows change when written and read back".to_owned());
                }
            }
            Err(why) if why.is_empty() => return Err("refused without a message".to_owned()),
            Err(_) => {}
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn groups() {
    let seeds = ["by: rack\nlimit: 2\n", "{\"by\":\"topology.kubernetes.io/zone\",\"limit\":1}"];
    Fuzz::new("groups", 300).seeds(seeds).run(|bytes| Ok(Took::of(&Groups::read(&String::from_utf8_lossy(bytes)))));
}

#[test]
fn fuzz_durations_and_times() {
    let seeds = ["90m", "1h30m", "7d", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00.5+09:00"];
    Fuzz::new("times", 600).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (span, at) = (time::span(&text), time::parse(&text));
        if let Ok(Some(at)) = at {
            let _ = (time::after(at, i64::MAX), time::after(at, i64::MIN), time::whole_seconds(at));
            let _ = time::seconds_between(jiff::Timestamp::MIN, at) + time::seconds_between(jiff::Timestamp::MAX, at);
        }
        Ok(if span.is_some() || at.is_ok() { Took::Accepted } else { Took::Refused })
    });
}

#[test]
fn selectors() {
    let seeds = [
        r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"Exists"}]}"#,
        r#"{"matchExpressions":[{"key":"b","operator":"NotIn","values":[]}]}"#,
        "a=1,b!=2,c in (x,y),d notin (z),e,!f",
    ];
    let labels = [("app".to_owned(), "web".to_owned()), ("a".to_owned(), String::new())].into();
    Fuzz::new("selector", 500).seeds(seeds).run(|bytes| {
        let read = serde_json::from_slice::<Selector>(bytes);
        if let Ok(selector) = &read {
            let _ = selector.matches(&labels);
        }
        let typed = String::from_utf8_lossy(bytes).parse::<Selector>();
        if let Ok(selector) = &typed {
            let _ = (selector.matches(&labels), selector.fault("x"));
        }
        Ok(if typed.is_ok() { Took::Accepted } else { Took::of(&read) })
    });
}

#[test]
fn fuzz_reboot_annotations() {
    let seeds = [r#"{"mode":"hard"}"#, r#"{"mode":"soft"}"#, ""];
    Fuzz::new("host-annotation", 500).seeds(seeds).run(|bytes| {
        let value = String::from_utf8_lossy(bytes).into_owned();
        let key = format!("reboot.metal3.io/{}", value.chars().take(5).collect::<String>());
        let all = [("reboot.metal3.io".to_owned(), value.clone()), (key, value)];
        let asked = RebootAnnotations::from_annotations(all.iter().map(|(k, v)| (k, v)));
        let _ = asked.mode();
        Ok(Took::Accepted)
    });
}
