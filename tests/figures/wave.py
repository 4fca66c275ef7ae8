#!/usr/bin/env python3
"""A wave: all nodes of a cluster drained and rebooted by one daemon on real servers, beside the same evictions by a program that decides nothing.

usage: tests/figures/wave.py [PROGRAM] [--nodes 750] [--pods 15] [--at-once 50] [--workload budgets|deployments] [--connections 16]
       [--policy JSON] [--write docs/performance.md]     (PROGRAM: default target/shipped/cketerm)

Starts etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers), fills the nodes with pods, adds all nodes to the reboot queue, and
follows the entries by etcd's watch: time from the first `draining` to the last `rebooting`, and to the empty queue. Reboot commands and boot
checks take no time. Meanwhile probers read a Namespace (40 times a second) and write ConfigMaps (10 times a second). Requests that were due
while an answer was awaited count as if they had waited for it too, so that a slow answer hides no others. The API server's audit log has all
requests and their latency. CPU seconds of every process come from /proc. Then the pods are made again, and a process with a number of connections
evicts all of them, node after node, as fast as the API server answers: the floor. --connections 8,16,32 measures several; the table shows the
fastest.

Every pod is under a budget, as a site has it: each eviction then lists the budgets of its namespace and writes one, and cketerm asks before the
first eviction of a node with a dry run for each budget. A budget covers the pods of --spread places, each on another node.

--workload budgets       Pods without a controller, under budgets that allow every eviction. The default: all requests are the drain's own, and
                         the floor is the limit of the API server.
--workload deployments   Pods of Deployments, half of which may be disrupted; kube-scheduler places the replacements, also on nodes that are
                         still to be drained, so some pods are evicted more than once. Others then write too: pods, bindings, status, Events.
                         With its default limit of 20 requests a second, kube-controller-manager cannot create 11,250 pods in less than nine
                         minutes (computed), whoever evicts them; so it and kube-scheduler get --qps here.

etcd does not sync its disk here, and the users of the measurement are exempt from API Priority and Fairness (group system:masters). Prints one JSON
line per figure and a table; --write puts the table between the marks `wave`. Exits with 1 if a budget is missed.
"""
import argparse, base64, collections, concurrent.futures, datetime, json, os, re, resource, socket, ssl, subprocess, sys, textwrap, threading, time, urllib.request

from environment import free_port
from machine_speed import described_machine
from study_servers import BIN, MERGE, SERVERS, Api, Program, Servers, is_ready, node, split, wait, write

P99_MS = 1000  # budget
# Budget of the whole wave. Where the API server needs longer than two minutes for the evictions alone, 180 s would measure the machine.
WAVE_S, WAVE_RATIO = 180, 1.5
FLEXIBLE = {"evict_retries": 3, "evict_interval": 5}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--nodes", type=int, default=750)
    parser.add_argument("--pods", type=int, default=15, help="on each node")
    parser.add_argument("--at-once", type=int, default=50, help="max_concurrent_reboots")
    parser.add_argument("--workload", choices=("budgets", "deployments"), default="budgets")
    parser.add_argument("--spread", type=int, default=45, help="pods of each budget")
    parser.add_argument("--namespaces", type=int, default=25)
    parser.add_argument("--connections", default="16", help="of the floor, for example 8,16,32")
    parser.add_argument("--qps", type=int, default=500, help="limit of kube-controller-manager and kube-scheduler (deployments)")
    parser.add_argument("--policy", type=json.loads, default={}, metavar="JSON", help="settings of the policy")
    parser.add_argument("--limit", type=int, default=1800, metavar="SECONDS", help="the longest time for one run")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


# The floor: a process of its own, so that the probers do not wait for its threads.

