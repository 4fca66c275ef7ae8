#!/usr/bin/env python3
"""Makes PNG pictures of every view of the console, from captures of real terminals.

usage: docs/pictures/screens.py [PROGRAM] [--folder target/pictures] [--sizes 60x20,80x24,120x36,200x50] [--themes dark,light]
                                [--views overview,nodes] [--peer NAME=COMMAND] [--peer-keys NAME=KEYS]

PROGRAM (default: target/debug/cketerm) plays scenarios of its sandbox in tmux. For each theme and scenario one process runs. It is
resized, its views are opened by their keys, and what tmux shows is drawn as a picture with tmux's colours. --peer makes one picture of
another program at each size and theme instead, on the same terminal. Needs tmux, rsvg-convert (Debian: librsvg2-bin) and the font
DejaVu Sans Mono (fonts-dejavu-core). Prints each file.
"""
import argparse, html, os, re, shlex, subprocess, sys, tempfile, time, unicodedata

FONT, SIZE = "DejaVu Sans Mono", 14
CELL_WIDTH, CELL_HEIGHT, BASELINE = SIZE * 0.60205, SIZE * 1.1640625, SIZE * 0.928
# xterm's default palette; the light terminal has the same colours on white, as xterm has with -rv off
ANSI = ["#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5",
        "#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff"]
GROUND = {"dark": ("#e5e5e5", "#101214"), "light": ("#101010", "#ffffff")}
# scenario: (seconds before the first picture, speed, pictures as name: keys)
SCENES = {
    "calm": (20, 2, {"overview": "0", "reboots": "1", "detail": "1 enter", "nodes": "2", "nodes-other": "2 v", "diff": "5",
                     "audit": "8", "logs": "9", "help": "1 ?", "command": "1 : c", "dialog-cancel": "1 X"}),
    "flaky-bmc": (70, 4, {"overview-trouble": "0", "reboots-trouble": "1", "detail-trouble": "1 n enter", "history": "7",
                          "history-pane": "7 enter"}),
    "budget": (40, 4, {"blockers": "1 b"}),
    "registry": (40, 2, {"machines": "4", "diff-registry": "5", "overview-registry": "0"}),
    "repairs": (25, 1, {"repairs": "3", "repair-detail": "3 enter", "dialog-repair": "2 P"}),
    "hosts": (25, 1, {"hosts": "6", "host-detail": "6 enter"}),
}
KEYS = {"enter": "Enter", "esc": "Escape", "tab": "Tab", "space": "Space", "up": "Up", "down": "Down", "left": "Left", "right": "Right"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/debug/cketerm")
    parser.add_argument("--folder", default="target/pictures")
    parser.add_argument("--sizes", default="60x20,80x24,120x36,200x50")
    parser.add_argument("--themes", default="dark,light")
    parser.add_argument("--views", help="names of pictures, separated by commas; default: all")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peer-keys", action="append", default=[], metavar="NAME=KEYS")
    return parser.parse_args()


class Tmux:
    """One program in a tmux server of its own."""

    def __init__(self, command, columns, rows, env=None):
        self.socket = os.path.join(tempfile.mkdtemp(prefix="cketerm-screens-"), "tmux")
        words = " ".join(f"{k}={shlex.quote(v)}" for k, v in (env or {}).items())
        config = self.socket + ".conf"
        with open(config, "w") as f:
            f.write("set -g default-terminal tmux-256color\nset -ga terminal-features ',*:RGB'\nset -g status off\nset -sg escape-time 0\n")
        self.call("-f", config, "new-session", "-d", "-x", str(columns), "-y", str(rows), f"env COLORTERM=truecolor {words} {command}")

    def call(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], capture_output=True, text=True, check=True).stdout

    def resize(self, columns, rows):
        self.call("resize-window", "-x", str(columns), "-y", str(rows))

    def press(self, keys):
        for key in keys.split():
            self.call("send-keys", *([KEYS[key]] if key in KEYS else ["-l", key]))
            time.sleep(0.15)

    def capture(self):
        return self.call("capture-pane", "-e", "-p", "-N")

    def stop(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


def colour(codes):
    """The colour after 38 or 48, and the codes behind it."""
    kind = codes.pop(0)
    if kind == 2:
        red, green, blue = codes.pop(0), codes.pop(0), codes.pop(0)
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = codes.pop(0)
    if number < 16:
        return ANSI[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{steps[n]:02x}" for n in (number // 36, number // 6 % 6, number % 6))


class Style:
    """The attributes of a cell."""

    def __init__(self):
        self.fg = self.bg = None
        self.flags = set()

    def apply(self, codes):
        codes = codes or [0]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.__init__()
            elif code in (1, 2, 3, 4, 7):
                self.flags.add(code)
            elif code == 22:
                self.flags -= {1, 2}
            elif code in (23, 24, 27):
                self.flags.discard(code - 20)
            elif 30 <= code <= 37:
                self.fg = ANSI[code - 30]
            elif code == 38:
                self.fg = colour(codes)
            elif code == 39:
                self.fg = None
            elif 40 <= code <= 47:
                self.bg = ANSI[code - 40]
            elif code == 48:
                self.bg = colour(codes)
            elif code == 49:
                self.bg = None
            elif 90 <= code <= 97:
                self.fg = ANSI[code - 82]
            elif 100 <= code <= 107:
                self.bg = ANSI[code - 92]

    def drawn(self, ground):
        fg, bg = self.fg or ground[0], self.bg or ground[1]
        if 7 in self.flags:
            fg, bg = bg, fg
        if 2 in self.flags:
            mix = lambda a, b: "".join(f"{(int(a[i:i + 2], 16) + int(b[i:i + 2], 16)) // 2:02x}" for i in (1, 3, 5))
            fg = "#" + mix(fg, bg)
        return fg, bg, 1 in self.flags, 3 in self.flags, 4 in self.flags


def cells(text, rows, ground):
    """The characters of a capture, row by row: (column, cells, character, look)."""
    style = Style()
    for line in text.split("\n")[:rows]:
        x, row = 0, []
        for part in re.split(r"(\x1b\[[0-9;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x0f|\x0e|\x1b\(.)", line):
            if part.startswith("\x1b[") and part.endswith("m"):
                style.apply([int(n or 0) for n in re.split("[;:]", part[2:-1])])
                continue
            if part[:1] in ("\x1b", "\x0e", "\x0f"):
                continue
            for char in part:
                width = 2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1
                row.append((x, width, char, style.drawn(ground)))
                x += width
        yield row


def svg(text, columns, rows, theme):
    """The picture of a capture."""
    ground = GROUND[theme]
    width, height = columns * CELL_WIDTH, rows * CELL_HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.1f}" height="{height:.1f}" font-family="{FONT}" font-size="{SIZE}">',
           f'<rect width="100%" height="100%" fill="{ground[1]}"/>']
    for y, row in enumerate(cells(text, rows, ground)):
        run = []  # (first column, text, look)
        for x, _, char, look in row:
            # a run ends at each character outside of ASCII: another font could have other widths
            if run and run[-1][2] == look and ord(char) < 128 and run[-1][1].isascii() and run[-1][0] + len(run[-1][1]) == x:
                run[-1] = (run[-1][0], run[-1][1] + char, look)
            else:
                run.append((x, char, look))
        for first, chars, (fg, bg, bold, italic, underline) in run:
            left, top = first * CELL_WIDTH, y * CELL_HEIGHT
            wide = len(chars) * CELL_WIDTH * (2 if unicodedata.east_asian_width(chars[0]) in "WF" else 1)
            if bg != ground[1]:
                out.append(f'<rect x="{left:.2f}" y="{top:.2f}" width="{wide + 0.4:.2f}" height="{CELL_HEIGHT + 0.4:.2f}" fill="{bg}"/>')
        for first, chars, (fg, bg, bold, italic, underline) in run:
            if not chars.strip():
                continue
            more = (' font-weight="bold"' if bold else "") + (' font-style="italic"' if italic else "") + (' text-decoration="underline"' if underline else "")
            out.append(f'<text x="{first * CELL_WIDTH:.2f}" y="{y * CELL_HEIGHT + BASELINE:.2f}" fill="{fg}" xml:space="preserve"{more}>{html.escape(chars)}</text>')
    return "\n".join(out + ["</svg>\n"])


