#!/usr/bin/env python3
"""Linearizability: many clients run commands of cketerm at once, two engines are at work, and the three members of etcd are killed, stopped
and cut off. `linear_checker.py` then compares the answers with etcd's own history, and searches for an order that explains them.

usage: tests/figures/linearizability.py [PROGRAM] [--operations 10000] [--seed 1] [--clients 14] [--mostly COMMAND…] [--write FILE]
                                        [--history FILE] [--keep]                       (PROGRAM: default target/shipped/cketerm)
       tests/figures/linearizability.py --check FILE [--break NAME]

Half of the clients know all members, the others one member each; a third gives up a request after half a second. The seed determines the
choices of each client and the faults, not their interleaving. Each command gives a reason of its own, which its audit record has, written
in the same transaction. --mostly sends these commands ten times as often.
--history keeps what was recorded; --check judges it again; --break first injects an error (all = each of them in turn), which must be
found. Every run without a violation ends with all of them. Prints a JSON line; exit 1 if the history is not linearizable, an error is
missed, a power command ran twice, an entry does not end, or an engine panicked.
"""
import argparse, collections, concurrent.futures, dataclasses, json, os, random, re, signal, subprocess, sys, threading, time, urllib.request

import linear_checker
from environment import *
from etcd_members import use_members
from linear_checker import BREAKS, CONSTRAINTS, POLICIES, Operation, Sample, check, check_broken, violations_of

parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--operations", type=int, default=10000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--clients", type=int, default=14)
parser.add_argument("--mostly", metavar="COMMAND", nargs="+", default=[], help="send these commands ten times as often")
parser.add_argument("--write", metavar="FILE")
parser.add_argument("--history", metavar="FILE")
parser.add_argument("--check", metavar="FILE")
parser.add_argument("--break", metavar="NAME", dest="broken", choices=[*BREAKS, "all"])
parser.add_argument("--keep", action="store_true", help="always keep the folder with the logs")
args = parser.parse_args()
program = os.path.abspath(args.program)

# seconds after which a client gives up a command, whose outcome is then unknown
PATIENCE = 60
# entries above which clients cancel instead of adding
MOST_ENTRIES = 40
WEIGHTS = {
    "rq add": 14, "rq cancel": 12, "rq cancel-all": 0.8, "rq cancel --batch": 3, "rq reset-backoff": 3, "rq hold": 6, "rq unhold": 5, "rq enable": 4,
    "rq disable": 2, "rq pause": 2, "rq resume": 2, "rq list": 12, "rq list table": 4, "rq batches": 2, "rq is-enabled": 6, "repair-queue add": 5,
    "repair-queue delete": 4, "repair-queue delete-finished": 1.5, "repair-queue delete-unfinished": 0.8, "repair-queue enable": 2,
    "repair-queue disable": 1, "repair-queue is-enabled": 3, "repair-queue list": 5, "stop": 1, "resume": 2.5, "constraints set": 6,
    "constraints show": 6, "policy set": 3, "policy show": 3,
}
for name in args.mostly:
    WEIGHTS[name] *= 10


class Site:
    """Three API servers and workers of which two keep a pod that cannot be evicted, so that their drains end in a backoff."""

    def __init__(self, env):
        self.env = env
        self.api_servers = [env.machine(f"cp{i}", f"10.0.0.{i + 11}", True) for i in range(3)]
        self.workers = [env.machine(f"w{i}", f"10.0.1.{i + 11}") for i in range(20)]
        self.machines = self.api_servers + self.workers
        self.broken = [f"10.0.9.{i + 11}" for i in range(12)]

    def begin(self):
        env = self.env
        env.create_nodes(self.machines)
        for m in self.workers[:2]:
            env.pod(f"{m['name']}-kept", m["name"], finalizers=["figures.example/kept"])
        for m in self.workers[2:]:
            env.pod(f"{m['name']}-0", m["name"])
        env.wait_until_pods_run()
        env.set_command_duration(1)
        health = ["sh", "-c", "[ $(($(date +%s) % 3)) = 0 ] && echo true || echo false"]
        step = {"repair_command": ["true"], "watch_seconds": 3}
        env.set_up(program, self.machines, {"max_concurrent_reboots": 4, "eviction_timeout_seconds": 6, "command_timeout_seconds": 30}, settle=1,
                   repair={"max_concurrent_repairs": 3, "repair_procedures": [
                       {"machine_types": ["box"], "repair_operations": [{"operation": "reset", "health_check_command": health, "repair_steps": [step]}]}]})
        for name in CONSTRAINTS:
            env.run_command(program, "constraints", "set", name, "1000")
        for name in POLICIES:
            env.run_command(program, "policy", "set", name, "1000")


