#!/usr/bin/env python3
"""The faults of the simulation on real servers: processes killed, stopped and cut off, a full disk, little memory; the same observers
as for an upgrade judge what etcd, the API server and the machines themselves recorded.

usage: tests/figures/faults.py [PROGRAM] [STORY…] [--keep]                              (PROGRAM: default target/shipped/cketerm)

Two engines on etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers) for each story: three API servers and eight workers
are queued, two may be in work at once, and the faults come while drains and commands run. At the end every machine was rebooted exactly
once (a person orders again what never began and whose outcome is unknown), no API server beside another machine, only whoever led acted, no cordon is left, nobody panicked.
Stories: members (three members of etcd, the leading one killed, then the next stopped), etcd (stopped), line-etcd and line-api (a line
between that is slow, silent, half closed, cut), revoked (leases taken away), apiserver (killed twice), engine (stopped, overtaken, woken;
killed in mid-command), disk (the log's disk is full), memory (address space for hardly more than itself).
One JSON line a story; exit 1 if something fails, and then its folder with all logs is kept.
"""
import collections, json, os, resource, shutil, signal, socket, subprocess, sys, threading, time
from ground import *
from story import *

args = arguments("program", program="target/shipped/cketerm")
program = os.path.abspath(args.program)
# longer than the lock lasts
LOST = TTL + 4


