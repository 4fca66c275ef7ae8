use cketerm_model::{boot_time::Seconds, names::Address};

use super::*;
use crate::machine::{Date, State};

fn machine() -> Machine {
    Machine {
        serial: "SN-7".to_owned(),
        labels: vec![("product".to_owned(), "r640".to_owned()), ("site".to_owned(), String::new())],
        rack: 3,
        index_in_rack: 12,
        role: "cs".to_owned(),
        address: Address::new("10.0.0.7"),
        ipv4: vec!["10.0.0.7".to_owned(), "10.1.0.7".to_owned()],
        register_date: Date::parse("2021-02-03T04:05:06.5+09:00").unwrap(),
        retire_date: Date::parse("2026-06-01T00:00:00Z").unwrap(),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: "10.72.0.7".to_owned(),
        state: State::Healthy,
        since: None,
        duration: Seconds::new(1.5),
    }
}

#[track_caller]
fn assert_renders(text: &str, expected: &str) {
    assert_eq!(GoText::parse(text).unwrap().render(&machine()).unwrap(), expected, "{text}");
}

/// Asserts that the text is refused when it is parsed or rendered, with its place and a word of the reason.
#[track_caller]
fn assert_fault(text: &str, at: usize, word: &str) {
    let fault = GoText::parse(text).and_then(|t| t.render(&machine())).unwrap_err();
    assert!(fault.at == at && fault.what.contains(word), "{text}: {fault}");
}

#[test]
fn fields_of_the_specification() {
    assert_renders("{{ .Rack }}", "3");
    assert_renders("rack{{.Rack}}-{{.IndexInRack}}", "rack3-12");
    assert_renders("{{ .Serial }}/{{ .Role }}/{{ .BMC.Type }}/{{ .BMC.IPv4 }}", "SN-7/cs/iDRAC-9/10.72.0.7");
    assert_renders("{{ index .Labels \"product\" }}|{{ index .Labels `none` }}|{{ .Labels.product }}", "r640||r640");
    assert_renders("{{ index .IPv4 1 }}", "10.1.0.7");
    assert_renders("{{ .RetireDate }} {{ .RegisterDate }}", "2026-06-01T00:00:00Z 2021-02-03T04:05:06+09:00");
    assert_renders("{{ .RetireDate.Year }} {{ .RegisterDate.Format \"2006-01-02.1504\" }}", "2026 2021-02-03.0405");
    assert_renders("plain }} text", "plain }} text");
}

#[test]
fn pipelines_and_printf() {
    assert_renders("{{ .Rack | printf \"r%02d\" }}", "r03");
    assert_renders(
        "{{ printf \"%s-%d%%|%5d|%-4d|%05d|%q|%v|%t\" .Role .Rack 7 7 -7 \"a\" .Serial true }}",
        "cs-3%|    7|7   |-0007|\"a\"|SN-7|true",
    );
    assert_renders("{{ \"product\" | index .Labels | printf \"%s-%s\" .Role }}", "cs-r640");
    assert_renders("{{ printf \"%x\" 255 }}{{ index .IPv4 0 | eq \"x\" | not | printf \"%t\" | and 10 }}", "fftrue");
}

#[test]
fn branches_and_comparisons() {
    assert_renders("{{ if eq .Role \"cs\" }}compute{{ else }}other{{ end }}", "compute");
    assert_renders("{{ if gt .Rack 3 }}a{{ else if ge .Rack 3 }}b{{ else }}c{{ end }}", "b");
    assert_renders("{{ if lt .Rack 3 }}a{{ else if eq .Rack 1 2 }}b{{ else }}c{{ end }}", "c");
    assert_renders("{{ if and (ne .Role \"ss\") (le .IndexInRack 12) }}x{{ end }}", "x");
    assert_renders("{{ if or (index .Labels \"site\") (not .Rack) }}x{{ end }}", "");
    assert_renders(
        "{{ if .Labels }}l{{ end }}{{ if index .Labels \"product\" }}p{{ if .IPv4 }}4{{ end }}{{ end }}",
        "lp4",
    );
    assert_renders("{{ or (index .Labels \"site\") \"none\" }}", "none");
}

#[test]
fn trim_markers_and_comments() {
    assert_renders("a \n {{- .Rack -}} \n b", "a3b");
    assert_renders("a {{- /* said\nin vain */ -}} b{{/* x */}}!", "ab!");
    assert_renders("{{ -3 }}|{{- 3 }} |{{- \"x\" }}", "-3|3 |x");
    assert_renders("{{ if true -}}  yes  {{- end }}.", "yes.");
}

#[test]
fn unsupported_label_templates_are_refused_with_their_position() {
    assert_fault("a{{ .Rak }}", 5, "did you mean .Rack?");
    assert_fault("{{ .Nothing }}", 4, "known: .Serial");
    assert_fault("{{ .Rack.X }}", 4, ".Rack has no field X");
    assert_fault("{{ .BMC.User }}", 4, "not a known field");
    assert_fault("{{ . }}", 4, "cannot be printed");
    assert_fault("{{ range .IPv4 }}x{{ end }}", 4, "range is not supported");
    assert_fault("{{ $x := 1 }}", 4, "variables");
    assert_fault("{{ upper .Role }}", 4, "upper is not a known function");
    assert_fault("{{ printff .Role }}", 4, "did you mean printf?");
    assert_fault("{{ .Rack", 1, "does not end");
    assert_fault("{{ if .Rack }}x", 4, "no {{ end }}");
    assert_fault("x{{ end }}", 5, "without an if");
    assert_fault("{{ if .Rack }}a{{ else }}b{{ else }}c{{ end }}", 30, "second else");
    assert_fault("{{ }}", 4, "missing");
    assert_fault("{{ index .Labels }}", 4, "takes 2 arguments, not 1");
    assert_fault("{{ .Rack .Role }}", 10, "only a function");
    assert_fault("{{ eq .Rack \"3\" }}", 4, "a number cannot be compared with a text");
    assert_fault("{{ .Labels }}", 4, "labels cannot be printed");
    assert_fault("{{ index .IPv4 7 }}", 4, "out of range");
    assert_fault("{{ printf \"%d\" .Role }}", 4, "%d does not fit a text");
    assert_fault("{{ printf \"%s\" }}", 4, "no value");
    assert_fault("{{ printf \"x\" .Role }}", 4, "too many");
    assert_fault("{{ printf \"%f\" 1 }}", 4, "%f is not supported");
    assert_fault("{{ \"a }}", 4, "string does not end");
    assert_fault("{{ (.Rack }}", 4, "not closed");
    assert_fault("{{ .Rack | }}", 12, "missing");
    assert_fault("{{ 3x }}", 4, "not a whole number");
    assert_fault("{{ eq printf \"a\" }}", 7, "in parentheses");
    assert_fault("{{ .Rack } }", 10, "unexpected");
}