class Connection:
    """Keep-alive connection to the API server, with as little work per request as possible."""

    def __init__(self, host, token):
        name, port = host.split(":")
        self.socket = ssl._create_unverified_context().wrap_socket(socket.create_connection((name, int(port))))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nUser-Agent: evictions\r\nContent-Type: application/json\r\n"

    def evict(self, namespace, name):
        """Code and text of the answer."""
        body = f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{name}","namespace":"{namespace}"}}}}'
        self.socket.sendall(f"POST /api/v1/namespaces/{namespace}/pods/{name}/eviction {self.head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self.receive()
        length = int(re.search(rb"(?i)content-length: (\d+)", answer[:end]).group(1))
        while len(answer) < end + 4 + length:
            answer += self.receive()
        return int(answer[9:12]), answer[end + 4:]

    def receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise OSError("the API server closed the connection")
        return data


def evict_from_stdin(kubeconfig, connections):
    """Evicts the pods that standard input names (`namespace/name`), and prints the time, answers by code, and CPU seconds of this process."""
    api, left, codes = Api(kubeconfig), collections.deque(sys.stdin.read().split()), collections.Counter()

    def work(connection):
        while True:
            try:
                pod = left.popleft()
            except IndexError:
                return
            code, text = connection.evict(*pod.split("/"))
            codes[code] += 1
            if code in (409, 429, 500, 504):  # a conflict or a budget that counts late
                time.sleep(0.1)
                left.append(pod)
            elif code not in (201, 404):
                raise SystemExit(f"eviction of {pod}: {code} {text[:300]}")

    opened = [Connection(api.host, api.token) for _ in range(connections)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(work, opened))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"evictions_s": time.monotonic() - began, "codes": codes, "cpu_s": used.ru_utime + used.ru_stime}))


# Measurements around a run

def cpu_of(pid):
    """CPU seconds of a process, and of its children that have ended."""
    try:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0, 0.0
    tick = os.sysconf("SC_CLK_TCK")
    return sum(map(int, fields[11:13])) / tick, sum(map(int, fields[13:15])) / tick


class Usage:
    """CPU seconds since the last `restart`: of each server, of the daemon and its commands, of these scripts, of other programs, and idle."""

    def __init__(self, servers):
        self.servers, self.own = servers, []  # own: further processes of this script
        self.daemon = None
        self.restart()

    def read(self):
        run = f"{self.servers.folder}/run"
        used = {name[:-4]: cpu_of(open(f"{run}/{name}").read().strip())[0] for name in sorted(os.listdir(run)) if name.endswith(".pid")}
        if self.daemon:
            used["cketerm"], used["commands"] = cpu_of(self.daemon)
        mine = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        used["script"] = sum(r.ru_utime + r.ru_stime for r in mine) + sum(cpu_of(pid)[0] for pid in self.own)
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, idle, iowait, irq, softirq, steal = [int(t) / tick for t in open("/proc/stat").readline().split()[1:9]]
        return used, {"idle": idle + iowait, "busy": user + nice + system + irq + softirq, "steal": steal}

    def restart(self):
        self.began = self.read()

    def since(self):
        (used, machine), (used_before, machine_before) = self.read(), self.began
        of = {name: used[name] - used_before.get(name, 0) for name in used}
        gone = {name: machine[name] - machine_before[name] for name in machine}
        of |= {"others": max(0.0, gone["busy"] - sum(of.values())), "idle": gone["idle"], "steal": gone["steal"]}
        return {name: round(seconds, 1) for name, seconds in of.items()}


class Prober(threading.Thread):
    """Latency of one request, which has nothing to do with the drains, at a fixed rate. The requests that were due while an answer was awaited
    are not sent, but count as if they had waited for that answer too."""

    def __init__(self, servers, begin, period, method, path, body):
        super().__init__(daemon=True)
        self.api, self.times, self.over = Api(servers.facts["KUBECONFIG"]), [], threading.Event()
        self.due, self.period, self.method, self.path, self.body = begin, period, method, path, body
        self.start()

    def run(self):
        while not self.over.wait(max(0, self.due - time.monotonic())):
            sent = time.monotonic()
            code, _ = self.api.request(self.method, self.path, self.body(), MERGE)
            ended = time.monotonic()
            took = ended - sent if code < 300 else 60
            while took > 0:
                self.times.append(1000 * took)
                took -= self.period
            self.due = max(self.due + self.period, ended)


