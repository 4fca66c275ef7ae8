//! What the console keeps for the next time: columns and order of each table. A file of its own, so that nobody's
//! configuration is written, and one that may be thrown away.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    app::{App, View},
    columns,
};

/// The form of the file that this program writes.
const VERSION: u32 = 1;
const HEAD: &str = "# Written by cketerm's console (:columns, :sort); `:settings forget` removes it.\n\
                    # What you configure yourself stands in config.yaml.\n";

/// What every form of the file has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// What is kept of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfTable {
    /// The columns; empty = its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// `COLUMN`, or `COLUMN desc`; none = its own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    version: u32,
    #[serde(default)]
    tables: BTreeMap<String, OfTable>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { version: VERSION, tables: BTreeMap::new() }
    }
}

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A table's.
    Keep(&'static str, OfTable),
    /// The file goes.
    Forget,
}

/// Where the file lies; none where this person has no home.
pub fn path() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "cketerm").map(|own| own.config_dir().join("console.yaml"))
}

/// Reads the file; one that is not there is empty.
pub fn read(path: &Path) -> Result<Settings, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Settings::default()),
        // a home that is none is no fault of the file
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(Settings::default()),
        Err(e) => return Err(e.to_string()),
    };
    let Version { version } = serde_yaml::from_str(&text).map_err(|e| e.to_string())?;
    if version != VERSION {
        return Err(format!("it is of version {version}, this program knows {VERSION}"));
    }
    serde_yaml::from_str(&text).map_err(|e| e.to_string())
}

/// Writes a change, beside what other consoles wrote meanwhile. A file that cannot be read is kept under another name,
/// which is returned.
pub fn write(path: &Path, change: &Change) -> Result<Option<PathBuf>, String> {
    let failed = |e: io::Error| format!("{} cannot be written: {e}", path.display());
    let Change::Keep(table, of) = change else {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
            _ => Ok(None),
        };
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let found = read(path);
    let mut broken = None;
    if found.is_err() {
        let aside = path.with_extension("yaml.broken");
        fs::rename(path, &aside).map_err(failed)?;
        broken = Some(aside);
    }
    let mut settings = found.unwrap_or_default();
    if *of == OfTable::default() {
        settings.tables.remove(*table);
    } else {
        settings.tables.insert((*table).to_owned(), of.clone());
    }
    let text = serde_yaml::to_string(&settings).map_err(|e| e.to_string())?;
    let new = path.with_extension(format!("yaml.{}", std::process::id()));
    let written = fs::write(&new, format!("{HEAD}{text}")).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(failed)?;
    Ok(broken)
}

/// Puts what was kept into force; returns what of it means nothing to this program.
pub fn apply(app: &mut App, settings: &Settings) -> Vec<String> {
    let mut odd = Vec::new();
    let open = (app.view, app.of_cke);
    for (name, of) in &settings.tables {
        let tables = View::ALL.into_iter().flat_map(|view| [(view, false), (view, true)]);
        let Some((view, of_cke)) = tables.into_iter().find(|(v, cke)| columns::table(*v, *cke) == name) else {
            odd.push(format!("there is no table {name}"));
            continue;
        };
        (app.view, app.of_cke) = (view, of_cke);
        let all = columns::all(view, of_cke);
        let (known, unknown): (Vec<_>, Vec<_>) =
            of.columns.iter().map(|c| (all.iter().find(|k| *k == c), c)).partition(|(known, _)| known.is_some());
        odd.extend(unknown.iter().map(|(_, column)| format!("{name} has no column {column}")));
        let known: Vec<&'static str> = known.into_iter().filter_map(|(known, _)| known.copied()).collect();
        if !known.is_empty() {
            app.chosen.insert(columns::table(view, of_cke), known);
        }
        let (by, way) = of.sort.as_deref().map(|s| s.split_once(' ').unwrap_or((s, ""))).unwrap_or_default();
        match columns::of(app).iter().find(|c| **c == by) {
            Some(column) => app.list_mut().set_sort(Some((column, way == "desc"))),
            None if by.is_empty() => {}
            None => odd.push(format!("{name} has no column {by} to sort by")),
        }
    }
    (app.view, app.of_cke) = open;
    odd
}

/// What is to be kept of the open view's table.
pub fn of_open(app: &App) -> Change {
    let table = columns::table(app.view, app.of_cke);
    let chosen = app.chosen.get(table);
    let columns = chosen.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).unwrap_or_default();
    let sort = app.list().sort().map(|(by, desc)| format!("{by}{}", if desc { " desc" } else { "" }));
    Change::Keep(table, OfTable { columns, sort })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(columns: &[&str], sort: Option<&str>) -> Change {
        let columns = columns.iter().map(|c| (*c).to_owned()).collect();
        Change::Keep("nodes", OfTable { columns, sort: sort.map(str::to_owned) })
    }

    #[test]
    fn what_is_kept_of_a_table_is_read_again_and_that_of_others_stays() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("new/console.yaml");
        assert_eq!(read(&path), Ok(Settings::default()));
        assert_eq!(write(&path, &keep(&["node", "rack"], Some("rack desc"))), Ok(None));
        let other = Change::Keep("audit", OfTable { columns: vec!["who".into()], sort: None });
        assert_eq!(write(&path, &other), Ok(None));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Written by") && text.contains("version: 1"), "{text}");
        let kept = read(&path).unwrap();
        assert_eq!(kept.tables["nodes"].sort.as_deref(), Some("rack desc"));
        assert_eq!(kept.tables["audit"].columns, ["who"]);
        assert_eq!(write(&path, &keep(&[], None)), Ok(None));
        assert!(!read(&path).unwrap().tables.contains_key("nodes"), "its own again: nothing is kept");
        assert_eq!(write(&path, &Change::Forget), Ok(None));
        assert_eq!(write(&path, &Change::Forget), Ok(None), "what is gone is forgotten");
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_kept_under_another_name() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        for text in ["version: [", "version: 1\ntabels: {}\n", "version: 2\nsomething: new\n", ""] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
            let aside = dir.path().join("console.yaml.broken");
            assert_eq!(write(&path, &keep(&["node"], None)), Ok(Some(aside.clone())));
            assert_eq!(fs::read_to_string(&aside).unwrap(), text);
            assert_eq!(read(&path).unwrap().tables["nodes"].columns, ["node"]);
        }
    }

    #[test]
    fn a_folder_that_takes_nothing_is_an_error_that_names_the_file() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file/console.yaml");
        fs::write(dir.path().join("file"), "no folder").unwrap();
        assert_eq!(read(&path), Ok(Settings::default()));
        assert!(write(&path, &keep(&["node"], None)).unwrap_err().contains("console.yaml cannot be written"));
    }
}
