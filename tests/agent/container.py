"""A container with a real systemd, D-Bus and logind: PID, mount, UTS, IPC and cgroup namespaces of its own, and the host's
network. Its root is an overlay on the host's, so it runs the systemd that is installed here."""
import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from checks import run

HERE = Path(__file__).resolve().parent
NAMESPACES = ["--pid", "--mount", "--uts", "--ipc", "--cgroup"]
NEEDED = ("unshare", "nsenter", "setpriv", "busctl", "systemctl", "systemd-inhibit", "systemd-run", "dbus-daemon", "journalctl")
OVERLAY = "cd $1 && mkdir disk work root && mount -t overlay overlay -o lowerdir=/,upperdir=disk,workdir=work root"
LOGIND = "/lib/systemd/systemd-logind"


def cgroup_root():
    """Mount point of the second version of cgroups, or None."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(m[1]) for m in mounts if m[2] == "cgroup2"), None)


def missing():
    """Reason why no container can run here, or None."""
    if os.geteuid() != 0:
        return "no root"
    lacks = [name for name in NEEDED if run("sh", "-c", f"command -v {name}", check=False).returncode]
    if lacks or not os.path.exists(LOGIND):
        return f"systemd, its logind or D-Bus is not installed (lacks {', '.join(lacks) or 'systemd-logind'})"
    if not cgroup_root() or not os.access(cgroup_root(), os.W_OK):
        return "no writable cgroup2"
    if run("unshare", *NAMESPACES, "--fork", "true", check=False).returncode:
        return "no right to make namespaces"
    with tempfile.TemporaryDirectory(prefix="cketerm-overlay-") as folder:
        if run("unshare", "--mount", "sh", "-c", OVERLAY, "sh", folder, check=False).returncode:
            return f"no overlay file system in {tempfile.gettempdir()}"
    return None


class Container:
    """One machine: its disk survives its boots."""

    def __init__(self, folder, name):
        self.folder, self.disk, self.log = Path(folder), Path(folder, "disk"), Path(folder, "console")
        self.group = cgroup_root() / f"cketerm-{name}-{os.getpid()}"
        self.process, self.init, self.boot_id = None, None, None
        # Only the units of systemd and D-Bus, none of the host's services.
        for path in ("etc/systemd/system", "etc/init.d"):
            (self.disk / path).mkdir(parents=True)
            os.setxattr(self.disk / path, "trusted.overlay.opaque", b"y")
        (self.disk / "var/log/journal").mkdir(parents=True)
        self.write("etc/hostname", name + "\n")
        self.write("etc/machine-id", uuid.uuid4().hex + "\n")

    def write(self, path, text, mode=0o644):
        """Writes a file to the disk. The container must be off, or have no such file yet."""
        file = self.disk / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def boot(self):
        """Starts systemd, and waits until it has started everything. Returns its state."""
        self.boot_id = str(uuid.uuid4())
        (self.folder / "boot_id").write_text(self.boot_id + "\n")
        self.group.mkdir(exist_ok=True)
        join = lambda: (self.group / "cgroup.procs").write_text(str(os.getpid()))
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--fork", "--kill-child", HERE / "boot", self.folder, os.readlink("/proc/self/ns/pid")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=join, start_new_session=True)
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"the container ended: {self.log.read_text()}")
            self.init = self.find_init()
            state = self.run("systemctl", "is-system-running", check=False).stdout.strip() if self.init else ""
            if state in ("running", "degraded"):
                return state
            time.sleep(0.1)
        raise RuntimeError(f"systemd did not start: {self.log.read_text()}")

    def find_init(self):
        """PID of systemd, seen from outside; None before it is there."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        name = lambda pid: Path(f"/proc/{pid}/comm").read_text().strip()
        return next((pid for pid in children if name(pid) == "systemd"), None)

    def run(self, *argv, **more):
        """Runs a command in the container."""
        return run("nsenter", "--target", self.init, "--mount", "--uts", "--ipc", "--pid", "--cgroup", *argv, **more)

    def wait_for_end(self, timeout=60):
        """Waits until PID 1 ended. Returns its signal: SIGHUP after reboot(2) to restart, SIGINT to power off."""
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            return "no end"
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def journal(self, boot_id):
        """Messages of a boot in order: (Unix time, program, text)."""
        out = run("journalctl", "-D", self.disk / "var/log/journal", "-o", "json", f"_BOOT_ID={boot_id.replace('-', '')}")
        entries = map(json.loads, out.stdout.splitlines())
        return [(int(e["__REALTIME_TIMESTAMP"]) / 1e6, e.get("SYSLOG_IDENTIFIER", ""), str(e["MESSAGE"])) for e in entries]

    def logs(self):
        """Texts of the present boot."""
        return [text for _, _, text in self.journal(self.boot_id)]

    def kill(self):
        """Ends it without a shutdown, and removes its control groups."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for _ in range(50):
            for group in sorted((p for p in self.group.rglob("*") if p.is_dir()), reverse=True):
                try:
                    group.rmdir()
                except OSError:
                    pass
            try:
                return self.group.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.1)
        return None
