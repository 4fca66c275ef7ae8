//! Tests of hostile external text, made to break screens, in every field of every view and dialog.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::{Arc, Mutex},
};

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{Audit, EndKind, Ending, Request, Who},
    entry::{EntryId, Stored},
    names::{Address, NodeName},
    reason::Reason,
    record::Record,
};
use cketerm_rules::{
    decide::ApplyState,
    registry::{Basis, GoodAnswer, Proposal, Proposed, QueryState, Registry},
    seen::Seen,
    snapshot::Snapshot,
};
use cketerm_runtime::telemetry::LogLine;
use cketerm_sabakan::{
    Action, Plan,
    change::{Change, FieldChange, Gate, Kind, NodeChange},
};
use ratatui::{Terminal, layout::Size};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::world::{World, press, wall};
use crate::{
    input::update,
    state::{App, View, event::Event, past::ReadResponse},
    terminal::{backend::BufferedBackend, screen},
    views,
};

/// Returns the suffixes that are appended to every external text.
fn hostile_suffixes() -> Vec<(&'static str, String)> {
    vec![
        ("controls", "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\t\u{0}\u{9b}31m\u{7f}\u{8}end".to_owned()),
        (
            "right to left",
            "\u{202e}\u{5e9}\u{5dc}\u{5d5}\u{5dd}\u{200f}\u{2066}\u{645}\u{631}\u{62d}\u{628}\u{627}".to_owned(),
        ),
        (
            "wide",
            "\u{65e5}\u{672c}\u{8a9e}\u{d55c}\u{ad6d}\u{1f680}\u{1f468}\u{200d}\u{1f469}\u{2764}\u{fe0f}".repeat(3),
        ),
        ("combining", format!("e{}n\u{303}\u{0e01}\u{0e33}", "\u{301}".repeat(300))),
        ("long", "x".repeat(10_000)),
    ]
}

/// Everything of a snapshot that can be serialized.
type Serializable = (Snapshot, BTreeMap<EntryId, Reason>, BTreeMap<NodeName, Reason>);

fn texts(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(out.insert(text.clone())),
        Value::Array(all) => all.iter().for_each(|value| texts(value, out)),
        Value::Object(map) => map.values().for_each(|value| texts(value, out)),
        _ => {}
    }
}

/// Appends the suffix to every text whose value can still be parsed with it. Returns the number of these texts.
fn corrupted(parts: &Serializable, suffix: &str) -> (Serializable, usize) {
    let value = serde_json::to_value(parts).unwrap();
    let mut all = BTreeSet::new();
    texts(&value, &mut all);
    let (mut text, mut count) = (value.to_string(), 0);
    for one in all.iter().filter(|one| !one.is_empty()) {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        let tried = text.replace(&quoted(one), &quoted(&format!("{one}{suffix}")));
        if serde_json::from_str::<Serializable>(&tried).is_ok() {
            (text, count) = (tried, count + 1);
        }
    }
    (serde_json::from_str(&text).unwrap(), count)
}

/// Returns a world with content in every view.
fn full_world(suffix: &str) -> World {
    let mut world = World::with_repairs();
    world.kube.hosts = World::with_hosts().kube.hosts;
    world.kube.sources = World::with_hosts().kube.sources;
    world.store.registry.url = Some(super::world::stored("url", 5, "http://sabakan/graphql".to_owned()));
    world.engine.missing_programs = vec![format!("/bin/x{suffix}")];
    world
}

fn registry() -> Registry {
    let machine = |n: u8, state: &str| {
        serde_json::json!({"spec": {"serial": format!("SN{n}"), "rack": n, "indexInRack": n, "role": "cs",
            "ipv4": [format!("10.0.0.{}", 13 + n)], "registerDate": "2024-01-01T00:00:00Z",
            "retireDate": "2029-01-01T00:00:00Z", "bmc": {"bmcType": "IPMI-2.0", "ipv4": "10.1.0.1"},
            "labels": [{"name": "machine-type", "value": "r640"}]},
            "status": {"state": state, "timestamp": "2026-11-20T00:00:00Z", "duration": 10.0}})
    };
    let answer = serde_json::json!({"data": {"searchMachines": [machine(1, "HEALTHY"), machine(2, "UNREACHABLE")]}});
    let machines = cketerm_sabakan::machine::read(&answer.to_string()).unwrap();
    let good =
        GoodAnswer { machines: Arc::new(machines), at: BootTime::new(1.0), wall: wall(), asked: wall(), with: (5, 5) };
    let field = FieldChange { field: "labels[x]".into(), before: Some("one".into()), after: Some("two".into()) };
    let node = |address: &str, fields: Vec<FieldChange>| NodeChange {
        address: Address::new(address),
        control_plane: false,
        kind: Kind::Changed,
        fields,
        taints: true,
        evicts: false,
    };
    let plan = Plan {
        action: Action::TaintNodes,
        reason: "worker-1 is unhealthy".into(),
        changed: true,
        cluster: None,
        nodes: Vec::new(),
        warnings: vec!["a warning".into()],
    };
    let change = Change { nodes: vec![node("10.0.0.14", vec![field])], fields: vec!["options.x: changes".into()] };
    let made = Proposed { plan, change, gate: Gate::default(), digest: "d1".into(), json: String::new() };
    let proposal = Proposal { basis: Basis::default(), asked: wall(), outcome: Ok(made) };
    Registry {
        members: QueryState { good: Some(good), error: Some("sabakan is slow".into()), at: Some(BootTime::new(1.0)) },
        proposal: Some(Arc::new(proposal)),
        ..Registry::default()
    }
}

