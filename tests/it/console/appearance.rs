//! Appearance and terminals: themes, detection of a light terminal, title, mouse, clipboard.

use super::{terminal::Console, unreachable_config};
use crate::world::program::command;

/// A configuration that names unreachable servers and has these console settings.
fn config_with_console(name: &str, console: &str) -> std::path::PathBuf {
    let config = unreachable_config(name);
    let text = std::fs::read_to_string(&config).unwrap();
    let with = config.with_file_name("looks.yaml");
    std::fs::write(&with, format!("{text}console: {console}\n")).unwrap();
    with
}

fn start(config: &std::path::Path, args: &[&str], environment: &[(&str, &str)]) -> Console {
    let config = config.display().to_string();
    let args = [&["--config", &config, "--observe"], args].concat();
    Console::on(environment, &args, 80, 24)
}

fn quit(mut console: Console) -> Console {
    console.press("q");
    assert_eq!(console.wait_for_end(30), 0);
    console.wait_for_terminal_mode(false);
    console
}

/// Colour, of the 16, for the key of a hint in the themes `terminal`, `light` and `dark`.
const TERMINAL: vt100::Color = vt100::Color::Idx(6);
const LIGHT: vt100::Color = vt100::Color::Idx(4);
const DARK: vt100::Color = vt100::Color::Idx(14);
const BACKGROUND_QUERY: &str = "\u{1b}]11;?";

#[test]
fn the_console_starts_with_every_theme_and_sample_configuration() {
    let config = unreachable_config("themes");
    let list = command().args(["theme", "list", "-o", "json"]).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.len() >= 8 && names.contains(&"blue-orange-light"), "{names:?}");
    for name in names {
        let console = start(&config, &["--theme", name], &[]);
        console.wait_for_text("connecting to etcd", 30);
        assert!(!quit(console).raw().contains(BACKGROUND_QUERY), "{name}");
    }
    let default = command().args(["config", "default"]).output().unwrap().stdout;
    let document = include_str!("../../../docs/configuration.md");
    let sample: String = document.lines().filter_map(|l| l.strip_prefix("    ").map(|l| format!("{l}\n"))).collect();
    for (name, text) in [("default", String::from_utf8(default).unwrap()), ("document", sample)] {
        let file = config.with_file_name(format!("{name}.yaml"));
        std::fs::write(&file, text).unwrap();
        let console = start(&file, &[], &[]);
        console.wait_for_text("connecting to etcd", 30);
        quit(console);
    }
    let mut wrong = Console::start(&config, &["--theme", "drak"], 80, 24);
    assert_eq!(wrong.wait_for_end(30), 2);
    wrong.wait_for_text("did you mean \"dark\"?", 30);
}

#[test]
fn the_theme_follows_the_terminals_reported_background_and_no_key_is_lost() {
    let config = config_with_console("auto", "{theme: auto}");
    for (answer, colour) in [
        ("\u{1b}]11;rgb:ffff/ffff/ffff\u{7}", LIGHT),
        ("\u{1b}]11;rgb:fdf6/e3e3/d5d5\u{1b}\\", LIGHT),
        ("\u{1b}]11;rgb:0000/2b2b/3636\u{1b}\\", DARK),
        ("\u{1b}]11;nonsense: X y\u{7}", TERMINAL),
        ("\u{1b}]11;\u{7}", TERMINAL),
    ] {
        let mut console = start(&config, &[], &[]);
        console.wait_for_output(BACKGROUND_QUERY);
        console.wait_for_text("connecting to etcd", 30);
        // keys typed before the answer, together with it, and after it
        console.press("1");
        console.send(format!("3{answer}?").as_bytes());
        let text = console.wait_for_text("Keys: j k scroll", 30);
        assert!(text.contains("[3 Repairs"), "{answer:?}: {text}");
        console.wait_for_colour("? help", colour);
        console.press("\u{1b}");
        console.wait_for_text("connecting to etcd", 30);
        quit(console);
    }
}

