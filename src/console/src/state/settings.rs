//! Settings that the console saves for the next start: columns and sort order of each table, the theme and the use of the
//! mouse. They are in a separate file, so that the console never writes the configuration. The file may be deleted.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{App, View, columns};

/// Version of the file format with a theme, the mouse, the map, or answers.
const VERSION: u32 = 2;
/// Version without them. cketerm 0.1 reads only this one, so a file without them has it.
const OLDEST_VERSION: u32 = 1;
const HEADER: &str = "# Written by cketerm's console (:columns, :sort, :theme, :mouse); `:settings forget` removes it.\n\
                    # Your own configuration is in config.yaml.\n";

/// Name of the table that a map may replace.
const NODES: &str = "nodes";

/// The part that every version of the file has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Saved settings of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSettings {
    /// The columns. Empty = the table's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// `COLUMN`, or `COLUMN desc`. `None` = the table's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
    /// Whether Nodes shows the map of the racks. `None` = where it fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<bool>,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    version: u32,
    #[serde(default)]
    tables: BTreeMap<String, TableSettings>,
    /// Answers to whether consoles of this host may lead, by the UID of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    leads: BTreeMap<String, bool>,
    /// The theme that was chosen. `None` = the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
    /// Whether the mouse is used. `None` = as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mouse: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { version: OLDEST_VERSION, tables: BTreeMap::new(), leads: BTreeMap::new(), theme: None, mouse: None }
    }
}

/// A change to save. Each change is applied to the file's present contents, so that two consoles do not undo each
/// other's choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Columns of a table. Empty = its own.
    Columns(&'static str, Vec<String>),
    /// Sort order of a table. `None` = its own.
    Sort(&'static str, Option<String>),
    /// Whether Nodes shows the map of the racks.
    Map(bool),
    /// Answer to whether consoles of this host may lead, for the cluster with this UID.
    Lead(String, bool),
    /// Theme. `None` = the configured one.
    Theme(Option<String>),
    /// Use of the mouse.
    Mouse(bool),
    /// Delete the file.
    Forget,
}

/// Reason why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReadError {
    /// The read failed.
    Failed(String),
    /// A newer program wrote it.
    Newer(String),
    /// It cannot be parsed.
    Broken(String),
}

/// Largest file that is read, in bytes. A larger one is not a settings file.
const MAX_BYTES: u64 = 64 * 1024;

/// Returns the path of the file. `None` if the user has no home.
pub fn path() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "cketerm").map(|own| own.config_dir().join("console.yaml"))
}

/// Reads the file. A missing file is empty.
pub fn read(path: &Path) -> Result<Settings, String> {
    load(path).map_err(|why| match why {
        ReadError::Failed(why) | ReadError::Newer(why) | ReadError::Broken(why) => why,
    })
}

fn load(path: &Path) -> Result<Settings, ReadError> {
    let failed = |e: io::Error| ReadError::Failed(e.to_string());
    match fs::metadata(path) {
        Ok(file) if !file.is_file() => return Err(ReadError::Failed("it is not a file".to_owned())),
        Ok(file) if file.len() > MAX_BYTES => return Err(ReadError::Broken(format!("it has {} bytes", file.len()))),
        Ok(_) => {}
        // A missing home is not an error of the file.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Settings::default());
        }
        Err(e) => return Err(failed(e)),
    }
    let broken = |e: serde_yaml::Error| ReadError::Broken(e.to_string());
    let bytes = fs::read(path).map_err(failed)?;
    let Version { version } = serde_yaml::from_slice(&bytes).map_err(broken)?;
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        let why = format!("it has version {version}, this program knows {VERSION}");
        return Err(if version > VERSION { ReadError::Newer(why) } else { ReadError::Broken(why) });
    }
    serde_yaml::from_slice(&bytes).map_err(broken)
}

/// Applies a change to the file's present contents. A file that cannot be parsed is renamed, and its new path returned.
/// A file of a newer program is left unchanged.
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
    let (mut settings, mut backup_path) = (Settings::default(), None);
    match load(path) {
        Ok(settings_now) => settings = settings_now,
        Err(ReadError::Failed(why) | ReadError::Newer(why)) => {
            return Err(format!("{} is not changed: {why}", path.display()));
        }
        Err(ReadError::Broken(_)) => {
            let to = path.with_extension("yaml.broken");
            fs::rename(path, &to).map_err(failed)?;
            backup_path = Some(to);
        }
    }
    settings.put(change);
    let text = serde_yaml::to_string(&settings).map_err(|e| e.to_string())?;
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(format!("{HEADER}{text}").as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(path).map_err(|e| failed(e.error))?;
    Ok(backup_path)
}

impl Settings {
    /// Returns the answer to whether consoles of this host may lead the cluster with this UID.
    pub fn lead_answer(&self, uid: &str) -> Option<bool> {
        self.leads.get(uid).copied()
    }

