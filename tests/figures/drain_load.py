#!/usr/bin/env python3
"""Drains that budgets slow down: cketerm in its default order, cketerm with a policy, and a loop of `kubectl drain`, in one run.

usage: tests/figures/drain_load.py [PROGRAM] [--policy JSON] [--only budgets|big] [--write docs/drains.md]     (PROGRAM: default target/shipped/cketerm)

budgets  60 nodes with the pods of 20 Deployments, each under a budget that allows one disruption. Time from the first drain to the last
         uncordon, evictions that were refused (429 in the audit log, dry runs apart), and drains that were given up and backed off.
big      1,000 pods under one budget on four nodes, which are drained at once. Time, 429s, and the latency of other requests of the API
         server while that happens, which a prober measures.

The controllers replace the pods, kube-scheduler places them, and kwok makes them Ready late, so that budgets matter. All programs drain the
same number of nodes at once; a reboot takes no time. `kubectl drain` has no queue: each of its workers takes the next node, drains it and
uncordons it. Prints one JSON line per figure; --write puts a table between the marks `drain-load`.
"""
import argparse, base64, collections, json, os, queue, subprocess, sys, textwrap, threading, time

from machine_speed import described_machine
from study_servers import BIN, MERGE, SERVERS, Api, Program, Servers, is_ready, node, split, wait, write

parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--policy", type=json.loads, metavar="JSON", help="settings of the policy for a further run of cketerm")
parser.add_argument("--only", choices=("budgets", "big"))
parser.add_argument("--nodes", type=int, default=60)
parser.add_argument("--budgets", type=int, default=20)
parser.add_argument("--replicas", type=int, default=9, help="pods of each Deployment")
parser.add_argument("--big", type=int, default=1000, help="pods under the one budget")
parser.add_argument("--at-once", type=int, default=6)
parser.add_argument("--ready-after", type=float, default=3, metavar="SECONDS")
parser.add_argument("--evict-retries", type=int, default=3)
parser.add_argument("--evict-interval", type=int, default=5)
parser.add_argument("--limit", type=int, default=1800, metavar="SECONDS", help="the longest time for one run")
parser.add_argument("--write", metavar="FILE")
args = parser.parse_args()
ADDRESS = {f"load-{i:02}": f"10.1.{i // 200}.{i % 200 + 1}" for i in range(args.nodes)}
BIG_NODES = 4
figures = []


def workload(servers, name, replicas, limit):
    labels = {"app": name}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "registry.local/pause:1", "resources": {"requests": {"cpu": "10m"}}}]}
    servers.api.do("POST", "/apis/apps/v1/namespaces/work/deployments", {"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}}, accept=())
    servers.api.do("POST", "/apis/policy/v1/namespaces/work/poddisruptionbudgets", {"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": labels}, "maxUnavailable": limit}}, accept=())


def cordon(servers, names, cordoned):
    for n in names:
        servers.api.do("PATCH", f"/api/v1/nodes/{n}", {"spec": {"unschedulable": cordoned or None}}, MERGE)


def reset(servers, count, on=None):
    """Replaces all pods, on these nodes or on all, and waits until the budgets count all of them."""
    cordon(servers, ADDRESS, False)
    cordon(servers, [n for n in ADDRESS if on and n not in on], True)
    servers.api.do("DELETE", "/api/v1/namespaces/work/pods", {"gracePeriodSeconds": 0})

    def is_complete():
        budgets = servers.api.list("/apis/policy/v1/namespaces/work/poddisruptionbudgets")
        return sum(b["status"].get("currentHealthy", 0) for b in budgets) == count and all(b["status"]["disruptionsAllowed"] > 0 for b in budgets)
    if not wait(is_complete, 300, every=0.5):
        raise RuntimeError("the pods do not become Ready")
    cordon(servers, ADDRESS, False)