/// With East Asian settings some symbols take two cells: the cursor stands further right than after three cells.
#[test]
fn a_terminal_with_wide_blocks_gets_ascii_and_one_that_does_not_answer_keeps_keys() {
    const POSITION_QUERY: &str = "\u{1b}[H\u{2588}\u{25cf}\u{2713}\u{1b}[6n";
    let config = unreachable_config("wide");
    let is_block = |c: char| ('\u{2500}'..='\u{25ff}').contains(&c);
    for (answer, is_wide) in [("\u{1b}[1;6R", true), ("\u{1b}[1;5R", true), ("\u{1b}[1;4R", false)] {
        let mut console = start(&config, &[], &[]);
        console.wait_for_output(POSITION_QUERY);
        console.send(answer.as_bytes());
        console.press("?");
        let text = console.wait_for_text("Keys: j k scroll", 30);
        assert_eq!(text.contains(is_block), !is_wide, "{answer:?}: {text}");
        assert!(!text.contains("[1;"), "{text}");
        console.press("\u{1b}");
        console.wait_for_text("connecting to etcd", 30);
        quit(console);
    }
    // a late answer, as over a slow link: the keys wait for it, and then arrive in their order
    let mut console = start(&config, &[], &[]);
    console.wait_for_output(POSITION_QUERY);
    for (nth, key) in ":columns-of-nobody\r".chars().enumerate() {
        console.press(&key.to_string());
        std::thread::sleep(std::time::Duration::from_millis(20));
        if nth == 14 {
            console.send(b"\x1b[1;2R");
        }
    }
    console.wait_for_text("no command \"columns-of-nobody\"", 30);
    console.press("\u{1b}");
    console.wait_for_text("? help", 30);
    quit(console);
    // no answer: the keys wait for two seconds
    let mut console = start(&config, &[], &[]);
    console.wait_for_output(POSITION_QUERY);
    console.press("3");
    console.press("?");
    let text = console.wait_for_text("Keys: j k scroll", 30);
    assert!(text.contains("[3 Repairs") && text.contains(is_block), "{text}");
    console.press("\u{1b}");
    console.wait_for_text("connecting to etcd", 30);
    quit(console);
    let console = start(&config, &[], &[("TERM", "dumb")]);
    console.wait_for_text("connecting to etcd", 30);
    assert!(!quit(console).raw().contains("[6n"));
}

#[test]
fn without_a_background_report_the_terminals_own_colours_are_kept_until_it_arrives() {
    let config = config_with_console("late", "{theme: auto}");
    let mut console = start(&config, &[], &[]);
    console.wait_for_output(BACKGROUND_QUERY);
    console.wait_for_text("connecting to etcd", 30);
    console.press("2");
    console.wait_for_text("[2 Nodes", 30);
    console.wait_for_colour("? help", TERMINAL);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // an answer in two pieces, long after the query's timeout
    console.send(b"\x1b]11;rgb:ff");
    console.send(b"ff/ffff/ffff\x07");
    console.wait_for_colour("? help", LIGHT);
    let text = console.wait_for_text("[2 Nodes", 30);
    assert!(text.contains(": command") && !text.contains("rgb"), "{text}");
    quit(console);
    // a console that exits before the terminal answers must not leave the answer to the shell
    let console = start(&config, &[], &[]);
    console.wait_for_text("connecting to etcd", 30);
    quit(console);
}

#[test]
fn the_background_is_not_queried_if_unused_or_unsupported() {
    let config = config_with_console("silent", "{theme: auto}");
    for (args, environment) in [
        (&["--theme", "dark"][..], &[][..]),
        (&[], &[("NO_COLOR", "1")]),
        (&["--color", "never"], &[]),
        (&[], &[("TERM", "dumb")]),
        (&[], &[("TERM", "linux")]),
    ] {
        let console = start(&config, args, environment);
        console.wait_for_text("connecting to etcd", 30);
        assert!(!quit(console).raw().contains(BACKGROUND_QUERY), "{args:?} {environment:?}");
    }
    let console = start(&unreachable_config("default"), &[], &[]);
    console.wait_for_text("connecting to etcd", 30);
    assert!(!quit(console).raw().contains(BACKGROUND_QUERY), "the default theme must not query the background");
}

#[test]
fn the_window_title_is_saved_set_and_restored_also_around_a_stop() {
    let console = start(&unreachable_config("title"), &[], &[]);
    console.wait_for_text("connecting to etcd", 30);
    console.wait_for_output("\u{1b}]2;cketerm: connecting\u{7}");
    let count = |console: &Console, what: &str| console.raw().matches(what).count();
    assert_eq!((count(&console, "\u{1b}[22;0t"), count(&console, "\u{1b}[23;0t")), (1, 0));
    console.signal("TSTP");
    crate::world::wait_for("the console is stopped", 30, || (console.state() == 'T').then_some(()));
    console.wait_for_terminal_mode(false);
    assert_eq!((count(&console, "\u{1b}[22;0t"), count(&console, "\u{1b}[23;0t")), (1, 1));
    console.signal("CONT");
    console.wait_for_terminal_mode(true);
    crate::world::wait_for("the title is written again", 30, || (count(&console, "\u{1b}]2;") >= 2).then_some(()));
    let console = quit(console);
    assert_eq!((count(&console, "\u{1b}[22;0t"), count(&console, "\u{1b}[23;0t")), (2, 2));
    for (config, environment) in [
        (config_with_console("untitled", "{title: false}"), &[][..]),
        (unreachable_config("linux"), &[("TERM", "linux")]),
        (unreachable_config("dumb"), &[("TERM", "dumb")]),
    ] {
        let console = start(&config, &[], environment);
        console.wait_for_text("connecting to etcd", 30);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let raw = quit(console).raw();
        assert!(!raw.contains("\u{1b}]2;") && !raw.contains("\u{1b}[22;0t"), "{environment:?}");
    }
}

