#!/usr/bin/env python3
"""Runs the tests on servers while the machine seems to stand still from time to time.

`stalls.py [--seed N] [--every S] [--longest S] COMMAND…`: all processes of the command are frozen together (cgroup
freezer, root only) for up to S seconds, about every S seconds, at times that the seed chooses. A test that measures real
time fails here, instead of on a busy machine of continuous integration. Exits with the command's status.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import time


class Group:
    """A cgroup whose processes can be frozen, of version 1 or 2."""

    def __init__(self):
        name = f"cketerm-stalls-{os.getpid()}"
        first = pathlib.Path("/sys/fs/cgroup/freezer")
        root = first if first.is_dir() else pathlib.Path("/sys/fs/cgroup")
        self.folder = root / name
        self.switch = ("freezer.state", "FROZEN", "THAWED") if first.is_dir() else ("cgroup.freeze", "1", "0")
        self.folder.mkdir()

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def set(self, frozen):
        file, on, off = self.switch
        (self.folder / file).write_text(on if frozen else off)

    def remove(self):
        self.set(False)
        try:
            self.folder.rmdir()
        except OSError:
            print(f"stalls: processes are left in {self.folder}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=30, metavar="S", help="mean time between two stalls")
    parser.add_argument("--longest", type=float, default=12, metavar="S", help="longest stall")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if os.getuid() != 0:
        sys.exit("stalls: only root may freeze processes")
    rng, group, began = random.Random(arguments.seed), Group(), time.monotonic()
    process = subprocess.Popen(arguments.command, preexec_fn=group.enter)
    count, total = 0, 0.0
    try:
        while process.poll() is None:
            try:
                process.wait(rng.uniform(0.5, 1.5) * arguments.every)
                break
            except subprocess.TimeoutExpired:
                pass
            length = rng.uniform(1, arguments.longest)
            print(f"stalls: at {time.monotonic() - began:.0f} s for {length:.1f} s", file=sys.stderr, flush=True)
            group.set(True)
            time.sleep(length)
            group.set(False)
            count, total = count + 1, total + length
    finally:
        group.set(False)
        status = process.wait()
        group.remove()
    print(f"stalls: {count}, together {total:.0f} s; the command ended with {status}", file=sys.stderr)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
