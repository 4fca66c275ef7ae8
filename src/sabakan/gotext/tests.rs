use super::*;
use crate::sabakan::machine::{Date, State};

fn machine() -> Machine {
    Machine {
        serial: "SN-7".to_owned(),
        labels: vec![("product".to_owned(), "r640".to_owned()), ("site".to_owned(), String::new())],
        rack: 3,
        index_in_rack: 12,
        role: "cs".to_owned(),
        address: "10.0.0.7".to_owned(),
        ipv4: vec!["10.0.0.7".to_owned(), "10.1.0.7".to_owned()],
        register_date: Date::parse("2021-02-03T04:05:06.5+09:00").unwrap(),
        retire_date: Date::parse("2026-06-01T00:00:00Z").unwrap(),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: "10.72.0.7".to_owned(),
        state: State::Healthy,
        since: None,
        duration: 1.5,
    }
}

#[track_caller]
fn gives(text: &str, wanted: &str) {
    assert_eq!(GoText::parse(text).unwrap().render(&machine()).unwrap(), wanted, "{text}");
}

/// Asserts that the text is refused when it is parsed or rendered, with its place and a word of the reason.
#[track_caller]
fn refused(text: &str, at: usize, word: &str) {
    let fault = GoText::parse(text).and_then(|t| t.render(&machine())).unwrap_err();
    assert!(fault.at == at && fault.what.contains(word), "{text}: {fault}");
}

#[test]
fn fields_of_the_specification() {
    gives("{{ .Rack }}", "3");
    gives("rack{{.Rack}}-{{.IndexInRack}}", "rack3-12");
    gives("{{ .Serial }}/{{ .Role }}/{{ .BMC.Type }}/{{ .BMC.IPv4 }}", "SN-7/cs/iDRAC-9/10.72.0.7");
    gives("{{ index .Labels \"product\" }}|{{ index .Labels `none` }}|{{ .Labels.product }}", "r640||r640");
    gives("{{ index .IPv4 1 }}", "10.1.0.7");
    gives("{{ .RetireDate }} {{ .RegisterDate }}", "2026-06-01T00:00:00Z 2021-02-03T04:05:06+09:00");
    gives("{{ .RetireDate.Year }} {{ .RegisterDate.Format \"2006-01-02.1504\" }}", "2026 2021-02-03.0405");
    gives("plain }} text", "plain }} text");
}

#[test]
fn pipelines_and_printf() {
    gives("{{ .Rack | printf \"r%02d\" }}", "r03");
    gives(
        "{{ printf \"%s-%d%%|%5d|%-4d|%05d|%q|%v|%t\" .Role .Rack 7 7 -7 \"a\" .Serial true }}",
        "cs-3%|    7|7   |-0007|\"a\"|SN-7|true",
    );
    gives("{{ \"product\" | index .Labels | printf \"%s-%s\" .Role }}", "cs-r640");
    gives("{{ printf \"%x\" 255 }}{{ index .IPv4 0 | eq \"x\" | not | printf \"%t\" | and 10 }}", "fftrue");
}

#[test]
fn branches_and_comparisons() {
    gives("{{ if eq .Role \"cs\" }}compute{{ else }}other{{ end }}", "compute");
    gives("{{ if gt .Rack 3 }}a{{ else if ge .Rack 3 }}b{{ else }}c{{ end }}", "b");
    gives("{{ if lt .Rack 3 }}a{{ else if eq .Rack 1 2 }}b{{ else }}c{{ end }}", "c");
    gives("{{ if and (ne .Role \"ss\") (le .IndexInRack 12) }}x{{ end }}", "x");
    gives("{{ if or (index .Labels \"site\") (not .Rack) }}x{{ end }}", "");
    gives("{{ if .Labels }}l{{ end }}{{ if index .Labels \"product\" }}p{{ if .IPv4 }}4{{ end }}{{ end }}", "lp4");
    gives("{{ or (index .Labels \"site\") \"none\" }}", "none");
}

#[test]
fn trim_markers_and_comments() {
    gives("a \n {{- .Rack -}} \n b", "a3b");
    gives("a {{- /* said\nin vain */ -}} b{{/* x */}}!", "ab!");
    gives("{{ -3 }}|{{- 3 }} |{{- \"x\" }}", "-3|3 |x");
    gives("{{ if true -}}  yes  {{- end }}.", "yes.");
}

#[test]
fn what_a_template_may_not_say_is_refused_with_its_place() {
    refused("a{{ .Rak }}", 5, "did you mean .Rack?");
    refused("{{ .Nothing }}", 4, "known: .Serial");
    refused("{{ .Rack.X }}", 4, ".Rack has no field X");
    refused("{{ .BMC.User }}", 4, "not a known field");
    refused("{{ . }}", 4, "cannot be printed");
    refused("{{ range .IPv4 }}x{{ end }}", 4, "range is not supported");
    refused("{{ $x := 1 }}", 4, "variables");
    refused("{{ upper .Role }}", 4, "upper is not a known function");
    refused("{{ printff .Role }}", 4, "did you mean printf?");
    refused("{{ .Rack", 1, "does not end");
    refused("{{ if .Rack }}x", 4, "no {{ end }}");
    refused("x{{ end }}", 5, "without an if");
    refused("{{ if .Rack }}a{{ else }}b{{ else }}c{{ end }}", 30, "second else");
    refused("{{ }}", 4, "missing");
    refused("{{ index .Labels }}", 4, "takes 2 arguments, not 1");
    refused("{{ .Rack .Role }}", 10, "only a function");
    refused("{{ eq .Rack \"3\" }}", 4, "a number cannot be compared with a text");
    refused("{{ .Labels }}", 4, "labels cannot be printed");
    refused("{{ index .IPv4 7 }}", 4, "out of range");
    refused("{{ printf \"%d\" .Role }}", 4, "%d does not fit a text");
    refused("{{ printf \"%s\" }}", 4, "no value");
    refused("{{ printf \"x\" .Role }}", 4, "too many");
    refused("{{ printf \"%f\" 1 }}", 4, "%f is not supported");
    refused("{{ \"a }}", 4, "string does not end");
    refused("{{ (.Rack }}", 4, "not closed");
    refused("{{ .Rack | }}", 12, "missing");
    refused("{{ 3x }}", 4, "not a whole number");
    refused("{{ eq printf \"a\" }}", 7, "in parentheses");
    refused("{{ .Rack } }", 10, "unexpected");
}
