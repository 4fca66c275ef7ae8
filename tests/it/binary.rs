//! The program under test.

use std::{
    process::{Command, Stdio},
    sync::LazyLock,
};

/// Path of `cketerm`, built from the present sources with the profile of these tests.
///
/// The tests are a package of their own, so cargo does not build the program for them. The packages of `make test`
/// are selected, so that their dependencies have the features that the tests were built with, and nothing is built
/// twice.
static CKETERM: LazyLock<String> = LazyLock::new(|| {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    // Variables of the package under test: build scripts that read them would run again for every caller.
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_package(name)) {
        build.env_remove(name);
    }
    build.current_dir(crate::ROOT);
    build.args([
        "build",
        "--locked",
        "--workspace",
        "--exclude",
        "cketerm-sim",
        "--exclude",
        "cketerm-checker",
        "--bin",
        "cketerm",
        "--message-format=json",
    ]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "cargo could not build cketerm: {}", built.status);
    let messages = String::from_utf8(built.stdout).unwrap();
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().filter(|path| path.ends_with("/cketerm")).map(str::to_owned)
    });
    executables.next_back().expect("cargo reports the path of cketerm")
});

/// Reports whether cargo sets a variable for the package whose tests it runs.
fn is_of_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|prefix| name.starts_with(prefix))
        || ["CARGO", "OUT_DIR", "CARGO_PRIMARY_PACKAGE", "CARGO_TARGET_TMPDIR"].contains(&name)
}

/// Returns the path of the program.
pub fn cketerm() -> &'static str {
    &CKETERM
}
