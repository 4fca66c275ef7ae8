"""Shared by the checks of the image and of the chart: results, paths, and calls of helm and kubectl."""
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHART = ROOT / "docs/chart/cketerm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
BIN = Path(os.environ.get("CKETERM_SERVERS") or CACHE / "cketerm-servers/bin")
passed, failed, skipped = [], [], []


def expect(what, condition, detail=""):
    """Records a check, and returns whether it passed."""
    (passed if condition else failed).append(what)
    print(f"ok: {what}" if condition else f"FAILED: {what}: {detail}", flush=True)
    return bool(condition)


def expect_equal(what, actual, expected):
    return expect(what, actual == expected, f"\n  is       {actual}\n  expected {expected}")


def skip(what):
    skipped.append(what)
    print(f"SKIP: {what}", flush=True)


def finish():
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


def run(*argv, stdin=None, check=True, **more):
    """Runs a command; returns what it did. A failure ends the script unless `check` is false."""
    done = subprocess.run([str(a) for a in argv], input=stdin, capture_output=True, text=True, check=False, **more)
    if check and done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def values(name):
    return HERE / "values" / f"{name}.yaml"


def template(name, *arguments, check=True, namespace="ops"):
    """`helm template` with a values file of this folder, which may be None."""
    files = ["--values", values(name)] if name else []
    return run(BIN / "helm", "template", "cketerm", CHART, "--namespace", namespace, *files, *arguments, check=check)


def kubectl(environment, *arguments, stdin=None, check=True):
    return run(BIN / "kubectl", "--kubeconfig", environment.facts["KUBECONFIG"], *arguments, stdin=stdin, check=check)


def objects(text):
    """Objects that kubectl printed as JSON, one after the other or as a List."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text := text.strip()):
        value, at = decoder.raw_decode(text, at)
        found += value["items"] if value.get("kind") == "List" else [value]
        while at < len(text) and text[at].isspace():
            at += 1
    return found
