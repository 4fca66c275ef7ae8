#!/usr/bin/env python3
"""History and audit at a year's size on a real etcd: reading, pruning, compaction, and what each reboot leaves behind. It is a gate: the exit
status is 1 if a figure misses its budget.

usage: tests/figures/records.py [PROGRAM] [--records 1000000] [--reboots 200] [--minutes 60] [--write docs/performance.md]

1. A daemon reboots --reboots machines with 5 pods each (kube-apiserver, kube-controller-manager and kwok run, and cketerm has an etcd of its own).
   The growth of that etcd, divided by the reboots, is what a reboot costs.
2. The history and audit records of these reboots are copied, with other indexes and times, until there are --records of them, spread over the last
   year. So they have the form, the sizes and the proportions of the program's own. Nothing prunes them: no daemon runs. One transaction writes
   128 of them, which therefore have one revision; the console, which pages by revision, may leave out some of them at the end of a page.
3. Commands and a console read them: time, and most memory of the process.
4. A daemon starts and prunes them to the policy (docs/reference/retention.md), for at most --minutes.
5. etcd is compacted and defragmented, and the commands read again.

READS and ROWS have the budgets. (PROGRAM: default target/shipped/cketerm.)
"""
import argparse, array, calendar, collections, json, os, re, shutil, statistics, subprocess, sys, tempfile, time, urllib.request

import figure_table
from console import WIDE
from environment import SERVERS, Environment
from figure_table import Row
from scale import OPERATIONS, Etcd, cpu_seconds
from terminal import Terminal

NODES, PODS = 20, 5
YEAR, DAY = 365 * 86400, 86400
HISTORY, AUDIT = "/cke/cketerm/history/", "/cke/cketerm/audit/"
# The policy: docs/reference/retention.md.
KEPT_DAYS, KEPT_ENTRIES, KEPT_ENGINE, KEPT_PEOPLE = 90, 10_000, 10_000, 100_000
FAR = 50_000  # records of the audit from the newest to the page far back
NAME = "machine-{:02}"

FIRST_S, FIRST_MIB = 0.5, 64  # budgets of a first page
LISTED_S = 1  # of one for which all keys of the history are listed
ALL_S = 3.5  # of a search that reads all entries of the history
# Key, text, arguments, budgets in seconds and MiB.
READS = [
    ("history", "`history`: CKE's records", ("history",), FIRST_S, FIRST_MIB),
    ("history_json", "`history -n 20 -o json`", ("history", "-n", "20", "-o", "json"), FIRST_S, FIRST_MIB),
    ("ended", "`history --ended -n 20`: the first page", ("history", "--ended", "-n", "20"), LISTED_S, FIRST_MIB),
    ("ended_json", "`history --ended -n 20 -o json`", ("history", "--ended", "-n", "20", "-o", "json"), LISTED_S, FIRST_MIB),
    ("ended_node", "`history --node NAME -n 20`", ("history", "--node", NAME.format(7), "-n", "20"), 2, 128),
    ("ended_failed", "`history --failed`", ("history", "--failed"), ALL_S, 128),
    ("ended_since", "`history --since 7d -o json`", ("history", "--since", "7d", "-o", "json"), 2, 128),
    ("audit", "`audit`: the first page, 100 records", ("audit",), FIRST_S, FIRST_MIB),
    ("audit_json", "`audit -n 20 -o json`", ("audit", "-n", "20", "-o", "json"), FIRST_S, FIRST_MIB),
    ("audit_far", f"`audit -n {FAR} -o json`: a page far back", ("audit", "-n", str(FAR), "-o", "json"), 5, 128),
    ("audit_all", "`audit -n 0 -o json`: all", ("audit", "-n", "0", "-o", "json"), None, None),
]
VIEWS = {"history": LISTED_S, "audit": FIRST_S}  # with the budget until the rows are shown
PAGES = 10  # times that `G` is pressed in a view, each of which reads an older page

