//! Tests of every form of a term.

use cketerm_model::boot_time::Seconds;

use crate::state::filter::*;

const COLUMNS: &[ColumnId] = &[
    ColumnId::new("node"),
    ColumnId::new("status"),
    ColumnId::new("since"),
    ColumnId::new("rack"),
    ColumnId::new("pods"),
];

struct Row(&'static str, &'static str, f64, &'static str, &'static str);

impl Cells for Row {
    fn value(&self, column: ColumnId) -> Value<'_> {
        match column.as_str() {
            "node" => Value::text(self.0),
            "status" => Value::text(self.1),
            "since" => Value::Span(Seconds::new(self.2)),
            "rack" => Value::text(self.3),
            _ => Value::text(self.4),
        }
    }

    fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
        COLUMNS.iter().any(|column| test(&self.value(*column)))
    }
}

fn hits(filter: &str) -> String {
    let rows = [
        Row("worker-1", "draining", 700.0, "3", "38/40"),
        Row("worker-12", "queued", 30.0, "4", ""),
        Row("cp-1", "failed two", 7200.0, "3", "1/4"),
    ];
    let filter = Filter::parse(filter, COLUMNS).unwrap();
    rows.iter().filter(|row| filter.passes(*row)).map(|row| row.0).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_form_of_a_filter_term_matches() {
    for (filter, found) in [
        ("", "worker-1 worker-12 cp-1"),
        ("WORKER", "worker-1 worker-12"),
        ("!worker", "cp-1"),
        ("/^worker-[0-9]$/", "worker-1"),
        ("!/^w/", "cp-1"),
        ("status:queue", "worker-12"),
        ("node=worker-1", "worker-1"),
        ("rack=3 !status:failed", "worker-1"),
        ("since>10m", "worker-1 cp-1"),
        ("since<=30s", "worker-12"),
        ("since>2h", ""),
        ("since>=2h", "cp-1"),
        ("since:30s", "worker-12"),
        ("since=11m", "worker-1"),
        ("30", ""),
        ("pods>10", "worker-1"),
        ("\"failed two\"", "cp-1"),
        ("status:\"failed two\"", "cp-1"),
        ("status:queued or rack=3 since>1h", "worker-12 cp-1"),
        ("node:/r-1.*2/", "worker-12"),
        ("\"node:x\"", ""),
    ] {
        assert_eq!(hits(filter), found, "{filter}");
    }
}

#[test]
fn a_syntax_error_names_the_term_and_the_alternatives() {
    let fault = |text: &str| Filter::parse(text, COLUMNS).unwrap_err();
    assert!(fault("/(/").contains("unclosed group"), "{}", fault("/(/"));
    assert_eq!(fault("/x"), "the closing / is missing");
    assert_eq!(fault("height=3"), "there is no column height: node status since rack pods");
    assert_eq!(
        fault("reason:INC-9"),
        "there is no column reason: node status since rack pods (as text: \"reason:INC-9\")"
    );
    assert_eq!(fault("since>soon"), "since> needs a number, or 90s, 10m, 2h, 3d");
    assert_eq!(fault("a or"), "`or` needs a term on either side");
}

/// The user sees an error in place of an empty table.
#[test]
fn a_comparison_of_a_text_names_the_columns_that_can_be_compared() {
    let fault = |text: &str| Filter::parse(text, COLUMNS).unwrap_err();
    assert_eq!(
        fault("status<20s"),
        "status<20s: status is text; since rack pods can be compared (as text: status:20s)"
    );
    assert!(fault("queued node>=5").starts_with("node>5: node is text"), "{}", fault("queued node>=5"));
    for text in ["since<20s", "rack>2", "pods>=3"] {
        assert!(Filter::parse(text, COLUMNS).is_ok(), "{text}");
    }
}

/// Audit, Logs and the histories show their time in a column of another name.
#[test]
fn since_is_the_age_in_tables_without_that_column() {
    struct Action(f64);
    impl Cells for Action {
        fn value(&self, column: ColumnId) -> Value<'_> {
            if column == "at" { Value::Span(Seconds::new(self.0)) } else { Value::text("root") }
        }

        fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
            AUDIT.iter().any(|column| test(&self.value(*column)))
        }
    }
    const AUDIT: &[ColumnId] = &[ColumnId::new("at"), ColumnId::new("who")];
    let filter = Filter::parse("since<20s", AUDIT).unwrap();
    assert_eq!((filter.passes(&Action(8.0)), filter.passes(&Action(30.0))), (true, false));
    assert!(Filter::parse("since<20s", &[ColumnId::new("who")]).is_err());
}