class Probers:
    """Eight connections that read five times a second each, and four that write 2.5 times a second each, evenly apart."""

    def __init__(self, servers):
        changed = lambda: {"data": {"probed": str(time.monotonic_ns())}}  # an equal value would not be written
        began = time.monotonic()
        self.reads = [Prober(servers, began + i / 40, 0.2, "GET", "/api/v1/namespaces/default", lambda: None) for i in range(8)]
        self.writes = [Prober(servers, began + i / 10, 0.4, "PATCH", f"/api/v1/namespaces/default/configmaps/prober-{i}", changed) for i in range(4)]

    def stop(self):
        result = {}
        for name, probers in (("reads", self.reads), ("writes", self.writes)):
            for p in probers:
                p.over.set()
            for p in probers:
                p.join()
            times = [t for p in probers for t in p.times]
            result |= {f"{name}_median_ms": at(times, 0.5), f"{name}_p99_ms": at(times, 0.99), f"{name}_longest_ms": at(times, 1)}
        return result


def at(values, share):
    """A quantile, rounded to 0.1."""
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * share))], 1) if values else None


class Audit:
    """Requests since an offset of the audit log."""

    def __init__(self, servers):
        self.file = f"{servers.folder}/audit.log"
        self.start = os.path.getsize(self.file)

    def counts(self):
        by, programs, codes = collections.Counter(), collections.Counter(), collections.Counter()
        latency = {"evictions": [], "all": []}
        when = datetime.datetime.fromisoformat
        with open(self.file, "rb") as f:
            f.seek(self.start)
            for line in f:
                event = json.loads(line)
                reference, verb, uri = event.get("objectRef", {}), event["verb"], event["requestURI"]
                program = event.get("userAgent", "").split("/")[0].split(" ")[0] or "prober"
                programs[program] += 1
                what, measured = reference.get("resource", uri.split("?")[0]), event["user"]["username"] == "bench"
                if reference.get("subresource"):
                    what += "/" + reference["subresource"]
                if what == "pods/eviction" and measured:
                    dry = bool((event.get("requestObject") or {}).get("deleteOptions", {}).get("dryRun")) or "dryRun" in uri
                    what += " (dry run)" if dry else ""
                    codes["dry run" if dry else "eviction", event["responseStatus"]["code"]] += 1
                if measured:
                    by[f"{verb} {what}"] += 1
                if verb != "watch":
                    took = 1000 * (when(event["stageTimestamp"]) - when(event["requestReceivedTimestamp"])).total_seconds()
                    latency["evictions" if what == "pods/eviction" else "all"].append(took)
        of = lambda kind, test: sum(n for (k, code), n in codes.items() if k == kind and test(code))
        return {"evictions": of("eviction", lambda c: c < 300), "refused": of("eviction", lambda c: c == 429),
                "other_answers": {code: n for (k, code), n in codes.items() if k == "eviction" and code >= 300 and code != 429},
                "dry_runs": of("dry run", lambda c: c < 300), "refused_dry_runs": of("dry run", lambda c: c == 429),
                "requests": sum(by.values()), "by": dict(by.most_common()), "requests_of": dict(programs.most_common()),
                "eviction_median_ms": at(latency["evictions"], 0.5), "eviction_p99_ms": at(latency["evictions"], 0.99),
                "eviction_over_500_ms": sum(t >= 500 for t in latency["evictions"]),
                "all_median_ms": at(latency["all"], 0.5), "all_p99_ms": at(latency["all"], 0.99)}


