#!/usr/bin/env python3
"""The faults of the simulation on real servers: processes killed, stopped and cut off, a full disk, little memory. The checks of
`upgrade.py` judge the records of etcd, of the API server and of the machines.

usage: tests/figures/faults.py [PROGRAM] [SCENARIO…] [--keep]                           (PROGRAM: default target/shipped/cketerm)

Two engines on etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers) for each scenario: three API servers and eight workers
are queued, two may be in progress at once, and the faults occur while drains and commands run. At the end every machine was rebooted
exactly once (an operator retries a command that never began and whose outcome is unknown), no API server together with another machine,
only the leader acted, no cordon is left, and no engine panicked.
Scenarios: members (three members of etcd, the leading one killed, then the next stopped), etcd (stopped), etcd-proxy and api-proxy (a TCP
proxy that is slow, silent, half closed, cut), revoked (leases taken away), apiserver (killed twice), engine (stopped, overtaken, woken;
killed in mid-command), disk (the log's disk is full), memory (address space for hardly more than itself).
One JSON line per scenario; exit 1 if something fails, and then its folder with all logs is kept.
"""
import json, os, signal, subprocess, sys, time
from environment import *
from etcd_members import *
from fault_scenario import *

args = arguments("program", program="target/shipped/cketerm")
program = os.path.abspath(args.program)
# longer than the lease of the lock
LOCK_LOST_SECONDS = TTL + 4


# a machine's own command queries the API server, which hangs with its etcd: it may take as long
EXTRA_SETTINGS = {"etcd": {"command_timeout_seconds": 30}}


def create_scenario(name, members=False):
    """Creates a scenario; with `members` its environment has three members of etcd."""
    env = Environment("faults-" + name)
    if members:
        use_members(env)
    return Scenario(name, env, **EXTRA_SETTINGS.get(name, {}))


def begin_work(s, blocked=True):
    """Queues every machine; with `blocked` one drain lasts until it is unblocked."""
    s.begin(program)
    s.since = s.environment.record.revision()
    if blocked:
        s.block_drain(s.workers[0])
    s.queue(program, s.machines)


def wait_for_drain(s):
    s.environment.wait("a drain runs", lambda: s.environment.with_status("draining"), QUEUE_TIMEOUT)


def wait_for_command(s):
    """Waits for a running power command, and returns it."""
    def now():
        power = s.environment.power_events()
        ended = {(p.entry, p.attempt) for p in power if p.what == "end"}
        return [p for p in power if p.what == "begin" and (p.entry, p.attempt) not in ended]
    return s.environment.wait("a command runs", now, QUEUE_TIMEOUT)


def finish(s):
    """Waits until the queue is empty, then checks the invariants. An engine that is stopped between the record and the command leaves a
    command whose outcome is unknown and that never began: an operator retries it, so that it runs once."""
    env, settled = s.environment, []
    def is_finished():
        waiting = env.entries()
        for index in env.with_status("rebooting"):
            if index in settled or any(p.entry == f"reboots/{index}" for p in env.power_events()):
                continue
            why = env.run_program(program, "rq", "why", str(index), "-o", "json").stdout
            if "OutcomeUnknown" in why:
                ordered = env.run_program(program, "rq", "retry", str(index), "--reason", "the command never began")
                settled.extend([index] if ordered.returncode == 0 else [])
        return not waiting
    env.wait("the queue is empty", is_finished, QUEUE_TIMEOUT)
    s.checked["retried by an operator"] = len(settled)
    s.check_invariants()


def members(s):
    env = s.environment
    begin_work(s)
    one, two = env.daemon(program, "one"), env.daemon(program, "two")
    wait_for_drain(s)
    first = env.members.leading()
    env.members.processes[first].kill()
    env.members.processes[first].wait()
    env.wait("another member leads", lambda: env.members.leading() not in (None, first), 30)
    s.unblock_drain(s.workers[0])
    wait_for_command(s)
    env.members.start(first)
    env.wait("all three members answer", lambda: len(json.loads(env.members.ctl("endpoint", "status", "-w", "json") or "[]")) == 3, 30)
    second = env.members.leading()
    env.members.processes[second].send_signal(signal.SIGSTOP)
    time.sleep(LOCK_LOST_SECONDS)
    env.members.processes[second].send_signal(signal.SIGCONT)
    finish(s)


def etcd(s):
    env = s.environment
    begin_work(s)
    env.daemon(program, "one"), env.daemon(program, "two")
    wait_for_drain(s)
    env.control_server("freeze", "etcd")
    time.sleep(LOCK_LOST_SECONDS)
    env.control_server("thaw", "etcd")
    s.unblock_drain(s.workers[0])
    wait_for_command(s)
    env.control_server("freeze", "etcd")
    time.sleep(LOCK_LOST_SECONDS)
    env.control_server("thaw", "etcd")
    finish(s)


def cycle_modes(s, proxy):
    """Sets each mode once during a drain, and the worse ones during a command."""
    wait_for_drain(s)
    for mode in ("slow", "half", "silent", "cut"):
        proxy.set_mode(mode)
        time.sleep(LOCK_LOST_SECONDS)
        proxy.set_mode("normal")
        time.sleep(1)
    s.unblock_drain(s.workers[0])
    for mode in ("silent", "cut"):
        wait_for_command(s)
        proxy.set_mode(mode)
        time.sleep(LOCK_LOST_SECONDS)
        proxy.set_mode("normal")
    finish(s)


def etcd_proxy(s):
    env = s.environment
    begin_work(s)
    proxy = TcpProxy(env.etcd)
    env.daemon(program, "proxied", env.configure("proxied.yaml", etcd={"endpoints": [f"http://127.0.0.1:{proxy.port}"]}))
    s.wait_until_leading(env.daemons[0])
    env.daemon(program, "healthy")
    cycle_modes(s, proxy)


