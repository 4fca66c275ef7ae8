#!/usr/bin/env python3
"""Cost of an engine and of a console on clusters of growing size, on a real etcd and kube-apiserver, in one run. It is a gate: the exit status
is 1 if a figure of the largest cluster misses its budget, or if a cost grows faster than allowed.

usage: tests/figures/scale.py [PROGRAM] [--nodes 1000,5000,20000] [--pods 5] [--entries 10000] [--write docs/performance.md]

For each size, from the smallest, the script starts servers of its own (tests/servers), creates the Nodes and their pods, and starts a daemon. It measures

- the time until the daemon leads, its requests until then, and its memory;
- its CPU usage over 30 s without changes, and over 20 s while 50 and 500 Nodes per second change; the rate at which the API server's watches
  got the changes is a figure too;
- the time from an entry in etcd to the cordon in the API server, as the watches show both, 200 times, and beside it the time in which a cordon by
  the script itself appears in the same watch: what the API server alone needs;
- a console that observes: start to rows of Nodes, memory, key to the first byte;
- with the queue disabled: `rq add`, `rq list`, `rq reset-backoff` and `rq cancel-all` of all entries, a pass meanwhile, and the daemon's memory.

ROWS has the budgets, which hold for the largest size, and the largest growth exponents. (PROGRAM: default target/shipped/cketerm.)
"""
import argparse, base64, concurrent.futures, http.client, json, math, multiprocessing, os, random, re, shutil, ssl, statistics, subprocess, sys, tempfile, threading
import time, urllib.request

import figure_table
from console import ROWS as NODE_ROWS, WIDE, Cluster, address
from environment import free_port
from figure_table import Row
from terminal import Terminal, ms

IDLE, CHURN, REACTIONS, STARTS, KEYS = 30, 20, 200, 5, 40
RATES = (50, 500)
# Processes that change Nodes, and connections of each: one process of Python does not reach 500 changes per second on every machine.
PROCESSES, CONNECTIONS = 2, 2
# The definition is one value in etcd, as in CKE: some 130 bytes per node. By default etcd accepts 1.5 MiB.
MEMBERS = 10_100
# Nodes without pods, where drains are timed: no kubelet would remove these pods.
EMPTY = 100
OPERATIONS = 128  # of one transaction of etcd
FORK = multiprocessing.get_context("fork")

