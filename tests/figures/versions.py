#!/usr/bin/env python3
"""Tests cketerm on other versions of Kubernetes and etcd: builds them (tests/servers/versions), runs a part of the tests `it` on each,
and counts the results.

usage: tests/figures/versions.py [CELL...] [--again] [--it PROGRAM] [--write docs/reference/versions.md]

A cell is `kubernetes-VERSION` or `etcd-VERSION`; without one, all of CELLS are tested. A test that fails is run once more, alone: other
tests slow a machine down. The result of a cell goes to target/versions/CELL.json, so that --write can print cells of several runs.
--again runs only the tests that failed in the last run of a cell, for example after a repair of the test. --it runs this test program
instead of building it. Exit 1 if a test failed twice.
"""
import argparse, datetime, glob, json, os, re, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULTS = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "versions")
MARKS = "<!-- versions -->", "<!-- /versions -->"
# the programs of tests/servers/go.mod
PINNED = {"kubernetes": "1.35.4", "etcd": "3.6.5"}
CELLS = ["kubernetes-1.31.14", "kubernetes-1.35.4", "kubernetes-1.37.2", "etcd-3.4.23", "etcd-3.5.35", "etcd-3.6.5", "etcd-3.6.16", "etcd-3.7.3"]
# what depends on the API server and its controllers, and what depends on the etcd of cketerm's keys
FILTERS = {
    "kubernetes": """adoption::agents adoption::rolling agent:: commands::beside_cke commands::kubernetes commands::manual_drain
        engine::blocked engine::evictions engine::containers engine::events engine::failover engine::maintenance engine::membership
        engine::node_signs engine::own_node engine::reboot_needed engine::repairs engine::round engine::uncordon_gates kubernetes::
        power::controller power::hosts power::out_of_service power::the_reboot_queue rights::""".split(),
    "etcd": """adoption::own_etcd commands::batches commands::bad_input commands::leaders commands::plan commands::repairs
        engine::bounds engine::concurrent_writer engine::etcd_members engine::failover engine::faults engine::maintenance engine::migration
        engine::repairs engine::round roles:: store::""".split(),
}
# no test of a part above that uses no server, or the sandbox instead of one
SKIPPED = ["::sandbox", "observers::"]
# Tests that cannot judge etcd 3.4, with the reason.
UNSUITED = {
    # its guide asks for etcd 3.5: 3.4 has no etcdutl
    "adoption::own_etcd::an_etcd_of_its_own",
    # its observers read the objects of Kubernetes in the etcd of the keys, and here Kubernetes has another etcd
    "engine::round::",
}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--it", metavar="PROGRAM")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


def test_program():
    """Builds the tests `it`; returns their program."""
    argv = ["cargo", "test", "--locked", "--workspace", "--exclude", "cketerm-sim", "--test", "it", "--no-run", "--message-format", "json"]
    out = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    messages = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "it")


def run_tests(program, servers, filters, threads=None):
    """Runs tests on a folder of servers; returns the names of those that passed, failed and were skipped."""
    environment = dict(os.environ, CKETERM_SERVERS=servers, CARGO_MANIFEST_DIR=os.path.join(ROOT, "tests"))
    if threads:
        environment["RUST_TEST_THREADS"] = str(threads)
    argv = [program, *filters, *(word for skipped in [*SKIPPED, *left_out(os.path.basename(servers))] for word in ("--skip", skipped))]
    # to the file at once, so that a long run can be followed
    with open(os.path.join(RESULTS, os.path.basename(servers) + ".log"), "a+") as log:
        start = log.seek(0, os.SEEK_END)
        subprocess.run(argv, cwd=os.path.join(ROOT, "tests"), env=environment, stdout=log, stderr=subprocess.STDOUT)
        log.seek(start)
        text = log.read()
    found = {}
    # a message of another test may stand between a name and its result
    for name, result in re.findall(r"^test (\S+)(?: - should panic)? \.\.\. .*?(ok|FAILED|ignored)$", text, re.M):
        found[name] = result
    skipped = set(re.findall(r"^(?:test \S+ \.\.\. )?SKIP (\S+):", text, re.M))
    summary = re.search(r"^test result: .* (\d+) passed; (\d+) failed", text, re.M)
    failures = text.rpartition("\nfailures:\n")[2].split("\ntest result:")[0] if summary and summary[2] != "0" else ""
    failed = set(failures.split()) | {n for n, r in found.items() if r == "FAILED"}
    if not summary:
        sys.exit(f"the tests on {servers} did not end:\n{text[-2000:]}")
    return int(summary[1]), failed, skipped


def left_out(cell):
    """Beginnings of the names of tests that are not run in a cell."""
    return UNSUITED if cell.startswith("etcd-3.4.") else ()


def servers_of(cell):
    """Builds the servers of a cell; returns their folder."""
    argv = [os.path.join(ROOT, "tests/servers/versions"), *cell.split("-", 1)]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def result_file(cell):
    return os.path.join(RESULTS, cell + ".json")


def test_cell(program, cell, again):
    servers = servers_of(cell)
    if again:
        result = json.load(open(result_file(cell)))
        result["failed"] = [name for name in result["failed"] if not name.startswith(tuple(left_out(cell)))]
    else:
        open(os.path.join(RESULTS, cell + ".log"), "w").close()
        passed, failed, skipped = run_tests(program, servers, FILTERS[cell.split("-")[0]])
        result = {"cell": cell, "passed": passed - len(skipped), "alone": 0, "failed": sorted(failed), "skipped": sorted(skipped)}
    for name in list(result["failed"]):
        passed, still, _ = run_tests(program, servers, ["--exact", name], 1)
        if passed == 1 and not still:
            result["failed"].remove(name)
            result["passed"] += 1
            result["alone"] += 1
    result["date"] = datetime.date.today().isoformat()
    with open(result_file(cell), "w") as f:
        json.dump(result, f)
    return result


def table(results):
    lines = ["| server | version | tests passed | of these, alone after a failure | skipped | failed | date |",
             "| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    key = lambda r: (not r["cell"].startswith("kubernetes"), [int(n) for n in r["cell"].split("-")[1].split(".")])
    for result in sorted(results, key=key):
        kind, version = result["cell"].split("-", 1)
        pinned = ", as in all other tests" if PINNED[kind] == version else ""
        lines.append(f"| {'Kubernetes' if kind == 'kubernetes' else kind} | {version}{pinned} | {result['passed']} | {result['alone']} "
                     f"| {len(result['skipped'])} | {len(result['failed'])} | {result['date']} |")
    failed = [f"- {r['cell']}: `{name}`" for r in sorted(results, key=key) for name in r["failed"]]
    return "\n".join(lines + ["", "Failed tests:" if failed else "No test failed again when it ran alone."] + ([""] + failed if failed else []))


def write(path, text):
    page = open(path).read()
    if not all(mark in page for mark in MARKS):
        sys.exit(f"{path} has no marks {' … '.join(MARKS)}")
    before, after = page.split(MARKS[0])[0], page.split(MARKS[1])[1]
    with open(path, "w") as f:
        f.write(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{after}")


def main():
    args = arguments()
    os.makedirs(RESULTS, exist_ok=True)
    program = os.path.abspath(args.it) if args.it else test_program()
    failed = False
    for cell in args.cells or CELLS:
        result = test_cell(program, cell, args.again)
        print(json.dumps(result), flush=True)
        failed |= bool(result["failed"])
    text = table([json.load(open(file)) for file in glob.glob(f"{RESULTS}/*.json")])
    print(text)
    if args.write:
        write(args.write, text)
    sys.exit(failed)


if __name__ == "__main__":
    main()