    fn put(&mut self, change: &Change) {
        let mut of_table = |table: &str, change: &dyn Fn(&mut TableSettings)| {
            let of = self.tables.entry(table.to_owned()).or_default();
            change(of);
            if *of == TableSettings::default() {
                self.tables.remove(table);
            }
        };
        match change {
            Change::Columns(table, columns) => of_table(table, &|of| of.columns.clone_from(columns)),
            Change::Sort(table, sort) => of_table(table, &|of| of.sort.clone_from(sort)),
            Change::Map(shown) => of_table(NODES, &|of| of.map = Some(*shown)),
            Change::Lead(uid, answer) => drop(self.leads.insert(uid.clone(), *answer)),
            Change::Theme(theme) => self.theme.clone_from(theme),
            Change::Mouse(mouse) => self.mouse = Some(*mouse),
            Change::Forget => {}
        }
        self.version = self.needed_version();
    }

    /// Returns the version that a file with these settings needs.
    fn needed_version(&self) -> u32 {
        let Self { version: _, tables, leads, theme, mouse } = self;
        let is_old = leads.is_empty() && theme.is_none() && mouse.is_none();
        if is_old && tables.values().all(|of| of.map.is_none()) { OLDEST_VERSION } else { VERSION }
    }
}

/// Applies saved settings. Returns the parts that this program does not know.
pub fn apply(app: &mut App, settings: &Settings) -> Vec<String> {
    app.session.lead_answers.clone_from(&settings.leads);
    let mut problems = Vec::new();
    let open = (app.navigation.view, app.navigation.cke_records, app.navigation.batches);
    for (name, of) in &settings.tables {
        let tables = View::ALL.into_iter().flat_map(|view| [(view, false), (view, true)]);
        let shown: Vec<(View, bool)> = tables.filter(|(v, second)| columns::table(*v, *second) == name).collect();
        let Some((view, second)) = shown.first().copied() else {
            problems.push(format!("there is no table {name}"));
            continue;
        };
        open_table(app, view, second);
        let all = columns::all(view, second);
        let (known, unknown): (Vec<_>, Vec<_>) = of
            .columns
            .iter()
            .map(|c| (all.iter().find(|k| **k == c.as_str()), c))
            .partition(|(known, _)| known.is_some());
        problems.extend(unknown.iter().map(|(_, column)| format!("{name} has no column {column}")));
        let known: Vec<_> = known.into_iter().filter_map(|(known, _)| known.copied()).collect();
        if !known.is_empty() {
            app.lists.visible_columns.insert(columns::table(view, second), known);
        }
        if name == NODES {
            app.navigation.map_chosen = of.map;
        }
        let (by, direction) = of.sort.as_deref().map(|s| s.split_once(' ').unwrap_or((s, ""))).unwrap_or_default();
        match columns::of(app).iter().find(|c| **c == by) {
            // both queues have a table of their batches
            Some(column) => shown.iter().for_each(|(view, second)| {
                app.lists.of_mut(*view, *second).set_sort(Some((*column, direction == "desc")));
            }),
            None if by.is_empty() => {}
            None => problems.push(format!("{name} has no column {by} to sort by")),
        }
    }
    (app.navigation.view, app.navigation.cke_records, app.navigation.batches) = open;
    problems
}

/// Opens a view with its first or second table, to read its columns.
fn open_table(app: &mut App, view: View, second: bool) {
    (app.navigation.view, app.navigation.cke_records) = (view, second);
    app.navigation.show_batches(second);
}

/// Returns the columns of the open view's table, to be saved.
pub fn current_columns(app: &App) -> Change {
    let table = columns::table(app.navigation.view, app.navigation.second_table());
    let visible_columns = app.lists.visible_columns.get(table);
    Change::Columns(
        table,
        visible_columns.map(|ids| ids.iter().map(|id| id.as_str().to_owned()).collect()).unwrap_or_default(),
    )
}

/// Returns whether Nodes shows the map, to be saved.
pub fn current_map(app: &App) -> Change {
    Change::Map(app.navigation.map_chosen.unwrap_or(false))
}

