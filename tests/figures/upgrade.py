#!/usr/bin/env python3
"""Two versions of cketerm side by side on real servers: upgrade, downgrade, a killed leader of either version, commands of each on the
data of the other, and data that only a newer version would write.

usage: tests/figures/upgrade.py OLD NEW [SCENARIO…] [--keep]        (two programs)
scenarios: upgrade downgrade killed-old killed-new commands newer-layout older-layout (OLD with a layout of a lower number)

Starts etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers) for each scenario. The log that the reboot command
itself writes shows how often a machine was rebooted; everything else is read from etcd's watch. One JSON line per scenario with its
checks and `ok`; exit 1 if something fails, and then its folder with all logs is kept.
"""
import collections, json, os, signal, sys, threading, time, http.server
from environment import *
from fault_scenario import *

args = arguments("old", "new")
old, new = os.path.abspath(args.old), os.path.abspath(args.new)
NAMES = {old: "OLD", new: "NEW"}


class NoticeReceiver:
    """A webhook that accepts every notice."""

    def __init__(self):
        self.received, self.port = [], free_port()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                receiver.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler).serve_forever, daemon=True).start()


def ended(scenario):
    return scenario.environment.record.all("cketerm/history/reboots-")


def start_as_only_leader(s, program, name, kept):
    """Starts PROGRAM as the only engine: it leads, one drain is blocked, and all machines are queued."""
    s.begin(program)
    s.since = s.environment.record.revision()
    s.block_drain(kept)
    first = s.environment.daemon(program, name)
    s.wait_until_leading(first)
    s.queue(program, s.machines)
    return first


def upgrade(s):
    """OLD leads and works on a queue, NEW is a candidate; OLD is stopped in mid-queue, NEW goes on."""
    env, kept = s.environment, s.workers[3]
    first = start_as_only_leader(s, old, "old", kept)
    env.wait("an entry has ended", lambda: len(ended(s)) >= 1, QUEUE_TIMEOUT)
    second = env.daemon(new, "new")
    env.wait("NEW is a candidate", lambda: len(env.record.values_below("leader//")) == 2)
    env.wait("three more have ended", lambda: len(ended(s)) >= 4, QUEUE_TIMEOUT)
    env.wait("one drains", lambda: s.environment.with_status("draining"))
    s.check("NEW waits for the lock", env.record.leader() == first.pid and second.get("/readyz")[0] == 200)
    s.checked["readiness of NEW meanwhile"] = second.get("/readyz")[1].strip()
    s.check("NEW does nothing meanwhile", s.actions_of_follower(second))
    in_progress_at_stop = {i: e["status"] for i, e in env.entries().items() if in_progress(e)}
    s.checked["in progress when OLD was stopped"] = in_progress_at_stop
    s.check("OLD exits with 0", first.stop() == 0)
    s.wait_until_leading(second)
    s.unblock_drain(kept)
    s.wait_until_empty()
    s.check_invariants()


