#!/usr/bin/env python3
"""Makes docs/pictures/session.svg: a rolling reboot with a blocked drain, as an animated picture of a real session.

usage: docs/pictures/animate.py [PROGRAM] [FILE] [--frames FOLDER]

PROGRAM (default: target/debug/cketerm) serves a sandbox without a scenario, runs an engine as a daemon, and shows its console in tmux.
The budget db/mysql-1 forbids every eviction, so one of 16 drains is blocked. The keys of FRAMES are pressed, and what tmux shows is
drawn as `cketerm screenshot --format svg` draws it. Takes a minute. Needs tmux. Under root the operator is alice, by $SUDO_USER; otherwise
the picture shows your login name.

FILE needs no script: CSS shows each frame for its time. Lines that several frames have in common are stored once. Where animations are
switched off (prefers-reduced-motion, or a viewer without them), it shows the frame STILL. --frames also writes each frame as a file.
"""
import argparse, html, json, os, re, subprocess, sys, tempfile, time, urllib.request

import screens

COLUMNS, ROWS = 100, 26
NODES = [f"w{n:02}" for n in [*range(1, 8), *range(19, 28)]]
# (seconds shown, key pressed or None, what must be on the screen then, seconds to wait afterwards, caption)
FRAMES = [
    (3.0, None, r"nothing needs you(.|\n)*(booting for(.|\n)*){3}", 1, "A rolling reboot of 16 machines, four at a time: drain, reboot, check, uncordon."),
    (3.5, None, r"w07 backs off", 1, "One drain is blocked. cketerm uncordons w07, goes on with the others, and calls you."),
    (4.5, "enter", r"maxUnavailable is 0: set it to 1", 1, "Why? The pod, the budget that keeps it, and the change that would help."),
    (3.0, "$ kubectl", r"B reset backoff", 1, "The owner of the database sets maxUnavailable to 1. cketerm changes no budget."),
    (2.5, "B", r"Reset the backoff of 1 reboot", 0.5, "Do not wait for the next try in some minutes: reset the backoff of w07."),
    (2.0, "enter", r">Reset 1 backoff<", 0.5, "A reason is optional. The next Enter does it, and the audit says who did."),
    (3.0, "enter", r"status +rebooting(.|\n)*attempt 1: exit 0", 1, "Drained, rebooting. Found and unblocked in four keys: Enter, B, Enter, Enter."),
    (4.0, "0", r"nothing needs you(.|\n)*w07 booted", 0, "Nothing needs you: w07 has rebooted and takes pods again. The others follow by themselves."),
]
STILL = 1
# what `cketerm screenshot` uses (src/console/src/terminal/screenshot.rs)
PALETTE = ["#1d1f21", "#cc6666", "#8fa876", "#de935f", "#81a2be", "#b294bb", "#8abeb7", "#c5c8c6",
           "#7c7f83", "#e07a7a", "#b5bd68", "#f0c674", "#9cc2e5", "#c9a6d4", "#9fd6cf", "#ffffff"]
GROUND = ("#d4d6d4", "#16181a")
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
CELL_WIDTH, CELL_HEIGHT, MARGIN, BASELINE, CAPTION = 8.4, 18, 8, 13.5, 44
WIDTH, HEIGHT = COLUMNS * CELL_WIDTH + 2 * MARGIN, ROWS * CELL_HEIGHT + 2 * MARGIN + CAPTION