/// Returns the sort order of the open view's table, to be saved.
pub fn current_sort(app: &App) -> Change {
    let sort = app.list().sort().map(|(by, desc)| format!("{by}{}", if desc { " desc" } else { "" }));
    Change::Sort(columns::table(app.navigation.view, app.navigation.second_table()), sort)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(table: &'static str, names: &[&str]) -> Change {
        Change::Columns(table, names.iter().map(|c| (*c).to_owned()).collect())
    }

    #[test]
    fn saved_table_settings_are_read_back_and_other_tables_are_kept() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("new/console.yaml");
        assert_eq!(read(&path), Ok(Settings::default()));
        assert_eq!(write(&path, &columns("nodes", &["node", "rack"])), Ok(None));
        // Another console, which has not read these columns.
        assert_eq!(write(&path, &Change::Sort("nodes", Some("rack desc".to_owned()))), Ok(None));
        assert_eq!(write(&path, &columns("audit", &["who"])), Ok(None));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Written by") && text.contains("version: 1\n"), "version 0.1 reads it: {text}");
        let kept = read(&path).unwrap();
        assert_eq!(kept.tables["nodes"].sort.as_deref(), Some("rack desc"));
        assert_eq!(kept.tables["nodes"].columns, ["node", "rack"]);
        assert_eq!(kept.tables["audit"].columns, ["who"]);
        assert_eq!(write(&path, &columns("nodes", &[])), Ok(None));
        assert_eq!(write(&path, &Change::Sort("nodes", None)), Ok(None));
        assert!(!read(&path).unwrap().tables.contains_key("nodes"), "a table with default settings is not stored");
        assert_eq!(write(&path, &Change::Map(true)), Ok(None));
        assert_eq!(read(&path).unwrap().tables["nodes"].map, Some(true));
        assert!(fs::read_to_string(&path).unwrap().contains("version: 2\n"), "version 0.1 does not know `map`");
        assert_eq!(write(&path, &Change::Forget), Ok(None));
        assert_eq!(write(&path, &Change::Forget), Ok(None), "forgetting a missing file succeeds");
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "no temporary file is left");
    }

    #[test]
    fn the_answer_whether_a_console_leads_is_kept_for_each_cluster() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        assert_eq!(write(&path, &columns("nodes", &["node"])), Ok(None));
        assert!(!fs::read_to_string(&path).unwrap().contains("leads"), "version 0.1 reads a file without answers");
        let version =
            || fs::read_to_string(&path).unwrap().lines().find(|l| l.starts_with("version")).map(str::to_owned);
        assert_eq!(version().as_deref(), Some("version: 1"));
        assert_eq!(write(&path, &Change::Lead("uid-1".into(), true)), Ok(None));
        assert_eq!(write(&path, &Change::Lead("uid-2".into(), false)), Ok(None));
        let kept = read(&path).unwrap();
        assert_eq!(version().as_deref(), Some("version: 2"));
        assert_eq!(["uid-1", "uid-2", "uid-3"].map(|uid| kept.lead_answer(uid)), [Some(true), Some(false), None]);
        assert_eq!(kept.tables["nodes"].columns, ["node"]);
    }

    #[test]
    fn an_unreadable_settings_file_is_renamed_before_writing() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        for text in ["version: [", "version: 1\ntabels: {}\n", "version: 0\n", "", "\u{fffd}\0"] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
            let backup_path = dir.path().join("console.yaml.broken");
            assert_eq!(write(&path, &columns("nodes", &["node"])), Ok(Some(backup_path.clone())));
            assert_eq!(fs::read_to_string(&backup_path).unwrap(), text);
            assert_eq!(read(&path).unwrap().tables["nodes"].columns, ["node"]);
        }
    }

    #[test]
    fn a_settings_file_of_a_newer_version_and_a_non_file_are_not_changed() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        fs::write(&path, "version: 3\nsomething: new\n").unwrap();
        let why = write(&path, &columns("nodes", &["node"])).unwrap_err();
        assert!(why.contains("not changed: it has version 3"), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "version: 3\nsomething: new\n");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        assert!(write(&folder, &columns("nodes", &["node"])).unwrap_err().contains("it is not a file"));
    }

    #[test]
    fn theme_and_mouse_are_added_to_a_file_of_the_previous_version() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("console.yaml");
        fs::write(&path, "version: 1\ntables:\n  nodes:\n    sort: rack\n").unwrap();
        assert_eq!(write(&path, &Change::Theme(Some("dark".to_owned()))), Ok(None));
        assert_eq!(write(&path, &Change::Mouse(false)), Ok(None));
        let kept = read(&path).unwrap();
        assert_eq!((kept.theme.as_deref(), kept.mouse), (Some("dark"), Some(false)));
        assert_eq!(kept.tables["nodes"].sort.as_deref(), Some("rack"));
        assert_eq!(write(&path, &Change::Theme(None)), Ok(None));
        assert_eq!(read(&path).unwrap().theme, None);
        assert!(fs::read_to_string(&path).unwrap().contains("version: 2\n"), "the mouse is still set");
    }

    #[test]
    fn an_unwritable_folder_is_an_error_that_names_the_file() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file/console.yaml");
        fs::write(dir.path().join("file"), "no folder").unwrap();
        assert_eq!(read(&path), Ok(Settings::default()));
        assert!(write(&path, &columns("nodes", &["node"])).unwrap_err().contains("console.yaml cannot be written"));
    }
}
