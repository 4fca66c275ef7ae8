//! Lookup of themes: in the user's folder, the host's, and the program. The first theme of a name wins. A theme that
//! names itself as its base uses the one that it hides.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use cketerm_model::text::nearest;

use super::{
    ROLES, Theme,
    file::{self, Face, Fault, File},
};

/// Themes in the program.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("terminal", include_str!("../../../../themes/terminal.yaml")),
    ("light", include_str!("../../../../themes/light.yaml")),
    ("dark", include_str!("../../../../themes/dark.yaml")),
    ("plain", include_str!("../../../../themes/plain.yaml")),
    ("contrast", include_str!("../../../../themes/contrast.yaml")),
    ("contrast-light", include_str!("../../../../themes/contrast-light.yaml")),
    ("blue-orange", include_str!("../../../../themes/blue-orange.yaml")),
    ("blue-orange-light", include_str!("../../../../themes/blue-orange-light.yaml")),
];

/// Folder of the host's themes.
const HOST_FOLDER: &str = "/etc/cketerm/themes";
/// Largest theme file in bytes; a theme has some hundred.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// Place of a theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// In the user's folder.
    User,
    /// In the host's folder.
    Host,
    /// In the program.
    BuiltIn,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Host => "host",
            Self::BuiltIn => "built-in",
        })
    }
}

/// A theme that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThemeSource {
    /// Its name.
    pub name: String,
    /// Place of the theme.
    pub origin: Origin,
    /// Its file; `None` for a theme in the program.
    pub path: Option<PathBuf>,
    /// Whether an earlier theme has the same name.
    pub hidden: bool,
}

impl ThemeSource {
    /// Returns the name that messages use.
    pub fn place(&self) -> String {
        self.path.as_ref().map_or_else(|| format!("theme {} (built-in)", self.name), |path| path.display().to_string())
    }

    fn text(&self) -> Result<String, String> {
        match &self.path {
            None => {
                let text = BUILT_IN.iter().find(|(name, _)| *name == self.name).map(|(_, text)| (*text).to_owned());
                text.ok_or_else(|| "is not built in".to_owned())
            }
            Some(path) => {
                let file = std::fs::metadata(path).map_err(|e| format!("cannot be read: {e}"))?;
                // a pipe has no length, and opening it may block for ever
                if !file.is_file() {
                    return Err("is not a file".to_owned());
                }
                let length = file.len();
                if length > MAX_FILE_SIZE {
                    return Err(format!("is not a theme: it has {length} bytes"));
                }
                std::fs::read_to_string(path).map_err(|e| format!("cannot be read: {e}"))
            }
        }
    }
}

/// Fault of a theme, with its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThemeFault {
    /// The file, or the built-in theme.
    pub place: String,
    /// Description of the fault.
    pub fault: Fault,
}

impl fmt::Display for ThemeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.fault.text),
            None => write!(f, "{}: {}", self.place, self.fault.text),
        }
    }
}

/// A theme merged with its bases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedTheme {
    /// The faces of all roles.
    pub faces: BTreeMap<&'static str, Face>,
    /// Themes that it consists of, the theme itself first.
    pub chain: Vec<ThemeSource>,
}

/// Folders in which themes are looked up, in this order; the program's own themes come last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThemeLoader {
    folders: Vec<(Origin, PathBuf)>,
}

impl ThemeLoader {
    /// Creates a lookup in the user's folder, the host's, and the program.
    pub fn with_default_folders() -> Self {
        let user = directories::ProjectDirs::from("", "", "cketerm").map(|d| d.config_dir().join("themes"));
        let user = user.map(|folder| (Origin::User, folder));
        Self { folders: user.into_iter().chain([(Origin::Host, PathBuf::from(HOST_FOLDER))]).collect() }
    }

    /// Creates a lookup in the program alone.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Returns the folders in order.
    pub fn folders(&self) -> impl Iterator<Item = (Origin, &Path)> {
        self.folders.iter().map(|(origin, folder)| (*origin, folder.as_path()))
    }

