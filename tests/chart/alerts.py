"""Checks of docs/alerts.yaml and of the dashboard with promtool: syntax, and which alerts fire."""
import json
import re
import tempfile
from pathlib import Path

from checks import BIN, HERE, ROOT, expect, expect_equal, run, skip
from templates import expressions

RULES = ROOT / "docs/alerts.yaml"
CASES = HERE / "alerts.test.yaml"


def check():
    named = set(re.findall(r"^      - alert: (\w+)$", RULES.read_text(), re.MULTILINE))
    tested = set(re.findall(r'alertname="?(\w+)', CASES.read_text()))
    expect_equal("each alert has a test in which it fires", tested, named)
    recorded = set(re.findall(r"^      - record: (\S+)$", RULES.read_text(), re.MULTILINE))
    computed = {name for name in recorded if name in CASES.read_text()}
    expect_equal("each recording rule has a test of its value", computed, recorded)
    promtool = BIN / "promtool"
    if not promtool.exists():
        return skip("no promtool (tests/servers/build promtool): THE RULES OF docs/alerts.yaml ARE NOT RUN")
    for what, arguments in (("rules are valid", ["check", "rules", RULES]), ("the right alerts fire, and the aggregates are right", ["test", "rules", CASES])):
        done = run(promtool, *arguments, check=False)
        expect(f"promtool: {what}", done.returncode == 0, done.stdout + done.stderr)
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "panels.yaml")
        file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        done = run(promtool, "check", "rules", file, check=False)
        expect(f"promtool: {len(rules)} expressions of the dashboard are valid", done.returncode == 0, done.stdout + done.stderr)