def downgrade(s):
    """NEW leads and writes all its data; OLD takes over, goes on, and leaves that data as it was; then NEW comes back."""
    env, receiver = s.environment, NoticeReceiver()
    hook = env.configure("new.yaml", notices=[{"name": "hook", "url": f"http://127.0.0.1:{receiver.port}/", "per_minute": 600}])
    s.begin(new)
    s.since = env.record.revision()
    kept, held, cancelled = s.workers[2], s.workers[7], s.workers[1]
    s.block_drain(kept)
    windows = {"time_zone": "Europe/Berlin", "allow": ["* * * * *"], "deny": ["* * 29 2 *"], "margin_seconds": 10, "queues": ["reboot", "repair"],
               "machines": [{"name": "rack one", "rack": "1", "allow": ["0-29 * * * *", "30-59 * * * *"]}]}
    env.run_command(new, "policy", "set", "windows", json.dumps(windows))
    env.run_command(new, "policy", "set", "groups", '{"by": "rack", "limit": 2}')
    first = env.daemon(new, "new", hook)
    s.wait_until_leading(first)
    env.wait("the receiver is known", lambda: env.record.value("cketerm/notices/hook"))
    env.run_command(new, "freeze", "--until", "1h", "--reason", "year end")
    s.queue(new, s.machines, "--reason", "kernel 6.12")
    index = {e["node"]: i for i, e in env.entries().items()} if env.wait("queued", lambda: len(env.entries()) == len(s.machines)) else {}
    env.run_command(new, "rq", "hold", str(index[held["address"]]), "--reason", "waits for the vendor")
    env.run_command(new, "repair-queue", "add", "reset", "box", "10.9.9.9", "SN7", "--reason", "INC-311")
    time.sleep(2)
    s.check("NEW obeys its freeze", not env.power_events() and all(e["status"] == "queued" for e in env.entries().values()))
    env.run_command(new, "unfreeze")
    env.wait("some have ended, one drains, the repair is watched", lambda: len(ended(s)) >= 3 and env.with_status("draining")
           and any(e["step_status"] == "watching" for e in env.entries("repairs").values()), QUEUE_TIMEOUT)
    second = env.daemon(old, "old")
    env.wait("OLD is a candidate", lambda: len(env.record.values_below("leader//")) == 2)
    time.sleep(3)
    s.check("OLD waits for the lock", env.record.leader() == first.pid)
    s.check("OLD does nothing meanwhile", s.actions_of_follower(second))
    s.checked["in progress when NEW was stopped"] = {i: e["status"] for i, e in env.entries().items() if in_progress(e)}
    s.check("NEW exits with 0", first.stop() == 0)
    s.wait_until_leading(second)
    taken, before = env.record.revision(), dict(env.record.current)
    s.checked["ended before, and notified"] = [len(ended(s)), sum(n["count"] for n in receiver.received if n["kind"] in ("finished", "many"))]
    s.unblock_drain(kept)
    env.wait("all but the one on hold have ended", lambda: set(env.entries()) == {index[held["address"]]}, QUEUE_TIMEOUT)
    time.sleep(3)
    s.check("OLD obeys NEW's hold", not any(p.address == held["address"] for p in env.power_events()))
    s.check("OLD shows the reason of the hold", "vendor" in env.run_command(old, "rq", "why", str(index[held["address"]]), "-o", "json"))
    new_only = ("cketerm/policy", "cketerm/notices/", "cketerm/identity", "cketerm/schema", "constraints", "cluster")
    s.check("data that only NEW writes stays byte for byte", [k for k, v in before.items() if k.removeprefix("/cke/").startswith(new_only) and env.record.current.get(k) != v])
    s.check("history and audit of NEW stay byte for byte", [k for k, v in before.items() if k.startswith(("/cke/cketerm/history/", "/cke/cketerm/audit/"))
            and env.record.current.get(k) != v and parse_json(v).get("result") != "begun"])
    s.check("the repair stays watched, and its command ran once", open(f"{env.folder}/repairs.log").read().split() == ["10.9.9.9"]
            and all(e["step_status"] == "watching" for e in env.entries("repairs").values()))
    env.run_command(old, "rq", "unhold", str(index[held["address"]]), "--reason", "the vendor was there")
    open(f"{env.folder}/healthy", "w").close()
    s.wait_until_empty()
    env.wait("the repair has succeeded", lambda: all(e["status"] == "succeeded" for e in env.entries("repairs").values()))
    third = env.daemon(new, "new-again", hook)
    env.wait("NEW is a candidate", lambda: len(env.record.values_below("leader//")) == 2)
    s.check("OLD exits with 0", second.stop() == 0)
    s.wait_until_leading(third)
    ends = len(ended(s)) + 1
    notified = lambda: sum((n["counts"].get("finished", 0) if n["kind"] == "many" else n["kind"] == "finished") for n in {n["id"]: n for n in receiver.received}.values())
    s.check("NEW sends notices of what ended while OLD led", [] if env.happens_within(lambda: notified() >= ends) else [f"{notified()} of {ends} ends were notified"])
    leaders = [n["title"] for n in receiver.received if n["kind"] == "leader"]
    s.checked["notified"] = {"ends": notified(), "leaders": leaders}
    s.check_invariants()
    # a file with new settings is refused by their name, not read in part
    result = env.run_program(old, "rq", "list", config=hook)
    s.check("OLD reads NEW's configuration file, or refuses an unknown setting by name", result.returncode == 0 or (result.returncode in (1, 2, 3) and "notices" in result.stderr))
    s.checked["message of OLD about NEW's file"] = result.stderr.strip()[:200]