    /// Returns all themes in the order of the lookup.
    pub fn list(&self) -> Vec<ThemeSource> {
        let mut all: Vec<ThemeSource> = Vec::new();
        for (origin, folder) in &self.folders {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            files.sort();
            all.extend(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "yaml")).filter_map(
                |file| {
                    let name = file.file_stem()?.to_str()?.to_owned();
                    Some(ThemeSource { name, origin: *origin, path: Some(file), hidden: false })
                },
            ));
        }
        all.extend(BUILT_IN.iter().map(|(name, _)| ThemeSource {
            name: (*name).to_owned(),
            origin: Origin::BuiltIn,
            path: None,
            hidden: false,
        }));
        for at in 1..all.len() {
            let (before, rest) = all.split_at_mut(at);
            if let Some(one) = rest.first_mut() {
                one.hidden = before.iter().any(|other| other.name == one.name);
            }
        }
        all
    }

    /// Returns a theme by name, ready to draw with; without colours if `colour` is false.
    pub fn theme(&self, name: &str, colour: bool) -> Result<Theme, String> {
        let merged = self.merged(name).map_err(|wrong| fault_text(&wrong))?;
        let faces: Vec<(&str, Face)> = merged.faces.into_iter().collect();
        Ok(Theme::from_faces(name, &faces, colour))
    }

    /// Returns a theme by name, merged with its bases, or the faults of the theme and of its bases.
    pub fn merged(&self, name: &str) -> Result<MergedTheme, Vec<ThemeFault>> {
        let all = self.list();
        if let Some(at) = all.iter().position(|found| found.name == name) {
            return merge_bases(&all, all[at].clone(), at + 1);
        }
        let fault = Fault { line: None, text: format!("there is no theme {name:?}{}", suggestion(&all, name)) };
        Err(vec![ThemeFault { place: "themes".to_owned(), fault }])
    }

    /// Returns the faults of a theme, including roles that look alike; empty = it is good.
    pub fn check(&self, found: &ThemeSource) -> Vec<ThemeFault> {
        let all = self.list();
        // a theme that is in no folder may have a theme of the same name in a folder as its base
        let at = all.iter().position(|other| other == found).map_or(0, |at| at + 1);
        match merge_bases(&all, found.clone(), at) {
            Ok(merged) => {
                let wrong = |text| ThemeFault { place: found.place(), fault: Fault { line: None, text } };
                file::indistinct_roles(&merged.faces).into_iter().map(wrong).collect()
            }
            Err(wrong) => wrong,
        }
    }

    /// Returns the theme of a file in any place.
    pub fn at(&self, path: &Path) -> ThemeSource {
        let same = |found: &&ThemeSource| {
            let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            found.path.as_ref().is_some_and(|other| canonical(other) == canonical(path))
        };
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let unlisted = ThemeSource { name, origin: Origin::User, path: Some(path.to_owned()), hidden: false };
        self.list().iter().find(same).cloned().unwrap_or(unlisted)
    }
}

