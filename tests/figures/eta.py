#!/usr/bin/env python3
"""Writes the coverage of the estimated ends into a document, between its `eta` markers: make eta."""

import subprocess
import sys

BEGIN, END = "<!-- eta: begin -->\n", "<!-- eta: end -->\n"
COMMAND = "cargo run --locked --quiet --config tests/sim/profile.toml -p cketerm-rules --example eta_coverage --".split()


def main():
    path = sys.argv[1]
    ran = subprocess.run(COMMAND + sys.argv[2:], stdout=subprocess.PIPE, text=True)
    print(ran.stdout, end="")
    if ran.returncode:
        sys.exit(ran.returncode)
    with open(path, encoding="utf-8") as document:
        before, rest = document.read().split(BEGIN)
        _, after = rest.split(END)
    with open(path, "w", encoding="utf-8") as document:
        document.write(before + BEGIN + ran.stdout + END + after)


if __name__ == "__main__":
    main()