class Known:
    """What clients have seen lately, to choose objects that exist."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reboots, self.repairs, self.held, self.batches = {}, {}, collections.deque(maxlen=12), collections.deque(maxlen=12)
        self.highest = {"reboots": 0, "repairs": 0}

    def learn(self, op):
        with self.lock:
            if op.outcome != "ok":
                return
            if op.kind in ("rq list", "repair-queue list"):
                found = {int(i): None for i in op.result}
                if op.kind == "rq list":
                    self.reboots = {i: None for i in found if op.result[str(i)][1] != "cancelled"}
                else:
                    self.repairs = found
            elif op.kind in ("rq add", "repair-queue add"):
                queue = "reboots" if op.kind == "rq add" else "repairs"
                getattr(self, queue).update(dict.fromkeys(op.result["indexes"]))
                self.highest[queue] = max(self.highest[queue], *op.result["indexes"])
                if op.kind == "rq add":
                    self.batches.append(op.result["batch"])
            elif op.kind == "rq cancel":
                self.reboots.pop(op.arguments["index"], None)
            elif op.kind == "repair-queue delete":
                self.repairs.pop(op.arguments["index"], None)
            elif op.kind == "rq hold":
                self.held.append(op.arguments["index"])

    def index(self, queue, dice):
        """An entry that probably exists; now and then any index so far."""
        with self.lock:
            now = list(getattr(self, queue))
            return dice.choice(now) if now and dice.random() < 0.93 else dice.randint(0, self.highest[queue] + 1)


def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def after(word, text):
    """Rest of the line that begins with this word, or None."""
    found = re.search(rf"^{re.escape(word)} (.*)$", text, re.M)
    return found and found.group(1)


def parse_table(text):
    """Status and hold of each entry in the table of `rq list`."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith("Index")), len(lines))
    column = lines[at].index("Status") if at < len(lines) else 0
    return {line.split()[0]: [line[column:].split()[0], "held by" in line] for line in lines[at + 1:] if line.strip()}


def turned_queues(line):
    return [{"reboot": "reboots", "repair": "repairs"}[q] for q in re.findall(r"the (reboot|repair) queue", line.split(";")[0])]


def parse_result(kind, out, err):
    """What a successful command printed, in the form that the checker compares."""
    if kind in ("rq add", "repair-queue add"):
        return {"indexes": numbers(after("added:", err)), "batch": after("batch:", err)}
    if kind in ("rq cancel-all", "rq cancel --batch"):
        line = after("cancelled:", err) or ""
        return {"indexes": [] if line.startswith("nothing") else numbers(line)}
    if kind in ("repair-queue delete-finished", "repair-queue delete-unfinished"):
        return {"indexes": numbers(out)}
    if kind == "rq reset-backoff":
        return {"indexes": numbers(after("backoff ended:", err))}
    if kind == "rq list":
        return {e["index"]: linear_checker.reboot_row(e) for e in json.loads(out)}
    if kind == "rq list table":
        return parse_table(out)
    if kind == "repair-queue list":
        return {e["index"]: linear_checker.repair_row(e) for e in json.loads(out)}
    if kind == "rq batches":
        return {b["id"]: linear_checker.batch_row(b) for b in json.loads(out)}
    if kind.endswith("is-enabled"):
        return {"true": True, "false": False}[out.strip()]
    if kind == "constraints show":
        return {n: json.loads(out).get(n, 0) for n in CONSTRAINTS}
    if kind == "policy show":
        return {n: json.loads(out)[n] for n in POLICIES}
    if kind == "stop":
        return {"turned": turned_queues(after("disabled:", err) or "")}
    if kind == "resume":
        return {"turned": "nothing" if "nothing to resume" in err else turned_queues(after("enabled:", err) or "")}
    return None