def api_proxy(s):
    env = s.environment
    begin_work(s)
    proxy = TcpProxy(env.server)
    text = open(env.facts["KUBECONFIG_BENCH"]).read()
    with open(f"{env.folder}/kubeconfig-proxy", "w") as f:
        f.write(text.replace(env.server, f"https://127.0.0.1:{proxy.port}"))
    env.daemon(program, "proxied", env.configure("proxied.yaml", kubernetes={"kubeconfig": f"{env.folder}/kubeconfig-proxy"}))
    s.wait_until_leading(env.daemons[0])
    cycle_modes(s, proxy)


def revoked(s):
    env = s.environment
    begin_work(s)
    env.daemon(program, "one"), env.daemon(program, "two")
    wait_for_drain(s)
    def revoke():
        lease = env.wait("somebody leads", lambda: env.record.leaders() and env.record.leaders()[-1][1], 60)
        subprocess.run(["etcdctl", "--endpoints", env.etcd, "lease", "revoke", lease], check=True, capture_output=True, env=dict(os.environ, ETCDCTL_API="3"))
        env.wait("that engine no longer leads", lambda: env.record.leaders()[-1][1] != lease, 30)
    revoke()
    s.unblock_drain(s.workers[0])
    for _ in range(3):
        wait_for_command(s)
        revoke()
    finish(s)


def apiserver(s):
    env = s.environment
    begin_work(s)
    env.daemon(program, "one"), env.daemon(program, "two")
    wait_for_drain(s)
    env.control_server("kill", "apiserver")
    time.sleep(LOCK_LOST_SECONDS)
    env.control_server("start", "apiserver")
    env.wait("the API server answers", lambda: ready(env), 60)
    s.unblock_drain(s.workers[0])
    wait_for_command(s)
    env.control_server("kill", "apiserver")
    time.sleep(3)
    env.control_server("start", "apiserver")
    finish(s)


def ready(env):
    try:
        return bool(env.api("GET", "/api/v1/nodes"))
    except (Failure, OSError):
        return False


def engine(s):
    env = s.environment
    begin_work(s)
    one = env.daemon(program, "one")
    s.wait_until_leading(one)
    two = env.daemon(program, "two")
    wait_for_drain(s)
    one.process.send_signal(signal.SIGSTOP)
    s.wait_until_leading(two)
    one.process.send_signal(signal.SIGCONT)
    s.unblock_drain(s.workers[0])
    wait_for_command(s)
    two.process.send_signal(signal.SIGKILL)
    s.wait_until_leading(one)
    wait_for_command(s)
    one.process.send_signal(signal.SIGSTOP)
    three = env.daemon(program, "three")
    s.wait_until_leading(three)
    one.process.send_signal(signal.SIGCONT)
    finish(s)


def disk(s):
    """A leader whose log cannot be written: it goes on leading."""
    env = s.environment
    begin_work(s, blocked=False)
    full = f"{env.folder}/full"
    os.mkdir(full)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full], capture_output=True).returncode == 0
    if mounted:
        with open(f"{full}/filler", "wb") as f:
            try:
                f.write(b"x" * (1 << 15))
            except OSError:
                pass
        config = env.configure("full.yaml", log={"level": "debug", "directory": full})
    else:
        print("SKIP: tmpfs cannot be mounted here: output goes to /dev/full instead of a folder on a full disk", file=sys.stderr)
        config = env.config
    daemon = env.daemon(program, "full-disk", config, output="/dev/full")
    try:
        s.wait_until_leading(daemon)
        finish(s)
        s.check("the daemon led to the end", daemon.process.poll() is None and env.record.leader() == daemon.pid)
        s.check("the daemon exits with 0", daemon.stop() == 0)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", full])


def memory(s):
    """An engine with hardly more memory than it needs, and one with less; a third without a limit takes over."""
    env = s.environment
    begin_work(s, blocked=False)
    for name, mib in (("tight", 1024), ("too-tight", 160)):
        daemon = env.daemon(program, name, prefix=["prlimit", f"--as={mib << 20}"])
        if name == "tight":
            s.wait_until_leading(daemon)
    wait_for_command(s)
    # no more address space than it has now
    tight = env.daemons[0]
    size = int(open(f"/proc/{tight.pid}/statm").read().split()[0]) * 4096
    subprocess.run(["prlimit", "--pid", str(tight.pid), f"--as={size}"], check=True)
    env.daemon(program, "healthy")
    time.sleep(30)
    if tight.process.poll() is None and env.record.leader() == tight.pid:
        # it cannot start a program any more, reports that, and does nothing else; an operator kills it
        why = [env.run_program(program, "rq", "why", str(i), "-o", "json").stdout for i in env.with_status("rebooting")]
        s.check("the reason is reported", all("Cannot allocate memory" in text for text in why))
        tight.stop(signal.SIGKILL)
        env.wait("another leads", lambda: env.record.leader() not in (None, tight.pid), 60)
        s.checked["the engine at its memory limit"] = "led on without starting anything, until it was killed"
    else:
        s.checked["the engine at its memory limit"] = "ended" if tight.process.poll() is not None else "no longer led"
    finish(s)


SCENARIOS = {"members": members, "etcd": etcd, "etcd-proxy": etcd_proxy, "api-proxy": api_proxy, "revoked": revoked, "apiserver": apiserver,
           "engine": engine, "disk": disk, "memory": memory}
run_scenarios(SCENARIOS, args, lambda name: create_scenario(name, members=name == "members"),
              lambda s: s.environment.members.stop() if hasattr(s.environment, "members") else None)