def killed(s, one, other):
    """The leader is killed in mid-drain, the other version goes on, and is killed in mid-command; the first comes back."""
    env, kept = s.environment, s.workers[1]
    first = start_as_only_leader(s, one, "one", kept)
    env.wait("one drains, one has ended", lambda: env.with_status("draining") and ended(s), QUEUE_TIMEOUT)
    second = env.daemon(other, "other")
    env.wait("the other is a candidate", lambda: len(env.record.values_below("leader//")) == 2)
    s.checked["in progress at the first kill"] = {i: e["status"] for i, e in env.entries().items() if in_progress(e)}
    first.stop(signal.SIGKILL)
    s.wait_until_leading(second)
    s.unblock_drain(kept)
    env.set_command_duration(5)
    running = lambda: {p.entry for p in env.power_events() if p.what == "begin"} - {p.entry for p in env.power_events() if p.what == "end"}
    # no command of the killed leader is still running
    env.wait("two more have ended", lambda: len(ended(s)) >= 3, QUEUE_TIMEOUT)
    env.wait("a command runs", lambda: running(), QUEUE_TIMEOUT)
    third = env.daemon(one, "third")
    env.wait("the first version is a candidate again", lambda: len(env.record.values_below("leader//")) == 2)
    env.wait("a command runs", lambda: running(), QUEUE_TIMEOUT)
    s.checked["in progress at the second kill"] = {i: e["status"] for i, e in env.entries().items() if in_progress(e)}
    second.stop(signal.SIGKILL)
    env.set_command_duration(1)
    s.wait_until_leading(third)
    s.wait_until_empty()
    s.check_invariants()


VIEWS = "overview reboots repairs nodes machines hosts history audit logs".split()
READ_COMMANDS = [w.split() for w in """rq list|rq list -o table|rq list -o yaml|rq is-enabled|rq plan|rq plan 10.0.1.13|rq why {entry}|rq why {entry} -o json|rq why {held}
repair-queue list|repair-queue list -o table|repair-queue is-enabled|repair-queue why {repair}|repair-queue plan reset box 10.9.9.9|sabakan is-enabled|sabakan get-url|sabakan get-template
sabakan get-variables|sabakan plan|sabakan diff|auto-repair is-enabled|auto-repair get-variables|auto-repair plan|constraints show|cluster get|cluster check {folder}/cluster.json
cluster identify|cluster init --from-kubernetes|machines list|nodes list|nodes list -o json|notices list|policy show|policy show -o json|windows|windows -o json|hosts list|power status 10.0.1.13|history|history -o table|history --ended
history --ended -o json|history --failed|history --node 10.0.1.11 --ended|audit|audit -o json|state|leader|status|config show|config check|config default|explain OnHold|info|info -o json""".replace("\n", "|").split("|")]


