#!/usr/bin/env python3
"""What the console costs on real servers, side by side with other terminal programs in one run. It is a gate: the exit status is 1 if a
figure of cketerm misses its budget. Budgets of times and of CPU usage are multiplied by the slowness of the machine while that program was measured
(machine_speed.py).

usage: tests/figures/console.py [PROGRAM] [--nodes 5000] [--idle 120] [--peers FOLDER] [--write docs/performance.md] [--build-peers]

Starts etcd and kube-apiserver (tests/servers), makes the nodes, and measures PROGRAM (default: target/shipped/cketerm), then
sofka and kubetui, crates that it looks for in FOLDER/bin (default: ~/.cache/cketerm-peers; --build-peers gets them there with
`cargo install`). A peer that is missing is named. The starts are measured in rounds, one start of each program in a round, because a machine's
speed changes within minutes. Prints one JSON line per program and a table; --write puts that table between the marks of a Markdown file.
"""
import argparse, concurrent.futures, http.client, json, os, re, shutil, ssl, statistics, subprocess, sys, tempfile, textwrap, threading, time

from machine_speed import described_machine, loop_seconds, slowness
from terminal import Terminal, ms

HERE = os.path.dirname(os.path.abspath(__file__))
SERVERS = os.path.join(os.path.dirname(HERE), "servers")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
WIDE, SMALL = (200, 50), (80, 24)
ROWS = r"node-0\d+"
PEERS = {"sofka": "0.34.0", "kubetui": "1.14.0"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--idle", type=float, default=120)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--peers", default=os.path.join(CACHE, "cketerm-peers"))
    parser.add_argument("--build-peers", action="store_true")
    parser.add_argument("--write", metavar="FILE")
    return parser.parse_args()


class Cluster:
    """Real servers with a number of nodes."""

    def __init__(self, folder, nodes):
        self.folder, self.nodes = folder, nodes
        out = subprocess.run([f"{SERVERS}/up", folder], capture_output=True, text=True)
        if out.returncode:
            sys.exit(out.stderr)
        self.facts = dict(line.split("=", 1) for line in out.stdout.splitlines() if "=" in line)
        text = open(self.facts["KUBECONFIG"]).read()
        self.host = re.search(r'server: "?https://([^"\s}/]+)', text).group(1)
        self.token = re.search(r'token: "?([^"\s}]+)', text).group(1)
        self.local = threading.local()

    def request(self, method, path, body=None, kind="application/json"):
        try:
            answer = self.send(method, path, body, kind)
        except (http.client.RemoteDisconnected, ConnectionError):
            # the API server closes idle connections: a read is repeated on a new one
            del self.local.connection
            if method != "GET":
                raise
            answer = self.send(method, path, body, kind)
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]}")
        return json.loads(text)

    def send(self, method, path, body, kind="application/json", accept="application/json"):
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(self.host, context=ssl._create_unverified_context())
        self.local.connection.request(method, path, None if body is None else json.dumps(body),
                                {"Authorization": "Bearer " + self.token, "Content-Type": kind, "Accept": accept})
        return self.local.connection.getresponse()

    def fill(self):
        info = {k: "" for k in ("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
                                "operatingSystem", "osImage", "systemUUID", "architecture")}

        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

        def make(i):
            labels = {"cke.cybozu.com/role": "cs" if i % 3 else "ss", "sabakan.cybozu.com/rack": str(i // 28)}
            # no kubelets run: the nodes are Ready, and nothing writes any more
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}
            resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
            self.request("POST", "/api/v1/nodes", {
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{i:05}", "labels": labels, "annotations": {"figures/made": "yes"}},
                "status": {"addresses": [{"type": "InternalIP", "address": address(i)}, {"type": "Hostname", "address": f"node-{i:05}"}], "allocatable": resources, "capacity": resources,
                           "nodeInfo": info | {"kubeletVersion": "v1.35.4"}, "conditions": [ready]}})

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(self.nodes)))

    def churn(self, seconds, a_second=50):
        """Changes nodes at this rate, in its own thread."""
        end = time.monotonic() + seconds

        def work():
            began, done = time.monotonic(), 0
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                while time.monotonic() < end:
                    # a new value each time: the same value would change nothing
                    patch = {"metadata": {"annotations": {"figures/churn": str(time.monotonic_ns())}}}
                    pool.submit(self.request, "PATCH", f"/api/v1/nodes/node-{done * 7 % self.nodes:05}", patch, "application/merge-patch+json")
                    done += 1
                    time.sleep(max(0, began + done / a_second - time.monotonic()))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def stop(self):
        subprocess.run([f"{SERVERS}/down", self.folder], stderr=subprocess.DEVNULL)