class Entries(threading.Thread):
    """States of the entries and their times, as etcd's watch shows them. `empty` is set once so many entries are gone."""

    def __init__(self, servers, count):
        super().__init__(daemon=True)
        self.count, self.states, self.gone, self.writes, self.backoffs = count, collections.defaultdict(dict), {}, 0, collections.Counter()
        self.empty = threading.Event()
        self.watch = subprocess.Popen([f"{BIN}/etcdctl", "--endpoints", servers.facts["ETCD"], "watch", "--prefix", "/cke/reboots/data/", "-w", "json"],
                                      stdout=subprocess.PIPE)
        self.start()
        time.sleep(1)

    def run(self):
        for line in self.watch.stdout:
            now = time.monotonic()
            for event in json.loads(line).get("Events", []):
                self.writes += 1
                key = event["kv"]["key"]
                if "value" not in event["kv"]:
                    self.gone[key] = now
                    if len(self.gone) >= self.count:
                        self.empty.set()
                    continue
                entry = json.loads(base64.b64decode(event["kv"]["value"]))
                self.states[key].setdefault(entry["status"], now)
                self.backoffs[key] = max(self.backoffs[key], entry.get("drain_backoff_count", 0))

    def figures(self):
        rebooting = [t["rebooting"] for t in self.states.values() if "rebooting" in t]
        first = min((t["draining"] for t in self.states.values() if "draining" in t), default=None)
        drains = [t["rebooting"] - t["draining"] for t in self.states.values() if "rebooting" in t and "draining" in t]
        boots = [self.gone[k] - t["rebooting"] for k, t in self.states.items() if k in self.gone and "rebooting" in t]
        done = len(self.gone) >= self.count
        wall = max(rebooting) - first if done and rebooting else None
        return {"done": done, "wall_s": wall and round(wall, 1), "empty_s": round(max(self.gone.values()) - first, 1) if wall else None,
                "drain_median_s": round(sorted(drains)[len(drains) // 2], 2) if drains else None, "drain_longest_s": round(max(drains, default=0), 2),
                "boot_median_s": round(sorted(boots)[len(boots) // 2], 2) if boots else None,
                "draining_mean": round(sum(drains) / wall, 1) if wall else None, "rebooting_mean": round(sum(boots) / wall, 1) if wall else None,
                "backoffs": sum(self.backoffs.values()), "writes_per_entry": round(self.writes / self.count, 1)}


class Daemon:
    def __init__(self, program):
        self.port, log = free_port(), open(f"{program.folder}/daemon.log", "w")
        self.process = subprocess.Popen([program.path, "--config", program.config, "--daemon", "--http", f"127.0.0.1:{self.port}"], stderr=log)

    def metrics(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60).read().decode()
        except OSError:
            return ""

    def is_leading(self):
        return re.search(r"^cke_leader 1", self.metrics(), re.M) is not None

    def passes(self):
        """Number of passes, and their total time in seconds."""
        page = self.metrics()
        return [float(re.search(rf"^cketerm_pass_seconds_{name} (\S+)", page, re.M).group(1)) for name in ("count", "sum")]

    def stop(self):
        self.process.terminate()
        self.process.wait(100)


# The cluster

class Wave:
    def __init__(self, args, servers):
        self.args, self.servers, self.api = args, servers, servers.api
        self.address = {f"wave-{i:04}": f"10.2.{i // 200}.{i % 200 + 1}" for i in range(args.nodes)}
        self.total = args.nodes * args.pods
        self.apps = max(1, self.total // args.spread)
        self.deployed = args.workload == "deployments"

    def each(self, work, items):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(work, items))

    def namespace(self, app):
        return f"work-{app % self.args.namespaces:02}"

    def build(self):
        if self.deployed:
            for name in ("kcm", "scheduler"):
                with open(f"{self.servers.folder}/run/{name}", "r+") as f:
                    text = f.read().rstrip("\n")
                    f.seek(0)
                    f.write(f"{text} --kube-api-qps={self.args.qps} --kube-api-burst={2 * self.args.qps}\n")
                self.servers.one("stop", name), self.servers.one("start", name)
        make = lambda path, body: self.api.do("POST", path, body)
        for i in range(min(self.args.namespaces, self.apps)):
            make("/api/v1/namespaces", {"metadata": {"name": f"work-{i:02}"}})
        for i in range(4):
            make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"prober-{i}"}})
        make("/api/v1/nodes", node("cp", "10.1.9.1", {}, taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]))
        self.each(lambda n: make("/api/v1/nodes", node(n, self.address[n], {}, cpu="32", pods="110")), self.address)
        if not wait(lambda: all(map(is_ready, self.api.list("/api/v1/nodes"))), 120, every=1):
            raise RuntimeError("the Nodes do not become Ready")
        limit = {"maxUnavailable": "50%"} if self.deployed else {"minAvailable": 0}
        self.each(lambda a: make(f"/apis/policy/v1/namespaces/{self.namespace(a)}/poddisruptionbudgets", {
            "metadata": {"name": f"app-{a:03}"}, "spec": limit | {"selector": {"matchLabels": {"app": f"app-{a:03}"}}}}), range(self.apps))
        if self.deployed:
            self.each(lambda a: make(f"/apis/apps/v1/namespaces/{self.namespace(a)}/deployments", {"metadata": {"name": f"app-{a:03}"}, "spec": {
                "replicas": len(range(a, self.total, self.apps)), "selector": {"matchLabels": {"app": f"app-{a:03}"}},
                "template": {"metadata": {"labels": {"app": f"app-{a:03}"}}, "spec": self.pod_spec()}}}), range(self.apps))

    @staticmethod
    def pod_spec():
        return {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "registry.local/pause:1", "resources": {"requests": {"cpu": "10m"}}}]}

    def fill(self):
        """Makes all pods, if no controller does, and waits until the budgets count them."""
        began = time.monotonic()
        if not self.deployed:
            names = list(self.address)

            def make(i):
                app = i % self.apps
                self.api.do("POST", f"/api/v1/namespaces/{self.namespace(app)}/pods", {
                    "metadata": {"name": f"app-{app:03}-{i}", "labels": {"app": f"app-{app:03}"}}, "spec": self.pod_spec() | {"nodeName": names[i // self.args.pods]}})
            self.each(make, range(self.total))

        def is_complete():
            budgets = self.api.list("/apis/policy/v1/poddisruptionbudgets")
            return sum(b["status"].get("currentHealthy", 0) for b in budgets) == self.total and all(b["status"]["disruptionsAllowed"] > 0 for b in budgets)
        if not wait(is_complete, 900, every=1):
            raise RuntimeError("the budgets do not count all pods")
        time.sleep(3)
        print(f"{self.total} pods are Ready after {time.monotonic() - began:.0f} s", file=sys.stderr)

    def pods(self):
        """UID, `namespace/name` and node of each pod of the wave."""
        return [(p["metadata"]["uid"], f"{p['metadata']['namespace']}/{p['metadata']['name']}", p["spec"]["nodeName"]) for p in self.api.list("/api/v1/pods")]

    def drain(self, program):
        """cketerm drains and reboots all nodes."""
        program.define(self.address, self.args.at_once, self.args.policy, **FLEXIBLE)
        usage = Usage(self.servers)
        daemon = Daemon(program)
        try:
            if not wait(daemon.is_leading, 60):
                raise RuntimeError("the daemon does not lead")
            time.sleep(3)
            entries, audit, probers, before = Entries(self.servers, self.args.nodes), Audit(self.servers), Probers(self.servers), daemon.passes()
            usage.own, usage.daemon = [entries.watch.pid], daemon.process.pid
            usage.restart()
            program.run("rq", "add", "-", stdin=" ".join(self.address.values()))
            entries.empty.wait(self.args.limit)
            cpu, after = usage.since(), daemon.passes()
            status = open(f"/proc/{daemon.process.pid}/status").read()
            result = entries.figures() | probers.stop() | {"cpu_s": cpu, "memory_mib": round(int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024, 1),
                                                          "passes": int(after[0] - before[0]), "pass_ms": round(1000 * (after[1] - before[1]) / max(1, after[0] - before[0]), 2)}
            time.sleep(1)
            result |= audit.counts()
            if not result["done"]:
                left = [json.loads(e) if isinstance(e, str) else e for e in json.loads(program.run("rq", "list"))]
                result |= {"left": len(left), "why": program.run("rq", "why", str(left[0]["index"]), check=False).strip()[:500] if left else ""}
            entries.watch.kill()
            return result
        finally:
            daemon.stop()

    def evict(self, connections):
        """A process that decides nothing evicts the pods that are there now."""
        pods = sorted(self.pods(), key=lambda p: p[2])
        uids = {uid for uid, _, _ in pods}
        audit, probers, usage, began = Audit(self.servers), Probers(self.servers), Usage(self.servers), time.monotonic()
        out = subprocess.run([sys.executable, os.path.abspath(__file__), "--evict", self.servers.facts["KUBECONFIG_BENCH"], str(connections)],
                             input="\n".join(name for _, name, _ in pods), capture_output=True, text=True, timeout=self.args.limit)
        if out.returncode:
            raise RuntimeError(out.stderr)
        evictor = json.loads(out.stdout)
        done = wait(lambda: not uids & {p["metadata"]["uid"] for p in self.api.list("/api/v1/pods?resourceVersion=0")}, 300, every=0.2)
        wall, cpu = time.monotonic() - began, usage.since()
        cpu |= {"evictor": round(evictor["cpu_s"], 1), "script": round(cpu["script"] - evictor["cpu_s"], 1)}
        result = probers.stop()
        time.sleep(1)
        return {"done": done, "wall_s": round(wall, 1), "evictions_s": round(evictor["evictions_s"], 1), "connections": connections, "cpu_s": cpu} | result | audit.counts()


# The table

def cpu(name):
    return lambda f: f["cpu_s"][name]


ROWS = [  # row, unit, budget, value of a figure
    ("first drain to the last reboot command, or until all pods are gone", "s", None, lambda f: f["wall_s"]),
    ("… beyond 180 s: times the evictions alone", "", WAVE_RATIO, lambda f: f["ratio"]),
    ("… to the empty queue", "s", None, lambda f: f["empty_s"]),
    ("a drain, median", "s", None, lambda f: f["drain_median_s"]),
    ("… longest", "s", None, lambda f: f["drain_longest_s"]),
    ("… nodes that drain at once, mean", "", None, lambda f: f["draining_mean"]),
    ("other reads of the API server, median", "ms", None, lambda f: f["reads_median_ms"]),
    ("… reads, p99", "ms", P99_MS, lambda f: f["reads_p99_ms"]),
    ("other writes, median", "ms", None, lambda f: f["writes_median_ms"]),
    ("… writes, p99", "ms", P99_MS, lambda f: f["writes_p99_ms"]),
    ("all requests but evictions and watches, p99", "ms", P99_MS, lambda f: f["all_p99_ms"]),
    ("an eviction, median", "ms", None, lambda f: f["eviction_median_ms"]),
    ("… p99", "ms", None, lambda f: f["eviction_p99_ms"]),
    ("evictions accepted", "", None, lambda f: f["evictions"]),
    ("… refused (429)", "", None, lambda f: f["refused"]),
    ("dry runs", "", None, lambda f: f["dry_runs"] + f["refused_dry_runs"]),
    ("drains given up", "", None, lambda f: f["backoffs"]),
    ("requests of the program", "", None, lambda f: f["requests"]),
    ("… of all programs", "", None, lambda f: sum(f["requests_of"].values())),
    ("CPU: the program", "s", None, lambda f: f["cpu_s"].get("cketerm", f["cpu_s"].get("evictor"))),
    ("… its commands", "s", None, cpu("commands")),
    ("… kube-apiserver", "s", None, cpu("apiserver")),
    ("… etcd", "s", None, cpu("etcd")),
    ("… kwok", "s", None, cpu("kwok")),
    ("… kube-controller-manager", "s", None, cpu("kcm")),
    ("… kube-scheduler", "s", None, cpu("scheduler")),
    ("… this script and its probers", "s", None, cpu("script")),
    ("… other programs", "s", None, cpu("others")),
    ("… idle", "s", None, cpu("idle")),
    ("most resident memory", "MiB", None, lambda f: f["memory_mib"]),
]


def number(value):
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"


def value_of(read, figure):
    try:
        return read(figure)
    except (KeyError, TypeError):
        return None


def missed(figure):
    return [what for what, _, limit, read in ROWS if limit is not None and ((value := value_of(read, figure)) is None or value > limit)]


def table(args, ours, floor):
    lines = ["| measurement | budget | cketerm | evictions alone |", "| --- | --- | --- | --- |"]
    late = missed(ours)
    for what, unit, limit, read in ROWS:
        values = [value_of(read, f) for f in (ours, floor)]
        if values == [None, None] and limit is None:
            continue
        cells = ["–" if v is None else f"{number(v)} {unit}".strip() for v in values]
        if what in late:
            cells[0] = f"**{cells[0]}** over"
        lines.append(f"| {what} | {f'≤ {number(limit)} {unit}' if limit is not None else '–'} | {cells[0]} | {cells[1]} |")
    pods = "pods without a controller, each under a budget" if args.workload == "budgets" else "pods of Deployments, each under a budget"
    policy = f"; policy {json.dumps(args.policy)}" if args.policy else ""
    head = (f"{time.strftime('%Y-%m-%d')}, {args.nodes} nodes, {args.pods} pods on each, {args.at_once} nodes at once; {pods}; "
            f"{described_machine()}, all in one run; evictions alone with {floor['connections']} connections{policy}.")
    return textwrap.fill(head, 100) + "\n\n" + "\n".join(lines)


def main():
    args = parse()
    if args.write:
        split(args.write, "wave")  # fails before anything is started
    subprocess.run([f"{SERVERS}/build", "etcdctl"], check=True)
    options = ("--kcm", "--kwok", "--audit") + (("--scheduler",) if args.workload == "deployments" else ())
    with Servers(options) as servers:
        wave, program = Wave(args, servers), Program(args.program, servers)
        wave.build()
        wave.fill()
        shape = {"nodes": args.nodes, "pods": wave.total, "workload": args.workload}
        ours = {"figure": "cketerm", "at_once": args.at_once} | shape | wave.drain(program)
        print(json.dumps(ours), flush=True)
        floors = []
        for connections in map(int, args.connections.split(",")):
            wave.fill()
            floors.append({"figure": "evictions alone"} | shape | wave.evict(connections))
            print(json.dumps(floors[-1]), flush=True)
    floor = min(floors, key=lambda f: f["wall_s"])
    ours["ratio"] = ours["wall_s"] / floor["wall_s"] if ours["wall_s"] > WAVE_S else 0
    text = table(args, ours, floor)
    print("\n" + text)
    others, whole = ours["cpu_s"]["others"], sum(s for name, s in ours["cpu_s"].items() if name != "steal")
    if others > whole / 20:
        print(f"WARNING: other programs used {100 * others / whole:.0f} % of the processors meanwhile: measure again on an idle machine", file=sys.stderr)
    if args.write:
        write(args.write, "wave", text)
    if missed(ours):
        sys.exit("over the budget: " + ", ".join(what.removeprefix("… ") for what in missed(ours)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--evict"]:
        evict_from_stdin(sys.argv[2], int(sys.argv[3]))
    else:
        main()