def write(path, text, columns, rows, theme):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(["rsvg-convert", "-o", path], input=svg(text, columns, rows, theme), text=True, check=True)
    with open(path[:-4] + ".txt", "w") as f:
        f.write(re.sub(r"\x1b\[[0-9;:]*m", "", text))
    print(path, flush=True)


def shoot(program, args, sizes, themes):
    wanted = set(args.views.split(",")) if args.views else None
    for theme in themes:
        for scenario, (wait, speed, pictures) in SCENES.items():
            pictures = {name: keys for name, keys in pictures.items() if wanted is None or name in wanted}
            if not pictures:
                continue
            command = f"{shlex.quote(program)} --sandbox --scenario {scenario} --speed {speed} --seed 1 --theme {theme}"
            terminal = Tmux(command, *sizes[0])
            try:
                time.sleep(wait / speed)
                for columns, rows in sizes:
                    terminal.resize(columns, rows)
                    for name, keys in pictures.items():
                        terminal.press(keys)
                        time.sleep(0.5)
                        write(f"{args.folder}/{theme}/{columns}x{rows}/{name}.png", terminal.capture(), columns, rows, theme)
                        terminal.press("esc esc esc esc")
            finally:
                terminal.stop()


def shoot_peers(args, sizes, themes):
    keys = dict(words.split("=", 1) for words in args.peer_keys)
    for name, command in (words.split("=", 1) for words in args.peer):
        for theme in themes:
            for columns, rows in sizes:
                terminal = Tmux(command, columns, rows)
                try:
                    time.sleep(5)
                    terminal.press(keys.get(name, ""))
                    time.sleep(1)
                    write(f"{args.folder}/peers/{name}-{theme}-{columns}x{rows}.png", terminal.capture(), columns, rows, theme)
                finally:
                    terminal.stop()


def main():
    args = parse()
    sizes = [tuple(map(int, size.split("x"))) for size in args.sizes.split(",")]
    themes = args.themes.split(",")
    if args.peer:
        return shoot_peers(args, sizes, themes)
    program = os.path.abspath(args.program)
    if not os.access(program, os.X_OK):
        sys.exit(f"{program} cannot be run: cargo build -p cketerm")
    shoot(program, args, sizes, themes)


if __name__ == "__main__":
    main()
