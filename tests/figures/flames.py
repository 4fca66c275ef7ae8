#!/usr/bin/env python3
"""Flamegraphs of a pass, a frame and the console's start, as SVG: which functions the processor time goes to.

usage: tests/figures/flames.py [--folder docs/pictures] [--nodes 5000] [--starts 20] [--only pass|frame|start]

Builds the program and the benchmarks `pass` and `frame` once more in TARGET/flames, with names and frame pointers, which the shipped program does
not have: thin instead of fat link-time optimization, optimized for speed. perf samples them (event cpu-clock, which virtual machines have too), and
inferno, installed at first by cargo, draws the pictures: flame-pass.svg, flame-frame.svg and flame-start.svg.

The pass and the frame are of 10,000 entries; the start is an observing console on a real etcd and kube-apiserver (tests/servers) with --nodes Nodes,
until their rows are on the screen.
"""
import argparse, itertools, json, os, re, shutil, subprocess, sys, tempfile

from console import CACHE, ROWS, WIDE, Cluster, subjects
from terminal import Terminal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INFERNO = "0.12.8"
TOOLS = os.path.join(CACHE, f"cketerm-inferno-{INFERNO}")
TARGET = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "flames")
TITLES = {"pass": "A pass over 10,000 entries and 5,000 nodes", "frame": "Frames of the console over 10,000 rows", "start": "Start of an observing console"}
LEAST = 0.3  # percent of the time below which a function is not drawn
DEEPEST = 50  # frames of a stack that are drawn


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="docs/pictures")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--only", choices=list(TITLES))
    return parser.parse_args()


def install():
    """Fails with the remedy if a tool is missing."""
    if not shutil.which("perf"):
        sys.exit("perf is missing: apt-get install linux-perf")
    if not os.path.exists(f"{TOOLS}/bin/inferno-flamegraph"):
        print(f"installs inferno {INFERNO}", file=sys.stderr)
        subprocess.run(["cargo", "install", "--quiet", "--locked", "--root", TOOLS, f"inferno@{INFERNO}"], check=True)


def build(names):
    """Builds the program and the benchmarks; returns their paths by name."""
    flags = f"{os.environ.get('RUSTFLAGS', '')} -C force-frame-pointers=yes".strip()
    environment = dict(os.environ, CARGO_TARGET_DIR=TARGET, RUSTFLAGS=flags, CARGO_PROFILE_RELEASE_STRIP="false", CARGO_PROFILE_BENCH_STRIP="false")
    argv = ["cargo", "build", "--locked", "--release", "--message-format", "json-render-diagnostics", "-p", "cketerm", "--bin", "cketerm"]
    benches = [name for name in names if name != "start"]
    runs = [argv] if "start" in names else []
    if benches:
        only = [part for name in benches for part in ("--bench", name)]
        runs.append(["cargo", "bench", "--locked", "--no-run", "--message-format", "json-render-diagnostics", *only])
    paths = {}
    for argv in runs:
        for line in subprocess.run(argv, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
            message = json.loads(line)
            if message.get("executable"):
                paths[message["target"]["name"]] = message["executable"]
    return paths


def record(argv, data):
    """The command line that samples a program into the file `data`."""
    return ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "9999", "--call-graph", "fp", "--output", data, "--", *argv]


def stacks(data):
    """Folded stacks of the samples, as `thread;caller;called count` in lines."""
    samples = subprocess.run(["perf", "script", "--input", data], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    folded = subprocess.run([f"{TOOLS}/bin/inferno-collapse-perf"], input=samples, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return folded.decode("utf-8", "replace")


def shortened(line):
    """A folded stack without frames that repeat the one below, cut at the top."""
    stack, count = line.rsplit(" ", 1)
    frames = [frame for frame, _ in itertools.groupby(stack.split(";"))]
    return f"{';'.join(frames[:DEEPEST])} {count}"


def draw(name, folded, folder):
    """Writes the picture. The hash that the compiler adds to a function's name is removed."""
    folded = "\n".join(map(shortened, re.sub(r"::h[0-9a-f]{16}\b", "", folded).splitlines()))
    seconds = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()) / 1e9  # the event counts nanoseconds
    if seconds < 0.1:
        sys.exit(f"{name}: only {seconds} s of processor time: did the program run?")
    argv = [f"{TOOLS}/bin/inferno-flamegraph", "--title", TITLES[name], "--subtitle", f"{seconds:.1f} s of processor time", "--countname", "ns",
            "--minwidth", str(LEAST), "--deterministic", "--colors", "rust"]
    picture = subprocess.run(argv, input=folded.encode(), check=True, stdout=subprocess.PIPE).stdout
    path = os.path.join(folder, f"flame-{name}.svg")
    with open(path, "wb") as f:
        f.write(picture)
    print(json.dumps({"figure": name, "cpu_s": round(seconds, 2), "file": path, "bytes": len(picture)}), flush=True)


def starts(program, args, folder):
    """Folded stacks of some starts."""
    cluster = Cluster(folder, args.nodes)
    try:
        cluster.fill()
        peers = argparse.Namespace(program=program, peers="/nowhere", build_peers=False)
        all_subjects = subjects(peers, cluster)
        observer = [subject for subject, _ in zip(all_subjects, range(2))][1]
        folded = ""
        for _ in range(args.starts):
            data = os.path.join(folder, "start.data")
            terminal = Terminal(record([observer.path, *observer.argv], data), WIDE, observer.env)
            if terminal.shows(ROWS) is None:
                sys.exit("no nodes on the screen of the console")
            terminal.quit(observer.quit_keys)
            folded += stacks(data)
        return folded
    finally:
        cluster.stop()


def main():
    args = parse()
    install()
    names = [args.only] if args.only else list(TITLES)
    paths = build(names)
    folder = tempfile.mkdtemp(prefix="cketerm-figures-")
    try:
        for name in names:
            if name == "start":
                folded = starts(paths["cketerm"], args, folder)
            else:
                data = os.path.join(folder, f"{name}.data")
                subprocess.run(record([paths[name]], data), check=True, stdout=subprocess.DEVNULL)
                folded = stacks(data)
            draw(name, folded, args.folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
