//! The manifests of `docs/`, given to a real API server by kubectl.

use std::{path::Path, process::Command};

use super::servers::both;
use crate::world;

/// Manifests that an operator applies, and what the server of the tests checks of them: all of it, or the form alone
/// where another object has to exist first.
const MANIFESTS: [(&str, &[&str]); 4] = [
    ("docs/baremetalhost-crd.yaml", &["--dry-run=server"]),
    ("docs/maintenance-request-crd.yaml", &["--dry-run=server"]),
    ("docs/rbac.yaml", &["--dry-run=client", "--validate=strict"]),
    ("docs/agent.yaml", &["--dry-run=client", "--validate=strict"]),
];

/// kubectl reads YAML 1.1, in which a plain `On` is a boolean; other readers of these tests do not.
#[test]
fn kubectl_can_apply_every_manifest() {
    let Some(kubectl) = world::built("kubectl") else { return };
    let Some(server) = both().into_iter().next() else { return };
    for (manifest, how) in MANIFESTS {
        let mut apply = Command::new(&kubectl);
        apply.arg("--kubeconfig").arg(server.kubeconfig()).args(["apply", "-f"]);
        let output = apply.arg(Path::new(crate::ROOT).join(manifest)).args(how).output().unwrap();
        assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