def run_read_commands(s, program, values):
    """Runs every command that reads; each exits with 0, or prints the reason. Returns failures, violations and the number of commands."""
    env, failures, violations = s.environment, {}, []
    commands = [[w.format(**values) for w in argv] for argv in READ_COMMANDS] + [["screenshot", "--view", v, "--size", "140x40"] for v in VIEWS]
    for argv in commands:
        result = env.run_program(program, *argv)
        line = (result.stderr.strip().splitlines() or [""])[0]
        if result.returncode == 0:
            if not result.stdout.strip() and argv[0] not in ("config",):
                failures[" ".join(argv)] = "prints nothing"
            continue
        failures[" ".join(argv)] = f"exit {result.returncode}: {line[:160]}"
        if result.returncode not in (1, 2, 3) or not line or "panicked" in result.stderr:
            violations.append(f"{NAMES[program]} {' '.join(argv)}: exit {result.returncode}: {result.stderr.strip()[:200]}")
    return failures, violations, len(commands)


def commands(s):
    """Commands of each version while the other leads: those that read, and those that change something."""
    env = s.environment
    s.begin(new)
    s.since = env.record.revision()
    windows = {"time_zone": "Asia/Kathmandu", "allow": ["* * * * *"], "margin_seconds": 5}
    for leader, guest, queued, slow in ((new, old, s.workers[:3], s.workers[6]), (old, new, s.workers[3:6], s.workers[7])):
        daemon = env.daemon(leader, f"{NAMES[leader]}-leads")
        s.wait_until_leading(daemon)
        env.run_command(leader, "policy", "set", "windows", json.dumps(windows))
        s.queue(leader, queued, "--reason", "one reboots, one drains, one is on hold")
        index = {e["node"]: i for i, e in env.entries().items()} if env.wait("queued", lambda: len(env.entries()) >= 3) else {}
        held = index[queued[2]["address"]]
        env.run_command(leader, "rq", "hold", str(held), "--reason", "waits for the vendor")
        env.wait("two have ended", lambda: set(env.entries()) == {held}, QUEUE_TIMEOUT)
        s.block_drain(slow)
        s.queue(leader, [slow])
        env.wait("one drains", lambda: env.with_status("draining"), 60)
        drains = env.with_status("draining")[0]
        env.run_command(leader, "repair-queue", "add", "reset", "box", "10.9.9.9")
        repair = env.wait("a repair is watched", lambda: [i for i, e in env.entries("repairs").items() if e["step_status"] == "watching"])[0]
        time.sleep(2)
        name = f"{NAMES[guest]} beside {NAMES[leader]}"
        before = dict(env.record.current)
        failures, violations, count = run_read_commands(s, guest, {"entry": drains, "held": held, "repair": repair, "folder": env.folder})
        s.check(f"{name}: commands that read", violations)
        s.checked[f"{name}: failures"] = failures
        leader_failures, _, _ = run_read_commands(s, leader, {"entry": drains, "held": held, "repair": repair, "folder": env.folder})
        is_new_command = lambda text: "unrecognized subcommand" in text
        s.check(f"{name}: no command fails that succeeds with the leader's version", [f"{w}: {t}" for w, t in failures.items() if w not in leader_failures and not is_new_command(t)])
        s.check(f"{name}: reading writes nothing", sorted(k for k, v in env.record.current.items() if before.get(k) != v and not k.startswith((
            "/cke/cketerm/progress/", "/cke/status", "/cke/cketerm/audit/", "/cke/records", "/cke/cketerm/engines/"))))
        # the state of one version, decided by the other
        with open(f"{env.folder}/state.json", "w") as f:
            f.write(daemon.get("/state")[1])
        result = env.run_program(guest, "decide", "--from", f"{env.folder}/state.json")
        s.check(f"{name}: decide --from the leader's state", result.returncode in (0, 1, 2, 3) and "panicked" not in result.stderr and (result.returncode == 0 or bool(result.stderr.strip())))
        s.checked[f"{name}: output of decide"] = f"exit {result.returncode}: {(result.stderr or result.stdout).strip().splitlines()[0][:160]}"
        # commands that change something
        changes = [("rq", "disable"), ("rq", "enable"), ("freeze", "--until", "1h", "--reason", "x"), ("rq", "unhold", str(held)), ("rq", "hold", str(held), "--reason", "y"),
                 ("unfreeze",), ("policy", "set", "stuck_seconds", "1700"), ("constraints", "set", "maximum-unreachable-nodes-for-reboot", "3"),
                 ("rq", "reset-backoff"), ("rq", "cancel", str(held), "--reason", "z"), ("repair-queue", "disable"), ("repair-queue", "enable"),
                 ("repair-queue", "delete", str(repair)), ("nodes", "cordon", "w0", "--reason", "disk"), ("nodes", "uncordon", "w0")]
        policy = env.record.value("cketerm/policy")
        refused = [f"{' '.join(argv)}: exit {r.returncode}: {r.stderr.strip()[:160]}" for argv in changes for r in [env.run_program(guest, *argv)] if r.returncode]
        s.check(f"{name}: commands that change something", refused)
        s.check(f"{name}: the policy keeps every field", field_paths(policy) <= field_paths(env.record.value("cketerm/policy") or {}) | {"freeze"} | {p for p in field_paths(policy) if p.startswith("freeze")})
        s.unblock_drain(slow)
        s.check(f"{name}: the leader carries out every change", [] if env.happens_within(lambda: not env.entries() and not env.entries("repairs"), 90) else [str(env.entries())])
        s.check(f"{NAMES[leader]} exits with 0", daemon.stop() == 0)
    power = collections.Counter(p.entry for p in env.power_events() if p.what == "begin")
    s.check("every command once", [f"{e}: {n}" for e, n in power.items() if n != 1])
    s.check("no field is lost", lost_fields(env.record, s.since))
    s.check("no engine panics", panics(env))


