#!/usr/bin/env python3
"""Drains by cketerm and by kubectl, side by side in one run on real servers; `rq add` of 2,000 addresses; the run time of a
command, and the time of an engine from a new entry to the cordon. It is a gate: the exit status is 1 if a target is missed. Targets of times
are multiplied by the slowness of the machine while the figure was measured (machine_speed.py), and so is that of the ratio to kubectl, which
waits a second between its looks on every machine.

usage: tests/figures/drain.py [PROGRAM] [--nodes 20] [--pods 10] [--write docs/performance.md]   (PROGRAM: default target/shipped/cketerm)

Starts etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers), makes the nodes with their pods, and prints
one JSON line per figure; --write puts a table of them between the marks `drain` of that file. cketerm's drains are timed from
`draining` to `rebooting`, as etcd's watch shows them. Requests of each program are counted in the API server's audit log (user and user
agent). cketerm's are those from the first cordon on; its Events, uncordons, and the watches of all Nodes, namespaces, DaemonSets and budgets
(opened again to prove that they live) are counted apart.
"""
import argparse, base64, collections, concurrent.futures, http.client, json, os, queue, re, shutil, ssl, statistics, subprocess, sys, tempfile, textwrap, threading, time, urllib.request

from figure_table import marked
from machine_speed import described_machine, loop_seconds, slowness

HERE = os.path.dirname(os.path.abspath(__file__))
SERVERS = os.path.join(os.path.dirname(HERE), "servers")
parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--nodes", type=int, default=20)
parser.add_argument("--pods", type=int, default=10)
parser.add_argument("--write", metavar="FILE")
args = parser.parse_args()
program = os.path.abspath(args.program)
folder = tempfile.mkdtemp(prefix="cketerm-figures-")
bin_folder = os.environ.get("CKETERM_SERVERS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cketerm-servers/bin")


def start_servers():
    out = subprocess.run([f"{SERVERS}/up", "--kcm", "--kwok", "--audit", folder], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return dict(l.split("=", 1) for l in out.stdout.splitlines() if "=" in l)


def split(path):
    page, begin, end = open(path).read(), "<!-- drain: begin -->\n", "<!-- drain: end -->"
    if begin not in page or end not in page:
        sys.exit(f"{path} has no marks {begin.strip()} … {end}")
    return page.split(begin)[0] + begin, end + page.split(end)[1]


if args.write:
    split(args.write)  # fails before anything is started
facts = start_servers()
kubeconfig, bench = facts["KUBECONFIG"], facts["KUBECONFIG_BENCH"]
text = open(kubeconfig).read()
server = re.search(r'server: "?([^"\s}]+)', text).group(1)
token = re.search(r'token: "?([^"\s}]+)', text).group(1)
tls = ssl._create_unverified_context()


def api(method, path, body=None, kind="application/json"):
    request = urllib.request.Request(server + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Authorization": "Bearer " + token, "Content-Type": kind})
    try:
        return json.load(urllib.request.urlopen(request, context=tls))
    except urllib.error.HTTPError as e:
        if e.code in (404, 409):
            return None
        raise SystemExit(f"{method} {path}: {e.code} {e.read()[:300]}")


def wait(what, seconds=60, step=0.1):
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > seconds:
            entries = [json.loads(e) if isinstance(e, str) else e for e in json.loads(run_command("rq", "list") or "[]")]
            why = run_command("rq", "why", entries[0]["index"]) if entries else "the queue is empty"
            sys.exit(f"timed out: {why}")
        time.sleep(step)


NAMES = [f"drain-{i:02}" for i in range(args.nodes)]
ADDRESS = {n: f"10.1.0.{i + 1}" for i, n in enumerate(NAMES)}


def node(name, address):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}], "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"},
                       "capacity": {"cpu": "32", "memory": "256Gi", "pods": "110"}, "nodeInfo": {k: "" for k in (
                           "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
                           "operatingSystem", "osImage", "systemUUID", "architecture")}}}


