#!/usr/bin/env python3
"""Cost of an engine on clusters of growing size, on a real etcd and kube-apiserver, in one run: where it is not linear, and what breaks first.

usage: tests/figures/scale.py [PROGRAM] [--nodes 1000,5000,20000] [--pods 5] [--entries 10000] [--write docs/performance.md]

For each size, from the smallest, the script starts servers of its own (tests/servers), creates the Nodes and their pods, and starts a daemon. It measures
the time until the daemon leads; its requests until then; memory; CPU usage over 30 s without changes, and over 20 s while 50 Nodes per second change; the
time from an entry in etcd to the cordon in the API server. Then, with the queue disabled, it adds the entries and measures `rq add`, `rq list`,
`rq cancel-all`, the time of a pass meanwhile, and the daemon's memory. (PROGRAM: default target/shipped/cketerm.)
"""
import argparse, concurrent.futures, json, math, os, platform, re, shutil, statistics, subprocess, sys, tempfile, textwrap, time, urllib.request

from console import Cluster, SERVERS, address
from environment import free_port

IDLE, CHURN, REACTIONS = 30, 20, 10
# The definition is one value in etcd, as in CKE: some 130 bytes per node. By default etcd accepts 1.5 MiB.
MEMBERS = 10_000


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--nodes", default="1000,5000,20000")
    parser.add_argument("--pods", type=int, default=5, help="on each node")
    parser.add_argument("--entries", type=int, default=10000)
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


