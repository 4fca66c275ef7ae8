//! Command line of a power command, made from its template in the file of BMCs.

use super::place::Place;

/// Placeholder for the node's address. It is the key of the entry, so only the writer of the file chooses it.
pub(in crate::power) const ADDRESS: &str = "{address}";

/// A program with its arguments, and the place in the file that names it. No shell reads them: each argument reaches the
/// program as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::power) struct Argv {
    place: Place,
    program: String,
    arguments: Vec<String>,
}

impl Argv {
    /// Fills in a template. Errors: it is empty, the program is no absolute path, or a placeholder is unknown.
    pub(in crate::power) fn of(template: &[String], address: &str, place: Place) -> Result<Self, String> {
        let Some((program, arguments)) = template.split_first() else {
            return Err("no program; write [/path/of/program, argument, …]".to_owned());
        };
        if !program.starts_with('/') {
            return Err("the program is no absolute path; it is not searched for in PATH".to_owned());
        }
        if template.iter().any(|word| word.contains('\0')) {
            return Err("an argument contains a NUL character".to_owned());
        }
        if let Some(name) = template.iter().find_map(|word| unknown_placeholder(word)) {
            return Err(format!("{{{name}}} is no placeholder; the only one is {ADDRESS}"));
        }
        if program.contains(ADDRESS) {
            return Err(format!("the program must not contain {ADDRESS}"));
        }
        let arguments = arguments.iter().map(|word| word.replace(ADDRESS, address)).collect();
        Ok(Self { place, program: program.clone(), arguments })
    }

    /// Takes a program that cketerm itself chooses, with arguments that need no template. A name without a path is looked
    /// up in `PATH`; one that is not there keeps a usual path, which errors name.
    pub(in crate::power) fn found(program: &str, arguments: Vec<String>, place: Place) -> Self {
        let program = if program.contains('/') { program.to_owned() } else { search(program) };
        Self { place, program, arguments }
    }

    /// Returns the place in the file that names the program.
    pub(in crate::power) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the program's path.
    pub(in crate::power) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the arguments after the program.
    pub(in crate::power) fn arguments(&self) -> &[String] {
        &self.arguments
    }
}

/// Returns the path of the first file with this name in `PATH`.
fn search(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.map_or_else(|| format!("/usr/bin/{name}"), |file| file.display().to_string())
}

/// Returns a name in braces, other than the address, that looks like a placeholder. Other text in braces is an argument
/// like any other.
fn unknown_placeholder(word: &str) -> Option<&str> {
    let names = word.split('{').skip(1).filter_map(|after| Some(after.split_once('}')?.0));
    let like_one = |name: &&str| {
        !name.is_empty() && name.len() < 20 && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c))
    };
    names.filter(like_one).find(|name| *name != "address")
}