fn seen(suffix: &str) -> (Arc<Seen>, usize) {
    let world = full_world(suffix);
    let mut seen = Seen::clone(&world.seen());
    seen.snapshot.registry = Arc::new(registry());
    let parts = (seen.snapshot.clone(), BTreeMap::clone(&seen.reasons), BTreeMap::clone(&seen.orphans));
    let ((snapshot, reasons, orphans), count) = corrupted(&parts, suffix);
    (seen.snapshot, seen.reasons, seen.orphans) = (snapshot, Arc::new(reasons), Arc::new(orphans));
    seen.applying = Arc::new(ApplyState::Approval(format!("d1{suffix}"), format!("a rack has gone{suffix}")));
    (Arc::new(seen), count)
}

/// Returns a page with a valid value and an unreadable one.
fn page<T>(value: T, broken: String) -> Page<T> {
    let values = vec![
        Stored { key: "/a".into(), mod_revision: 9, value: Ok(Arc::new(value)) },
        Stored { key: broken.clone(), mod_revision: 8, value: Err(broken) },
    ];
    Page { revision: 9, values, more: false }
}

/// Adds an equally hostile past and log.
fn past(app: &mut App, suffix: &str) {
    let who = || Who {
        user: format!("eve{suffix}"),
        host: format!("h{suffix}"),
        ssh_client: Some(format!("192.0.2.1{suffix}")),
    };
    let hostile = |text: &str| format!("{text}{suffix}");
    let ending = Ending {
        entry: EntryId::reboot(1),
        address: Address::new(hostile("10.0.0.14")),
        end: EndKind::Failed,
        outcome: hostile("failed: x"),
        withdrawn_by: None,
        at: wall(),
        last: Value::Null,
        request: Some(Request { who: who(), at: wall(), reason: Some(hostile("why")), node_uid: None, batch: None }),
        attempts: Vec::new(),
        hooks: Vec::new(),
        omitted: 0,
    };
    let audit = Audit {
        at: wall(),
        who: who(),
        what: hostile("reboot add"),
        on: hostile("10.0.0.14"),
        reason: Some(hostile("why")),
        result: hostile("done"),
        failed: false,
        entry: None,
        repeats: None,
    };
    let record = Record::completed(
        1,
        &hostile("reboot"),
        &Address::new(hostile("10.0.0.14")),
        &hostile("error"),
        wall(),
        wall(),
    );
    let broken = || format!("/b{suffix}");
    for answer in [
        ReadResponse::History(Part::Newest, Ok(page((&ending).into(), broken()))),
        ReadResponse::Audit(Part::Newest, Ok(page(audit, broken()))),
        ReadResponse::Records(Part::Newest, Ok(page(record, broken()))),
    ] {
        update(app, Event::ReadFinished(Box::new(answer)));
    }
    let line = LogLine {
        number: 1,
        at: wall(),
        level: tracing::Level::WARN,
        entry: Some(hostile("reboots/3")),
        text: hostile("log"),
    };
    update(app, Event::ReadFinished(Box::new(ReadResponse::Logs(vec![Arc::new(line)]))));
}

/// Key sequences that lead to every view, pane and dialog.
const KEY_SEQUENCES: [&str; 46] = [
    "0",
    "0 j enter",
    "1",
    "1 enter",
    "1 X",
    "1 * X",
    "1 F",
    "1 j A",
    "1 B",
    "1 H",
    "1 E",
    "1 o",
    "2",
    "2 enter",
    "2 R",
    "2 * R",
    "2 P",
    "2 C",
    "3",
    "3 enter",
    "3 X",
    "3 * X",
    "3 j P",
    "3 Z",
    "4",
    "4 enter",
    "4 v",
    "4 S",
    "5",
    "5 enter",
    "5 Y",
    "5 H",
    "6",
    "6 enter",
    "6 W",
    "6 I",
    "6 j L",
    "7",
    "7 enter",
    "7 v",
    "8",
    "8 enter",
    "9",
    "9 enter",
    ": \"messages\" enter",
    "1 / \"x\"",
];