class Audit:
    """Requests of user bench since an offset of the audit log, by verb, resource and code; of evictions also dry runs."""

    def __init__(self, servers):
        self.file = f"{servers.folder}/audit.log"
        self.start = os.path.getsize(self.file)

    def counts(self):
        evictions, requests = collections.Counter(), 0
        with open(self.file, "rb") as f:
            f.seek(self.start)
            for line in f:
                event = json.loads(line)
                if event["user"]["username"] != "bench":
                    continue
                requests += 1
                if event.get("objectRef", {}).get("subresource") == "eviction":
                    dry = bool((event.get("requestObject") or {}).get("deleteOptions", {}).get("dryRun")) or "dryRun" in event["requestURI"]
                    evictions["dry run" if dry else "eviction", event["responseStatus"]["code"]] += 1
        of = lambda kind, codes: sum(n for (k, code), n in evictions.items() if k == kind and codes(code))
        return {"refused_evictions": of("eviction", lambda c: c == 429), "refused_dry_runs": of("dry run", lambda c: c == 429),
                "evictions": of("eviction", lambda c: c < 300), "dry_runs": of("dry run", lambda c: True), "requests": requests}


class Prober(threading.Thread):
    """Latency of reads of one object, which has nothing to do with the drains, 50 times a second."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.api, self.times, self.over = Api(servers.facts["KUBECONFIG"]), [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            began = time.monotonic()
            self.api.do("GET", "/api/v1/namespaces/default")
            self.times.append(1000 * (time.monotonic() - began))

    def stop(self):
        self.over.set()
        self.join()
        times = sorted(self.times)
        return {"probes": len(times), "median_ms": round(times[len(times) // 2], 1), "p99_ms": round(times[len(times) * 99 // 100], 1)}


class Entries(threading.Thread):
    """Backoffs and times of the entries in the queue, as etcd's watch shows them."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.backoffs, self.first, self.last = collections.Counter(), None, None
        self.watch = subprocess.Popen([f"{BIN}/etcdctl", "--endpoints", servers.facts["ETCD"], "watch", "--prefix", "/cke/reboots/data/", "-w", "json"],
                                      stdout=subprocess.PIPE)
        self.start()
        time.sleep(1)

    def run(self):
        for line in self.watch.stdout:
            for event in json.loads(line).get("Events", []):
                self.last = time.monotonic()
                if "value" in event["kv"]:
                    entry = json.loads(base64.b64decode(event["kv"]["value"]))
                    if entry["status"] == "draining":
                        self.first = self.first or time.monotonic()
                    self.backoffs[entry["node"]] = max(self.backoffs[entry["node"]], entry.get("drain_backoff_count", 0))


def drain_with_cketerm(servers, program, names, at_once, policy):
    program.define(ADDRESS, at_once, policy, evict_retries=args.evict_retries, evict_interval=args.evict_interval)
    log = open(f"{servers.folder}/daemon.log", "a")
    daemon = subprocess.Popen([program.path, "--config", program.config, "--daemon", "--http", "127.0.0.1:0"], stderr=log)
    try:
        if not wait(lambda: subprocess.run([program.path, "--config", program.config, "leader"], capture_output=True).returncode == 0, 60, every=0.2):
            raise RuntimeError("no engine leads")
        time.sleep(3)
        entries, audit, prober = Entries(servers), Audit(servers), Prober(servers)
        program.run("rq", "add", "-", stdin=" ".join(ADDRESS[n] for n in names))
        done = wait(lambda: program.run("rq", "list").strip() == "[]", args.limit, every=0.5)
        result = {"done": done, "wall_s": round(entries.last - entries.first, 1) if done else None, "backoffs": sum(entries.backoffs.values())} | prober.stop() | audit.counts()
        if not done:
            left = [json.loads(e) if isinstance(e, str) else e for e in json.loads(program.run("rq", "list"))]
            result |= {"left": len(left), "why": program.run("rq", "why", str(left[0]["index"]), check=False).strip()[:300]}
            for e in left:
                program.run("rq", "cancel", str(e["index"]), check=False)
            wait(lambda: program.run("rq", "list").strip() == "[]", 60, every=0.5)
        entries.watch.kill()
        return result
    finally:
        daemon.terminate()
        daemon.wait(timeout=20)