def fill_pods(cluster, each):
    """Pods on every node but the first twenty, where drains are timed: no kubelet would remove these pods."""
    def make(i):
        cluster.request("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}", "labels": {"app": f"a{i % 97}"}},
            "spec": {"nodeName": f"node-{20 + i % (cluster.nodes - 20):05}", "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "c", "image": "registry.local/pause:1"}]}})

    # no controller manager runs here to create the default service account
    cluster.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(each * cluster.nodes)))


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

    def memory(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def cpu_usage(self, seconds):
        tick = os.sysconf("SC_CLK_TCK")
        used = lambda: sum(map(int, open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / tick
        before, began = used(), time.monotonic()
        time.sleep(seconds)
        return 100 * (used() - before) / (time.monotonic() - began)

    def passes(self):
        """Number of passes, and their total time in seconds."""
        page = self.get("metrics")
        read = lambda name: float(re.search(rf"^cketerm_pass_seconds_{name} (\S+)", page, re.M).group(1))
        return read("count"), read("sum")

    def stop(self):
        self.process.terminate()
        self.process.wait(100)


def count_requests(cluster):
    """Number of requests that the API server has answered, according to its metrics."""
    import http.client, ssl
    connection = http.client.HTTPSConnection(cluster.host, context=ssl._create_unverified_context())
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + cluster.token})
    text = connection.getresponse().read().decode()
    return sum(float(l.rsplit(" ", 1)[1]) for l in text.splitlines() if l.startswith("apiserver_request_total{"))


def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measure(program, nodes, args):
    folder = tempfile.mkdtemp(prefix="cketerm-scale-")
    cluster = Cluster(folder, nodes)
    daemon = None
    try:
        cluster.fill()
        fill_pods(cluster, args.pods)
        config = f"{folder}/config.yaml"
        with open(config, "w") as f:
            json.dump({"etcd": {"endpoints": [cluster.facts["ETCD"]]}, "kubernetes": {"kubeconfig": cluster.facts["KUBECONFIG"]}}, f)

        def run_command(*arguments, stdin=None):
            out = subprocess.run([program, "--config", config, *arguments], input=stdin, text=True, capture_output=True)
            if out.returncode:
                sys.exit(f"cketerm {' '.join(arguments)}: exit {out.returncode}\n{out.stderr[:2000]}")
            return out.stdout

        machines = [{"address": address(i), "hostname": f"node-{i:05}", "user": "root", "control_plane": i < 1} for i in range(min(nodes, MEMBERS))]
        with open(f"{folder}/cluster.json", "w") as f:
            json.dump({"name": "scale", "nodes": machines, "service_subnet": "10.0.0.0/8",
                       "reboot": {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/sh", "-c", "echo true"], "max_concurrent_reboots": 5}}, f)
        run_command("cluster", "set", f"{folder}/cluster.json")
        run_command("policy", "set", "control_plane_probe", "node")
        run_command("policy", "set", "etcd_members", "none")
        run_command("cluster", "identify", "--confirm")
        figure, before = {"nodes": nodes, "pods": args.pods * nodes}, count_requests(cluster)
        daemon = Daemon(program, config, folder)
        figure["leads_s"] = daemon.wait_for(daemon.is_leading)
        figure["requests"] = count_requests(cluster) - before
        time.sleep(10)
        figure["idle_pct"] = daemon.cpu_usage(IDLE)
        figure["rss_mib"] = daemon.memory()
        churn = cluster.churn(CHURN + 4)
        time.sleep(2)
        figure["churn_pct"] = daemon.cpu_usage(CHURN)
        churn.join()
        figure["reaction_ms"] = statistics.median(reaction_time(cluster, run_command, i) for i in range(1, REACTIONS + 1))
        run_command("rq", "disable")
        many = [address(i) for i in range(20, 20 + min(args.entries, min(nodes, MEMBERS) - 20))]
        figure["entries"] = len(many)
        before = daemon.passes()
        figure["add_s"] = timed(lambda: run_command("rq", "add", "-", stdin=" ".join(many)))
        figure["list_s"] = timed(lambda: run_command("rq", "list"))
        time.sleep(5)
        after = daemon.passes()
        figure["pass_ms"] = 1000 * (after[1] - before[1]) / max(1, after[0] - before[0])
        figure["rss_queue_mib"] = daemon.memory()
        figure["cancel_s"] = timed(lambda: run_command("rq", "cancel-all"))
        began = time.monotonic()
        while run_command("rq", "list").strip() != "[]":
            if time.monotonic() - began > 600:
                sys.exit("the queue does not become empty")
            time.sleep(0.2)
        figure["empty_s"] = time.monotonic() - began
        print(json.dumps(figure), flush=True)
        return figure
    finally:
        if daemon:
            daemon.stop()
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def reaction_time(cluster, run_command, i):
    """Time in ms from the start of `rq add` to the cordon."""
    node, began = f"/api/v1/nodes/node-{i:05}", time.monotonic()
    run_command("rq", "add", "-", stdin=address(i))
    cordoned = lambda: any(t["key"] == "node.kubernetes.io/unschedulable" for t in cluster.request("GET", node)["spec"].get("taints", [])) or \
        cluster.request("GET", node)["spec"].get("unschedulable")
    while not cordoned():
        if time.monotonic() - began > 60:
            sys.exit(f"node-{i:05} is not cordoned: {run_command('rq', 'why', str(i - 1))}")
        time.sleep(0.005)
    took = (time.monotonic() - began) * 1000
    began = time.monotonic()
    while run_command("rq", "list").strip() != "[]":
        # no kubelet runs: the boot check alone proves the boot, the Node stays Ready
        if time.monotonic() - began > 120:
            sys.exit(f"the reboot of node-{i:05} does not end: {run_command('rq', 'list', '-o', 'table')}")
        time.sleep(0.1)
    return took


ROWS = [  # row, function that formats the figure, key of the figure for the growth exponent
    ("nodes / pods", lambda f: f"{f['nodes']:,} / {f['pods']:,}", None),
    ("start until it leads", lambda f: f"{f['leads_s']:.1f} s", "leads_s"),
    ("… requests to Kubernetes", lambda f: f"{f['requests']:,.0f}", "requests"),
    ("resident memory", lambda f: f"{f['rss_mib']:.0f} MiB", "rss_mib"),
    ("idle: CPU", lambda f: f"{f['idle_pct']:.2f} %", "idle_pct"),
    ("50 changes of nodes per second: CPU", lambda f: f"{f['churn_pct']:.2f} %", "churn_pct"),
    ("`rq add` to the cordon, median", lambda f: f"{f['reaction_ms']:.0f} ms", "reaction_ms"),
    ("entries put into the disabled queue", lambda f: f"{f['entries']:,}", None),
    ("… `rq add` of all", lambda f: f"{f['add_s']:.2f} s", "add_s"),
    ("… `rq list`", lambda f: f"{f['list_s']:.2f} s", "list_s"),
    ("… a pass meanwhile, mean", lambda f: f"{f['pass_ms']:.2f} ms", "pass_ms"),
    ("… resident memory", lambda f: f"{f['rss_queue_mib']:.0f} MiB", "rss_queue_mib"),
    ("… `rq cancel-all`", lambda f: f"{f['cancel_s']:.2f} s", "cancel_s"),
    ("… until the queue is empty", lambda f: f"{f['empty_s']:.1f} s", "empty_s"),
]


def table(figures):
    first, last = figures[0], figures[-1]

    def exponent(name):
        if name is None or len(figures) < 2 or min(first[name], last[name]) <= 0:
            return ""
        return f"{math.log(last[name] / first[name]) / math.log(last['nodes'] / first['nodes']):.2f}"

    head = "| measurement | " + " | ".join(f"{f['nodes']:,} nodes" for f in figures) + " | growth exponent |"
    lines = [head, "| --- " * (len(figures) + 2) + "|"]
    return "\n".join(lines + [f"| {what} | " + " | ".join(read(f) for f in figures) + f" | {exponent(name)} |" for what, read, name in ROWS])


def main():
    args = parse()
    program = os.path.abspath(args.program)
    figures = [measure(program, n, args) for n in sorted(int(n) for n in args.nodes.split(","))]
    machine = f"{os.cpu_count()} processors shared with the servers, {platform.system()} {platform.release()}"
    heading = textwrap.fill(f"{time.strftime('%Y-%m-%d')}, {machine}, all in one run; {args.pods} pods a node.", 100)
    text = f"{heading}\n\n{table(figures)}"
    print(text)
    if args.write:
        page = open(args.write).read()
        begin, end = "<!-- scale: begin -->", "<!-- scale: end -->"
        if begin not in page or end not in page:
            sys.exit(f"{args.write} has no marks {begin} … {end}")
        with open(args.write, "w") as f:
            f.write(page.split(begin)[0] + begin + "\n" + text + "\n" + end + page.split(end)[1])


if __name__ == "__main__":
    main()