def pod(name, on):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "work", "labels": {"app": "work"}},
            "spec": {"nodeName": on, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "c", "image": "registry.local/pause:1"}]}}


def prepare(pods=True):
    for n in NAMES:
        api("PATCH", f"/api/v1/nodes/{n}", {"spec": {"unschedulable": None}}, "application/merge-patch+json")
        for p in range(args.pods if pods else 0):
            api("POST", "/api/v1/namespaces/work/pods", pod(f"{n}-p{p}", n))
    running = lambda: sum(p["status"].get("phase") == "Running" for p in api("GET", "/api/v1/namespaces/work/pods")["items"])
    wait(lambda: not pods or running() == args.nodes * args.pods)


def audit(start, program, first=""):
    """Counts requests of this program since an offset of the log, by verb and resource, from the first of that kind on. User and user
    agent identify the program."""
    by = collections.Counter()
    with open(f"{folder}/audit.log", "rb") as f:
        f.seek(start)
        for line in f:
            event = json.loads(line)
            ref = event.get("objectRef", {})
            if event["user"]["username"] != "bench" or not ref or not event.get("userAgent", "").startswith(program):
                continue
            what = "/".join(filter(None, (ref.get("resource"), ref.get("subresource"))))
            request = f"{event['verb']} {what}"
            if by or request.startswith(first):
                by[request] += 1
    return by


figures = {}
loops = []  # seconds of the loop that shows the machine's speed, before and after each figure


def print_figure(**figure):
    figures[figure["figure"]] = figure
    print(json.dumps(figure), flush=True)


def table():
    """Table of the figures (cketerm, the program compared with it, their ratio, the target), and one line for each target that is missed."""
    def figure(prefix):
        return next(f for name, f in figures.items() if name.startswith(prefix))

    peer, one, ten, add = figure("kubectl drain"), figure("cketerm, one"), figure("cketerm, ten"), figure("rq add")
    command, cordon = figure("a command"), figure("entry written")
    rows, missed = [], []

    def row(what, ours, theirs, ratio, value=None, target=None, unit="", factor=1, name=""):
        """Adds a row. Its ratio is marked if it is the value that misses the target, else what cketerm took. `name`: what a miss is called, if
        the row has no heading of its own."""
        is_over = value is not None and value > target * factor
        if is_over:
            missed.append(f"{what or name}: {value} {unit}".rstrip() + f", allowed at the reference speed: {target} {unit}".rstrip())
        verdict = "over" if is_over else ""
        cells = (ours, theirs, marked(ratio, verdict)) if value == ratio else (marked(ours, verdict), theirs, ratio)
        allowed = " ".join(str(word) for word in (f"≤ {target}", unit, f"× {factor}" if factor > 1 else "") if word)
        rows.append((what, *cells, "" if target is None else allowed))

    drains = f"{peer['nodes']} drains of {peer['pods']} pods, one after another"
    row(drains, f"{one['drains_s']} s (longest {one['longest_s']} s)", f"evictions alone {one['least_s']} s", one["ratio_of_least"])
    # kubectl waits a second between its looks, whatever the machine's speed: this ratio grows with the slowness
    row("", "", f"kubectl {peer['wall_s']} s", one["ratio_of_kubectl"], one["ratio_of_kubectl"], one["target"], factor=one["slowness"],
        name=f"{drains}, in relation to kubectl")
    row(f"… ten at a time, first to last, median of {len(ten['first_to_last_s'])}", f"{statistics.median(ten['first_to_last_s'])} s (longest drain {ten['longest_s']} s)",
        f"evictions alone {statistics.median(ten['least_s'])} s", ten["ratio_of_least"], ten["ratio_of_least"], ten["target"])
    row("", "", f"kubectl {peer['wall_s']} s", ten["ratio_of_kubectl"])
    row("… requests per node, one after another, without Events", one["requests_per_node"], f"kubectl {peer['requests_per_node']}",
        round(one["requests_per_node"] / peer["requests_per_node"], 2), one["requests_per_node"], one["requests_target"])
    row(f"entry in etcd to the cordon, median of {cordon['samples']}", f"{cordon['median_ms']} ms (p99 {cordon['p99_ms']}, longest {cordon['longest_ms']})", "", "",
        cordon["p99_ms"], cordon["target_p99_ms"], "ms (p99)", cordon["slowness"])
    row("a command (`rq is-enabled`), median of 100", f"{command['median_ms']} ms (longest {command['longest_ms']})", f"`/bin/true` {command['bin_true_ms']} ms",
        round(command["median_ms"] / command["bin_true_ms"], 1), command["median_ms"], command["target_ms"], "ms", command["slowness"])
    seconds = sorted(add["seconds"])
    row("`rq add` of 2,000 addresses, median of three", f"{seconds[1]} s ({seconds[0]}–{seconds[2]})", f"ckecli {add['ckecli_recorded']} s, as recorded",
        round(seconds[1] / add["ckecli_recorded"], 3), seconds[1], add["target"], "s", add["slowness"])
    head = "| measurement | cketerm | compared with | ratio | target |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head] + ["| " + " | ".join(map(str, row)) + " |" for row in rows]), missed