ROWS = [
    Row("records: ended entries", "", "history_count"),
    Row("records: audit", "", "audit_count"),
    *(row for key, text, _, seconds, mib in READS for row in (Row(text, "s", f"{key}_s", most=seconds), Row("… most memory", "MiB", f"{key}_mib", most=mib))),
    *(row for view, seconds in VIEWS.items() for row in (
        Row(f"console, {view}: start to its rows", "s", f"view_{view}_s", most=seconds),
        Row(f"… after {PAGES} times `G`: failed reads", "", f"view_{view}_failed", most=0),
        Row("… most memory", "MiB", f"view_{view}_mib", most=FIRST_MIB))),
]
COSTS = [
    Row("a reboot: transactions in etcd", "", "transactions", most=40),
    Row("… growth of the live keys", "KiB", "live_kib", most=8),
    Row("… … of these in `cketerm/history/`", "KiB", "live_history_kib"),
    Row("… … in `cketerm/audit/`", "KiB", "live_audit_kib"),
    Row("… … in `records/`, of which 1,000 stay", "KiB", "live_records_kib"),
    Row("… … in other keys", "KiB", "live_rest_kib"),
    Row("… audit records", "", "audit_each"),
    Row("… growth of etcd's database before a compaction", "KiB", "size_kib", most=64),
    Row("… and after compaction and defragmentation", "KiB", "compacted_kib", most=16),
    Row("copying the records, without cketerm", "s", "copy_s"),
    Row("pruning until the policy holds", "s", "prune_s", most=900),
    Row("… records removed", "", "pruned"),
    Row("… records removed per second", "", "pruned_per_s"),
    Row("… most memory of the engine", "MiB", "prune_mib", most=80),
    Row("… CPU time of the engine", "s", "prune_cpu_s"),
    Row("… CPU time of etcd", "s", "prune_etcd_s"),
    Row("… reads (Range)", "", "prune_reads"),
    Row("… transactions (Txn)", "", "prune_txns"),
    Row("etcd's database with all records", "MiB", "size_full_mib"),
    Row("… in use after pruning", "MiB", "in_use_pruned_mib"),
    Row("… in use after compaction", "MiB", "in_use_compacted_mib"),
    Row("… its size after defragmentation", "MiB", "size_defragmented_mib"),
    Row("… time of the compaction", "s", "compact_s"),
    Row("… time of the defragmentation", "s", "defragment_s"),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--reboots", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60, help="the longest time to wait for the pruning")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


class Servers:
    """A small cluster, and an etcd for cketerm alone."""

    def __init__(self, program):
        self.program, self.environment = program, Environment("records")
        self.folder = f"{self.environment.folder}/own"
        out = subprocess.run([f"{SERVERS}/up", "--etcd-only", "--while", str(os.getpid()), self.folder], capture_output=True, text=True)
        if out.returncode:
            self.environment.stop()
            sys.exit(out.stderr)
        self.url = dict(l.split("=", 1) for l in out.stdout.splitlines() if "=" in l)["ETCD"]
        self.environment.etcd, self.etcd = self.url, Etcd(self.url)
        # the usual lease: etcd may be slow here
        self.config = self.environment.config = self.environment.configure("own.yaml", engine={})
        self.machines = [self.environment.machine("control-plane", "10.1.9.1", control_plane=True)]
        self.machines += [self.environment.machine(NAME.format(i), f"10.1.0.{i + 1}") for i in range(NODES)]

    def set_up(self):
        self.environment.create_nodes(self.machines)
        reboot = {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/sh", "-c", "echo true"], "max_concurrent_reboots": NODES}
        self.environment.set_up(self.program, self.machines, reboot)

    def stop(self):
        subprocess.run([f"{SERVERS}/down", self.folder], stderr=subprocess.DEVNULL)
        self.environment.stop()

    def run(self, *arguments, stdin=""):
        return self.environment.run_command(self.program, *arguments, stdin=stdin)

    def start_daemon(self):
        daemon = self.environment.daemon(self.program, "daemon")
        self.environment.wait("the daemon leads", lambda: re.search(r"^cke_leader 1", daemon.get("/metrics")[1], re.M), 60)
        return daemon

    def size(self):
        """Bytes of etcd's database, and of these in use."""
        status = self.etcd.call("maintenance/status", {})
        return int(status["dbSize"]), int(status["dbSizeInUse"])

    def revision(self):
        return int(self.etcd.call("maintenance/status", {})["header"]["revision"])

    def compact(self):
        """Seconds of the compaction and of the defragmentation, and the bytes in use between them."""
        began = time.monotonic()
        self.etcd.call("kv/compaction", {"revision": str(self.revision()), "physical": True})
        between, in_use = time.monotonic(), self.size()[1]
        self.etcd.call("maintenance/defragment", {})
        return between - began, time.monotonic() - between, in_use

    def requests(self):
        """Number of requests that etcd has answered, by method."""
        text = urllib.request.urlopen(f"{self.url}/metrics", timeout=60).read().decode()
        return collections.Counter({m[1]: int(float(m[2])) for m in re.finditer(
            r'^grpc_server_handled_total\{grpc_code="OK",grpc_method="(\w+)",grpc_service="etcdserverpb.KV"[^}]*\} (\S+)', text, re.M)})

    def etcd_cpu_seconds(self):
        return cpu_seconds(int(open(f"{self.folder}/run/etcd.pid").read()))


# 1. reboots

def live_bytes(etcd):
    """Bytes of the live keys below `/cke/` with their values, by folder."""
    sizes = collections.Counter()
    for key, value, _ in etcd.read("/cke/"):
        kind = re.match(r"/cke/(?:cketerm/(history|audit)/|(records)/)", key.decode())
        sizes[(kind and (kind[1] or kind[2])) or "rest"] += len(key) + len(value)
    return sizes


def reboot_all(servers):
    """Reboots every machine once, each at the request of an operator."""
    environment = servers.environment
    for machine in servers.machines[1:]:
        for i in range(PODS):
            environment.pod(f"{machine['name']}-{i}", machine["name"])
    environment.wait_until_pods_run()
    for machine in servers.machines[1:]:
        servers.run("rq", "add", "--reason", "TICKET-4711 new kernel", "-", stdin=machine["address"])
    environment.wait("the reboots end", lambda: servers.run("rq", "list").strip() == "[]", 300)
    environment.wait("the uncordons", lambda: not environment.cordoned(), 300)


def measure_reboots(servers, reboots):
    """What a reboot costs in etcd, and the history and audit records of all of them in the order in which they were written."""
    daemon = servers.start_daemon()
    reboot_all(servers)  # the first round writes what stays: the first records, identities, the write index
    servers.compact()
    revision, live, size = servers.revision(), live_bytes(servers.etcd), servers.size()[1]
    rounds = max(1, round(reboots / NODES))
    for _ in range(rounds):
        reboot_all(servers)
    time.sleep(3)
    count, grown = rounds * NODES, live_bytes(servers.etcd)
    grown.subtract(live)
    figure = {"transactions": (servers.revision() - revision) / count, "live_kib": sum(grown.values()) / count / 1024,
              "size_kib": (servers.size()[1] - size) / count / 1024}
    figure |= {f"live_{kind}_kib": bytes_ / count / 1024 for kind, bytes_ in grown.items()}
    daemon.stop()
    written = sorted((kv for folder in (HISTORY, AUDIT) for kv in servers.etcd.read(folder) if kv[2] > revision), key=lambda kv: kv[2])
    figure["audit_each"] = sum(key.startswith(AUDIT.encode()) for key, _, _ in written) / count
    servers.compact()
    figure["compacted_kib"] = (servers.size()[1] - size) / count / 1024
    return figure, [(key.decode(), value.decode()) for key, value, _ in written]


# 2. copies

# Times but Go's zero time, and indexes of reboot entries in keys and values.
SLOT = re.compile(r'((?!0001)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)|((?<=[ "]reboots/)\d+|(?<=["-]reboots-)\d+|(?<="index":")\d+|(?<="result":"entries )\d+)')


class Text:
    """A text whose times and indexes can be replaced."""

    def __init__(self, text):
        self.pieces, at = [], 0
        for found in SLOT.finditer(text):
            self.pieces += [text[at:found.start()], (seconds_of(found[1]), None) if found[1] else (None, int(found[2]))]
            at = found.end()
        self.pieces.append(text[at:])

    def copy(self, later, further):
        """The same text so many seconds later, with indexes that are higher by `further`."""
        new = lambda time_, index: str(index + further) if time_ is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ + later))
        return "".join(piece if isinstance(piece, str) else new(*piece) for piece in self.pieces)