/// The text only saves time.
#[test]
fn a_row_passes_with_its_searchable_text_as_without_it() {
    let rows = [
        Row("Worker-1", "draining", 700.0, "3", "38/40"),
        Row("w\u{d6}rker-12", "queued", 30.0, "4", ""),
        Row("cp-1", "failed two", 7200.0, "3", "1/4"),
    ];
    for text in [
        "",
        "worker",
        "WORKER",
        "!worker",
        "\u{f6}",
        "30",
        "failed two",
        "\"failed two\"",
        "/^w/",
        "3 !q",
        "rack=3",
        "8/4 or 12",
        "status:queue",
        "since>10m 3",
        "38/40",
        "ing 3",
        "\"\"",
    ] {
        let filter = Filter::parse(text, COLUMNS).unwrap();
        for row in &rows {
            let with_text = filter.passes_text(&searchable_text(row), || Row(row.0, row.1, row.2, row.3, row.4));
            assert_eq!(with_text, filter.passes(row), "{text:?} {}", row.0);
        }
    }
}

#[test]
fn addresses_with_ports_and_namespaced_names_are_plain_text() {
    for text in ["https://10.0.0.1:6443 shop/web-1", "10.0.0.1:6443", "fe80::1", "aa:bb:cc:dd:ee:ff"] {
        assert!(Filter::parse(text, COLUMNS).is_ok(), "{text}");
    }
}

/// The Audit's column WHO shows `root` and has the value `root@vm`.
#[test]
fn who_matches_the_displayed_user_and_reason_is_an_alias_of_why() {
    struct Action;
    impl Cells for Action {
        fn value(&self, column: ColumnId) -> Value<'_> {
            Value::text(if column == "who" { "root@vm" } else { "INC-9" })
        }

        fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
            AUDIT.iter().any(|column| test(&self.value(*column)))
        }
    }
    const AUDIT: &[ColumnId] = &[ColumnId::new("who"), ColumnId::new("why")];
    for (text, found) in [
        ("who=root", true),
        ("who=ROOT@vm", true),
        ("who=roo", false),
        ("who=vm", false),
        ("reason:INC-9", true),
        ("reason=inc-8", false),
    ] {
        assert_eq!(Filter::parse(text, AUDIT).unwrap().passes(&Action), found, "{text}");
    }
}

/// The screen shows `api`, the commands say `control-plane`.
#[test]
fn a_role_matches_under_both_its_names() {
    struct Node(Value<'static>);
    impl Cells for Node {
        fn value(&self, _: ColumnId) -> Value<'_> {
            self.0.clone()
        }

        fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
            test(&self.0)
        }
    }
    const NODES: &[ColumnId] = &[ColumnId::new("role")];
    let (api, worker) = (Node(Value::Known("api".into(), "control-plane")), Node(Value::text("worker")));
    for (text, of_api, of_worker) in [
        ("role:api", true, false),
        ("role:control-plane", true, false),
        ("role=control-plane", true, false),
        ("role=api", true, false),
        ("role=control", false, false),
        ("control", true, false),
        ("!role:api", false, true),
        ("!role:control-plane", false, true),
        ("role:/^(api|worker)$/", true, true),
    ] {
        let filter = Filter::parse(text, NODES).unwrap();
        assert_eq!((filter.passes(&api), filter.passes(&worker)), (of_api, of_worker), "{text}");
    }
}

#[test]
fn numbers_in_names_sort_numerically_and_missing_values_come_last() {
    let mut values = [Value::text("w10"), Value::None, Value::text("w9"), Value::Number(3.0), Value::Number(-1.0)];
    values.sort_by_key(Value::key);
    assert_eq!(values, [Value::Number(-1.0), Value::Number(3.0), Value::text("w9"), Value::text("w10"), Value::None]);
}