def finish():
    """Writes the table into the document, if one is named. Returns whether all targets were met."""
    text, missed = table()
    if args.write:
        heading = textwrap.fill(f"{time.strftime('%Y-%m-%d')}, {described_machine(loops)}, all in one run except figures marked as recorded.", 100)
        before, after = split(args.write)
        with open(args.write, "w") as f:
            f.write(f"{before}{heading}\n\n{text}\n{after}")
    print(text)
    for line in missed:
        print(f"MISSED: {line}", file=sys.stderr)
    return not missed


class Speed:
    """The machine's speed while a figure is measured: of a loop that runs at first, and of one that runs when the figure is there."""

    def __init__(self):
        self.before = self.loop()

    def loop(self):
        loops.append(loop_seconds())
        return loops[-1]

    def slowness(self):
        return round(slowness([self.before, self.loop()]), 2)


def run_command(*arguments, stdin=None):
    out = subprocess.run([program, "--config", f"{folder}/config.yaml", *arguments], input=stdin, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"cketerm {' '.join(arguments)}: exit {out.returncode}\n{out.stderr}")
    return out.stdout


def definition(concurrent):
    nodes = [{"address": "10.1.9.1", "hostname": "cp", "user": "root", "control_plane": True}]
    nodes += [{"address": ADDRESS[n], "hostname": n, "user": "root"} for n in NAMES]
    nodes += [{"address": f"10.2.{i // 250}.{i % 250 + 1}", "user": "root"} for i in range(2000)] if concurrent is None else []
    reboot = {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/sh", "-c", "echo true"], "max_concurrent_reboots": concurrent or 1}
    with open(f"{folder}/cluster.json", "w") as f:
        json.dump({"name": "figures", "nodes": nodes, "service_subnet": "10.0.0.0/16", "reboot": reboot}, f)
    run_command("cluster", "set", f"{folder}/cluster.json")


class Transitions(threading.Thread):
    """Time of each status of each entry, as etcd's watch shows it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.times, env = {}, dict(os.environ, ETCDCTL_API="3")
        self.watch = subprocess.Popen(["etcdctl", "--endpoints", facts["ETCD"], "watch", "--prefix", "/cke/reboots/data/", "-w", "json"],
                                      stdout=subprocess.PIPE, env=env)

    def run(self):
        for line in self.watch.stdout:
            at = time.monotonic()
            for event in json.loads(line).get("Events", []):
                if "value" in event["kv"]:
                    entry = json.loads(base64.b64decode(event["kv"]["value"]))
                    self.times.setdefault(entry["node"], {}).setdefault(entry["status"], at)


class Cordons(threading.Thread):
    """Time of each Node's last cordon, as the API server's watch shows it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.times = {}
        request = urllib.request.Request(f"{server}/api/v1/nodes?watch=1&timeoutSeconds=300", headers={"Authorization": "Bearer " + token})
        self.watch = urllib.request.urlopen(request, context=tls)

    def run(self):
        for line in self.watch:
            at, event = time.monotonic(), json.loads(line)
            if event["object"].get("spec", {}).get("unschedulable"):
                self.times.setdefault(event["object"]["metadata"]["name"], at)


def reaction_times(rounds):
    """Times in ms from an entry in etcd to the cordon in the API server, both as their watches show them."""
    seen = []
    for _ in range(rounds):
        prepare(pods=False)
        transitions, cordons = Transitions(), Cordons()
        transitions.start(), cordons.start()
        time.sleep(1)
        for n in NAMES:
            run_command("rq", "add", "-", stdin=ADDRESS[n])
            wait(lambda: n in cordons.times)
            time.sleep(0.05)
        wait(lambda: run_command("rq", "list").strip() == "[]")
        transitions.watch.kill()
        seen += [(cordons.times[n] - transitions.times[ADDRESS[n]]["queued"]) * 1000 for n in NAMES]
    return sorted(seen)


def startup_times(argv, times=100):
    """Median and longest run time of a command, in ms."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        took.append((time.monotonic() - began) * 1000)
    return round(sorted(took)[times // 2], 1), round(max(took), 1)


def drain_with_cketerm(concurrent):
    prepare()
    definition(concurrent)
    transitions = Transitions()
    transitions.start()
    time.sleep(1)
    start = os.path.getsize(f"{folder}/audit.log")
    run_command("rq", "add", "-", stdin=" ".join(ADDRESS.values()))
    wait(lambda: run_command("rq", "list").strip() == "[]")
    time.sleep(1)
    transitions.watch.kill()
    times = transitions.times.values()
    each = [t["rebooting"] - t["draining"] for t in times]
    wall = max(t["rebooting"] for t in times) - min(t["draining"] for t in times)
    by = audit(start, "cketerm", first="patch nodes")
    by["patch nodes"] -= args.nodes
    by["patch nodes (uncordons)"] = args.nodes
    return sum(each), max(each), wall, by


def evict_without_a_program(at_once):
    """Time in which the API server evicts the same pods, some nodes at a time, when nothing is decided: the least that any program needs."""
    prepare()
    host, path = server.removeprefix("https://"), "/api/v1/namespaces/work/pods"
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    connections = queue.SimpleQueue()
    for _ in range(16):
        connections.put(http.client.HTTPSConnection(host, context=tls))

    def evict(name):
        connection = connections.get()
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "work"}}
        connection.request("POST", f"{path}/{name}/eviction", json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        connections.put(connection)
        if answer.status != 201:
            raise SystemExit(f"eviction of {name}: {answer.status}")

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for first in range(0, args.nodes, at_once):
            list(pool.map(evict, [f"{n}-p{p}" for n in NAMES[first:first + at_once] for p in range(args.pods)]))
            # each look costs the API server time: only the pods of one node are read
            for n in NAMES[first:first + at_once]:
                wait(lambda: not api("GET", f"{path}?fieldSelector=spec.nodeName%3D{n}")["items"], step=0.02)
    return time.monotonic() - began


def drain_with_kubectl():
    prepare()
    start, began = os.path.getsize(f"{folder}/audit.log"), time.monotonic()
    for n in NAMES:
        subprocess.run([f"{bin_folder}/kubectl", "--kubeconfig", bench, "drain", n, "--force", "--ignore-daemonsets"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - began
    time.sleep(1)
    return wall, audit(start, "kubectl")


daemon = None
try:
    api("POST", "/api/v1/namespaces", {"metadata": {"name": "work"}})
    api("POST", "/api/v1/nodes", node("cp", "10.1.9.1"))
    for n in NAMES:
        api("POST", "/api/v1/nodes", node(n, ADDRESS[n]))
    with open(f"{folder}/config.yaml", "w") as f:
        json.dump({"etcd": {"endpoints": [facts["ETCD"]]}, "kubernetes": {"kubeconfig": bench}}, f)
    definition(1)
    run_command("policy", "set", "control_plane_probe", "node")
    run_command("policy", "set", "etcd_members", "none")
    run_command("cluster", "identify", "--confirm")
    log = open(f"{folder}/daemon.log", "w")
    daemon = subprocess.Popen([program, "--config", f"{folder}/config.yaml", "--daemon", "--http", "127.0.0.1:0"], stderr=log)
    wait(lambda: subprocess.run([program, "--config", f"{folder}/config.yaml", "leader"], capture_output=True).returncode == 0)
    time.sleep(3)

    speed = Speed()
    (usual, longest), (nothing, _) = startup_times([program, "--config", f"{folder}/config.yaml", "rq", "is-enabled"]), startup_times(["/bin/true"])
    print_figure(figure="a command, from its start to its end", median_ms=usual, longest_ms=longest, bin_true_ms=nothing, target_ms=10, slowness=speed.slowness())
    definition(args.nodes)
    speed = Speed()
    times = reaction_times(5)
    print_figure(figure="entry written to node cordoned", samples=len(times), median_ms=round(times[len(times) // 2], 1), p99_ms=round(times[len(times) * 99 // 100], 1),
        longest_ms=round(times[-1], 1), target_p99_ms=50, slowness=speed.slowness())

    wall, by = drain_with_kubectl()
    print_figure(figure="kubectl drain, one after another", nodes=args.nodes, pods=args.pods, wall_s=round(wall, 2),
        requests_per_node=round(sum(by.values()) / args.nodes, 1))
    speed = Speed()
    total, longest, whole, by = drain_with_cketerm(1)
    slow = speed.slowness()
    least = evict_without_a_program(1)
    is_apart = lambda request: "events" in request or "uncordons" in request or request.startswith("watch") and request != "watch pods"
    apart = {request: n for request, n in by.most_common() if is_apart(request)}
    drains = {request: n for request, n in by.most_common() if not is_apart(request)}
    requests = sum(drains.values()) / args.nodes
    print_figure(figure="cketerm, one at a time", drains_s=round(total, 2), longest_s=round(longest, 2), first_to_last_s=round(whole, 2), least_s=round(least, 2),
        ratio_of_least=round(total / least, 2), ratio_of_kubectl=round(total / wall, 3), target=0.1, slowness=slow, requests_per_node=round(requests, 1),
        requests_target=14.5, by=drains, apart=apart)
    # in turn, because the machine's speed changes within minutes
    rounds = [(drain_with_cketerm(10), evict_without_a_program(10)) for _ in range(3)]
    wholes, leasts = [round(whole, 2) for (_, _, whole, _), _ in rounds], [round(least, 2) for _, least in rounds]
    print_figure(figure="cketerm, ten at a time", first_to_last_s=wholes, longest_s=round(max(longest for (_, longest, _, _), _ in rounds), 2), least_s=leasts,
        ratio_of_kubectl=round(statistics.median(wholes) / wall, 3), ratio_of_least=round(statistics.median(wholes) / statistics.median(leasts), 2), target=1.6)

    daemon.terminate()
    daemon.wait(timeout=20)
    definition(None)
    addresses = " ".join(f"10.2.{i // 250}.{i % 250 + 1}" for i in range(2000))
    speed, times = Speed(), []
    for _ in range(3):
        began = time.monotonic()
        run_command("rq", "add", "-", stdin=addresses)
        times.append(time.monotonic() - began)
    print_figure(figure="rq add of 2,000 addresses", seconds=[round(t, 3) for t in times], target=0.365, ckecli_recorded=7.3, slowness=speed.slowness())
    met = finish()
finally:
    if daemon and daemon.poll() is None:
        daemon.kill()
    subprocess.run([f"{SERVERS}/down", folder], stderr=subprocess.DEVNULL)
    if not sys.exc_info()[0]:
        shutil.rmtree(folder, ignore_errors=True)
sys.exit(0 if met else 1)