def address(i):
    return f"10.{1 + i // 60000}.{i // 250 % 240}.{i % 250 + 1}"


class Subject:
    """A program under measurement: its command line, and the keys that show its nodes and quit it."""

    def __init__(self, name, path, argv, before=(), down_key="j", quit_keys="q", env=None):
        self.name, self.path, self.argv, self.before, self.down_key, self.quit_keys = name, path, argv, before, down_key, quit_keys
        self.env = env or {}
        self.firsts, self.rows, self.failed = [], [], None  # seconds of each start; the screen of one that showed no nodes
        self.loops = []  # seconds of the loop that shows the machine's speed, between the measurements

    def start(self, size):
        terminal = Terminal([self.path, *self.argv], size, self.env)
        terminal.pump(30, lambda: terminal.bytes > 0)
        first = terminal.reads[0][0] if terminal.reads else None
        for pause, keys in self.before:
            terminal.pump(pause)
            terminal.press(keys)
        return terminal, first

    def measure_start(self):
        """Adds the times of one start: to the first bytes, and to the rows of nodes."""
        if len(self.firsts) % 5 == 0:
            self.loops.append(loop_seconds())
        terminal, first = self.start(WIDE)
        self.firsts.append(first)
        self.rows.append(terminal.shows(ROWS))
        if None in (first, self.rows[-1]):
            self.failed = last(terminal)
        terminal.quit(self.quit_keys)

    def measure(self, cluster, args):
        if self.failed is not None:
            print(json.dumps({"program": self.name, "error": "no nodes on its screen", "screen": self.failed}), flush=True)
            return None
        self.loops.append(loop_seconds())
        terminal, _ = self.start(WIDE)
        terminal.shows(ROWS)
        terminal.pump(6)
        figure = {"program": self.name, "first_bytes_ms": ms(statistics.median(self.firsts)), "rows_ms": ms(statistics.median(self.rows)),
                  "rows_spread_ms": [ms(min(self.rows)), ms(max(self.rows))]}
        figure["idle"] = terminal.watch_usage(args.idle)
        figure["rss_mib"] = round(terminal.memory(), 1)
        self.loops.append(loop_seconds())
        figure["keys"] = terminal.keys(self.down_key, 40)
        churn = cluster.churn(45)
        terminal.pump(3)
        figure["churn"] = terminal.watch_usage(20)
        figure["keys_churn"] = terminal.keys(self.down_key, 60)
        churn.join()
        terminal.pump(2)
        figure["resize_bytes"] = [terminal.repaint(SMALL), None]
        terminal.pump(1)
        figure["resize_bytes"][1] = terminal.repaint(WIDE)
        figure["rss_end_mib"] = round(terminal.memory(), 1)
        figure["quit_by"] = terminal.quit(self.quit_keys)
        terminal, _ = self.start(SMALL)
        terminal.shows(ROWS)
        terminal.pump(6)
        figure["keys_small"] = terminal.keys(self.down_key, 14)  # more would scroll
        terminal.quit(self.quit_keys)
        self.loops.append(loop_seconds())
        figure["loops_s"] = [round(seconds, 4) for seconds in self.loops]
        figure["binary_mb"] = round(os.path.getsize(self.path) / 1e6, 1)
        print(json.dumps(figure), flush=True)
        return figure