def newer_layout(s):
    """Data of a version newer than both: either version only observes, reports that, and keeps the data."""
    env = s.environment
    s.begin(new)
    s.since = env.record.revision()
    s.queue(new, s.workers[:4], "--reason", "INC-4")
    # unknown fields in entries and requests, which no version may lose
    env.wait("queued", lambda: len(env.entries()) == 4)
    for i, e in env.entries().items():
        env.put(f"reboots/data/{i:016x}", {**e, "newer_field": {"ticket": [1, 2]}})
        env.put(f"cketerm/requests/reboots/{i}", {**env.record.value(f"cketerm/requests/reboots/{i}"), "newer_field": "kept"})
    for key in ("constraints", "cketerm/identity"):
        env.put(key, {**env.record.value(key), "newer_field": 7})
    policy = env.record.value("cketerm/policy")
    env.put("cketerm/policy", {**policy, "newer_field": {"a": 1}, "windows": {"time_zone": "UTC", "newer_field": True}})
    for program in (old, new):
        name = NAMES[program]
        daemon = env.daemon(program, f"{name}-observes")
        env.wait("the daemon answers", lambda: daemon.get("/readyz")[0], 30)
        time.sleep(5)
        status, text = daemon.get("/readyz")
        s.checked[f"{name} with a newer policy"] = f"{status}: {text.strip()[:160]}"
        s.check(f"{name} only observes a policy with newer fields", not env.power_events() and env.record.leader() is None and "newer_field" in text)
        env.run_command(program, "policy", "set", "stuck_seconds", "1600" if program == old else "1500")
        now = env.record.value("cketerm/policy")
        s.check(f"{name}'s `policy set` keeps newer fields", now.get("newer_field") == {"a": 1} and (now.get("windows") or {}).get("newer_field") is True)
        env.run_command(program, "constraints", "set", "maximum-unreachable-nodes-for-reboot", "2" if program == old else "3")
        s.check(f"{name}'s `constraints set` keeps newer fields", env.record.value("constraints").get("newer_field") == 7)
        # another layout
        layout = int(env.record.value("cketerm/schema"))
        env.put("cketerm/schema", str(layout + 1))
        env.wait("the daemon reports the layout", lambda: str(layout + 1) in daemon.get("/readyz")[1] and "schema" in daemon.get("/readyz")[1], 10)
        s.check(f"{name} only observes a newer layout", env.record.leader() is None)
        result = env.run_program(program, "policy", "set", "stuck_seconds", "1400")
        s.check(f"{name} refuses to change the policy of a newer layout", result.returncode in (1, 3) and "schema" in result.stderr)
        env.put("cketerm/schema", str(layout))
        s.check(f"{name} exits with 0", daemon.stop() == 0)
    # both versions in turn work on entries with fields that neither knows
    now = env.record.value("cketerm/policy")
    now.pop("newer_field"), now.pop("windows")
    env.put("cketerm/policy", now)
    s.since = env.record.revision()
    first = env.daemon(old, "old")
    s.wait_until_leading(first)
    env.wait("two have ended", lambda: len(ended(s)) >= 2, QUEUE_TIMEOUT)
    s.check("OLD exits with 0", first.stop() == 0)
    second = env.daemon(new, "new")
    s.wait_until_leading(second)
    s.wait_until_empty()
    endings = [json.loads(c.value) for c in ended(s)]
    s.check("history keeps an entry's newer fields", [f"reboots {e['entry']}" for e in endings if (e["last"] or {}).get("newer_field") != {"ticket": [1, 2]}])
    s.checked["history keeps a request's newer fields"] = all((e.get("request") or {}).get("newer_field") == "kept" for e in endings)
    s.check_invariants()