class Template:
    """A record that can be copied to another time and another entry."""

    def __init__(self, key, value):
        self.is_ending, self.value = key.startswith(HISTORY), Text(value)
        if self.is_ending:
            self.index = int(key.rsplit("-", 1)[1], 16)
        else:
            # twenty digits of nanoseconds
            self.nanoseconds, rest = int(key[len(AUDIT):len(AUDIT) + 20]), key[len(AUDIT) + 20:]
            # an operator's key has no further part (`is_person_audit` in src/model/src/stored/keys.rs)
            self.is_engine, self.rest = not re.fullmatch(r"-[0-9a-f]{16}", rest), Text(rest)
        record = json.loads(value)
        last = record.get("last")
        # the time from which pruning counts the age
        self.time = seconds_of((last if isinstance(last, str) else record["at"])[:19])

    def copy(self, later, further):
        key = f"{HISTORY}reboots-{self.index + further:016x}" if self.is_ending else f"{AUDIT}{self.nanoseconds + later * 10**9:020}{self.rest.copy(later, further)}"
        return key.encode(), self.value.copy(later, further).encode()


def seconds_of(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


class Ages:
    """Times of all records, by what the policy counts: ended entries, engines' audit records, operators' audit records."""

    def __init__(self):
        self.endings, self.engine, self.people = array.array("d"), array.array("d"), array.array("d")

    def add(self, template, later):
        times = self.endings if template.is_ending else self.engine if template.is_engine else self.people
        times.append(template.time + later)

    def kept(self):
        """Number of ended entries and of audit records that the policy keeps."""
        oldest = time.time() - KEPT_DAYS * DAY
        young = lambda times, limit: min(limit, sum(at >= oldest for at in times))
        return young(self.endings, KEPT_ENTRIES), young(self.engine, KEPT_ENGINE) + young(self.people, KEPT_PEOPLE)


def copy_records(servers, written, records):
    """Writes copies of these records until there are `records` of them, the oldest first, evenly over the last year."""
    templates, ages = [Template(key, value) for key, value in written], Ages()
    existing = [Template(key.decode(), value.decode()) for folder in (HISTORY, AUDIT) for key, value, _ in servers.etcd.read(folder)]
    for template in existing:
        ages.add(template, 0)
    indexes = 1 + max(t.index for t in templates if t.is_ending) - min(t.index for t in templates if t.is_ending)
    missing = max(0, records - len(existing))
    copies = -(-missing // len(templates)) if missing else 0
    batch, began = [], time.monotonic()
    for copy in range(copies):
        later = -YEAR + YEAR * copy // copies
        for template in templates[:missing - copy * len(templates)]:
            batch.append(template.copy(later, (copy + 1) * indexes))
            ages.add(template, later)
            if len(batch) == OPERATIONS:
                servers.etcd.put_many(batch)
                batch.clear()
    batch.append((b"/cke/reboots/write-index", str((copies + 2) * indexes + NODES).encode()))
    servers.etcd.put_many(batch)
    return ages, time.monotonic() - began


# 3. reading

# Runs a command and prints its exit status, seconds and kB. A process of its own: a child's maximum includes the memory of the process that
# it was forked from, and this one is small.
RUN = """import json, os, sys, time
out, began = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), time.monotonic()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
_, status, usage = os.wait4(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - began, usage.ru_maxrss]))"""


def run_once(servers, arguments):
    """Seconds and MiB of a command; its message instead if it fails."""
    argv = [sys.executable, "-S", "-E", "-c", RUN, f"{servers.folder}/output", servers.program, "--config", servers.config, *arguments]
    out = subprocess.run(argv, capture_output=True, text=True, env=servers.environment.process_env(), timeout=900)
    if out.returncode:
        raise RuntimeError(out.stderr)
    status, seconds, kib = json.loads(out.stdout)
    message = re.sub(r"[\s|]+", " ", out.stderr)[:120]
    return (f"failed after {seconds:.1f} s, exit {status}: {message}" if status else seconds), kib / 1024


def measure_command(servers, arguments):
    """Median of three runs; a slow command runs once."""
    runs = [run_once(servers, arguments)]
    if not isinstance(runs[0][0], str) and runs[0][0] < 2:
        runs += [run_once(servers, arguments) for _ in range(2)]
    failed = next((seconds for seconds, _ in runs if isinstance(seconds, str)), None)
    return failed or statistics.median(seconds for seconds, _ in runs), max(mib for _, mib in runs)


def measure_view(servers, view):
    """Seconds until a view of the console shows records, number of failed reads on the way back, and most MiB."""
    argv = [servers.program, "--config", servers.config, "--observe", "--view", view]
    terminal = Terminal(argv, WIDE, {"HOME": servers.folder, "NO_COLOR": "1"})
    rows = terminal.shows(NAME.format(0)[:-2] + r"\d\d|10\.1\.0\.\d", 60)
    failed = 0
    for _ in range(PAGES):
        terminal.press("G")
        before = len(terminal.text)
        terminal.pump(1.5)
        failed += b"reading failed" in terminal.text[before:]
    peak = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{terminal.pid}/status").read())[1]) / 1024
    terminal.quit("q")
    return (rows if rows is not None else "no rows within 60 s"), failed, peak


def measure_reads(servers):
    figure = {"history_count": servers.etcd.count(HISTORY), "audit_count": servers.etcd.count(AUDIT)}
    for key, _, arguments, _, _ in READS:
        figure[f"{key}_s"], figure[f"{key}_mib"] = measure_command(servers, arguments)
    for view in VIEWS:
        figure[f"view_{view}_s"], figure[f"view_{view}_failed"], figure[f"view_{view}_mib"] = measure_view(servers, view)
    print(json.dumps(figure), flush=True)
    return figure


# 4. pruning

def measure_pruning(servers, ages, minutes):
    """Starts a daemon and waits until no more records are left than the policy keeps. One percent more are allowed: the daemon writes too."""
    count = lambda: (servers.etcd.count(HISTORY), servers.etcd.count(AUDIT))
    before, requests, etcd_cpu, began, samples = sum(count()), servers.requests(), servers.etcd_cpu_seconds(), time.monotonic(), 0
    daemon = servers.start_daemon()
    while True:
        samples, left, kept = samples + 1, count(), ages.kept()
        if all(have <= 1.01 * wanted + 50 for have, wanted in zip(left, kept)):
            took = time.monotonic() - began
            break
        if time.monotonic() - began > 60 * minutes:
            took = f"{sum(left) - sum(kept):,} too many after {minutes:.0f} minutes"
            break
        time.sleep(5)
    seconds, asked = time.monotonic() - began, servers.requests()
    asked.subtract(requests)
    status = open(f"/proc/{daemon.pid}/status").read()
    figure = {"prune_s": took, "pruned": before - sum(left), "pruned_per_s": (before - sum(left)) / seconds,
              "prune_mib": int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024, "prune_cpu_s": cpu_seconds(daemon.pid),
              "prune_etcd_s": servers.etcd_cpu_seconds() - etcd_cpu, "prune_reads": asked["Range"] - 2 * (samples + 1), "prune_txns": asked["Txn"]}
    daemon.stop()
    return figure


def measure_size(servers):
    mib = lambda bytes_: bytes_ / 2**20
    figure = {"in_use_pruned_mib": mib(servers.size()[1])}
    figure["compact_s"], figure["defragment_s"], in_use = servers.compact()
    return figure | {"in_use_compacted_mib": mib(in_use), "size_defragmented_mib": mib(servers.size()[0])}


def measure(servers, args):
    """Columns of the table of reads, and the figures of the table of costs."""
    servers.set_up()
    costs, written = measure_reboots(servers, args.reboots)
    print(json.dumps(costs), flush=True)
    ages, costs["copy_s"] = copy_records(servers, written, args.records)
    costs["size_full_mib"] = servers.size()[0] / 2**20
    full = measure_reads(servers)
    costs |= measure_pruning(servers, ages, args.minutes)
    costs |= measure_size(servers)
    print(json.dumps(costs), flush=True)
    return [(f"{args.records:,} records", full), ("pruned, compacted", measure_reads(servers))], costs


def main():
    args = parse()
    if args.write:
        figure_table.split_at_marks(args.write, "records")  # fails before anything is started
    servers = Servers(os.path.abspath(args.program))
    try:
        columns, costs = measure(servers, args)
    finally:
        servers.stop()
    parts = [(ROWS, columns, [0, 1]), (COSTS, [("value", costs)], [0])]
    text = "\n\n".join([figure_table.heading(f"{args.reboots} reboots were copied."), *(figure_table.table(*part) for part in parts)])
    figure_table.finish(text, [line for part in parts for line in figure_table.misses(*part)], args.write, "records")


if __name__ == "__main__":
    main()