def last(terminal):
    return re.sub(r"\s+", " ", terminal.text[-600:].decode("utf-8", "replace"))


def subjects(args, cluster):
    program = os.path.abspath(args.program)
    config = f"{cluster.folder}/config.yaml"
    with open(config, "w") as f:
        json.dump({"etcd": {"endpoints": [cluster.facts["ETCD"]]}, "kubernetes": {"kubeconfig": cluster.facts["KUBECONFIG"]}}, f)
    nodes = [{"address": address(i), "hostname": f"node-{i:05}", "user": "root", "control_plane": i < 1} for i in range(cluster.nodes)]
    with open(f"{cluster.folder}/cluster.json", "w") as f:
        json.dump({"name": "figures", "nodes": nodes, "service_subnet": "10.0.0.0/16",
                   "reboot": {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/echo", "true"]}}, f)
    for argv in (["cluster", "set", f"{cluster.folder}/cluster.json"], ["policy", "set", "control_plane_probe", "node"], ["policy", "set", "etcd_members", "none"],
                  ["policy", "set", "console_leads", "always"],
                  ["cluster", "identify", "--confirm"]):
        subprocess.run([program, "--config", config, *argv], check=True, stdout=subprocess.DEVNULL)
    home = {"HOME": f"{cluster.folder}/home", "KUBECONFIG": cluster.facts["KUBECONFIG"]}
    os.makedirs(home["HOME"], exist_ok=True)
    yield Subject("cketerm", program, ["--config", config, "--view", "nodes"], quit_keys="qy", env=home)
    yield Subject("cketerm --observe", program, ["--config", config, "--view", "nodes", "--observe"], env=home)
    known = {"sofka": Subject("sofka", "", ["nodes"], env=home, quit_keys=":q\r"),
             "kubetui": Subject("kubetui", "", [], before=[(0.05, "5")], env=home)}
    for name, version in PEERS.items():
        path = shutil.which(name, path=f"{args.peers}/bin") or shutil.which(name)
        if path is None and args.build_peers:
            subprocess.run(["cargo", "install", "--locked", "--root", args.peers, f"{name}@{version}"], check=True)
            path = f"{args.peers}/bin/{name}"
        if path is None:
            print(f"MISSING: {name}: not measured (cargo install --root {args.peers} {name}@{version}, or --build-peers)", flush=True)
            continue
        known[name].path = path
        yield known[name]


def usage(what):
    return lambda f: (f[what]["cpu_pct"],)


# Units of figures that depend on the speed of the machine.
OF_TIME = ("ms", "%")
# row, unit, most allowed of each value, values of a figure. None = unlimited.
BUDGETS = [
    ("start to the first bytes", "ms", (15,), lambda f: (f["first_bytes_ms"],)),
    ("start to rows of nodes on the screen", "ms", (80,), lambda f: (f["rows_ms"],)),
    ("… fastest / slowest start", "ms", (None, None), lambda f: f["rows_spread_ms"]),
    ("resident memory", "MiB", (40,), lambda f: (f["rss_mib"],)),
    ("idle: CPU", "%", (0.25,), usage("idle")),
    ("idle: bytes per second", "", (60,), lambda f: (f["idle"]["bytes_s"],)),
    ("50 changes of nodes per second: CPU", "%", (3,), usage("churn")),
    ("… bytes per second", "", (1000,), lambda f: (f["churn"]["bytes_s"],)),
    ("… frames per second", "", (10,), lambda f: (f["churn"]["frames_s"],)),
    ("bytes of a cursor move, 200×50 / 80×24", "", (520, 280), lambda f: (f["keys"]["bytes"], f["keys_small"]["bytes"])),
    ("… bytes of the preview after it, 200×50: median / most", "", (3000, 3000), lambda f: (f["keys"]["preview_bytes"], f["keys"]["preview_max_bytes"])),
    ("key to the first byte, median, 200×50 / 80×24", "ms", (1.25, 1), lambda f: (f["keys"]["median_ms"], f["keys_small"]["median_ms"])),
    ("key to the first byte, longest under change", "ms", (8,), lambda f: (f["keys_churn"]["max_ms"],)),
    ("repaint after a resize to 80×24 / back", "B", (4000, 9500), lambda f: f["resize_bytes"]),
    ("program on disk", "MB", (24,), lambda f: (f["binary_mb"],)),
]


def number(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def over(unit, limits, values, figure):
    """Whether a value is above its limit. It is compared as measured, not as rounded for the table."""
    factor = slowness(figure["loops_s"]) if unit in OF_TIME else 1
    return any(limit is not None and value > limit * factor for limit, value in zip(limits, values))


def is_judged(name):
    """Whether the program of this name is ours, so that its budgets hold."""
    return name.startswith("cketerm")


def shown(unit, values):
    return " / ".join(f"{number(value)} {unit}".strip() for value in values)


def table(figures):
    lines = ["| measurement | budget | " + " | ".join(f["program"] for f in figures) + " |", "| --- " * (len(figures) + 2) + "|"]

    def cell(unit, limits, values, figure):
        try:
            values = values(figure)
            text = shown(unit, values)
        except (TypeError, KeyError, ValueError):
            return "–"
        return f"**{text}** over" if is_judged(figure["program"]) and over(unit, limits, values, figure) else text

    for what, unit, limits, values in BUDGETS:
        budget = " / ".join(f"≤ {number(limit)} {unit}".strip() for limit in limits if limit is not None) or "–"
        lines.append(f"| {what} | {budget} | " + " | ".join(cell(unit, limits, values, f) for f in figures) + " |")
    speeds = (f"{slowness(f['loops_s']):.2f} ({statistics.median(f['loops_s']):.3f} s)" for f in figures)
    lines.append(f"| slowness of the machine meanwhile (time of the loop) | – | {' | '.join(speeds)} |")
    return "\n".join(lines)


def misses(figures):
    """One line for each budget that a program of ours misses. A figure that is not there is a miss."""
    found = []
    for figure in (figure for figure in figures if is_judged(figure["program"])):
        for what, unit, limits, values in BUDGETS:
            try:
                values = values(figure)
                if over(unit, limits, values, figure):
                    found.append(f"{figure['program']}: {what}: {shown(unit, values)}, allowed at the reference speed: {shown(unit, [limit for limit in limits if limit is not None])}")
            except (TypeError, KeyError, ValueError):
                found.append(f"{figure['program']}: {what}: not measured")
    return found


def write(path, text):
    page = open(path).read()
    begin, end = "<!-- console: begin -->", "<!-- console: end -->"
    if begin not in page or end not in page:
        sys.exit(f"{path} has no marks {begin} … {end}")
    with open(path, "w") as f:
        f.write(page.split(begin)[0] + begin + "\n" + text + "\n" + end + page.split(end)[1])


def main():
    args = parse()
    folder = tempfile.mkdtemp(prefix="cketerm-figures-")
    cluster = Cluster(folder, args.nodes)
    try:
        cluster.fill()
        programs = list(subjects(args, cluster))
        for _ in range(args.starts):
            for program in programs:
                program.measure_start()
        figures = [figure for figure in (program.measure(cluster, args) for program in programs) if figure]
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    machine = described_machine([seconds for figure in figures for seconds in figure["loops_s"]])
    heading = textwrap.fill(f"{time.strftime('%Y-%m-%d')}, {args.nodes:,} nodes, {machine}, all in one run; idle over {args.idle:.0f} s.", 100)
    text = f"{heading}\n\n{table(figures)}"
    print(text)
    if args.write:
        write(args.write, text)
    missed = misses(figures) + [f"{program.name}: no nodes on its screen" for program in programs if program.failed is not None and is_judged(program.name)]
    for line in missed:
        print(f"MISSED: {line}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