ROWS = [
    Row("pods", "", "pods"),
    Row("start until it leads", "s", "leads_s", most=1, growth=0.5, floor=0.5),
    Row("… requests to Kubernetes", "", "requests", growth=0.1, floor=20),
    Row("resident memory", "MiB", "rss_mib", most=80, growth=0.45, floor=10),
    Row("idle: CPU", "%", "idle_pct", growth=0.3, floor=0.2),
    Row("50 changes of nodes per second: CPU", "%", "changes_50_pct", growth=0.25, floor=1),
    Row("500 changes of nodes per second: CPU", "%", "changes_500_pct", most=10, growth=0.25, floor=3),
    Row("… rate that was reached, per second", "", "changes_500_reached", least=475),
    Row(f"entry in etcd to the cordon, median of {REACTIONS}", "ms", "cordon_ms", growth=0.3, floor=20),
    Row("… p99", "ms", "cordon_p99_ms", most=100, growth=0.4, floor=50),
    Row("… longest", "ms", "cordon_longest_ms"),
    Row("… of that, a cordon by the script alone, median", "ms", "alone_ms"),
    Row("… … p99", "ms", "alone_p99_ms"),
    Row("console: start to rows of nodes", "ms", "console_rows_ms", most=200, growth=0.5, floor=50),
    Row("… resident memory", "MiB", "console_mib", most=100, growth=0.45, floor=10),
    Row("… key to the first byte, median", "ms", "console_key_ms", most=2, growth=0.3, floor=1),
    Row("entries put into the disabled queue", "", "entries"),
    Row("… `rq add` of all", "s", "add_s"),
    Row("… of that, the API server's list of the Nodes, as the script reads it", "s", "nodes_s"),
    Row("… the rest", "s", "add_alone_s", most=1.2, growth=1.2, floor=0.1, by="entries"),
    Row("… `rq list`", "s", "list_s", most=0.4, growth=1.2, floor=0.05, by="entries"),
    Row("… a pass meanwhile, mean", "ms", "pass_ms", most=10, growth=1.2, floor=0.5, by="entries"),
    Row("… resident memory", "MiB", "rss_queue_mib", most=110, growth=0.7, floor=20, by="entries"),
    Row("… `rq reset-backoff` of all", "s", "reset_s", most=1.2, growth=1.2, floor=0.1, by="entries"),
    # meanwhile the engine removes the cancelled entries, some in each pass, and a pass looks at all that are left
    Row("… `rq cancel-all`", "s", "cancel_s", most=5, growth=1.5, floor=0.1, by="entries"),
    Row("… from its start until the queue is empty", "s", "empty_s", most=12, growth=1.2, floor=1, by="entries"),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--nodes", default="1000,5000,20000")
    parser.add_argument("--pods", type=int, default=5, help="on each node")
    parser.add_argument("--entries", type=int, default=10000)
    parser.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    if min(int(nodes) for nodes in args.nodes.split(",")) <= 2 * EMPTY:
        parser.error(f"--nodes: more than {2 * EMPTY} in each size")
    return args


class Daemon:
    def __init__(self, program, config, folder):
        self.port, self.log = free_port(), open(f"{folder}/daemon.log", "w")
        self.began = time.monotonic()
        self.process = subprocess.Popen([program, "--config", config, "--daemon", "--http", f"127.0.0.1:{self.port}"], stderr=self.log)

    def get(self, name):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{name}", timeout=5).read().decode()
        except OSError:
            return ""

    def wait_for(self, what, seconds=300):
        while not what():
            if time.monotonic() - self.began > seconds or self.process.poll() is not None:
                sys.exit(f"the daemon is not ready in time: {self.get('readyz')}")
            time.sleep(0.02)
        return time.monotonic() - self.began

    def is_leading(self):
        return re.search(r"^cke_leader 1", self.get("metrics"), re.M) is not None

    def memory(self, line="VmRSS"):
        """Resident memory in MiB; `VmHWM`: the most so far."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(rf"{line}:\s+(\d+)", status).group(1)) / 1024

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def cpu_usage(self, seconds):
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return 100 * (self.cpu_seconds() - before) / (time.monotonic() - began)

    def passes(self):
        """Number of passes, and their total time in seconds."""
        page = self.get("metrics")
        read = lambda name: float(re.search(rf"^cketerm_pass_seconds_{name} (\S+)", page, re.M).group(1))
        return read("count"), read("sum")

    def stop(self):
        self.process.terminate()
        self.process.wait(100)


def cpu_seconds(pid):
    """CPU time of a process without its children."""
    return sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


class Etcd:
    """An etcd server, through its JSON gateway."""

    def __init__(self, url):
        self.url, self.connection = url, http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)

    def call(self, path, body):
        self.connection.request("POST", f"/v3/{path}", json.dumps(body))
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"etcd, {path}: {answer.status} {text[:300]}")
        return json.loads(text)

    @staticmethod
    def pair(key, value):
        return {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}

    def put(self, key, value):
        self.call("kv/put", self.pair(key, value))

    def put_many(self, pairs):
        """Writes keys and values (bytes) in one transaction."""
        self.call("kv/txn", {"success": [{"requestPut": self.pair(*pair)} for pair in pairs]})

    def range(self, prefix, **options):
        begin, end = prefix.encode(), prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1])
        return self.call("kv/range", {"key": base64.b64encode(begin).decode(), "range_end": base64.b64encode(end).decode(), **options})

    def read(self, prefix):
        """Keys, values (bytes) and create revisions below a prefix."""
        return [(base64.b64decode(kv["key"]), base64.b64decode(kv.get("value", "")), int(kv["create_revision"])) for kv in self.range(prefix).get("kvs", [])]

    def count(self, prefix):
        return int(self.range(prefix, count_only=True).get("count", 0))


def fill_pods(cluster, each):
    """Pods on every node but the first ones."""
    empty = number_of_empty(cluster.nodes)

    def make(i):
        cluster.request("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}", "labels": {"app": f"a{i % 97}"}},
            "spec": {"nodeName": f"node-{empty + i % (cluster.nodes - empty):05}", "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "c", "image": "registry.local/pause:1"}]}})

    # no controller manager runs here to create the default service account
    cluster.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(each * cluster.nodes)))


def number_of_empty(nodes):
    """Number of nodes without pods: the control plane, and those where drains are timed."""
    return 1 + min(EMPTY, nodes // 2)


def metric(cluster, name):
    """Sum of a metric of the API server over its labels."""
    connection = http.client.HTTPSConnection(cluster.host, context=ssl._create_unverified_context())
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + cluster.token})
    text = connection.getresponse().read().decode()
    return sum(float(l.rsplit(" ", 1)[1]) for l in text.splitlines() if l.startswith(name))


def count_requests(cluster):
    """Number of requests that the API server has answered."""
    return metric(cluster, "apiserver_request_total{")


def count_changes(cluster):
    """Number of changes of Nodes that have reached the API server's watches."""
    return metric(cluster, 'apiserver_watch_cache_events_received_total{group="",resource="nodes"}')


def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


class Changes:
    """Processes that change nodes at a rate, as a context. They write to Kubernetes' etcd, and the API server's watches show the changes as they show
    all others. As requests to the API server, 500 changes per second would take more than two processors before the engine saw any of them. Only the
    three letters of an annotation change, so that all lengths in the stored bytes stay right."""
    MARK = b"figures/made\x12\x03"

    def __init__(self, cluster, rate):
        self.url, self.over = cluster.facts["ETCD"], FORK.Event()
        nodes, lanes = Etcd(self.url).read("/registry/minions/"), PROCESSES * CONNECTIONS
        if len(nodes) != cluster.nodes or not all(self.MARK in value for _, value, _ in nodes):
            sys.exit("the nodes are not stored in Kubernetes' etcd as expected")
        parts = [[nodes[lane::lanes] for lane in range(first, lanes, PROCESSES)] for first in range(PROCESSES)]
        self.processes = [FORK.Process(target=self.run, args=(part, rate / lanes)) for part in parts]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for process in self.processes:
            process.join()

    def run(self, parts, rate):
        """One process, with a connection for each part of the nodes."""
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(lambda nodes: self.change(nodes, rate), parts))

    def change(self, nodes, rate):
        etcd, began, done = Etcd(self.url), time.monotonic(), 0
        while not self.over.is_set():
            key, value, _ = nodes[done % len(nodes)]
            before, after = value.split(self.MARK)
            etcd.put(key, b"".join((before, self.MARK, b"%03d" % random.randrange(1000), after[3:])))
            done += 1
            time.sleep(max(0, began + done / rate - time.monotonic()))