/// Writer that stores the bytes of a frame.
#[derive(Clone, Default)]
struct FrameBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for FrameBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Draws as the program does, and compares the screen that the bytes make with the intended one.
fn assert_rendered(app: &App, what: &str) {
    let buffer = screen::buffer(app);
    let (width, height) = (buffer.area.width, buffer.area.height);
    for y in 0..height {
        for x in 0..width {
            let symbol = buffer[(x, y)].symbol();
            assert!(!symbol.chars().any(char::is_control), "{what} at {x},{y}: {symbol:?}");
            let invisible = symbol
                .chars()
                .any(|c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
            assert!(!invisible, "{what} at {x},{y}: {symbol:?}");
            if symbol.width() > 1 {
                assert!(x + 1 < width && buffer[(x + 1, y)].symbol() == " ", "{what} at {x},{y}: half of {symbol:?}");
            }
        }
    }
    let line = FrameBuffer::default();
    let mut terminal = Terminal::new(BufferedBackend::new(line.clone(), Size::new(width, height))).unwrap();
    terminal.draw(|frame| views::draw(app, frame)).unwrap();
    let bytes = line.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).expect("UTF-8");
    let bare = text.chars().filter(|c| c.is_control() && *c != '\u{1b}').count();
    assert_eq!(bare, 0, "{what}: control characters outside cketerm's escapes");
    for escape in text.split('\u{1b}').skip(1) {
        let known = escape.strip_prefix('[').is_some_and(|rest| {
            let end = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | '?'));
            end.starts_with(['m', 'H', 'C', 'K', 'h', 'l'])
        });
        assert!(known, "{what}: a foreign escape sequence: {:?}", escape.chars().take(20).collect::<String>());
    }
    let mut parser = vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 0);
    parser.process(text.as_bytes());
    for y in 0..height {
        for x in 0..width {
            let (expected, cell) = (buffer[(x, y)].symbol(), parser.screen().cell(y, x).unwrap());
            // terminals render accents differently; only the letter has to be in its column
            let first = |text: &str| text.chars().next().filter(|c| *c != ' ');
            // vt100 shows nothing for U+FFFD
            let second = x > 0 && buffer[(x - 1, y)].symbol().width() > 1;
            if !cell.is_wide_continuation() && !second && expected != "\u{fffd}" {
                assert_eq!(first(cell.contents()), first(expected), "{what} at {x},{y}:\n{}", screen::text(app));
            }
        }
    }
}

#[test]
fn external_text_never_controls_the_terminal_breaks_columns_or_panics() {
    for (name, suffix) in hostile_suffixes() {
        let (seen, corrupted) = seen(&suffix);
        assert!(corrupted > 60, "{name}: only {corrupted} texts were corrupted");
        let mut shown = 0;
        for (columns, rows) in [(60, 15), (80, 24), (200, 50)] {
            let mut base = full_world(&suffix).console_in(View::Reboots, columns, rows);
            update(&mut base, Event::Seen(Arc::clone(&seen)));
            past(&mut base, &suffix);
            update(&mut base, Event::Done(Err(format!("refused: {suffix}"))));
            for place in KEY_SEQUENCES {
                let mut app = base.clone();
                press(&mut app, place);
                assert_rendered(&app, &format!("{name} {columns}x{rows} {place:?}"));
                let marker = match name {
                    "controls" => "\u{241b}",
                    "right to left" => "\u{5e9}",
                    "wide" => "\u{65e5}",
                    "combining" => "e\u{301}",
                    _ => "xxxxxxxx",
                };
                shown += usize::from(screen::text(&app).contains(marker));
            }
        }
        assert!(shown > KEY_SEQUENCES.len(), "{name}: the text is on {shown} screens only");
    }
}

#[test]
fn pasted_text_never_controls_the_terminal() {
    for (name, suffix) in hostile_suffixes() {
        for place in ["1 X", "/", ":", "1 F", "2 * R"] {
            for (columns, rows) in [(60, 15), (80, 24)] {
                let mut app = World::usual().console(columns, rows);
                press(&mut app, place);
                update(&mut app, Event::Paste(suffix.clone()));
                assert_rendered(&app, &format!("{name} pasted at {place}"));
            }
        }
    }
}
