#!/usr/bin/env python3
"""The speed of the machine, for the headings of tables and for budgets of times.

usage: tests/figures/machine_speed.py     prints the slowness of this machine now, in relation to the reference machine
"""
import os, platform, statistics, time

# Seconds that the loop takes on the machine for which the budgets of `make bench` were set, on its usual days.
REFERENCE_SECONDS = 0.08
# A machine that is slower than this, or busy, excuses no more: budgets are at most doubled.
MOST_SLOWNESS = 2


def loop_seconds():
    """Seconds of a fixed piece of work, the shortest of three: virtual machines of one kind differ, and so does one from day to day."""
    def once():
        began = time.perf_counter()
        for _ in range(5_000_000):
            pass
        return time.perf_counter() - began
    return min(once() for _ in range(3))


def slowness(loops):
    """The slowness of this machine while `loops` were measured: their median in relation to the reference machine. A faster one counts as the
    reference: its budgets are not stricter."""
    return min(max(1, statistics.median(loops) / REFERENCE_SECONDS), MOST_SLOWNESS)


def described_machine(loops=()):
    """The machine with its speed: the median of `loops`, or a loop that is measured now."""
    seconds = statistics.median(loops) if loops else loop_seconds()
    return (f"{os.cpu_count()} processors shared with the servers (5 million steps of a Python loop: {seconds:.2f} s), "
            f"{platform.system()} {platform.release()}")


if __name__ == "__main__":
    print(f"{slowness([loop_seconds()]):.3f}")
