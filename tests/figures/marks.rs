//! Tables between marks of a Markdown file, for the benchmarks that take the file as their argument.
#![allow(clippy::unwrap_used, clippy::expect_used)]

/// Writes the table between the marks of this name in the file that the benchmark was given, if it was given one.
pub fn write(name: &str, table: &str) {
    // cargo adds an argument of its own
    let Some(path) = std::env::args().skip(1).find(|a| !a.starts_with('-')) else { return };
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has a begin mark");
    let (_, after) = rest.split_once(&end).expect("the page has an end mark");
    std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
}