def wait(what, found, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found():
            return
        time.sleep(0.1)
    sys.exit(f"{what}: not seen in {seconds} seconds")


def set_budget(kubernetes, allowed):
    """What `kubectl -n db patch pdb mysql-1` sends."""
    url = f"{kubernetes}/apis/policy/v1/namespaces/db/poddisruptionbudgets/mysql-1"
    body = json.dumps({"spec": {"maxUnavailable": allowed}}).encode()
    headers = {"Authorization": "Bearer admin", "Content-Type": "application/merge-patch+json"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PATCH")).close()


def record(program):
    """The captures of FRAMES."""
    captures, children, terminal = [], [], None
    user = {"SUDO_USER": "alice"}
    with tempfile.TemporaryDirectory(prefix="cketerm-session-") as folder:
        try:
            children.append(subprocess.Popen([program, "sandbox", "serve", "--dir", folder], stdout=subprocess.PIPE, text=True))
            urls = json.loads(children[0].stdout.readline())
            command = [program, "--config", urls["config"]]
            log = open(os.path.join(folder, "daemon.log"), "w")
            children.append(subprocess.Popen([*command, "--daemon", "--http", "off"], stdout=log, stderr=log))
            wait("a leader", lambda: subprocess.run([*command, "leader"], capture_output=True).returncode == 0, 30)
            set_budget(urls["kubernetes"], 0)
            terminal = screens.Tmux(f"{program} --config {urls['config']} --theme terminal", COLUMNS, ROWS, user)
            wait("the console", lambda: "nothing needs you" in terminal.capture(), 30)
            add = [*command, "rq", "add", *NODES, "--reason", "kernel 6.6.74, CHG-1042"]
            subprocess.run(add, env={**os.environ, **user}, check=True, capture_output=True)
            for seconds, key, sign, rest, caption in FRAMES:
                if key == "$ kubectl":
                    set_budget(urls["kubernetes"], 1)
                elif key:
                    terminal.press(key)
                plain = lambda: re.sub(r"\x1b\[[0-9;:]*m", "", terminal.capture())
                wait(sign, lambda: re.search(sign, plain()), 120)
                time.sleep(rest)
                captures.append(terminal.capture())
                print(f"{len(captures)} of {len(FRAMES)}: {caption}", flush=True)
        finally:
            if terminal:
                terminal.stop()
            for child in reversed(children):
                child.terminate()
                child.wait()
    return captures


class Looks:
    """A class of CSS for each look of text."""

    def __init__(self):
        self.names = {}

    def name(self, look):
        return self.names.setdefault(look, f"t{len(self.names)}")

    def css(self):
        rules = []
        for (fg, _, bold, italic, underline), name in self.names.items():
            more = [(bold, "font-weight:bold"), (italic, "font-style:italic"), (underline, "text-decoration:underline")]
            rules.append(f".{name}{{{';'.join([f'fill:{fg}', *(rule for wanted, rule in more if wanted)])}}}")
        return "".join(rules)


def line(y, row, looks):
    """SVG of one row of a capture."""
    runs = []  # [first column, columns, text, look]
    for x, width, char, look in row:
        if runs and runs[-1][3] == look:
            runs[-1][1] += width
            runs[-1][2] += char
        else:
            runs.append([x, width, char, look])
    back, out, top = [], [], MARGIN + y * CELL_HEIGHT
    for x, width, text, look in runs:
        if look[1] != GROUND[1]:
            size = f'width="{width * CELL_WIDTH:.1f}" height="{CELL_HEIGHT}"'
            back.append(f'<rect x="{MARGIN + x * CELL_WIDTH:.1f}" y="{top}" {size} fill="{look[1]}"/>')
        x, text = x + len(text) - len(text.lstrip()), text.strip()
        if text:
            size = f'textLength="{len(text) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            out.append(f'<text class="{looks.name(look)}" x="{MARGIN + x * CELL_WIDTH:.1f}" y="{top + BASELINE}" {size}>'
                       f'{html.escape(text, quote=False)}</text>')
    return "".join(back + out)


def caption(number):
    """SVG of the line below the screen: the key that was pressed, and what happened."""
    _, key, _, _, text = FRAMES[number]
    middle, x, out = HEIGHT - CAPTION / 2 - 2, 16, []
    if key:
        name = "Enter" if key == "enter" else key
        width = len(name) * 8.4 + 18
        out.append(f'<rect class="key" x="{x}" y="{middle - 13}" width="{width:.1f}" height="26" rx="5"/>'
                   f'<text class="name" x="{x + width / 2:.1f}" y="{middle + 5}">{name}</text>')
        x += width + 12
    out.append(f'<text class="says" x="{x:.1f}" y="{middle + 5}">{html.escape(text, quote=False)}</text>')
    out.append(f'<text class="count" x="{WIDTH - 14}" y="{middle + 5}">{number + 1}/{len(FRAMES)}</text>')
    return "".join(out)


def picture(captures, shown=None):
    """The animated picture, or only the frame with the number `shown`."""
    looks, parts = Looks(), {}  # SVG of a part: numbers of the frames that have it
    screens.ANSI[:] = PALETTE
    for number, capture in enumerate(captures):
        for y, row in enumerate(screens.cells(capture, ROWS, GROUND)):
            parts.setdefault(line(y, row, looks), []).append(number)
        parts.setdefault(caption(number), []).append(number)
    total, groups = sum(frame[0] for frame in FRAMES), {}
    for part, numbers in parts.items():
        groups.setdefault(tuple(numbers), []).append(part)
    rules, body = [], []
    for i, (numbers, group) in enumerate(groups.items()):
        if shown is not None:
            body += group if shown in numbers else []
            continue
        if len(numbers) == len(FRAMES):
            body += ["<g>", *group, "</g>"]
            continue
        steps, start = [], 0.0
        for number, frame in enumerate(FRAMES):
            if number == 0 or (number in numbers) != (number - 1 in numbers):
                steps.append(f"{100 * start / total:.3f}%{{opacity:{int(number in numbers)}}}")
            start += frame[0]
        rules.append(f"@keyframes k{i}{{{''.join(steps)}100%{{opacity:{int(0 in numbers)}}}}}")
        rules.append(f"#g{i}{{opacity:{int(STILL in numbers)};animation:k{i} {total}s step-end infinite}}")
        body += [f'<g id="g{i}">', *group, "</g>"]
    style = [f".key{{fill:#2b2f33;stroke:{PALETTE[11]}}}", f".name{{fill:{PALETTE[11]};font-weight:bold;text-anchor:middle}}",
             ".says{fill:#ffffff;font-family:system-ui,sans-serif;font-size:15px}", f".count{{fill:{PALETTE[8]};text-anchor:end}}",
             looks.css(), *rules, "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"]
    title = "A rolling reboot in cketerm: one drain is blocked, and goes on after four keys"
    said = " ".join(f"{number + 1}. {frame[4]}" for number, frame in enumerate(FRAMES))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT}" font-family="{FONT}" font-size="14" '
        'xml:space="preserve">',
        f"<title>{title}</title><desc>{html.escape(said, quote=False)}</desc>", f"<style>{''.join(style)}</style>",
        '<rect width="100%" height="100%" rx="6" fill="#24282c"/>',
        f'<rect width="100%" height="{HEIGHT - CAPTION}" rx="6" fill="{GROUND[1]}"/>',
        *body, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/debug/cketerm")
    parser.add_argument("file", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "session.svg"))
    parser.add_argument("--frames", metavar="FOLDER")
    args = parser.parse_args()
    captures = record(os.path.abspath(args.program))
    pictures = {args.file: picture(captures)}
    if args.frames:
        os.makedirs(args.frames, exist_ok=True)
        pictures |= {os.path.join(args.frames, f"{number + 1}.svg"): picture(captures, number) for number in range(len(captures))}
    for path, text in pictures.items():
        with open(path, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