def older_layout(s):
    """OLD wrote the layout of 0.1 and NEW raises it: from then on OLD only observes, names the layout, and keeps out when NEW stops."""
    env = s.environment
    s.begin(old)
    s.since = env.record.revision()
    first = env.daemon(old, "old-before")
    s.wait_until_leading(first)
    layout = int(env.record.value("cketerm/schema"))
    s.queue(old, s.workers[:2], "--reason", "INC-1")
    env.wait("one has ended", lambda: len(ended(s)) >= 1, QUEUE_TIMEOUT)
    s.check("OLD exits with 0", first.stop() == 0)
    second = env.daemon(new, "new")
    s.wait_until_leading(second)
    env.wait("NEW has raised the layout and migrated", lambda: int(env.record.value("cketerm/schema")) > layout and env.record.value("cketerm/migration") is None, 30)
    third = env.daemon(old, "old-beside")
    env.wait("OLD answers", lambda: third.get("/readyz")[0], 30)
    env.wait("OLD names the layout", lambda: "schema" in third.get("/readyz")[1], 20)
    s.checked["OLD beside NEW"] = third.get("/readyz")[1].strip()[:200]
    result = env.run_program(old, "screenshot", "--view", "overview", "--size", "200x50")
    s.checked["OLD's console"] = [line.strip() for line in result.stdout.splitlines() if "schema" in line][:2] or result.stderr.strip()[:200]
    s.check("OLD's console names the layout", "schema" in result.stdout + result.stderr)
    result = env.run_program(old, "policy", "set", "stuck_seconds", "1400")
    s.check("OLD refuses to change the policy", result.returncode in (1, 3) and "schema" in result.stderr)
    s.wait_until_empty()
    s.check("every history record has an end", [k for k, v in env.record.values_below("cketerm/history/").items() if not v.get("end")])
    s.check("NEW exits with 0", second.stop() == 0)
    time.sleep(15)
    s.check("OLD does not lead after NEW", env.record.leader() is None)
    s.check("OLD exits with 0 in the end", third.stop() == 0)
    s.check_invariants()


SCENARIOS = {"upgrade": upgrade, "downgrade": downgrade, "killed-old": lambda s: killed(s, old, new), "killed-new": lambda s: killed(s, new, old),
             "commands": commands, "newer-layout": newer_layout, "older-layout": older_layout}
run_scenarios(SCENARIOS, args, Scenario)
