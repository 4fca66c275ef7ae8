//! What the console keeps for the next time: columns and order of each table. A file of its own, so that nobody's
//! configuration is written, and one that may be thrown away.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
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

/// Something to be written: each is put over what the file says then, so that two consoles do not take each other's choices
/// away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A table's columns; none = its own.
    Columns(&'static str, Vec<String>),
    /// A table's order.
    Sort(&'static str, Option<String>),
    /// The file goes.
    Forget,
}

/// Why a file says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unread {
    /// It was not given out.
    Failed(String),
    /// A newer program wrote it.
    Newer(String),
    /// It cannot be understood.
    Broken(String),
}

/// More than this is something else.
const LARGEST: u64 = 64 * 1024;

/// Where the file lies; none where this person has no home.
pub fn path() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "cketerm").map(|own| own.config_dir().join("console.yaml"))
}

/// Reads the file; one that is not there is empty.
pub fn read(path: &Path) -> Result<Settings, String> {
    found(path).map_err(|why| match why {
        Unread::Failed(why) | Unread::Newer(why) | Unread::Broken(why) => why,
    })
}

fn found(path: &Path) -> Result<Settings, Unread> {
    let failed = |e: io::Error| Unread::Failed(e.to_string());
    match fs::metadata(path) {
        Ok(file) if !file.is_file() => return Err(Unread::Failed("it is no file".to_owned())),
        Ok(file) if file.len() > LARGEST => return Err(Unread::Broken(format!("it has {} bytes", file.len()))),
        Ok(_) => {}
        // a home that is none is no fault of the file
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Settings::default());
        }
        Err(e) => return Err(failed(e)),
    }
    let broken = |e: serde_yaml::Error| Unread::Broken(e.to_string());
    let bytes = fs::read(path).map_err(failed)?;
    let Version { version } = serde_yaml::from_slice(&bytes).map_err(broken)?;
    if version != VERSION {
        let why = format!("it is of version {version}, this program knows {VERSION}");
        return Err(if version > VERSION { Unread::Newer(why) } else { Unread::Broken(why) });
    }
    serde_yaml::from_slice(&bytes).map_err(broken)
}

/// Writes a change over what the file says now. One that cannot be understood is kept under another name, which is
/// returned; one that a newer program wrote is left alone.
pub fn write(path: &Path, change: &Change) -> Result<Option<PathBuf>, String> {
    let failed = |e: io::Error| format!("{} cannot be written: {e}", path.display());
    if *change == Change::Forget {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
            _ => Ok(None),
        };
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let (mut settings, mut aside) = (Settings::default(), None);
    match found(path) {
        Ok(settings_now) => settings = settings_now,
        Err(Unread::Failed(why) | Unread::Newer(why)) => {
            return Err(format!("{} is left as it is: {why}", path.display()));
        }
        Err(Unread::Broken(_)) => {
            let to = path.with_extension("yaml.broken");
            fs::rename(path, &to).map_err(failed)?;
            aside = Some(to);
        }
    }
    settings.put(change);
    let text = serde_yaml::to_string(&settings).map_err(|e| e.to_string())?;
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(format!("{HEAD}{text}").as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(path).map_err(|e| failed(e.error))?;
    Ok(aside)
}

impl Settings {
    fn put(&mut self, change: &Change) {
        let (Change::Columns(table, _) | Change::Sort(table, _)) = change else { return };
        let of = self.tables.entry((*table).to_owned()).or_default();
        match change {
            Change::Columns(_, columns) => of.columns.clone_from(columns),
            Change::Sort(_, sort) => of.sort.clone_from(sort),
            Change::Forget => {}
        }
        if *of == OfTable::default() {
            self.tables.remove(*table);
        }
    }
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

/// The columns of the open view's table, to be kept.
pub fn columns_of_open(app: &App) -> Change {
    let table = columns::table(app.view, app.of_cke);
    let chosen = app.chosen.get(table);
    Change::Columns(
        table,
        chosen.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).unwrap_or_default(),
    )
}

/// Its order, to be kept.
pub fn sort_of_open(app: &App) -> Change {
    let sort = app.list().sort().map(|(by, desc)| format!("{by}{}", if desc { " desc" } else { "" }));
    Change::Sort(columns::table(app.view, app.of_cke), sort)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(table: &'static str, names: &[&str]) -> Change {
        Change::Columns(table, names.iter().map(|c| (*c).to_owned()).collect())
    }

    #[test]
    fn what_is_kept_of_a_table_is_read_again_and_what_others_wrote_stays() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("new/console.yaml");
        assert_eq!(read(&path), Ok(Settings::default()));
        assert_eq!(write(&path, &columns("nodes", &["node", "rack"])), Ok(None));
        // another console that knows nothing of these columns
        assert_eq!(write(&path, &Change::Sort("nodes", Some("rack desc".to_owned()))), Ok(None));
        assert_eq!(write(&path, &columns("audit", &["who"])), Ok(None));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Written by") && text.contains("version: 1"), "{text}");
        let kept = read(&path).unwrap();
        assert_eq!(kept.tables["nodes"].sort.as_deref(), Some("rack desc"));
        assert_eq!(kept.tables["nodes"].columns, ["node", "rack"]);
        assert_eq!(kept.tables["audit"].columns, ["who"]);
        assert_eq!(write(&path, &columns("nodes", &[])), Ok(None));
        assert_eq!(write(&path, &Change::Sort("nodes", None)), Ok(None));
        assert!(!read(&path).unwrap().tables.contains_key("nodes"), "its own again: nothing is kept");
        assert_eq!(write(&path, &Change::Forget), Ok(None));
        assert_eq!(write(&path, &Change::Forget), Ok(None), "what is gone is forgotten");
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_kept_under_another_name() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        for text in ["version: [", "version: 1\ntabels: {}\n", "version: 0\n", "", "\u{fffd}\0"] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
            let aside = dir.path().join("console.yaml.broken");
            assert_eq!(write(&path, &columns("nodes", &["node"])), Ok(Some(aside.clone())));
            assert_eq!(fs::read_to_string(&aside).unwrap(), text);
            assert_eq!(read(&path).unwrap().tables["nodes"].columns, ["node"]);
        }
    }

    #[test]
    fn a_newer_programs_file_and_what_is_no_file_are_left_alone() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        fs::write(&path, "version: 2\nsomething: new\n").unwrap();
        let why = write(&path, &columns("nodes", &["node"])).unwrap_err();
        assert!(why.contains("left as it is: it is of version 2"), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "version: 2\nsomething: new\n");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        assert!(write(&folder, &columns("nodes", &["node"])).unwrap_err().contains("it is no file"));
    }

    #[test]
    fn a_folder_that_takes_nothing_is_an_error_that_names_the_file() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file/console.yaml");
        fs::write(dir.path().join("file"), "no folder").unwrap();
        assert_eq!(read(&path), Ok(Settings::default()));
        assert!(write(&path, &columns("nodes", &["node"])).unwrap_err().contains("console.yaml cannot be written"));
    }
}