def drain_with_kubectl(servers, names, at_once):
    audit, prober, left = Audit(servers), Prober(servers), queue.SimpleQueue()
    for n in names:
        left.put(n)
    kubectl, until = [f"{BIN}/kubectl", "--kubeconfig", servers.facts["KUBECONFIG_BENCH"]], time.monotonic() + args.limit
    failed, repeats = [], []

    def work():
        while True:
            try:
                n = left.get_nowait()
            except queue.Empty:
                return
            # kubectl drain gives up at the first answer that it does not expect; a person begins it again
            while (remaining := int(until - time.monotonic())) > 0:
                out = subprocess.run([*kubectl, "drain", n, "--ignore-daemonsets", f"--timeout={remaining}s"], capture_output=True, text=True)
                if not out.returncode:
                    break
                repeats.append(out.stderr[-200:])
            else:
                failed.append(repeats[-1])
            subprocess.run([*kubectl, "uncordon", n], check=True, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(at_once)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    wall = time.monotonic() - began
    return {"done": not failed, "wall_s": None if failed else round(wall, 1), "backoffs": 0, "repeats": len(repeats)} | prober.stop() | audit.counts() | ({"why": failed[0]} if failed else {})


def compare(servers, program, name, names, at_once, count, on=None):
    runs = [("kubectl drain", lambda: drain_with_kubectl(servers, names, at_once)),
            ("cketerm, default", lambda: drain_with_cketerm(servers, program, names, at_once, {}))]
    if args.policy:
        runs.append(("cketerm, with the policy", lambda: drain_with_cketerm(servers, program, names, at_once, args.policy)))
    for who, run in runs:
        reset(servers, count, on)
        figure = {"figure": name, "program": who, "nodes": len(names), "at_once": at_once, "pods": count} | run()
        figures.append(figure)
        print(json.dumps(figure), flush=True)


def table():
    policy = f"; policy {json.dumps(args.policy)}" if args.policy else ""
    head = f"{time.strftime('%Y-%m-%d')}, {described_machine()}, all in one run; pods become Ready after {args.ready_after:g} s{policy}."
    text = textwrap.fill(head, 100) + "\n\n| drains | program | time | refused evictions | refused dry runs | backoffs | requests | other requests, p99 |\n"
    text += "| --- " * 8 + "|\n"
    for f in figures:
        time_of = f"{f['wall_s']} s" if f["done"] else f"**not done** after {args.limit} s"
        again = f.get("repeats", 0)
        program = f["program"] + (f", gave up and begun again {again} times" if again else "")
        cells = (f"{f['figure']}: {f['nodes']} nodes, {f['at_once']} at once, {f['pods']} pods", program, time_of, f["refused_evictions"], f["refused_dry_runs"], f["backoffs"],
                 f["requests"], f"{f['p99_ms']} ms")
        text += "| " + " | ".join(map(str, cells)) + " |\n"
    return text.rstrip("\n")


def main():
    if args.write:
        split(args.write, "drain-load")  # fails before anything is started
    subprocess.run([f"{SERVERS}/build", "etcdctl"], check=True)
    with Servers(("--kcm", "--scheduler", "--kwok", "--audit"), ready_after_ms=int(args.ready_after * 1000)) as servers:
        program = Program(args.program, servers)
        servers.api.do("POST", "/api/v1/namespaces", {"metadata": {"name": "work"}})
        servers.api.do("POST", "/api/v1/nodes", node("cp", "10.1.9.1", {}, taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]))
        for n, address in ADDRESS.items():
            servers.api.do("POST", "/api/v1/nodes", node(n, address, {}, cpu="32", pods="400"), accept=())
        wait(lambda: all(map(is_ready, servers.api.list("/api/v1/nodes"))), 60)
        if args.only != "big":
            for i in range(args.budgets):
                workload(servers, f"app-{i:02}", args.replicas, 1)
            compare(servers, program, "budgets", list(ADDRESS), args.at_once, args.budgets * args.replicas)
            for path in ("/apis/apps/v1/namespaces/work/deployments", "/apis/policy/v1/namespaces/work/poddisruptionbudgets"):
                servers.api.do("DELETE", path, {"propagationPolicy": "Background"})
            wait(lambda: not servers.api.list("/api/v1/namespaces/work/pods"), 120, every=0.5)
        if args.only != "budgets":
            on = list(ADDRESS)[:BIG_NODES]
            workload(servers, "big", args.big, "5%")
            compare(servers, program, "one budget", on, BIG_NODES, args.big, on)
    print("\n" + table())
    if args.write:
        write(args.write, "drain-load", table())


if __name__ == "__main__":
    main()
