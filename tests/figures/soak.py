#!/usr/bin/env python3
"""Soak test: an engine and a console on a sandbox of 5,000 nodes, a queue under constant change, and samples of memory, CPU usage and
latency. The script judges whether the second half of the samples grows.

usage: tests/figures/soak.py [PROGRAM] [--minutes 60] [--nodes 5000] [--every 30] [--write FILE]     (PROGRAM: default target/shipped/cketerm)

Churn: every second, commands queue reboots and cancel others; the engine drains and reboots as it can. The sandbox simulates etcd,
Kubernetes and the machines, and keeps all their history in memory: its size is reported, not judged.
Prints one JSON line per sample, then a table, and for each figure `flat` or `growing`; exit 1 if a figure of cketerm grows.
"""
import argparse, json, os, random, re, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

from terminal import PAGE, TICK, Terminal

parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--minutes", type=float, default=60)
parser.add_argument("--nodes", type=int, default=5000)
parser.add_argument("--every", type=float, default=30)
parser.add_argument("--write", metavar="FILE")
args = parser.parse_args()
program = os.path.abspath(args.program)
folder = tempfile.mkdtemp(prefix="cketerm-soak-")
environment = {k: v for k, v in os.environ.items() if not k.startswith(("CKETERM_", "KUBE", "XDG_"))} | {
    "HOME": folder, "NO_COLOR": "1", "USER": "soak"}
config = f"{folder}/config.yaml"


def run_command(*arguments, stdin=""):
    began = time.monotonic()
    out = subprocess.run([program, "--config", config, *arguments], input=stdin, capture_output=True, text=True, env=environment, timeout=120)
    return out, time.monotonic() - began


def process_usage(pid):
    """CPU seconds and resident MiB of one process."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK, int(open(f"/proc/{pid}/statm").read().split()[1]) * PAGE / 2**20


class Churn(threading.Thread):
    """Queues and cancels reboots until stopped; counts both."""

    def __init__(self, addresses):
        super().__init__(daemon=True)
        self.addresses, self.over, self.added, self.cancelled, self.refused = addresses, False, 0, 0, 0
        self.random = random.Random(1)

    def run(self):
        while not self.over:
            some = self.random.sample(self.addresses, 5)
            out, _ = run_command("rq", "add", "-", "--reason", "soak", stdin="\n".join(some))
            self.added += 5 if out.returncode == 0 else 0
            self.refused += out.returncode != 0
            out, _ = run_command("rq", "list", "-o", "json")
            waiting = [e["index"] for e in json.loads(out.stdout or "[]") if e.get("status") == "queued"] if out.returncode == 0 else []
            for index in self.random.sample(waiting, min(len(waiting), max(0, len(waiting) - 40))):
                out, _ = run_command("rq", "cancel", index)
                self.cancelled += out.returncode == 0
                if self.over:
                    return
            time.sleep(0.5)


def growth(values, slack):
    """Theil–Sen slope per sample over the second half, and whether it exceeds noise and slack over that half."""
    half = values[len(values) // 2:]
    slopes = [(b - a) / (j - i) for i, a in enumerate(half) for j, b in enumerate(half) if j > i]
    if not slopes:
        return 0.0, False
    slope = statistics.median(slopes)
    spread = statistics.median(abs(b - a) for a, b in zip(half, half[1:])) if len(half) > 1 else 0
    return slope, slope * (len(half) - 1) > max(slack * statistics.median(half), 2 * spread)


serve = subprocess.Popen([program, "sandbox", "serve", "--nodes", str(args.nodes), "--dir", folder, "--speed", "10"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=open(f"{folder}/sandbox.log", "w"), text=True, env=environment)
children, console, ended = [serve], None, 0
try:
    facts = json.loads(serve.stdout.readline())
    engine = subprocess.Popen([program, "--daemon", "--config", config, "--http", "127.0.0.1:0"], stdin=subprocess.DEVNULL,
                              stdout=open(f"{folder}/engine.log", "w"), stderr=subprocess.STDOUT, env=environment)
    children.append(engine)
    out, _ = run_command("cluster", "get", "-o", "json")
    nodes = json.loads(out.stdout)["nodes"]
    workers = [n["address"] for n in nodes if not n.get("control_plane")]
    console = Terminal([program, "--config", config, "--observe"], (200, 50), environment)
    if console.shows(r"\d+ nodes|[Nn]odes", 120) is None:
        sys.exit("the console shows no nodes")
    console.press("2")
    console.pump(5)
    churn = Churn(workers)
    churn.start()
    samples, began = [], time.monotonic()
    before = {name: process_usage(pid)[0] for name, pid in (("engine", engine.pid), ("console", console.pid))}
    at = began
    while time.monotonic() < began + args.minutes * 60:
        console.pump(max(0, min(args.every, began + args.minutes * 60 - time.monotonic()) - 8))
        if engine.poll() is not None:
            sys.exit(f"the engine exited: {open(f'{folder}/engine.log').read()[-2000:]}")
        took, now = time.monotonic() - at, time.monotonic()
        at = now
        one = {"minute": round((now - began) / 60, 2)}
        for name, pid in (("engine", engine.pid), ("console", console.pid)):
            processor, memory = process_usage(pid)
            one[f"{name}_rss_mib"], one[f"{name}_cpu_pct"] = round(memory, 1), round(100 * (processor - before[name]) / took, 2)
            before[name] = processor
        one["list_ms"] = round(1000 * statistics.median(run_command("rq", "list")[1] for _ in range(5)), 1)
        one["key_ms"] = console.keys("j", 9)["median_ms"]
        one["sandbox_rss_mib"] = round(process_usage(serve.pid)[1], 1)
        one |= {"added": churn.added, "cancelled": churn.cancelled, "refused": churn.refused}
        samples.append(one)
        print(json.dumps(one), flush=True)
    churn.over = True
    # allowed growth over the second half, as a fraction of its median
    judged = {"engine_rss_mib": 0.05, "console_rss_mib": 0.05, "engine_cpu_pct": 0.3, "console_cpu_pct": 0.3, "list_ms": 0.3, "key_ms": 0.3}
    lines = ["| figure | first | median | last | slope per sample, second half | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for name, slack in (judged | {"sandbox_rss_mib": None}).items():
        values = [s[name] for s in samples if s[name] is not None]
        slope, growing = growth(values, slack or 0)
        verdict = "not judged" if slack is None else "growing" if growing else "flat"
        ended |= verdict == "growing"
        lines.append(f"| {name} | {values[0]} | {statistics.median(values):.1f} | {values[-1]} | {slope:+.3f} | {verdict} |")
    log = open(f"{folder}/engine.log").read()
    ended |= "panicked at" in log
    done = f"{args.minutes:g} minutes, {args.nodes} nodes, {len(samples)} samples: {churn.added} entries queued, {churn.cancelled} cancelled"
    lines.append(f"\n{done}; {log.count('panicked at')} panics")
    text = "\n".join(lines)
    print(text)
    if args.write:
        page = open(args.write).read()
        page = re.sub(r"(<!-- soak -->\n).*?(<!-- /soak -->)", lambda m: m[1] + text + "\n" + m[2], page, flags=re.S)
        open(args.write, "w").write(page)
finally:
    if console:
        console.quit("q")
    for child in reversed(children):
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                child.kill()
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(ended)
