use std::os::unix::fs::{PermissionsExt, symlink};

use cketerm_model::{
    attempt::{Ended, Outcome},
    result::argv_digest,
};

use super::*;

fn folder() -> (tempfile::TempDir, ResultFolder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultFolder::below(dir.path());
    folder.prepare().unwrap();
    (dir, folder)
}

fn label(number: u32) -> ResultLabel {
    ResultLabel { attempt: format!("reboots-5-{number}"), cluster: "uid-1".to_owned(), lease: 0x7a }
}

fn result(number: u32) -> CommandResult {
    let (stdout, stderr) = ("on\n".to_owned(), String::new());
    let outcome = Outcome { end: Ended::Exit(0), at: jiff::Timestamp::UNIX_EPOCH, stdout, stderr };
    CommandResult { label: label(number), argv: argv_digest(&["a".to_owned()]), outcome }
}

#[test]
fn a_result_file_is_private_and_readable_until_it_is_removed() {
    let (_dir, folder) = folder();
    folder.write(&result(1)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.path().join("reboots-5-1.7a.json")), 0o600);
    assert_eq!(folder.read(&label(1)), Ok(Some(result(1))));
    assert_eq!(folder.read(&label(2)), Ok(None));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no unfinished file is left");
    folder.forget(&label(1));
    assert_eq!(folder.read(&label(1)), Ok(None));
}

/// After a power failure the file has all its bytes, or there is no file.
#[test]
fn a_result_is_synced_before_it_gets_its_name_and_the_name_after_it() {
    let (_dir, folder) = folder();
    let path = folder.path().join(label(1).file_name());
    let is_named = std::cell::RefCell::new(Vec::new());
    let sync = |_: &File| {
        is_named.borrow_mut().push(path.exists());
        Ok(())
    };
    folder.write_synced_by(&result(1), sync).unwrap();
    assert_eq!(*is_named.borrow(), [false, true]);
}

#[test]
fn a_result_that_cannot_be_synced_is_not_kept() {
    let (_dir, folder) = folder();
    let refused = folder.write_synced_by(&result(1), |_| Err(io::Error::other("the disk is broken")));
    assert!(refused.unwrap_err().contains("the disk is broken"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_accessible_to_others_is_refused() {
    let (_dir, folder) = folder();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(folder.prepare().unwrap_err().contains("chmod 0700"));
    assert!(folder.write(&result(1)).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_directory_check_reports_faults_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultFolder::below(&dir.path().join("not/there/yet"));
    assert_eq!(folder.fault(), None);
    assert!(!dir.path().join("not").exists(), "inspection creates nothing");
    folder.prepare().unwrap();
    assert_eq!(folder.fault(), None);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(folder.fault().unwrap().contains("chmod 0700"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let why = ResultFolder::below(&file).fault().unwrap();
    assert!(why.contains("file/results cannot be inspected"), "{why}");
}

/// A file that a user planted or a disk corrupted gives an error that names it, never a panic, never a result.
#[test]
fn hostile_and_corrupt_files_are_errors_that_name_the_file() {
    type Make<'a> = Box<dyn Fn(&Path) + 'a>;
    let (dir, folder) = folder();
    let good = serde_json::to_string(&result(1)).unwrap();
    let name = |n: u32| folder.path().join(label(n).file_name());
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, &good).unwrap();
    let cases: [(u32, Make<'_>); 9] = [
        (1, Box::new(|at| symlink(&elsewhere, at).unwrap())),
        (2, Box::new(|at| std::fs::write(at, &good).unwrap())),
        (3, Box::new(|at| std::fs::write(at, &good[..good.len() / 2]).unwrap())),
        (4, Box::new(|at| std::fs::write(at, vec![b'['; MAX_RESULT_BYTES]).unwrap())),
        (5, Box::new(|at| std::fs::write(at, vec![b' '; MAX_RESULT_BYTES + 1]).unwrap())),
        (6, Box::new(|at| std::fs::create_dir(at).unwrap())),
        (7, Box::new(|at| std::fs::write(at, [0xff, 0xfe, 0, 1]).unwrap())),
        (8, Box::new(|at| std::fs::write(at, "").unwrap())),
        (9, Box::new(|at| assert!(std::process::Command::new("mkfifo").arg(at).status().unwrap().success()))),
    ];
    for (number, make) in &cases {
        make(&name(*number));
        let why = folder.read(&label(*number)).unwrap_err();
        assert!(why.contains(&label(*number).file_name()), "{number}: {why}");
    }
    let odd = ResultLabel { attempt: "../../etc/passwd".to_owned(), ..label(1) };
    assert_eq!(folder.read(&odd), Ok(None), "a name of no attempt opens no file");
}

#[test]
fn control_characters_and_secrets_in_a_result_file_are_masked() {
    let (_dir, folder) = folder();
    let mut hostile = result(1);
    hostile.outcome.stderr = "\u{1b}[2J --password hunter22 ".repeat(300);
    hostile.outcome.end = Ended::Unknown("\u{1b}]0;x\u{7} token=hunter22".to_owned());
    std::fs::write(folder.path().join(label(1).file_name()), serde_json::to_string(&hostile).unwrap()).unwrap();
    let read = folder.read(&label(1)).unwrap().unwrap();
    let text = format!("{:?} {}", read.outcome.end, read.outcome.stderr);
    assert!(!text.contains('\u{1b}') && !text.contains("hunter22"), "{text}");
    assert!(read.outcome.stderr.len() <= 3 * 4096);
}

#[test]
fn results_are_removed_after_a_week_or_above_the_file_limit() {
    let (_dir, folder) = folder();
    for number in 1..=3 {
        folder.write(&result(number)).unwrap();
    }
    std::fs::write(folder.path().join(format!("{UNFINISHED}reboots-5-9.7a.json-17")), "").unwrap();
    std::fs::write(folder.path().join("notes\u{1b}.txt"), "somebody's").unwrap();
    let now = SystemTime::now();
    let scan = folder.scan(now);
    assert_eq!((scan.results.len(), scan.removed.len()), (3, 0));
    assert_eq!(scan.foreign.iter().collect::<Vec<_>>(), ["notes␛.txt"]);
    let scan = folder.scan(now + ORPHANED + Duration::from_mins(1));
    assert_eq!((scan.results.len(), scan.removed.len()), (0, 4));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a foreign file stays");
    for number in 0..=u32::try_from(MOST_FILES).unwrap() {
        std::fs::write(folder.path().join(label(number + 1).file_name()), "{").unwrap();
    }
    assert_eq!(folder.scan(now).results.len(), MOST_FILES);
}
