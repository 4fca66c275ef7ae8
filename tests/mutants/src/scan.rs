//! Files that are mutated.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    finder,
    mutant::{Mutant, PARTS},
};

/// Finds the candidates of all parts in a copy of the workspace, in the order of their files.
///
/// # Errors
///
/// Fails if a file cannot be read or parsed.
pub fn candidates(root: &Path) -> Result<Vec<Mutant>> {
    let mut found = Vec::new();
    for (_, folder) in PARTS {
        let mut files = Vec::new();
        gather(&root.join(folder), &mut files)?;
        files.sort();
        for path in files {
            let name = path.strip_prefix(root)?.display().to_string();
            if is_for_tests(&name) {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| name.clone())?;
            found.extend(finder::find(&name, &text).with_context(|| name.clone())?);
        }
    }
    Ok(found)
}

/// Reports whether a file holds only code for tests.
fn is_for_tests(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with("test") || part == "fuzz.rs")
}

fn gather(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_this_workspace_has_candidates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let found = candidates(&root).unwrap();
        for (part, _) in PARTS {
            assert!(found.iter().filter(|mutant| mutant.part() == part).count() > 100, "{part}");
        }
        assert!(!found.iter().any(|mutant| mutant.file.contains("/tests")));
    }

    #[test]
    fn files_of_tests_are_recognised() {
        assert!(is_for_tests("src/rules/src/decide/tests/weeks.rs"));
        assert!(is_for_tests("src/rules/src/metal3/fuzz.rs"));
        assert!(!is_for_tests("src/rules/src/decide/drain.rs"));
    }
}