/// Joins all faults into one sentence.
fn fault_text(wrong: &[ThemeFault]) -> String {
    wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn suggestion(all: &[ThemeSource], name: &str) -> String {
    let names = || all.iter().filter(|found| !found.hidden).map(|found| found.name.as_str());
    match nearest(name, names()) {
        Some(closest) => format!(", did you mean {closest:?}?"),
        None => format!(": there are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// Merges a theme with its bases. `search_from` is the place from which the base of the same name is looked up.
fn merge_bases(all: &[ThemeSource], first: ThemeSource, search_from: usize) -> Result<MergedTheme, Vec<ThemeFault>> {
    let (mut merged, mut faults) = (MergedTheme::default(), Vec::new());
    let (mut next, mut search_from) = (first, search_from);
    loop {
        let place = next.place();
        let wrong = |fault: Fault| ThemeFault { place: place.clone(), fault };
        let text = next.text().map_err(|text| vec![wrong(Fault { line: None, text })])?;
        let (File { base, roles }, file_faults) = file::read(&text);
        faults.extend(file_faults.into_iter().map(&wrong));
        for (role, face) in roles {
            merged.faces.entry(role).or_insert(face);
        }
        merged.chain.push(next.clone());
        let Some(base) = base else {
            file::add_newer_roles(&mut merged.faces);
            let missing: Vec<&str> =
                ROLES.iter().map(|(role, _)| *role).filter(|role| !merged.faces.contains_key(role)).collect();
            if !missing.is_empty() && faults.is_empty() {
                let text = format!("lacks {} and has no base that defines them: `base: terminal`", missing.join(", "));
                faults.push(wrong(Fault { line: None, text }));
            }
            break;
        };
        let line = text.lines().position(|line| line.starts_with("base")).map(|at| at + 1);
        let from = if base == next.name { search_from } else { 0 };
        let base_source = all.iter().enumerate().skip(from).find(|(_, found)| found.name == base);
        let Some((at, found)) = base_source else {
            faults.push(wrong(Fault {
                line,
                text: format!("base: there is no theme {base:?}{}", suggestion(all, &base)),
            }));
            break;
        };
        if merged.chain.contains(found) {
            let names: Vec<&str> = merged.chain.iter().map(|found| found.name.as_str()).collect();
            let text = format!("base: forms a cycle: {} -> {base}", names.join(" -> "));
            faults.push(wrong(Fault { line, text }));
            break;
        }
        (next, search_from) = (found.clone(), at + 1);
    }
    if faults.is_empty() { Ok(merged) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates two folders with these files; the first letter says in which one: `u` or `h`.
    fn loader(files: &[(&str, &str)]) -> (tempfile::TempDir, ThemeLoader) {
        let dir = tempfile::tempdir().unwrap();
        let folders = [(Origin::User, dir.path().join("u")), (Origin::Host, dir.path().join("h"))];
        for (_, folder) in &folders {
            fs::create_dir_all(folder).unwrap();
        }
        for (file, text) in files {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let loader = ThemeLoader { folders: folders.to_vec() };
        (dir, loader)
    }

    #[test]
    fn every_built_in_theme_is_valid_and_sets_no_background() {
        let loader = ThemeLoader::built_in();
        assert_eq!(loader.list().len(), BUILT_IN.len());
        for found in loader.list() {
            assert_eq!(loader.check(&found), Vec::new(), "{}", found.name);
            let theme = loader.theme(&found.name, true).unwrap();
            for style in [theme.badge, theme.good, theme.danger, theme.muted, theme.cursor, theme.tab] {
                assert_eq!(style.bg, None, "{}", found.name);
            }
        }
    }

    #[test]
    fn the_colour_blind_themes_have_no_green() {
        for name in ["blue-orange", "blue-orange-light", "plain"] {
            let merged = ThemeLoader::built_in().merged(name).unwrap();
            let green = merged.faces.values().any(|face| face.fg.as_deref().is_some_and(|fg| fg.contains("green")));
            assert!(!green, "{name}");
            let [good, danger] = ["good", "danger"].map(|role| merged.faces[role].clone());
            assert!(!good.same_modifiers(&danger), "{name}");
        }
    }

    #[test]
    fn a_theme_file_overrides_only_some_roles_of_its_base() {
        let (_dir, loader) = loader(&[
            ("u/mine.yaml", "base: house\nkey: { fg: white }\n"),
            ("h/house.yaml", "base: plain\ngood: { fg: blue }\n"),
        ]);
        let merged = loader.merged("mine").unwrap();
        let names: Vec<&str> = merged.chain.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["mine", "house", "plain", "terminal"]);
        assert_eq!(merged.faces["key"].yaml(), "{ fg: white }");
        assert_eq!(merged.faces["good"].yaml(), "{ fg: blue }");
        assert_eq!(merged.faces["danger"].yaml(), "{ bold: true, underline: true }");
    }

    /// Themes from before 0.2 define ten roles and may have no base.
    #[test]
    fn a_theme_of_the_ten_old_roles_takes_the_newer_ones_from_the_nearest_old_role() {
        let old = "badge: {}\ntitle: { bold: true }\ntab: { bold: true }\ngood: { fg: green }\n\
                   trouble: { fg: yellow, bold: true }\ndanger: { fg: red, bold: true }\nmuted: { dim: true }\n\
                   key: { fg: light-cyan }\ncursor: { fg: white, underline: true }\nmark: { fg: cyan, bold: true }\n";
        let (_dir, loader) = loader(&[("u/old.yaml", old), ("u/mine.yaml", "base: old\nborder: { fg: blue }\n")]);
        let faces = loader.merged("mine").unwrap().faces;
        let of = |role: &str| faces[role].yaml();
        assert_eq!(
            (of("draining"), of("rebooting"), of("border"), of("selection")),
            (
                "{ fg: light-cyan }".to_owned(),
                "{ fg: cyan, bold: true }".to_owned(),
                "{ fg: blue }".to_owned(),
                "{ reverse: true }".to_owned()
            )
        );
        assert_eq!(loader.merged("old").unwrap().faces["border"].yaml(), "{ dim: true }");
        assert!(loader.theme("old", true).is_ok());
    }

    #[test]
    fn user_themes_override_host_and_built_in_ones_and_may_extend_them() {
        let (_dir, loader) = loader(&[
            ("u/dark.yaml", "base: dark\nkey: { fg: white }\n"),
            ("h/dark.yaml", "base: dark\nmark: { fg: white }\n"),
            ("h/notes.txt", "no theme"),
        ]);
        let list = loader.list();
        let darks: Vec<(Origin, bool)> =
            list.iter().filter(|f| f.name == "dark").map(|f| (f.origin, f.hidden)).collect();
        assert_eq!(darks, [(Origin::User, false), (Origin::Host, true), (Origin::BuiltIn, true)]);
        assert!(list.iter().all(|f| f.name != "notes"));
        let merged = loader.merged("dark").unwrap();
        assert_eq!(
            (merged.faces["key"].yaml(), merged.faces["mark"].yaml()),
            ("{ fg: white }".into(), "{ fg: white }".into())
        );
        assert_eq!(merged.faces["good"].yaml(), "{ fg: light-green }");
    }

    #[test]
    fn cycles_unknown_bases_and_invalid_files_are_errors_that_name_the_file() {
        let (dir, loader) = loader(&[
            ("u/a.yaml", "# a\nbase: b\n"),
            ("u/b.yaml", "base: a\n"),
            ("u/lost.yaml", "base: teminal\n"),
            ("u/self.yaml", "base: self\n"),
            ("u/half.yaml", "good: { fg: green }\n"),
            ("u/odd.yaml", "base: sick\n"),
            ("u/sick.yaml", "base: plain\ngood: { fg: puce }\n"),
        ]);
        let fault_text = |name: &str| loader.theme(name, true).unwrap_err();
        let path = |file: &str| dir.path().join(file).display().to_string();
        assert_eq!(fault_text("a"), format!("{}:1: base: forms a cycle: a -> b -> a", path("u/b.yaml")));
        assert!(
            fault_text("lost").starts_with(&format!(
                "{}:1: base: there is no theme \"teminal\", did you mean \"terminal\"",
                path("u/lost.yaml")
            )),
            "{}",
            fault_text("lost")
        );
        assert!(fault_text("self").contains("base: there is no theme \"self\""), "{}", fault_text("self"));
        assert!(fault_text("half").contains("lacks badge, title"), "{}", fault_text("half"));
        assert!(
            fault_text("odd").starts_with(&format!("{}:2: good: fg: \"puce\"", path("u/sick.yaml"))),
            "{}",
            fault_text("odd")
        );
        assert!(fault_text("../etc/passwd").contains("there is no theme"));
        let stray = dir.path().join("terminal.yaml");
        fs::write(&stray, "base: terminal\ngood: { bold: true, fg: light-yellow }\n").unwrap();
        let wrong = loader.check(&loader.at(&stray));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(
            wrong[0]
                .to_string()
                .ends_with("good and trouble look the same: give one of them another colour, or underline it"),
            "{}",
            wrong[0]
        );
    }
}
