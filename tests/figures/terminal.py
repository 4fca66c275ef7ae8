"""A terminal program in a pseudo-terminal, and its cost: bytes, frames, CPU usage, memory, response time. The terminal answers
queries as xterm does."""
import fcntl, os, pty, re, select, signal, statistics, struct, termios, time

TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
ESCAPE = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[P_^X].*?\x1b\\|\x1b\[[0-9;:?<>=!]*[ -/]*[@-~]|\x1b[ -/]*[0-~]", re.S)
ANSWERS = [
    (re.compile(rb"\x1b\[6n"), b"\x1b[1;1R"),
    (re.compile(rb"\x1b\[5n"), b"\x1b[0n"),
    (re.compile(rb"\x1b\[0?c"), b"\x1b[?62;22c"),
    (re.compile(rb"\x1b\[>0?c"), b"\x1b[>41;370;0c"),
    (re.compile(rb"\x1b\]10;\?(?:\x07|\x1b\\)"), b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (re.compile(rb"\x1b\]11;\?(?:\x07|\x1b\\)"), b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
    (re.compile(rb"\x1b\[>0?q"), b"\x1bP>|xterm(390)\x1b\\"),
]
FRAME = b"\x1b[?2026h"
# seconds after a key from which the cursor rests: the console draws a preview after 0.1 s
REST = 0.09


def ms(seconds):
    return None if seconds is None else round(seconds * 1000, 2)


class Terminal:
    """The program runs from `__init__` to `quit`."""

    def __init__(self, argv, size, env=None):
        self.size, self.bytes, self.frames, self.text, self.tail = size, 0, 0, b"", b""
        self.reads = []  # (seconds since the start, bytes)
        self.last = b""
        self.began = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color"} | (env or {}))
            self._set(0)
            try:
                os.execvp(argv[0], argv)
            finally:
                os._exit(127)

    def _set(self, fd):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", self.size[1], self.size[0], 0, 0))

    def resize(self, size):
        self.size = size
        self._set(self.fd)

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def read(self, seconds):
        """Data of one read, empty after the timeout; None when the program has exited."""
        if not select.select([self.fd], [], [], max(0, seconds))[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return None
        if not data:
            return None
        self.bytes += len(data)
        self.reads.append((time.monotonic() - self.began, len(data)))
        self.frames += data.count(FRAME)
        self.text = (self.text + data)[-(1 << 20):]
        pending = self.tail + data
        for question, answer in ANSWERS:
            for found in question.finditer(pending):
                if found.end() > len(self.tail):
                    os.write(self.fd, answer)
        self.tail = pending[-24:] if b"\x1b" in pending[-24:] else b""
        return data

    def pump(self, seconds, until=lambda: False):
        """Reads until the condition holds; False when the program has exited or the time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if until():
                return True
            if self.read(min(0.05, end - time.monotonic())) is None:
                return False
        return until()

    def shows(self, pattern, seconds=60):
        """Seconds from the start until matching text arrived; None if it never did."""
        pattern = re.compile(pattern)
        found = lambda: pattern.search(ESCAPE.sub(b"", self.text).decode("utf-8", "replace"))
        if not self.pump(seconds, found):
            return None
        return self.reads[-1][0]

    def cpu_seconds(self):
        """CPU seconds of the program and its children."""
        return self._stat()[0]

    def memory(self):
        """Resident MiB of the program and its children."""
        return self._stat()[1] / 2**20

    def _stat(self):
        processor, memory, pids = 0, 0, [self.pid]
        for pid in pids:
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    pids += map(int, open(f"/proc/{pid}/task/{task}/children").read().split())
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
                processor += int(fields[11]) + int(fields[12])
                memory += int(open(f"/proc/{pid}/statm").read().split()[1]) * PAGE
            except OSError:
                pass  # it has exited
        return processor / TICK, memory

    def watch_usage(self, seconds):
        """Usage during a time without keys: % of a CPU, bytes and frames per second."""
        processor, bytes_, frames, began = self.cpu_seconds(), self.bytes, self.frames, time.monotonic()
        self.pump(seconds)
        took = time.monotonic() - began
        return {"cpu_pct": round(100 * (self.cpu_seconds() - processor) / took, 2), "bytes_s": round((self.bytes - bytes_) / took, 1),
                "frames_s": round((self.frames - frames) / took, 2)}

    def keys(self, key, times, pause=0.4):
        """Bytes of the answer to a key, bytes that follow once the cursor rests (a preview), and milliseconds to the first byte:
        median and maximum."""
        sizes, later, delays = [], [], []
        for _ in range(times):
            while self.read(0):
                pass
            before, sent, first, at_rest = self.bytes, time.monotonic(), None, None
            self.press(key)
            while (left := sent + pause - time.monotonic()) > 0:
                # what arrives behind this moment is drawn because the cursor rests
                wait = left if at_rest is not None else left - (pause - REST)
                data = self.read(wait)
                if data and first is None:
                    first = self.began + self.reads[-1][0] - sent
                if at_rest is None and time.monotonic() >= sent + REST:
                    at_rest = self.bytes - (len(data) if data and self.began + self.reads[-1][0] >= sent + REST else 0)
            at_rest = self.bytes if at_rest is None else at_rest
            sizes.append(at_rest - before)
            later.append(self.bytes - at_rest)
            delays += [first] if first is not None else []
        return {"bytes": round(statistics.median(sizes)), "preview_bytes": round(statistics.median(later)), "preview_max_bytes": max(later),
                "median_ms": ms(statistics.median(delays)) if delays else None, "max_ms": ms(max(delays)) if delays else None,
                "unanswered": times - len(delays)}

    def repaint(self, size):
        """Bytes that a resize costs."""
        before = self.bytes
        self.resize(size)
        self.pump(1.5)
        return self.bytes - before

    def quit(self, keys):
        """Types the keys that quit, then sends TERM, then KILL; returns which of them worked."""
        for by, act in (("keys", lambda: self.press(keys)), ("TERM", lambda: os.kill(self.pid, signal.SIGTERM)),
                        ("KILL", lambda: os.kill(self.pid, signal.SIGKILL))):
            try:
                act()
            except OSError:
                pass
            end = time.monotonic() + 3
            while time.monotonic() < end:
                self.read(0.02)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self.fd)
                    return by
        return "nothing"