class Line:
    """A TCP line to a server, with moods: `well`, `slow` (half a second each way), `silent` (nothing arrives), `half` (the server's side is
    closed to us, ours stays open), `cut` (all ended, none taken)."""

    def __init__(self, to):
        host, port = to.rsplit("//", 1)[-1].rsplit(":", 1)
        self.to, self.mood, self.pairs, self.lock = (host, int(port)), "well", [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def is_now(self, mood):
        self.mood = mood
        with self.lock:
            pairs = list(self.pairs)
            if mood == "cut":
                self.pairs = []
        for near, far in pairs:
            if mood == "cut":
                for end in (near, far):
                    try:
                        # so that both ends hear of it at once
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                        end.shutdown(socket.SHUT_RDWR)
                        end.close()
                    except OSError:
                        pass  # it has ended by itself
            elif mood == "half":
                try:
                    near.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

    def _accept(self):
        while True:
            near, _ = self.listener.accept()
            if self.mood == "cut":
                near.close()
                continue
            try:
                far = socket.create_connection(self.to, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                self.pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        try:
            while data := one.recv(1 << 16):
                if self.mood == "slow":
                    time.sleep(0.5)
                while self.mood == "silent":
                    time.sleep(0.05)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (one, other):
                try:
                    end.close()
                except OSError:
                    pass


class Members:
    """Three members of one etcd for cketerm alone; kube-apiserver keeps its own."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        initial = ",".join(f"m{i}={p}" for i, p in enumerate(peers))
        self.argv = [["etcd", "--name", f"m{i}", "--data-dir", f"{folder}/m{i}", "--listen-client-urls", url, "--advertise-client-urls", url,
                      "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", initial]
                     for i, (url, peer) in enumerate(zip(self.urls, peers))]
        for i in range(3):
            self.start(i)

    def start(self, i):
        with open(f"{self.folder}/m{i}-etcd.txt", "a") as log:
            self.processes[i] = subprocess.Popen(self.argv[i], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ctl(self, *words):
        out = subprocess.run(["etcdctl", "--endpoints", ",".join(self.urls), "--command-timeout", "3s", *words], capture_output=True, text=True,
                             env=dict(os.environ, ETCDCTL_API="3"))
        return out.stdout

    def leading(self):
        """Which of those that answer leads; None while none does."""
        try:
            said = json.loads(self.ctl("endpoint", "status", "-w", "json") or "[]")
        except ValueError:
            return None
        return next((self.urls.index(s["Endpoint"]) for s in said if s["Status"]["leader"] == s["Status"]["header"]["member_id"]), None)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()


# a machine's own command asks the API server, which stands still with its etcd: it may take as long
MORE = {"etcd": {"command_timeout_seconds": 30}}


def site(name, members=False):
    """A story whose ground has three members of etcd, where asked for."""
    g = Ground("faults-" + name)
    if members:
        g.record.watch.kill()
        g.members = Members(g.folder)
        g.wait("a member leads", lambda: g.members.leading() is not None, 30)
        g.etcd = g.members.urls[0]
        g.config = f"{g.folder}/config.yaml"
        with open(g.config, "w") as f:
            json.dump({"etcd": {"endpoints": g.members.urls}, "kubernetes": {"kubeconfig": g.facts["KUBECONFIG_BENCH"]},
                       "engine": {"lease_ttl_seconds": TTL}}, f)
        # a watch follows the whole cluster, whichever member dies
        g.record = Record(",".join(g.members.urls))
    return Story(name, g, **MORE.get(name, {}))


def begins(s, kept=True):
    """Everything is queued; a drain goes on until somebody lets it go."""
    s.begin(program)
    s.since = s.ground.record.revision()
    if kept:
        s.holds_back(s.workers[0])
    s.queue(program, s.machines)


def drains(s):
    s.ground.wait("a drain runs", lambda: s.ground.of_status("draining"), LONG)


def commands(s):
    """A command that runs now."""
    def now():
        power = s.ground.power()
        ended = {(p.entry, p.attempt) for p in power if p.what == "end"}
        return [p for p in power if p.what == "begin" and (p.entry, p.attempt) not in ended]
    return s.ground.wait("a command runs", now, LONG)


def finishes(s):
    """To the end of the queue. A person goes to a machine whose command has no known outcome and finds that it never began – its engine
    was stopped between the record and the command –: he orders it once more, and that is the one time that it runs."""
    g, settled = s.ground, []
    def over():
        waiting = g.entries()
        for index in g.of_status("rebooting"):
            if index in settled or any(p.entry == f"reboots/{index}" for p in g.power()):
                continue
            why = g.ran(program, "rq", "why", str(index), "-o", "json").stdout
            if "OutcomeUnknown" in why:
                ordered = g.ran(program, "rq", "retry", str(index), "--reason", "it never began")
                settled.extend([index] if ordered.returncode == 0 else [])
        return not waiting
    g.wait("the queue is empty", over, LONG)
    s.checked["settled by a person"] = len(settled)
    s.every_end()


def members(s):
    g = s.ground
    begins(s)
    one, two = g.daemon(program, "one"), g.daemon(program, "two")
    drains(s)
    first = g.members.leading()
    g.members.processes[first].kill()
    g.members.processes[first].wait()
    g.wait("another member leads", lambda: g.members.leading() not in (None, first), 30)
    s.lets_go(s.workers[0])
    commands(s)
    g.members.start(first)
    g.wait("all three are there", lambda: len(json.loads(g.members.ctl("endpoint", "status", "-w", "json") or "[]")) == 3, 30)
    second = g.members.leading()
    g.members.processes[second].send_signal(signal.SIGSTOP)
    time.sleep(LOST)
    g.members.processes[second].send_signal(signal.SIGCONT)
    finishes(s)


def etcd(s):
    g = s.ground
    begins(s)
    g.daemon(program, "one"), g.daemon(program, "two")
    drains(s)
    g.server_does("freeze", "etcd")
    time.sleep(LOST)
    g.server_does("thaw", "etcd")
    s.lets_go(s.workers[0])
    commands(s)
    g.server_does("freeze", "etcd")
    time.sleep(LOST)
    g.server_does("thaw", "etcd")
    finishes(s)


def moods(s, line):
    """Each mood once in a drain, and the worse ones in a command."""
    drains(s)
    for mood in ("slow", "half", "silent", "cut"):
        line.is_now(mood)
        time.sleep(LOST)
        line.is_now("well")
        time.sleep(1)
    s.lets_go(s.workers[0])
    for mood in ("silent", "cut"):
        commands(s)
        line.is_now(mood)
        time.sleep(LOST)
        line.is_now("well")
    finishes(s)


def line_etcd(s):
    g = s.ground
    begins(s)
    line = Line(g.etcd)
    g.daemon(program, "cut-off", g.configure("cut-off.yaml", etcd={"endpoints": [f"http://127.0.0.1:{line.port}"]}))
    s.leads(g.daemons[0])
    g.daemon(program, "well")
    moods(s, line)


def line_api(s):
    g = s.ground
    begins(s)
    line = Line(g.server)
    text = open(g.facts["KUBECONFIG_BENCH"]).read()
    with open(f"{g.folder}/kubeconfig-line", "w") as f:
        f.write(text.replace(g.server, f"https://127.0.0.1:{line.port}"))
    g.daemon(program, "cut-off", g.configure("cut-off.yaml", kubernetes={"kubeconfig": f"{g.folder}/kubeconfig-line"}))
    s.leads(g.daemons[0])
    moods(s, line)


def revoked(s):
    g = s.ground
    begins(s)
    g.daemon(program, "one"), g.daemon(program, "two")
    drains(s)
    def revoke():
        lease = g.wait("somebody leads", lambda: g.record.leaders() and g.record.leaders()[-1][1], 60)
        subprocess.run(["etcdctl", "--endpoints", g.etcd, "lease", "revoke", lease], check=True, capture_output=True, env=dict(os.environ, ETCDCTL_API="3"))
        g.wait("it leads no more", lambda: g.record.leaders()[-1][1] != lease, 30)
    revoke()
    s.lets_go(s.workers[0])
    for _ in range(3):
        commands(s)
        revoke()
    finishes(s)


def apiserver(s):
    g = s.ground
    begins(s)
    g.daemon(program, "one"), g.daemon(program, "two")
    drains(s)
    g.server_does("kill", "apiserver")
    time.sleep(LOST)
    g.server_does("start", "apiserver")
    g.wait("it answers", lambda: ready(g), 60)
    s.lets_go(s.workers[0])
    commands(s)
    g.server_does("kill", "apiserver")
    time.sleep(3)
    g.server_does("start", "apiserver")
    finishes(s)


def ready(g):
    try:
        return bool(g.api("GET", "/api/v1/nodes"))
    except (Failure, OSError):
        return False


def engine(s):
    g = s.ground
    begins(s)
    one = g.daemon(program, "one")
    s.leads(one)
    two = g.daemon(program, "two")
    drains(s)
    one.process.send_signal(signal.SIGSTOP)
    s.leads(two)
    one.process.send_signal(signal.SIGCONT)
    s.lets_go(s.workers[0])
    commands(s)
    two.process.send_signal(signal.SIGKILL)
    s.leads(one)
    commands(s)
    one.process.send_signal(signal.SIGSTOP)
    three = g.daemon(program, "three")
    s.leads(three)
    one.process.send_signal(signal.SIGCONT)
    finishes(s)


def disk(s):
    """A leader whose log cannot be written: it leads on, and says what it can."""
    g = s.ground
    begins(s, kept=False)
    full = f"{g.folder}/full"
    os.mkdir(full)
    small = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full], capture_output=True).returncode == 0
    if small:
        with open(f"{full}/filler", "wb") as f:
            try:
                f.write(b"x" * (1 << 15))
            except OSError:
                pass
        config = g.configure("full.yaml", log={"level": "debug", "directory": full})
    else:
        print("SKIP: no tmpfs may be mounted here: standard error is /dev/full instead of a folder on a full disk", file=sys.stderr)
        config = g.config
    daemon = g.daemon(program, "full-disk", config, said="/dev/full")
    try:
        s.leads(daemon)
        finishes(s)
        s.check("it led to the end", daemon.process.poll() is None and g.record.leader() == daemon.pid)
        s.check("it ends well", daemon.end() == 0)
    finally:
        if small:
            subprocess.run(["umount", "-l", full])


def memory(s):
    """An engine with hardly more room than it needs, and one with less; a third that is well takes over what they leave."""
    g = s.ground
    begins(s, kept=False)
    for name, mib in (("tight", 1024), ("too-tight", 160)):
        daemon = g.daemon(program, name, by=["prlimit", f"--as={mib << 20}"])
        if name == "tight":
            s.leads(daemon)
    commands(s)
    # the room that it has now is all that it gets
    tight = g.daemons[0]
    size = int(open(f"/proc/{tight.pid}/statm").read().split()[0]) * 4096
    subprocess.run(["prlimit", "--pid", str(tight.pid), f"--as={size}"], check=True)
    g.daemon(program, "well")
    time.sleep(30)
    if tight.process.poll() is None and g.record.leader() == tight.pid:
        # it cannot start a program any more, says so, and does nothing else; a person ends it
        why = [g.ran(program, "rq", "why", str(i), "-o", "json").stdout for i in g.of_status("rebooting")]
        s.check("what keeps it is said", all("Cannot allocate memory" in text for text in why))
        tight.end(signal.SIGKILL)
        g.wait("another leads", lambda: g.record.leader() not in (None, tight.pid), 60)
        s.checked["the one whose room was taken"] = "led on without starting anything, until it was ended"
    else:
        s.checked["the one whose room was taken"] = "ended" if tight.process.poll() is not None else "led no more"
    finishes(s)


STORIES = {"members": members, "etcd": etcd, "line-etcd": line_etcd, "line-api": line_api, "revoked": revoked, "apiserver": apiserver,
           "engine": engine, "disk": disk, "memory": memory}
tell(STORIES, args, lambda name: site(name, members=name == "members"), lambda s: s.ground.members.end() if hasattr(s.ground, "members") else None)