class EntryTimes(threading.Thread):
    """Time at which etcd's watch showed each machine's entry first."""

    def __init__(self, etcd):
        super().__init__(daemon=True)
        self.times = {}
        argv = ["etcdctl", "--endpoints", etcd, "watch", "--prefix", "/cke/reboots/data/", "-w", "json"]
        self.watch = subprocess.Popen(argv, stdout=subprocess.PIPE, env=dict(os.environ, ETCDCTL_API="3"))
        self.start()

    def run(self):
        for line in self.watch.stdout:
            at = time.monotonic()
            for event in json.loads(line).get("Events", []):
                if "value" in event["kv"]:
                    self.times.setdefault(json.loads(base64.b64decode(event["kv"]["value"]))["node"], at)


class CordonTimes(threading.Thread):
    """Time at which the API server's watch showed the cordon of each node first."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.times = {}
        now = cluster.request("GET", "/api/v1/nodes?limit=1")["metadata"]["resourceVersion"]
        path = f"/api/v1/nodes?watch=1&timeoutSeconds=600&resourceVersion={now}"
        request = urllib.request.Request(f"https://{cluster.host}{path}", headers={"Authorization": "Bearer " + cluster.token})
        self.watch = urllib.request.urlopen(request, context=ssl._create_unverified_context())
        self.start()

    def run(self):
        for line in self.watch:
            at, node = time.monotonic(), json.loads(line)["object"]
            if node.get("spec", {}).get("unschedulable"):
                self.times.setdefault(node["metadata"]["name"], at)


class Scene:
    """Servers of one size with nodes and pods, the definition, and the daemon once it is started."""

    def __init__(self, program, nodes, args):
        self.program, self.nodes, self.args, self.daemon = program, nodes, args, None
        self.members = min(nodes, MEMBERS)
        self.folder = tempfile.mkdtemp(prefix="cketerm-scale-")
        self.config = f"{self.folder}/config.yaml"
        self.cluster = Cluster(self.folder, nodes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.daemon:
            self.daemon.stop()
        self.cluster.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fill(self):
        self.cluster.fill()
        fill_pods(self.cluster, self.args.pods)
        with open(self.config, "w") as f:
            json.dump({"etcd": {"endpoints": [self.cluster.facts["ETCD"]]}, "kubernetes": {"kubeconfig": self.cluster.facts["KUBECONFIG"]}}, f)
        self.define(5)
        self.run("policy", "set", "control_plane_probe", "node")
        self.run("policy", "set", "etcd_members", "none")
        self.run("cluster", "identify", "--confirm")

    def run(self, *arguments, stdin=None):
        out = subprocess.run([self.program, "--config", self.config, *arguments], input=stdin, text=True, capture_output=True)
        if out.returncode:
            sys.exit(f"cketerm {' '.join(arguments)}: exit {out.returncode}\n{out.stderr[:2000]}")
        return out.stdout

    def define(self, concurrent_reboots):
        """Sets the definition. No kubelet runs: the boot check alone proves a boot, and the Node stays Ready."""
        nodes = [{"address": address(i), "hostname": f"node-{i:05}", "user": "root", "control_plane": i < 1} for i in range(self.members)]
        reboot = {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/sh", "-c", "echo true"], "max_concurrent_reboots": concurrent_reboots}
        with open(f"{self.folder}/cluster.json", "w") as f:
            json.dump({"name": "scale", "nodes": nodes, "service_subnet": "10.0.0.0/8", "reboot": reboot}, f)
        self.run("cluster", "set", f"{self.folder}/cluster.json")

    def wait(self, what, condition, seconds, step):
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                sys.exit(f"timed out after {seconds} s: {what}\n{self.run('rq', 'list', '-o', 'table')[:2000]}")
            time.sleep(step)
        return time.monotonic() - began

    def is_queue_empty(self):
        return self.run("rq", "list").strip() == "[]"


def measure_start(scene):
    before = count_requests(scene.cluster)
    scene.daemon = Daemon(scene.program, scene.config, scene.folder)
    leads = scene.daemon.wait_for(scene.daemon.is_leading)
    return {"leads_s": leads, "requests": count_requests(scene.cluster) - before}


def measure_idle(scene):
    time.sleep(10)
    return {"idle_pct": scene.daemon.cpu_usage(IDLE), "rss_mib": scene.daemon.memory()}


def measure_changes(scene, rate):
    with Changes(scene.cluster, rate):
        time.sleep(2)
        before, began = count_changes(scene.cluster), time.monotonic()
        usage = scene.daemon.cpu_usage(CHURN)
        reached = (count_changes(scene.cluster) - before) / (time.monotonic() - began)
    return {f"changes_{rate}_pct": usage, f"changes_{rate}_reached": reached}


def measure_reactions(scene):
    """Times from an entry in etcd to the cordon, one entry at a time. As many reboots as nodes may run, so that no entry waits for another."""
    empty, seen, alone = range(1, number_of_empty(scene.nodes)), [], []
    scene.define(len(empty))
    while len(seen) < REACTIONS:
        reactions, cordons = reactions_of(scene, empty[:REACTIONS - len(seen)])
        seen += reactions
        alone += cordons
    scene.define(5)
    seen.sort()
    alone.sort()
    p99 = lambda times: times[math.ceil(len(times) * 0.99) - 1]
    return {"cordon_ms": statistics.median(seen), "cordon_p99_ms": p99(seen), "cordon_longest_ms": seen[-1],
            "alone_ms": statistics.median(alone), "alone_p99_ms": p99(alone)}


def reactions_of(scene, nodes):
    """Milliseconds from each entry to its cordon, and of a cordon of another Node by this script."""
    entries, cordons = EntryTimes(scene.cluster.facts["ETCD"]), CordonTimes(scene.cluster)
    set_cordon = lambda name, value: scene.cluster.request(
        "PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}}, "application/merge-patch+json")
    began = {}
    time.sleep(1)
    for i in nodes:
        other = f"node-{i + len(nodes):05}"
        began[other] = time.monotonic()
        set_cordon(other, True)
        scene.wait(f"the cordon of {other}", lambda: other in cordons.times, 60, 0.01)
        scene.run("rq", "add", "-", stdin=address(i))
        scene.wait(f"the cordon of node-{i:05}", lambda: f"node-{i:05}" in cordons.times, 60, 0.01)
        time.sleep(0.05)
    for name in began:
        set_cordon(name, None)
    scene.wait("the end of the reboots", scene.is_queue_empty, 120, 0.2)
    cordoned = lambda: scene.cluster.request("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue")["items"]
    scene.wait("the uncordons", lambda: not cordoned(), 120, 0.2)
    entries.watch.kill()
    return ([(cordons.times[f"node-{i:05}"] - entries.times[address(i)]) * 1000 for i in nodes],
            [(cordons.times[name] - at) * 1000 for name, at in began.items()])


def measure_console(scene):
    home = f"{scene.folder}/home"
    os.makedirs(home, exist_ok=True)

    def start():
        terminal = Terminal([scene.program, "--config", scene.config, "--view", "nodes", "--observe"], WIDE, {"HOME": home})
        rows = terminal.shows(NODE_ROWS)
        if rows is None:
            sys.exit("the console shows no nodes within a minute")
        return terminal, rows

    times = []
    for _ in range(STARTS):
        terminal, rows = start()
        times.append(rows)
        terminal.quit("q")
    terminal, _ = start()
    terminal.pump(6)
    keys = terminal.keys("j", KEYS)
    memory = terminal.memory()
    terminal.quit("q")
    return {"console_rows_ms": ms(statistics.median(times)), "console_mib": memory, "console_key_ms": keys["median_ms"] or "no answer"}


def back_off(etcd):
    """Makes every entry one whose drain has backed off, as an engine writes it."""
    entries = []
    for key, value, _ in etcd.read("/cke/reboots/data/"):
        entry = json.loads(value) | {"drain_backoff_count": 1, "drain_backoff_expire": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86400))}
        entries.append((key, json.dumps(entry, separators=(",", ":")).encode()))
    for first in range(0, len(entries), OPERATIONS):
        etcd.put_many(entries[first:first + OPERATIONS])


def measure_reset(scene):
    etcd = Etcd(scene.cluster.facts["ETCD"])
    back_off(etcd)
    time.sleep(2)
    took = timed(lambda: scene.run("rq", "reset-backoff"))
    if any(json.loads(value).get("drain_backoff_count") for _, value, _ in etcd.read("/cke/reboots/data/")):
        sys.exit("rq reset-backoff has left entries with a backoff")
    return took


def list_nodes(cluster):
    """Reads all Nodes in pages and in protobuf, as `rq add` does for its warnings and their UIDs, and does nothing with them."""
    follow = ""
    while True:
        answer = cluster.send("GET", f"/api/v1/nodes?limit=500{follow}", None, accept="application/vnd.kubernetes.protobuf")
        page = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the list of Nodes: {answer.status} {page[:200]}")
        # the token is base64 of an object, in the list's metadata
        found = re.search(rb"eyJ[\w=-]+", page[:1000])
        if not found:
            return
        follow = "&continue=" + found.group().decode()


def measure_queue(scene):
    """Commands on all entries, while the queue is disabled."""
    scene.run("rq", "disable")
    first = number_of_empty(scene.nodes)
    many = [address(i) for i in range(first, first + min(scene.args.entries, scene.members - first))]
    figure, before = {"entries": len(many)}, scene.daemon.passes()
    figure["nodes_s"] = timed(lambda: list_nodes(scene.cluster))
    figure["add_s"] = timed(lambda: scene.run("rq", "add", "-", stdin=" ".join(many)))
    figure["add_alone_s"] = max(0, figure["add_s"] - figure["nodes_s"])
    figure["list_s"] = timed(lambda: scene.run("rq", "list"))
    time.sleep(5)
    after = scene.daemon.passes()
    figure["pass_ms"] = 1000 * (after[1] - before[1]) / max(1, after[0] - before[0])
    figure["rss_queue_mib"] = scene.daemon.memory()
    figure["reset_s"] = measure_reset(scene)
    figure["cancel_s"] = timed(lambda: scene.run("rq", "cancel-all"))
    figure["empty_s"] = figure["cancel_s"] + scene.wait("an empty queue", scene.is_queue_empty, 600, 0.2)
    return figure


def measure(program, nodes, args):
    with Scene(program, nodes, args) as scene:
        scene.fill()
        figure = {"nodes": nodes, "pods": args.pods * nodes}
        figure |= measure_start(scene)
        figure |= measure_idle(scene)
        for rate in RATES:
            figure |= measure_changes(scene, rate)
        figure |= measure_reactions(scene)
        figure |= measure_console(scene)
        figure |= measure_queue(scene)
    print(json.dumps(figure), flush=True)
    return figure


def main():
    args = parse()
    if args.write:
        figure_table.split_at_marks(args.write, "scale")  # fails before anything is started
    program = os.path.abspath(args.program)
    sizes = sorted(int(n) for n in args.nodes.split(","))
    columns = [(f"{n:,} nodes", measure(program, n, args)) for n in sizes]
    judged = [len(columns) - 1]
    text = f"{figure_table.heading(f'{args.pods} pods a node.')}\n\n{figure_table.table(ROWS, columns, judged, with_growth=True)}"
    figure_table.finish(text, figure_table.misses(ROWS, columns, judged, with_growth=True), args.write, "scale")


if __name__ == "__main__":
    main()