#[test]
fn the_mouse_is_captured_as_configured_and_over_ssh_only_with_always() {
    let ssh = [("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.1 22")];
    let on = "\u{1b}[?1000h";
    for (console, environment, used) in [
        ("{mouse: false}", &[][..], false),
        ("{mouse: true}", &[], true),
        ("{mouse: true}", &ssh, false),
        ("{mouse: always}", &ssh, true),
    ] {
        let mut running = start(&config_with_console("mouse", console), &[], environment);
        running.wait_for_text("connecting to etcd", 30);
        if used {
            let text = running.text();
            let (row, tabs) = text.lines().enumerate().find(|(_, line)| line.contains("2 Nod")).unwrap();
            let (x, y) = (tabs.find("2 Nod").unwrap() + 2, row + 1);
            running.send(format!("\u{1b}[<0;{x};{y}M\u{1b}[<0;{x};{y}m").as_bytes());
            running.wait_for_text("[2 Nodes", 30);
        }
        let raw = quit(running).raw();
        assert_eq!((raw.contains(on), raw.contains("\u{1b}[?1000l")), (used, used), "{console} {environment:?}");
        assert!(!raw.contains("\u{1b}[?1003h"), "mouse motion must not be reported");
    }
}

#[test]
fn a_terminal_whose_locale_is_not_utf8_gets_ascii() {
    let nodes = ["--sandbox", "--nodes", "9"];
    let mut plain = Console::on(&[("LC_ALL", "C")], &nodes, 80, 24);
    plain.wait_for_text("leading <1m", 30);
    plain.press("2c");
    plain.wait_for_text("copied", 30);
    plain.wait_for_output("\u{1b}]52;c;");
    plain.press("Rx");
    plain.wait_for_text("+- Reboot 1 machine? -", 30);
    plain.press("\u{1b}");
    plain.wait_for_text("R reboot", 30);
    assert_eq!(plain.quit(60), 0);
    assert!(plain.raw().is_ascii());
}

#[test]
fn the_screen_is_complete_after_many_resizes() {
    let console = Console::of(&["--sandbox", "--nodes", "40", "--view", "nodes"], 80, 24);
    console.wait_for_text("leading <1m", 30);
    for n in 0..100_u16 {
        console.resize(60 + (n * 37) % 140, 15 + (n * 13) % 35);
    }
    console.resize(100, 30);
    let complete = || {
        let text = console.text();
        let lines: Vec<&str> = text.lines().collect();
        let names = lines.iter().filter(|line| line.contains("Ready")).count();
        let good = lines.len() == 30
            && lines[0].contains("SANDBOX")
            && lines[1].contains("[2 Nod")
            && lines[3].contains("NODE")
            && names >= 20
            && lines[29].contains("q quit");
        good.then_some(())
    };
    crate::world::wait_for("the whole screen is drawn", 60, complete);
    // it stays complete: no late output for the smaller screen follows
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(complete().is_some(), "{}", console.text());
}

#[test]
fn theme_commands_list_show_and_check_with_file_line_and_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cketerm/themes");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mine.yaml"), "base: dark\nkey: {}\n").unwrap();
    std::fs::write(folder.join("round.yaml"), "base: round\n").unwrap();
    let bad = dir.path().join("bad.yaml");
    std::fs::write(&bad, "base: dark\ngoood: {}\ndanger: { fg: puce }\n").unwrap();
    let run = |args: &[&str]| {
        let output = command().arg("theme").args(args).env("XDG_CONFIG_HOME", dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, list, _) = run(&["list"]);
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {list}"));
    assert_eq!(code, Some(0));
    assert!(row("mine").contains("user") && row("mine").contains("mine.yaml"), "{list}");
    assert!(row("round").contains("broken") && row("terminal").contains("in use"), "{list}");
    let (code, shown, _) = run(&["show", "mine"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains("key: {}") && shown.contains("danger: { fg: light-red, bold: true }"), "{shown}");
    // the output is a valid theme
    let again = dir.path().join("again.yaml");
    std::fs::write(&again, &shown).unwrap();
    let (code, stdout, _) = run(&["check", again.to_str().unwrap()]);
    assert!(code == Some(0) && stdout.ends_with("again.yaml: ok\n"), "{stdout}");
    let (code, stdout, stderr) = run(&["check", bad.to_str().unwrap()]);
    assert_eq!((code, stdout.lines().count()), (Some(1), 2), "{stdout}");
    assert!(stdout.contains("bad.yaml:2: \"goood\" is not a role: did you mean good?"), "{stdout}");
    assert!(stdout.contains("bad.yaml:3: danger: fg: \"puce\" is not one of the 16 colours"), "{stdout}");
    assert!(stderr.contains("2 errors"), "{stderr}");
    let (code, all, _) = run(&["check", "-o", "json"]);
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    assert_eq!(
        (code, all["errors"].as_array().map(Vec::len), &all["errors"][0]["line"]),
        (Some(1), Some(1), &1.into())
    );
    assert_eq!(run(&["show", "nope"]).0, Some(1));
    assert_eq!(run(&["shelve"]).0, Some(2));
}
