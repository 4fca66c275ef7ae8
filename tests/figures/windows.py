#!/usr/bin/env python3
"""The policy of a week on real servers in ten minutes: a queue of some hundred nodes over short windows, one rack at a time, a stuck
rack, a freeze during work, a change of leader, and notice receivers that are slow, answer 500 or are down.

usage: tests/figures/windows.py [PROGRAM] [--minutes 10] [--workers 240] [--keep]       (PROGRAM: default target/shipped/cketerm)

Two engines on etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers). The policy is that of the sandbox's
scenario `windows`, shortened: open for a minute, closed for a minute, one rack at a time. The time zone has an offset of 5:45, some
minutes are denied, and one rack has windows of its own. The script checks etcd's watch, the log of the machines' own power commands, the
audit and the received notices. It computes the windows again, from the policy of the same revision, by code that is independent of the
program. One JSON line per figure or check; exit 1 on a violation, and then the folder with all logs is kept.
"""
import argparse, collections, datetime, http.server, json, math, os, signal, sys, threading, time, zoneinfo
from environment import *

parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--minutes", type=float, default=10)
parser.add_argument("--workers", type=int, default=240)
parser.add_argument("--keep", action="store_true", help="always keep the folder with the logs")
args = parser.parse_args()
program = os.path.abspath(args.program)

RACK = "cke.cybozu.com/rack"
PER_RACK, DEAD_RACK, OWN_RACK = 24, "1", "2"
STUCK, MARGIN, FREEZE = 30, 15, 40
# seconds until a stuck entry is notified
SETTLE = 30
# seconds within which the engine writes to etcd, and carries out a decision
REACTION_LIMIT = 10
# a power command starts within a twelfth of the lease's TTL after its attempt; bash writes its log a moment later
COMMAND_START_DELAY = TTL / 12 + 1


# open for a minute, closed for a minute; one rack has the other minutes; the fourth opening is denied
WINDOWS = {"time_zone": "Asia/Kathmandu", "allow": ["1-59/2 * * * *"], "deny": [], "margin_seconds": MARGIN,
           "machines": [{"name": "own", "rack": OWN_RACK, "allow": ["0-59/2 * * * *"]}]}


# windows, computed independently of the program

NAMES = {n: str(i) for i, n in enumerate("sun mon tue wed thu fri sat".split())} | {n: str(i + 1) for i, n in enumerate(
    "jan feb mar apr may jun jul aug sep oct nov dec".split())}


def numbers(field, low, high):
    found = set()
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        first, last = NAMES.get(first, first), NAMES.get(last, last)
        a, b = (low, high) if first == "*" else (int(first), int(last or (high if step else first)))
        found |= set(range(a, b + 1, int(step or 1)))
    return found


def matches(expression, at):
    fields = expression.split()
    minute, hour, day, month, weekday = (numbers(f, *r) for f, r in zip(fields, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))))
    weekday = {d % 7 for d in weekday}
    days = [at.day in day, at.isoweekday() % 7 in weekday]
    named = [f != "*" for f in fields[2::2]]
    right_day = any(d for d, n in zip(days, named) if n) if any(named) else True
    return at.minute in minute and at.hour in hour and at.month in month and right_day


def is_open(windows, rack, unix):
    at = datetime.datetime.fromtimestamp(unix, zoneinfo.ZoneInfo(windows["time_zone"]))
    rule = next((m for m in windows.get("machines", []) if str(m.get("rack")) == rack), windows)
    allow, deny = rule.get("allow", []), windows.get("deny", []) + (rule.get("deny", []) if rule is not windows else [])
    return (not allow or any(matches(e, at) for e in allow)) and not any(matches(e, at) for e in deny)


def window_end(windows, rack, unix):
    """End of the window that is open at this time, as Unix time."""
    at = math.floor(unix / 60) * 60
    while is_open(windows, rack, at):
        at += 60
    return at


def closed_reason(policy, rack, unix, margin=0):
    """Reason why nothing may start on this rack now, or None."""
    freeze, windows = policy.get("freeze"), policy.get("windows")
    if freeze and unix < unix_time(freeze["until"]):
        return f"frozen until {freeze['until']}"
    if windows and not is_open(windows, rack, unix):
        return "outside its window"
    if windows and margin and unix + margin > window_end(windows, rack, unix):
        return "within the margin before the window's end"
    return None