def classify(kind, code, out, err):
    """Outcome and result of a command."""
    if code == 0:
        return "ok", parse_result(kind, out, err)
    # the command was carried out, and only its confirmation failed
    if kind in ("rq cancel", "rq cancel-all", "rq cancel --batch", "repair-queue delete") and re.search(r"^(cancelled|deleted): \d", err, re.M) \
            or kind.startswith("repair-queue delete-") and out.strip():
        return "ok", parse_result(kind, out, err)
    if code is None or any(words in err for words in ("it may have succeeded", "entries were written, then:", "is marked as cancelled")):
        return "unknown", None
    if re.search(r"(reboots|repairs)/\d+ does not exist", err):
        return "failed", {"found": "absent"}
    if "is not on hold" in err:
        return "failed", {"found": "not held"}
    if status := re.search(r"\) is (queued|draining|rebooting|cancelled); \w+ works only", err):
        return "failed", {"found": status.group(1)}
    return "failed", None


class Clients:
    """Concurrent clients; records every operation."""

    def __init__(self, site, count, seed):
        self.site, self.env, self.seed, self.known = site, site.env, seed, Known()
        self.operations, self.lock, self.next = [], threading.Lock(), 0
        urls = self.env.members.urls
        self.configs = []
        for i in range(count):
            endpoints = urls if i % 2 == 0 else [urls[i // 2 % 3]]
            kubernetes = {"kubeconfig": self.env.facts["KUBECONFIG_BENCH"]} if i % 4 < 2 else {}
            # an impatient client sends its writes again and again, and has more unknown outcomes
            timeout = {"timeout": "500ms"} if i % 3 == 2 else {}
            self.configs.append(self.env.configure(f"client-{i}.yaml", etcd={"endpoints": endpoints, **timeout}, kubernetes=kubernetes))

    def run(self, total):
        """Runs this many operations."""
        with concurrent.futures.ThreadPoolExecutor(len(self.configs)) as pool:
            for client in [pool.submit(self._work, i, total) for i in range(len(self.configs))]:
                client.result()

    def _work(self, client, total):
        dice = random.Random(f"{self.seed}/{client}")
        while True:
            kind, arguments, words = self._choose(dice)
            with self.lock:
                number, self.next = self.next, self.next + 1
            if number >= total:
                return
            self.send(client, number, kind, arguments, words)

    def send(self, client, number, kind, arguments, words):
        op = Operation(number, kind, arguments, 0, linear_checker.NEVER, "unknown", client=client)
        if kind not in linear_checker.READS:
            words = [*words, "--reason", op.mark]
        op.start = time.monotonic()
        process = subprocess.Popen([program, "--config", self.configs[client], *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.env.process_env())
        try:
            out, err = process.communicate(timeout=PATIENCE)
            op.end = time.monotonic()
            op.outcome, op.result = classify(kind, process.returncode, out, err)
            op.text = f"exit {process.returncode}: {out if process.returncode else ''}{err}"
            if process.returncode == 0 and kind not in ("rq add",):
                op.text = ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            op.text = f"no answer within {PATIENCE} s"
        if op.outcome == "unknown":
            op.end = linear_checker.NEVER
        self.known.learn(op)
        with self.lock:
            self.operations.append(op)
        return op

    def _choose(self, dice):
        """A random command: kind, arguments, words."""
        kind = dice.choices(list(WEIGHTS), WEIGHTS.values())[0]
        known, site = self.known, self.site
        if kind == "rq add" and len(known.reboots) > MOST_ENTRIES:
            kind = "rq cancel"
        if kind == "repair-queue add" and len(known.repairs) > MOST_ENTRIES // 2:
            kind = "repair-queue delete"
        words, arguments = kind.replace("--batch", "").split(), {}
        if kind == "rq add":
            machines = site.machines if dice.random() < 0.1 else site.workers
            arguments["nodes"] = [m["address"] for m in dice.sample(machines, dice.choice((1, 1, 2, 3)))]
            words += arguments["nodes"]
        elif kind == "repair-queue add":
            arguments["nodes"] = [dice.choice(site.broken)]
            words += ["reset", "box", *arguments["nodes"]]
        elif kind in ("rq cancel", "rq hold", "rq unhold", "repair-queue delete"):
            queue = "repairs" if kind.startswith("repair-queue") else "reboots"
            index = known.index(queue, dice)
            if kind == "rq unhold" and known.held and dice.random() < 0.9:
                index = dice.choice(list(known.held))
            arguments["index"] = index
            words.append(str(index))
        elif kind == "rq reset-backoff":
            arguments["index"] = known.index("reboots", dice) if dice.random() < 0.5 else None
            words += [] if arguments["index"] is None else [str(arguments["index"])]
        elif kind in ("rq cancel --batch", "rq pause", "rq resume"):
            batches = list(known.batches)
            if not batches:
                return "rq list", {}, ["rq", "list", "-o", "json"]
            arguments["batch"] = dice.choice(batches)
            words += ["--batch", arguments["batch"]] if kind == "rq cancel --batch" else [arguments["batch"]]
        elif kind in ("constraints set", "policy set"):
            arguments["name"], arguments["value"] = dice.choice(CONSTRAINTS if kind == "constraints set" else POLICIES), dice.randint(1001, 10**6)
            words += [arguments["name"], str(arguments["value"])]
        elif kind == "rq list table":
            words = ["rq", "list", "-o", "table"]
        elif kind in ("rq list", "repair-queue list", "rq batches", "constraints show", "policy show"):
            words += ["-o", "json"]
        return kind, arguments, words


class Monitor(threading.Thread):
    """Reads the present revision from one member, again and again, through etcd's JSON gateway: linearizable reads without cketerm."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.samples, self.over = url, [], False
        self.start()

    def run(self):
        while not self.over:
            start = time.monotonic()
            try:
                request = urllib.request.Request(self.url + "/v3/kv/range", data=b'{"key": "L25vbmU="}')
                revision = int(json.load(urllib.request.urlopen(request, timeout=2))["header"]["revision"])
                self.samples.append(Sample(start, time.monotonic(), revision))
            except (OSError, ValueError, KeyError):
                time.sleep(0.2)
            time.sleep(0.06)


class Faults(threading.Thread):
    """Kills, stops and cuts off members and engines by a seeded schedule until it is stopped; counts what it did. At most one member is
    affected at a time, except in `quorum lost`."""

    KINDS = {"member killed": 3, "member stopped": 3, "member cut off, silently": 3, "member cut off": 2, "member stutters": 2, "quorum lost": 1, "engine killed": 2,
             "engine stopped": 1}

    def __init__(self, env, seed):
        super().__init__(daemon=True)
        self.env, self.dice, self.counts, self.log, self.over, self.failure = env, random.Random(f"{seed}/faults"), collections.Counter(), [], False, None

    def run(self):
        try:
            while not self.over:
                self._sleep(self.dice.uniform(1.5, 5))
                if not self.over:
                    kind = self.dice.choices(list(self.KINDS), self.KINDS.values())[0]
                    self._cause(kind)
        except Exception as e:
            self.failure = f"{type(e).__name__}: {e}"

    def _sleep(self, seconds):
        until = time.monotonic() + seconds
        while not self.over and time.monotonic() < until:
            time.sleep(0.1)

    def _member(self):
        """A random member; half of the time the leading one."""
        leading = self.env.members.leading() if self.dice.random() < 0.5 else None
        other = self.dice.randrange(3)
        return (leading, True) if leading is not None else (other, self.env.members.leading() == other)

    def _cause(self, kind):
        members, seconds = self.env.members, self.dice.uniform(3, 8)
        began = time.monotonic()
        if kind.startswith("engine"):
            self._engine(kind, seconds)
            self.counts[kind] += 1
            self.log.append([began, time.monotonic(), kind])
            return
        i, leads = self._member()
        name = kind + (" (leader of etcd)" if leads else "")
        if kind == "member killed":
            members.kill(i)
            self._sleep(seconds)
            members.start(i)
        elif kind == "member stopped":
            members.signal(i, signal.SIGSTOP)
            self._sleep(seconds)
            members.signal(i, signal.SIGCONT)
        elif kind.startswith("member cut off"):
            members.partition(i, "silent" if kind.endswith("silently") else "cut")
            self._sleep(seconds)
            members.partition(i, None)
        elif kind == "member stutters":
            until = time.monotonic() + seconds
            while time.monotonic() < until and not self.over:
                members.signal(i, signal.SIGSTOP)
                time.sleep(self.dice.uniform(0.1, 0.9))
                members.signal(i, signal.SIGCONT)
                time.sleep(self.dice.uniform(0.02, 0.2))
        elif kind == "quorum lost":
            name = kind
            two = self.dice.sample(range(3), 2)
            for j in two:
                members.signal(j, signal.SIGSTOP)
            self._sleep(seconds / 2)
            for j in two:
                members.signal(j, signal.SIGCONT)
        self.env.wait("all members answer", members.all_answer, 60)
        self.counts[name] += 1
        self.log.append([began, time.monotonic(), f"{name}: m{i}"])

    def _engine(self, kind, seconds):
        alive = [d for d in self.env.daemons if d.process.poll() is None]
        leading = next((d for d in alive if d.pid == self.env.record.leader()), alive[0])
        if kind == "engine killed":
            leading.stop(signal.SIGKILL)
            self._sleep(1)
            self.env.daemon(program, f"engine-{len(self.env.daemons)}")
        else:
            leading.process.send_signal(signal.SIGSTOP)
            self._sleep(max(seconds, TTL + 2))
            leading.process.send_signal(signal.SIGCONT)

    def heal(self):
        """Ends the faults."""
        self.over = True
        self.join(120)
        for i in range(3):
            self.env.members.partition(i, None)
            self.env.members.signal(i, signal.SIGCONT)
        self.env.wait("all members answer", self.env.members.all_answer, 60)


def fetch_history(env, marker):
    """All changes as each member's own watch from revision 1 shows them, up to the marker; the members must agree."""
    histories = []
    for url in env.members.urls:
        record = Record(url)
        env.wait(f"the whole history of {url}", lambda: record.value(marker) is not None, 120)
        record.watch.kill()
        changes = [(c.revision, c.key.removeprefix("/cke/"), c.value) for c in record.all()]
        # engines go on writing after the marker
        end = next(revision for revision, key, _ in changes if key == marker)
        histories.append([c for c in changes if c[0] <= end])
    return histories[0], [f"the histories of m0 and m{i} differ" for i in (1, 2) if histories[i] != histories[0]]


def initial_states(history):
    """States of the objects at the first operation."""
    def value(name):
        revisions, values = history.series(name)
        return values[max(i for i, r in enumerate(revisions) if r <= history.since)]
    return {"next": {"reboots": 0, "repairs": 0}, "enabled": {q: value(f"{q} enabled") for q in linear_checker.QUEUES}, "constraints": value("constraints"),
            "policy": value("policy")}


def drain_queues(clients, env):
    """Lets operators empty both queues, as operations of the history. Returns the entries that are left."""
    for kind in ("rq enable", "repair-queue enable", "rq cancel-all", "repair-queue delete-unfinished", "repair-queue delete-finished"):
        for _ in range(5):
            number, clients.next = clients.next, clients.next + 1
            if clients.send(0, number, kind, {}, kind.split()).outcome == "ok":
                break
    def left():
        return sorted(k for queue in linear_checker.QUEUES for k, v in env.record.values_below(f"{queue}/data/").items())
    if env.happens_within(lambda: not left(), 60):
        return []
    # a repair may have finished in between
    number, clients.next = clients.next, clients.next + 1
    clients.send(0, number, "repair-queue delete-finished", {}, ["repair-queue", "delete-finished"])
    return [] if env.happens_within(lambda: not left(), 60) else left()


def arguments_of(recorded):
    """What the checker needs of a recorded history."""
    operations = [Operation(**{**o, "end": linear_checker.NEVER if o["end"] is None else o["end"]}) for o in recorded["operations"]]
    changes = [tuple(c) for c in recorded["changes"]]
    samples = [Sample(*s) for s in recorded["samples"]]
    history = linear_checker.History(changes, recorded["since"])
    return operations, changes, samples, recorded["since"], initial_states(history)


def inject(given, name):
    """Injects errors; returns what found each, or that the history has no place for it, and the names of those that were missed."""
    results, missed = {}, []
    for one in BREAKS if name == "all" else [name]:
        found, violations = check_broken(one, *given)
        results[one] = "no place for it" if found is None else ", ".join(found) or "MISSED"
        missed += [one] if found == [] else []
        if name != "all":
            print("\n".join(violations[:10]), file=sys.stderr)
    return results, missed


def outcomes(operations):
    """Operations by command: acknowledged, refused or failed, unknown."""
    table = collections.defaultdict(collections.Counter)
    for op in operations:
        table[op.kind][op.outcome] += 1
    return {kind: [table[kind][o] for o in ("ok", "failed", "unknown")] for kind in sorted(table)}


def table_of(figure):
    lines = ["| command | acknowledged | refused or failed | unknown |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| `{kind}` | {' | '.join(map(str, row))} |" for kind, row in figure["by command"].items()]
    totals = [sum(row[i] for row in figure["by command"].values()) for i in range(3)]
    lines += [f"| all {sum(totals)} | {' | '.join(map(str, totals))} |", "", "| fault | times |", "| --- | ---: |"]
    lines += [f"| {name} | {count} |" for name, count in sorted(figure["faults"].items())]
    counts, width = figure["counts"], figure["counts"]["revisions that a read could have by time"]
    lines += ["", "| figure | |", "| --- | ---: |", f"| seed; clients | {figure['seed']}; {figure['clients']} |", f"| time of the run; of the check | {figure['seconds']} s; {figure['check seconds']} s |",
              f"| revisions of etcd; leading engines | {figure['revisions']}; {figure['leaders']} |", f"| power commands | {figure['power commands']} |",
              f"| writes found in etcd's history | {counts['writes in the history of etcd']} |", f"| reported states checked | {counts['reads and other reported states']} |",
              f"| revisions that such a state could have by time: median; largest | {width['median']}; {width['largest']} |",
              f"| objects searched; steps on them; undecided | {counts['objects']}; {counts['steps on objects']}; {len(counts['undecided objects'])} |",
              f"| violations | {figure['violations']} |",
              f"| injected errors found | {sum(v not in ('MISSED', 'no place for it') for v in figure['injected'].values())} of {len(figure['injected'])} |"]
    return "\n".join(lines)


def write_table(path, figure, version):
    text = open(path).read()
    begin, end = "<!-- linearizability -->\n", "<!-- /linearizability -->"
    head, rest = text.split(begin)
    day = time.strftime("%Y-%m-%d")
    with open(path, "w") as f:
        f.write(f"{head}{begin}{table_of(figure)}\n\nMeasured {day} on {os.cpu_count()} cores with {version}.\n{end}{rest.split(end)[1]}")


def report(figure, violations):
    figure["violations"] = len(violations)
    print_figure(**figure, **({"first violations": violations[:40]} if violations else {}))


if args.check:
    with open(args.check) as f:
        recorded = json.load(f)
    given = arguments_of(recorded)
    if args.broken:
        results, missed = inject(given, args.broken)
        print_figure(injected=results)
        sys.exit(1 if missed else 0)
    began = time.monotonic()
    found = check(*given)
    report({"by command": outcomes(given[0]), "counts": found["counts"], "check seconds": round(time.monotonic() - began, 1)}, violations_of(found))
    sys.exit(1 if violations_of(found) else 0)

servers = os.environ.get("CKETERM_SERVERS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cketerm-servers/bin")
os.environ["PATH"] = f"{servers}:{os.environ['PATH']}"
env = Environment("linearizability")
failed = True
try:
    use_members(env, proxied=True)
    site = Site(env)
    site.begin()
    env.daemon(program, "engine-0"), env.daemon(program, "engine-1")
    env.wait("an engine leads", lambda: env.record.leader(), 60)
    since = env.record.revision()
    monitors = [Monitor(url) for url in env.members.urls]
    clients, faults = Clients(site, args.clients, args.seed), Faults(env, args.seed)
    began = time.monotonic()
    faults.start()
    clients.run(args.operations)
    seconds = time.monotonic() - began
    faults.heal()
    problems = [f"the faults ended early: {faults.failure}"] if faults.failure else []
    left = drain_queues(clients, env)
    problems += [f"entries that do not end: {left}"] if left else []
    for monitor in monitors:
        monitor.over = True
    env.put("linear-end", "1")
    changes, differences = fetch_history(env, "linear-end")
    operations = sorted(clients.operations, key=lambda op: op.number)
    attempts = collections.Counter((p.entry, p.attempt) for p in env.power_events() if p.what == "begin")
    problems += differences + panics(env)
    problems += [f"the command of {entry}, attempt {attempt}, ran {n} times" for (entry, attempt), n in attempts.items() if n > 1]
    recorded = {"seed": args.seed, "since": since, "operations": [{**dataclasses.asdict(o), "end": None if o.end == linear_checker.NEVER else o.end} for o in operations],
                "changes": changes, "samples": [dataclasses.astuple(s) for m in monitors for s in m.samples], "faults": faults.log}
    if args.history:
        with open(args.history, "w") as f:
            json.dump(recorded, f)
    began = time.monotonic()
    given = arguments_of(recorded)
    found = check(*given)
    violations = problems + violations_of(found)
    check_seconds = time.monotonic() - began
    results, missed = inject(given, "all") if not violations else ({}, [])
    violations += [f"the injected error {name} was not found" for name in missed]
    failed = bool(violations)
    figure = {"operations": len(operations), "seed": args.seed, "clients": args.clients, "seconds": round(seconds), "check seconds": round(check_seconds, 1),
              "revisions": changes[-1][0], "leaders": len({l[1] for l in env.record.leaders() if l[1]}), "power commands": sum(attempts.values()),
              "faults": dict(faults.counts), "by command": outcomes(operations), "counts": found["counts"], "injected": results}
    report(figure, violations)
    if args.write:
        write_table(args.write, figure, env.run_command(program, "--version").strip())
    if failed and not args.history:
        with open(f"{env.folder}/history.json", "w") as f:
            json.dump(recorded, f)
finally:
    if hasattr(env, "members"):
        env.members.stop()
    env.stop(keep=args.keep or failed)
sys.exit(1 if failed else 0)