# receivers

class NoticeReceiver:
    """A webhook with configurable behaviour; remembers each notice and its answer."""

    def __init__(self, behaviour):
        self.behaviour, self.received, self.port, self.server = behaviour, [], free_port(), None
        self.start()

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, wait = receiver.behaviour()
                receiver.received.append((time.time(), body, status))
                time.sleep(wait)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.server = None


class Kubelets(threading.Thread):
    """Removes evicted pods, each after a delay of its own."""

    def __init__(self, keep):
        super().__init__(daemon=True)
        self.keep = keep
        self.start()

    def run(self):
        while True:
            time.sleep(0.5)
            try:
                for pod in environment.api("GET", "/api/v1/namespaces/default/pods")["items"]:
                    name, since = pod["metadata"]["name"], pod["metadata"].get("deletionTimestamp")
                    # the timestamp is when the grace period of a second ends
                    if since and name not in self.keep and time.time() >= unix_time(since) + hash(name) % 4:
                        environment.api("PATCH", f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
            except (Failure, OSError):
                pass


chat_behaviour = "normal"
BEHAVIOURS = {"normal": (200, 0), "slow": (200, 4), "late": (200, 1), "500": (500, 0), "down": (503, 0)}
# start of each behaviour, as a fraction of the run
BEHAVIOUR_SCHEDULE = [(0.1, "late"), (0.2, "slow"), (0.28, "normal"), (0.4, "500"), (0.5, "normal"), (0.78, "down"), (0.88, "normal")]
PER_MINUTE = {"chat": 6, "steady": 60, "mail": 60}

environment = Environment("windows")
chat, steady = NoticeReceiver(lambda: BEHAVIOURS[chat_behaviour]), NoticeReceiver(lambda: (200, 0))
mail = f"{environment.folder}/mail"
notices = [{"name": "chat", "url": f"http://127.0.0.1:{chat.port}/", "timeout": "2s", "per_minute": PER_MINUTE["chat"]},
           {"name": "steady", "url": f"http://127.0.0.1:{steady.port}/", "per_minute": PER_MINUTE["steady"]},
           {"name": "mail", "program": ["sh", "-c", 'cat >> "$0"; echo >> "$0"', mail], "kinds": ["stuck", "failed", "freeze", "leader"],
            "per_minute": PER_MINUTE["mail"]}]
ok = True


def check(name, violations, **more):
    global ok
    ok = ok and not violations
    print_figure(check=name, ok=not violations, **more, **({"violations": len(violations), "first": violations[:5]} if violations else {}))


def rack_of(i):
    """Rack of a worker. The second rack is small, and its machines do not boot."""
    if i < PER_RACK:
        return "0"
    return DEAD_RACK if i < PER_RACK + 4 else str(2 + (i - PER_RACK - 4) // PER_RACK)


def main():
    global chat_behaviour
    api_servers = [environment.machine(f"cp{i}", f"10.1.9.{i + 1}", True) for i in range(3)]
    workers = [environment.machine(f"w{i:03}", f"10.1.{i // 250}.{i % 250 + 1}", labels={RACK: rack_of(i)}) for i in range(args.workers)]
    racks = {m["address"]: m["labels"].get(RACK, "none") for m in api_servers + workers}
    address_of = {m["address"]: m for m in api_servers + workers}
    dead = [m for m in workers if m["labels"][RACK] == DEAD_RACK]
    # their drains last until they were unwound
    slow = workers[PER_RACK - 2:PER_RACK]
    with open(f"{environment.folder}/dead", "w") as f:
        f.writelines(m["address"] + "\n" for m in dead)
    environment.set_command_duration(2)
    environment.create_nodes(api_servers + workers)
    # kwok keeps a pod until its finalizer is removed: pods that end slowly
    for m in workers[1::2] + slow:
        environment.pod(m["name"], m["name"], finalizers=["figures.example/slow"])
    environment.wait_until_pods_run()
    kubelets = Kubelets({m["name"] for m in slow})
    environment.set_up(program, api_servers + workers, {"max_concurrent_reboots": 12})
    run_command = lambda *arguments, stdin="": environment.run_command(program, *arguments, stdin=stdin)
    run_command("policy", "set", "stuck_seconds", str(STUCK))
    run_command("policy", "set", "api_server_order", "first")
    run_command("policy", "set", "groups", '{"by": "rack"}')
    opens = math.ceil((time.time() + 25) / 60) * 60
    opens += 0 if is_open(WINDOWS, "0", opens) else 60
    denied = datetime.datetime.fromtimestamp(opens + 360, zoneinfo.ZoneInfo(WINDOWS["time_zone"])).minute
    run_command("policy", "set", "windows", json.dumps({**WINDOWS, "deny": [f"{denied} * * * *"]}))
    config = environment.configure("engine.yaml", notices=notices)
    first = environment.daemon(program, "first", config)
    environment.wait("the first engine leads", lambda: environment.record.leader() == first.pid, 40)
    second = environment.daemon(program, "second", config)
    environment.wait("the second is a candidate", lambda: len(environment.record.values_below("leader//")) == 2, 40)
    environment.wait("the receivers are known", lambda: len(environment.record.values_below("cketerm/notices/")) == 3, 40)
    head = environment.record.revision()

    # begin right before a window opens
    environment.wait("a window will open", lambda: time.time() > opens - 8, 150)
    began = time.time()
    end = began + args.minutes * 60
    part = lambda p: began + p * (end - began)
    run_command("rq", "add", "-", "--reason", "figures", stdin=" ".join(m["address"] for m in api_servers + workers))
    print_figure(figure="queued", entries=len(api_servers + workers), racks=len(set(racks.values())), dead=len(dead))
    plan, frozen, unblocked, stopped, resolved = list(BEHAVIOUR_SCHEDULE), None, False, None, None
    seen_cordoned, unexpected_cordons = {}, []
    looked = 0
    while time.time() < end:
        now = time.time()
        if plan and now >= part(plan[0][0]):
            chat_behaviour = plan.pop(0)[1]
            if chat_behaviour == "down":
                chat.stop()
            elif not chat.server:
                chat.start()
            print_figure(at=round(now - began), receiver=chat_behaviour)
        entries = environment.entries()
        busy = {i: e for i, e in entries.items() if in_progress(e)}
        put_back = () if unblocked else {i for c, i, was, new in status_changes(environment.record) if was and new and (was["status"], new["status"]) == ("draining", "queued")}
        if not unblocked and sum(entries[i]["node"] in {m["address"] for m in slow} for i in put_back if i in entries) >= len(slow):
            kubelets.keep, unblocked = set(), True
            print_figure(at=round(now - began), event="two blocked drains are unblocked")
        if not frozen and now >= part(0.35) and any(e["status"] == "draining" for e in busy.values()) and is_open(WINDOWS, "0", now + 20):
            run_command("freeze", "--until", f"{FREEZE}s", "--reason", "network maintenance")
            frozen = now
            print_figure(at=round(now - began), event="freeze", in_progress=len(busy))
        if stopped is None and now >= part(0.2) and len(busy) > len(dead):
            stopped = first.stop()
            print_figure(at=round(now - began), event="the leader is stopped", in_progress=len(busy), exit=stopped, took_s=round(time.time() - now, 1))
        stuck = [i for i, e in entries.items() if e["node"] in {m["address"] for m in dead} and e["status"] == "rebooting"]
        if not resolved and now >= part(0.6) and len(stuck) == len(dead) and all(now - unix_time(entries[i]["last_transition_time"]) > STUCK + SETTLE + 15 for i in stuck):
            resolved = {"retry": stuck[:2], "done": stuck[2:3], "cancel": stuck[3:]}
            os.remove(f"{environment.folder}/dead")
            for verb, indexes in resolved.items():
                for index in indexes:
                    run_command("rq", verb, str(index), "--reason", "new power supply")
            print_figure(at=round(now - began), event="the dead rack is repaired", **resolved)
        if now - looked >= 2:
            looked = now
            cordoned, claimed = environment.cordoned(), {address_of[e["node"]]["name"] for e in environment.entries().values() if in_progress(e)}
            seen_cordoned = {n: seen_cordoned.get(n, now) for n in cordoned - claimed}
            unexpected_cordons += [f"{n} is cordoned {now - since:.0f} s after" for n, since in seen_cordoned.items() if now - since > 15]
        time.sleep(0.25)
    print_figure(at=round(time.time() - began), left=dict(collections.Counter(e["status"] for e in environment.entries().values())))
    # entries in progress end or are unwound; nothing new starts
    run_command("rq", "disable")
    if os.path.exists(f"{environment.folder}/dead"):
        os.remove(f"{environment.folder}/dead")
    all_delivered = lambda: all(r.get("pending") == 0 for r in json.loads(environment.run_command(program, "notices", "list", "-o", "json", config=config)))
    environment.wait("entries in progress end", lambda: not any(in_progress(e) for e in environment.entries().values()) or time.time() > end + 30, 60)
    settled = time.time()
    try:
        environment.wait("every receiver has every notice", all_delivered, 180)
        pending = []
    except Failure:
        pending = json.loads(environment.run_command(program, "notices", "list", "-o", "json", config=config))
    print_figure(figure="receivers had every notice", seconds_after=round(time.time() - settled))
    metrics = second.get("/metrics")[1]
    leader_end = second.stop()
    time.sleep(1)
    check_record(racks, {m["address"] for m in api_servers}, {m["address"] for m in dead}, head, unexpected_cordons, pending, resolved, metrics)
    check("engines exit with 0", [f"exit {c}" for c in (stopped, leader_end) if c != 0] + panics(environment))
    check("every planned event happened", [what for what, happened in {
        "a second command that an operator ordered": resolved and has_retried(resolved), "a freeze": frozen,
        "drains that outlasted a window": unblocked, "a change of leader": stopped is not None,
        "repair of the dead rack": resolved}.items() if not happened])


def has_retried(resolved):
    """Whether a retry that an operator ordered has begun: it waits for its window."""
    return any(p.entry == f"reboots/{i}" and p.attempt == f"reboots-{i}-2" for p in environment.power_events() if p.what == "begin" for i in resolved["retry"])


def check_record(racks, api_servers, dead, head, unexpected_cordons, pending, resolved, metrics):
    record, power = environment.record, environment.power_events()
    policies = [(c.revision, c.at, json.loads(c.value)) for c in record.all("cketerm/policy")]
    policy_at = lambda revision: [p for r, _, p in policies if r < revision][-1]
    begins = [p for p in power if p.what == "begin"]

    # drains
    starts, unwound, backed, ended, drain_started, opened = 0, 0, 0, {}, {}, collections.Counter()
    violations, concurrent_racks, busy, slow_unwind = [], [], {}, []
    for c, index, before, after in status_changes(record):
        was = before and before["status"]
        if after and after["status"] == "draining" and was != "draining":
            starts += 1
            at, rack, policy = unix_time(after["last_transition_time"]), racks[after["node"]], policy_at(c.revision)
            why = closed_reason(policy, rack, at, MARGIN)
            # the time is truncated to whole seconds
            if why and closed_reason(policy, rack, at + 0.999, MARGIN):
                violations.append(f"reboots/{index} in rack {rack} starts at {after['last_transition_time']} (revision {c.revision}): {why}")
            opened[{OWN_RACK: "of its own", "none": "API servers"}.get(rack, "general")] += 1
            drain_started[index] = c.at
            if after["node"] not in api_servers:
                others = collections.defaultdict(list)
                for e in busy.values():
                    if racks[e["node"]] != rack and e["node"] not in api_servers:
                        others[racks[e["node"]]].append(e)
                # whole seconds are written, so one is missing at most
                stuck = lambda e: e["status"] == "rebooting" and at + 1 - unix_time(e["last_transition_time"]) >= STUCK
                moving = [r for r, all_ in others.items() if not all(map(stuck, all_))]
                if moving:
                    concurrent_racks.append(f"revision {c.revision}: reboots/{index} of rack {rack} starts while rack {moving} is in progress")
        if was == "draining" and after and after["status"] == "queued":
            same = before.get("drain_backoff_count") == after.get("drain_backoff_count")
            unwound, backed = unwound + same, backed + (not same)
        # its first command was withheld
        unwound += was == "rebooting" and after is not None and after["status"] == "queued"
        if was == "draining" and (after is None or after["status"] != "draining") and index in drain_started:
            rack = racks[before["node"]]
            from_, to = c.at - REACTION_LIMIT, c.at
            # closed for this whole time: it should have been unwound
            if from_ >= drain_started[index] and all(closed_reason(policy_at(c.revision), rack, t) for t in (from_, (from_ + to) / 2, to)):
                slow_unwind.append(f"reboots/{index} was drained {REACTION_LIMIT} s after its window closed")
        busy.pop(index, None)
        if in_progress(after):
            busy[index] = after
    for index, e in busy.items():
        if e["status"] == "draining":
            slow_unwind.append(f"reboots/{index} is still draining at the end")
    print_figure(figure="drains", started=starts, unwound=unwound, backed_off=backed, by_window=dict(opened))
    check("every drain starts inside its window, before the margin, outside the freeze", violations, starts=starts)
    check("a drain that does not finish in its window is unwound, its backoff count kept", slow_unwind + ([] if unwound else ["nothing was unwound"]), unwound=unwound)
    check("no second rack while one is in progress", concurrent_racks)

    # power
    attempts = {}
    for c in record.all("cketerm/attempts/reboots/"):
        if c.value is not None:
            a = json.loads(c.value)
            attempts.setdefault(a["id"], (c.revision, c.at, a))
            attempts[a["id"]] = (*attempts[a["id"]][:2], a)
    violations = []
    for revision, at, a in attempts.values():
        rack, start, policy = racks[a["address"]], unix_time(a["start"]), policy_at(revision)
        if closed_reason(policy, rack, start):
            violations.append(f"{a['id']} of {a['entry']} is ordered at {a['start']}: {closed_reason(policy, rack, start)}")
    late = []
    for p in begins:
        if p.attempt not in attempts:
            violations.append(f"a command without an attempt: {p}")
            continue
        revision, _, a = attempts[p.attempt]
        current = [q for _, at, q in policies if at <= p.at - COMMAND_START_DELAY][-1]
        if p.at - unix_time(a["start"]) > COMMAND_START_DELAY:
            violations.append(f"{p.attempt} began {p.at - unix_time(a['start']):.2f} s after it was ordered")
        if closed_reason(current, racks[p.address], p.at) and closed_reason(current, racks[p.address], p.at - COMMAND_START_DELAY):
            violations.append(f"{p.attempt} began at {p.at}, closed since {COMMAND_START_DELAY:.1f} s")
        elif closed_reason(current, racks[p.address], p.at):
            late.append(p.attempt)
    print_figure(figure="power commands", attempts=len(attempts), begun=len(begins), begun_as_window_closed=len(late),
        withheld=sum("withheld" in ((a.get("outcome") or {}).get("end") or {}) for *_, a in attempts.values()))
    check("every power command is ordered inside its window and outside the freeze", violations, commands=len(begins))
    count, again = collections.Counter(p.entry for p in begins), {f"reboots/{i}" for i in (resolved or {}).get("retry", [])}
    commanded = {f"reboots/{i}" for _, i, _, after in status_changes(record) if after and after["status"] == "rebooting"}
    withheld = {str(a["entry"]) for *_, a in attempts.values() if "withheld" in ((a.get("outcome") or {}).get("end") or {})}
    check("each entry's power command runs once, a second time only where an operator ordered it",
          [f"{e}: {n}" for e, n in count.items() if not 1 <= n <= 1 + (e in again)] + [f"{e}: none" for e in commanded - withheld if not count[e]], entries=len(count))
    check("`rebooting` is never aborted, every status change is legal", illegal_transitions(record, power))
    check("no two API servers, and none together with another machine", concurrent_api_servers(record, api_servers) + (
        [] if all(any(p.address == a for p in begins) for a in api_servers) else ["not every API server was rebooted"]))
    # the cordon of a cancelled entry whose power command ran stays until the machine has booted
    check("a node is cordoned only while its entry is in progress", [u for u in unexpected_cordons if not (resolved and resolved["cancel"])] or [
        u for u in unexpected_cordons if u.split()[0] not in {f"w{PER_RACK + i:03}" for i in range(4)}])

    # audit
    audited = collections.Counter(a["what"] for c in record.all("cketerm/audit/") if c.before is None and c.value for a in [json.loads(c.value)])
    check("the audit records every drain, unwinding and command", [f"{what}: {audited[what]} recorded, {n} seen" for what, n in (
        ("drain", starts), ("unwind", unwound), ("back off", backed), ("power", len(attempts)), ("freeze", 1)) if audited[what] != n],
        **{w.replace(" ", "_"): audited[w] for w in ("drain", "unwind", "power", "end")})

    # notices
    endings = {json.loads(c.value)["entry"]: (c.at, json.loads(c.value)) for c in record.all("cketerm/history/") if c.value and c.revision > head}
    name_of = lambda e: e if isinstance(e, str) else f"{e['queue']}/{e['index']}"
    received = {"chat": chat.received, "steady": steady.received, "mail": [(None, n, 200) for n in map(parse_json, open(mail).read().splitlines()) if n]}
    change = len(record.leaders())
    outcomes = collections.Counter(e["outcome"] for _, e in endings.values())
    print_figure(figure="endings", all=len(endings), outcomes=dict(outcomes))
    for name, all_ in received.items():
        by_id, violations = {}, []
        for at, n, _ in all_:
            if by_id.setdefault(n["id"], n) != n:
                violations.append(f"{n['id']} was sent again with other content")
        kinds = collections.Counter()
        for n in by_id.values():
            kinds.update(n["counts"] if n["kind"] == "many" else {n["kind"]: 1})
        single = {n["entry"] for n in by_id.values() if n["kind"] in ("finished", "failed")}
        stuck_single = {n["entry"] for n in by_id.values() if n["kind"] == "stuck" and n["entry"]}
        if name != "mail" and kinds["finished"] != len(endings):
            violations.append(f"{kinds['finished']} ends notified, {len(endings)} in the history")
        for n in single - {name_of(e) for e in endings} - {None}:
            violations.append(f"a notice of the end of {n}, which has not ended")
        stuck_entries = {f"reboots/{i}" for c, i, before, _ in status_changes(record) if before and before["node"] in dead and before["status"] == "rebooting"
                         and c.at - unix_time(before["last_transition_time"]) > STUCK + SETTLE + 10}
        if kinds["stuck"] < len(stuck_entries) or not any(n["kind"] == "many" for n in by_id.values()) and stuck_entries - stuck_single:
            violations.append(f"stuck: {sorted(stuck_single)} and {kinds['stuck']} in all notified, {sorted(stuck_entries)} are stuck")
        if kinds["freeze"] < 2:
            violations.append(f"{kinds['freeze']} notices of the freeze, expected one of its start and one of its end")
        if kinds["leader"] < 2:
            violations.append(f"{kinds['leader']} notices of leaders")
        limit = PER_MINUTE[name]
        firsts = sorted({n["id"]: at for at, n, _ in reversed(all_)}.values()) if name != "mail" else []
        most = max((sum(a <= b < a + 60 for b in firsts) for a in firsts), default=0)
        # a full bucket holds the notices of a minute; a new leader starts with a full one
        if most > 3 * limit or len(by_id) > limit * (args.minutes + 6):
            violations.append(f"{most} notices within a minute, {len(by_id)} in all; per_minute is {limit}")
        refused = collections.Counter(status for *_, status in all_)
        with open(f"{environment.folder}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps([at, status, n]) + "\n" for at, n, status in all_)
        print_figure(figure=f"receiver {name}", sent=len(all_), notices=len(by_id), kinds=dict(kinds), folded=sum(n["kind"] == "many" for n in by_id.values()),
            per_minute=limit, most_in_a_minute=most, answers={str(k): v for k, v in refused.items()})
        check(f"{name} receives every notice at least once, within its rate limit", violations + [str(p) for p in pending if p.get("name") == name])
    delays = sorted(at - endings[n["entry"]][0] for at, n, _ in steady.received if n["kind"] == "finished" and n["entry"] in endings)
    if delays:
        print_figure(figure="from an end in etcd to a receiver without faults", samples=len(delays), median_s=round(delays[len(delays) // 2], 2), longest_s=round(delays[-1], 2))
    passes = [l for l in metrics.splitlines() if l.startswith(("cketerm_pass_seconds_sum", "cketerm_pass_seconds_count", "cketerm_notices_total"))]
    print_figure(figure="metrics of the last leader", metrics=passes)
    print_figure(figure="leaders", all=change, revisions=record.revision())


try:
    main()
except Failure as e:
    check("the scenario ran to its end", [str(e)])
finally:
    environment.stop(keep=args.keep or not ok)
print_figure(scenario="windows", ok=ok, minutes=args.minutes, program=os.path.basename(program))
sys.exit(0 if ok else 1)
