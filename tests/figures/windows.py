#!/usr/bin/env python3
"""The policy of a week on real servers in ten minutes: a queue of some hundred nodes over short windows, one rack at a time, a rack
that is stuck, a freeze in mid-work, a change of the leader, and receivers of notices that are slow, answer 500 or are down.

usage: tests/figures/windows.py [PROGRAM] [--minutes 10] [--workers 240] [--keep]       (PROGRAM: default target/shipped/cketerm)

Two engines on etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers). The policy is that of the sandbox's
scenario `windows` made shorter: open a minute, shut a minute, one rack at a time; with a zone whose offset is 5:45, minutes that are
denied, and a rack with windows of its own. What is judged: etcd's watch, the log that the machines' own power commands write, the audit and
what the receivers got; windows are computed here once more, from the policy of the very revision, by other code than the
program's. One JSON line a figure or a check; exit 1 where something is violated, and then the folder with all logs is kept.
"""
import argparse, collections, datetime, http.server, json, math, os, signal, sys, threading, time, zoneinfo
from ground import *

parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
parser.add_argument("--minutes", type=float, default=10)
parser.add_argument("--workers", type=int, default=240)
parser.add_argument("--keep", action="store_true", help="keep the folder with the logs in any case")
args = parser.parse_args()
program = os.path.abspath(args.program)

RACK = "cke.cybozu.com/rack"
PER_RACK, DEAD_RACK, OWN_RACK = 24, "1", "2"
STUCK, MARGIN, FREEZE = 30, 15, 40
# a stuck entry is told of when it has been so for as long
SETTLE = 30
# what lies in etcd is written within this time, and what was decided is done within it
SOON = 10
# a power command is begun within a twelfth of the lease's TTL after its attempt; bash writes its log a moment later
LATE = TTL / 12 + 1


# open a minute, shut a minute; a rack has the other minutes for its own; and one opening, the fourth, is denied
WINDOWS = {"time_zone": "Asia/Kathmandu", "allow": ["1-59/2 * * * *"], "deny": [], "margin_seconds": MARGIN,
           "machines": [{"name": "own", "rack": OWN_RACK, "allow": ["0-59/2 * * * *"]}]}


# windows, once more

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
    of = next((m for m in windows.get("machines", []) if str(m.get("rack")) == rack), windows)
    allow, deny = of.get("allow", []), windows.get("deny", []) + (of.get("deny", []) if of is not windows else [])
    return (not allow or any(matches(e, at) for e in allow)) and not any(matches(e, at) for e in deny)


def closes(windows, rack, unix):
    """The minute in which the window of this moment ends."""
    at = math.floor(unix / 60) * 60
    while is_open(windows, rack, at):
        at += 60
    return at


def shut(policy, rack, unix, margin=0):
    """Why nothing may start on this rack now; None = it may."""
    freeze, windows = policy.get("freeze"), policy.get("windows")
    if freeze and unix < seconds(freeze["until"]):
        return f"frozen until {freeze['until']}"
    if windows and not is_open(windows, rack, unix):
        return "outside its window"
    if windows and margin and unix + margin > closes(windows, rack, unix):
        return "within the margin before the window's end"
    return None


# receivers

class Post:
    """A webhook with habits; remembers what it was sent and what it answered."""

    def __init__(self, habit):
        self.habit, self.got, self.port, self.server = habit, [], free_port(), None
        self.up()

    def up(self):
        post = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, wait = post.habit()
                post.got.append((time.time(), body, status))
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

    def down(self):
        self.server.shutdown()
        self.server.server_close()
        self.server = None


class Kubelets(threading.Thread):
    """Lets pods go that were evicted, each in its own time."""

    def __init__(self, keep):
        super().__init__(daemon=True)
        self.keep = keep
        self.start()

    def run(self):
        while True:
            time.sleep(0.5)
            try:
                for pod in ground.api("GET", "/api/v1/namespaces/default/pods")["items"]:
                    name, since = pod["metadata"]["name"], pod["metadata"].get("deletionTimestamp")
                    # the timestamp is when the grace period of a second ends
                    if since and name not in self.keep and time.time() >= seconds(since) + hash(name) % 4:
                        ground.api("PATCH", f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
            except (Failure, OSError):
                pass


trouble = "well"
HABITS = {"well": (200, 0), "slow": (200, 4), "late": (200, 1), "500": (500, 0), "down": (503, 0)}
# when each habit begins, in parts of the whole
PLAN = [(0.1, "late"), (0.2, "slow"), (0.28, "well"), (0.4, "500"), (0.5, "well"), (0.78, "down"), (0.88, "well")]
PER_MINUTE = {"chat": 6, "steady": 60, "mail": 60}

ground = Ground("windows")
chat, steady = Post(lambda: HABITS[trouble]), Post(lambda: (200, 0))
mail = f"{ground.folder}/mail"
notices = [{"name": "chat", "url": f"http://127.0.0.1:{chat.port}/", "timeout": "2s", "per_minute": PER_MINUTE["chat"]},
           {"name": "steady", "url": f"http://127.0.0.1:{steady.port}/", "per_minute": PER_MINUTE["steady"]},
           {"name": "mail", "program": ["sh", "-c", 'cat >> "$0"; echo >> "$0"', mail], "kinds": ["stuck", "failed", "freeze", "leader"],
            "per_minute": PER_MINUTE["mail"]}]
ok = True


def check(name, wrong, **more):
    global ok
    ok = ok and not wrong
    say(check=name, ok=not wrong, **more, **({"violations": len(wrong), "first": wrong[:5]} if wrong else {}))


def rack_of(i):
    """The second rack is small and dead."""
    if i < PER_RACK:
        return "0"
    return DEAD_RACK if i < PER_RACK + 4 else str(2 + (i - PER_RACK - 4) // PER_RACK)


def main():
    global trouble
    api_servers = [ground.machine(f"cp{i}", f"10.1.9.{i + 1}", True) for i in range(3)]
    workers = [ground.machine(f"w{i:03}", f"10.1.{i // 250}.{i % 250 + 1}", labels={RACK: rack_of(i)}) for i in range(args.workers)]
    racks = {m["address"]: m["labels"].get(RACK, "none") for m in api_servers + workers}
    address_of = {m["address"]: m for m in api_servers + workers}
    dead = [m for m in workers if m["labels"][RACK] == DEAD_RACK]
    # their drains do not end before they were unwound
    slow = workers[PER_RACK - 2:PER_RACK]
    with open(f"{ground.folder}/dead", "w") as f:
        f.writelines(m["address"] + "\n" for m in dead)
    ground.commands_take(2)
    ground.bring(api_servers + workers)
    # kwok keeps a pod with a finalizer until somebody takes that away: pods that go slowly
    for m in workers[1::2] + slow:
        ground.pod(m["name"], m["name"], finalizers=["figures.example/slow"])
    ground.pods_run()
    kubelets = Kubelets({m["name"] for m in slow})
    ground.set_up(program, api_servers + workers, {"max_concurrent_reboots": 12})
    word = lambda *words, stdin="": ground.word(program, *words, stdin=stdin)
    word("policy", "set", "stuck_seconds", str(STUCK))
    word("policy", "set", "api_server_order", "first")
    word("policy", "set", "groups", '{"by": "rack"}')
    opens = math.ceil((time.time() + 25) / 60) * 60
    opens += 0 if is_open(WINDOWS, "0", opens) else 60
    denied = datetime.datetime.fromtimestamp(opens + 360, zoneinfo.ZoneInfo(WINDOWS["time_zone"])).minute
    word("policy", "set", "windows", json.dumps({**WINDOWS, "deny": [f"{denied} * * * *"]}))
    config = ground.configure("engine.yaml", notices=notices)
    first = ground.daemon(program, "first", config)
    ground.wait("the first engine leads", lambda: ground.record.leader() == first.pid, 40)
    second = ground.daemon(program, "second", config)
    ground.wait("the second stands by", lambda: len(ground.record.under("leader//")) == 2, 40)
    ground.wait("the receivers are known", lambda: len(ground.record.under("cketerm/notices/")) == 3, 40)
    head = ground.record.revision()

    # from right before an opening on
    ground.wait("a window will open", lambda: time.time() > opens - 8, 150)
    began = time.time()
    end = began + args.minutes * 60
    part = lambda p: began + p * (end - began)
    word("rq", "add", "-", "--reason", "figures", stdin=" ".join(m["address"] for m in api_servers + workers))
    say(figure="queued", entries=len(api_servers + workers), racks=len(set(racks.values())), dead=len(dead))
    plan, frozen, freed, stopped, helped = list(PLAN), None, False, None, None
    seen_cordoned, unasked = {}, []
    looked = 0
    while time.time() < end:
        now = time.time()
        if plan and now >= part(plan[0][0]):
            trouble = plan.pop(0)[1]
            if trouble == "down":
                chat.down()
            elif not chat.server:
                chat.up()
            say(at=round(now - began), receiver=trouble)
        entries = ground.entries()
        busy = {i: e for i, e in entries.items() if in_work(e)}
        put_back = () if freed else {i for c, i, was, new in moves(ground.record) if was and new and (was["status"], new["status"]) == ("draining", "queued")}
        if not freed and sum(entries[i]["node"] in {m["address"] for m in slow} for i in put_back if i in entries) >= len(slow):
            kubelets.keep, freed = set(), True
            say(at=round(now - began), somebody="lets the pods go that kept two drains")
        if not frozen and now >= part(0.35) and any(e["status"] == "draining" for e in busy.values()) and is_open(WINDOWS, "0", now + 20):
            word("freeze", "--until", f"{FREEZE}s", "--reason", "network maintenance")
            frozen = now
            say(at=round(now - began), somebody="freezes", in_work=len(busy))
        if stopped is None and now >= part(0.2) and len(busy) > len(dead):
            stopped = first.end()
            say(at=round(now - began), somebody="stops the engine that leads", in_work=len(busy), exit=stopped, took_s=round(time.time() - now, 1))
        stuck = [i for i, e in entries.items() if e["node"] in {m["address"] for m in dead} and e["status"] == "rebooting"]
        if not helped and now >= part(0.6) and len(stuck) == len(dead) and all(now - seconds(entries[i]["last_transition_time"]) > STUCK + SETTLE + 15 for i in stuck):
            helped = {"retry": stuck[:2], "done": stuck[2:3], "cancel": stuck[3:]}
            os.remove(f"{ground.folder}/dead")
            for verb, indexes in helped.items():
                for index in indexes:
                    word("rq", verb, str(index), "--reason", "new power supply")
            say(at=round(now - began), somebody="helps the dead rack", **helped)
        if now - looked >= 2:
            looked = now
            cordoned, claimed = ground.cordoned(), {address_of[e["node"]]["name"] for e in ground.entries().values() if in_work(e)}
            seen_cordoned = {n: seen_cordoned.get(n, now) for n in cordoned - claimed}
            unasked += [f"{n} is cordoned {now - since:.0f} s after" for n, since in seen_cordoned.items() if now - since > 15]
        time.sleep(0.25)
    say(at=round(time.time() - began), left=dict(collections.Counter(e["status"] for e in ground.entries().values())))
    # what is in work ends or is unwound; nothing starts any more
    word("rq", "disable")
    if os.path.exists(f"{ground.folder}/dead"):
        os.remove(f"{ground.folder}/dead")
    last_line = lambda: all(r.get("pending") == 0 for r in json.loads(ground.word(program, "notices", "list", "-o", "json", config=config)))
    ground.wait("what is in work ends", lambda: not any(in_work(e) for e in ground.entries().values()) or time.time() > end + 30, 60)
    settled = time.time()
    try:
        ground.wait("every receiver has everything", last_line, 180)
        pending = []
    except Failure:
        pending = json.loads(ground.word(program, "notices", "list", "-o", "json", config=config))
    say(figure="receivers had everything", seconds_after=round(time.time() - settled))
    metrics = second.page("/metrics")[1]
    leader_end = second.end()
    time.sleep(1)
    judge(racks, {m["address"] for m in api_servers}, {m["address"] for m in dead}, head, unasked, pending, helped, metrics)
    check("engines end well", [f"exit {c}" for c in (stopped, leader_end) if c != 0] + panics(ground))
    check("it all happened", [what for what, so in {
        "a second command that a person ordered": helped and retried(helped), "a freeze": frozen, "drains that outlasted a window": freed, "a change of the leader": stopped is not None, "help for the dead rack": helped}.items() if not so])


def retried(helped):
    """Whether what a person ordered once more has begun: it waits for its window."""
    return any(p.entry == f"reboots/{i}" and p.attempt == f"reboots-{i}-2" for p in ground.power() if p.what == "begin" for i in helped["retry"])


def judge(racks, api_servers, dead, head, unasked, pending, helped, metrics):
    record, power = ground.record, ground.power()
    policies = [(c.revision, c.at, json.loads(c.value)) for c in record.all("cketerm/policy")]
    policy_at = lambda revision: [p for r, _, p in policies if r < revision][-1]
    begins = [p for p in power if p.what == "begin"]

    # drains
    starts, unwound, backed, ended, lasted, opened = 0, 0, 0, {}, {}, collections.Counter()
    wrong, crowd, busy, slow_unwind = [], [], {}, []
    for c, index, before, after in moves(record):
        was = before and before["status"]
        if after and after["status"] == "draining" and was != "draining":
            starts += 1
            at, rack, policy = seconds(after["last_transition_time"]), racks[after["node"]], policy_at(c.revision)
            why = shut(policy, rack, at, MARGIN)
            # the time was cut to whole seconds
            if why and shut(policy, rack, at + 0.999, MARGIN):
                wrong.append(f"reboots/{index} in rack {rack} starts at {after['last_transition_time']} (revision {c.revision}): {why}")
            opened[{OWN_RACK: "of its own", "none": "API servers"}.get(rack, "general")] += 1
            lasted[index] = c.at
            if after["node"] not in api_servers:
                others = collections.defaultdict(list)
                for e in busy.values():
                    if racks[e["node"]] != rack and e["node"] not in api_servers:
                        others[racks[e["node"]]].append(e)
                # whole seconds are written, so one is missing at most
                stuck = lambda e: e["status"] == "rebooting" and at + 1 - seconds(e["last_transition_time"]) >= STUCK
                moving = [r for r, all_ in others.items() if not all(map(stuck, all_))]
                if moving:
                    crowd.append(f"revision {c.revision}: reboots/{index} of rack {rack} starts while rack {moving} is in work")
        if was == "draining" and after and after["status"] == "queued":
            same = before.get("drain_backoff_count") == after.get("drain_backoff_count")
            unwound, backed = unwound + same, backed + (not same)
        # its first command was withheld
        unwound += was == "rebooting" and after is not None and after["status"] == "queued"
        if was == "draining" and (after is None or after["status"] != "draining") and index in lasted:
            rack = racks[before["node"]]
            from_, to = c.at - SOON, c.at
            # shut for as long as that: it should have been unwound long ago
            if from_ >= lasted[index] and all(shut(policy_at(c.revision), rack, t) for t in (from_, (from_ + to) / 2, to)):
                slow_unwind.append(f"reboots/{index} was drained {SOON} s into a time that is shut")
        busy.pop(index, None)
        if in_work(after):
            busy[index] = after
    for index, e in busy.items():
        if e["status"] == "draining":
            slow_unwind.append(f"reboots/{index} is still draining at the end")
    say(figure="drains", started=starts, unwound=unwound, backed_off=backed, by_window=dict(opened))
    check("every drain starts inside its window, before the margin, outside the freeze", wrong, starts=starts)
    check("what does not finish in its window is unwound, its count kept", slow_unwind + ([] if unwound else ["nothing was unwound"]), unwound=unwound)
    check("no second rack while one moves", crowd)

    # power
    attempts = {}
    for c in record.all("cketerm/attempts/reboots/"):
        if c.value is not None:
            a = json.loads(c.value)
            attempts.setdefault(a["id"], (c.revision, c.at, a))
            attempts[a["id"]] = (*attempts[a["id"]][:2], a)
    wrong = []
    for revision, at, a in attempts.values():
        rack, start, policy = racks[a["address"]], seconds(a["start"]), policy_at(revision)
        if shut(policy, rack, start):
            wrong.append(f"{a['id']} of {a['entry']} is ordered at {a['start']}: {shut(policy, rack, start)}")
    late = []
    for p in begins:
        if p.attempt not in attempts:
            wrong.append(f"a command without an attempt: {p}")
            continue
        revision, _, a = attempts[p.attempt]
        current = [q for _, at, q in policies if at <= p.at - LATE][-1]
        if p.at - seconds(a["start"]) > LATE:
            wrong.append(f"{p.attempt} began {p.at - seconds(a['start']):.2f} s after it was ordered")
        if shut(current, racks[p.address], p.at) and shut(current, racks[p.address], p.at - LATE):
            wrong.append(f"{p.attempt} began at {p.at}, shut since {LATE:.1f} s")
        elif shut(current, racks[p.address], p.at):
            late.append(p.attempt)
    say(figure="power commands", attempts=len(attempts), begun=len(begins), begun_at_the_edge=len(late),
        withheld=sum("withheld" in ((a.get("outcome") or {}).get("end") or {}) for *_, a in attempts.values()))
    check("every power command is ordered inside its window and outside the freeze", wrong, commands=len(begins))
    count, again = collections.Counter(p.entry for p in begins), {f"reboots/{i}" for i in (helped or {}).get("retry", [])}
    commanded = {f"reboots/{i}" for _, i, _, after in moves(record) if after and after["status"] == "rebooting"}
    withheld = {str(a["entry"]) for *_, a in attempts.values() if "withheld" in ((a.get("outcome") or {}).get("end") or {})}
    check("each entry's power command runs once, a second time only where a person ordered it",
          [f"{e}: {n}" for e, n in count.items() if not 1 <= n <= 1 + (e in again)] + [f"{e}: none" for e in commanded - withheld if not count[e]], entries=len(count))
    check("`rebooting` is never aborted, no entry takes a step that is none", steps_are_legal(record, power))
    check("no two API servers, and none beside another machine", api_servers_alone(record, api_servers) + (
        [] if all(any(p.address == a for p in begins) for a in api_servers) else ["not every API server was rebooted"]))
    # of a cancelled entry whose machine was told to reboot the cordon stays until it has booted
    check("a node is cordoned only while its entry is in work", [u for u in unasked if not (helped and helped["cancel"])] or [
        u for u in unasked if u.split()[0] not in {f"w{PER_RACK + i:03}" for i in range(4)}])

    # the audit tells the same
    told = collections.Counter(a["what"] for c in record.all("cketerm/audit/") if c.before is None and c.value for a in [json.loads(c.value)])
    check("the audit tells every drain, unwinding and command", [f"{what}: {told[what]} told, {n} seen" for what, n in (
        ("drain", starts), ("unwind", unwound), ("back off", backed), ("power", len(attempts)), ("freeze", 1)) if told[what] != n],
        **{w.replace(" ", "_"): told[w] for w in ("drain", "unwind", "power", "end")})

    # notices
    endings = {json.loads(c.value)["entry"]: (c.at, json.loads(c.value)) for c in record.all("cketerm/history/") if c.value and c.revision > head}
    name_of = lambda e: e if isinstance(e, str) else f"{e['queue']}/{e['index']}"
    got = {"chat": chat.got, "steady": steady.got, "mail": [(None, n, 200) for n in map(loads, open(mail).read().splitlines()) if n]}
    change = len(record.leaders())
    outcomes = collections.Counter(e["outcome"] for _, e in endings.values())
    say(figure="endings", all=len(endings), outcomes=dict(outcomes))
    for name, all_ in got.items():
        by_id, wrong = {}, []
        for at, n, _ in all_:
            if by_id.setdefault(n["id"], n) != n:
                wrong.append(f"{n['id']} was told again, and not the same")
        kinds = collections.Counter()
        for n in by_id.values():
            kinds.update(n["counts"] if n["kind"] == "many" else {n["kind"]: 1})
        alone = {n["entry"] for n in by_id.values() if n["kind"] in ("finished", "failed")}
        stuck_alone = {n["entry"] for n in by_id.values() if n["kind"] == "stuck" and n["entry"]}
        if name != "mail" and kinds["finished"] != len(endings):
            wrong.append(f"{kinds['finished']} ends told, {len(endings)} there are")
        for n in alone - {name_of(e) for e in endings} - {None}:
            wrong.append(f"the end of {n} is told, which has not ended")
        stuck_entries = {f"reboots/{i}" for c, i, before, _ in moves(record) if before and before["node"] in dead and before["status"] == "rebooting"
                         and c.at - seconds(before["last_transition_time"]) > STUCK + SETTLE + 10}
        if kinds["stuck"] < len(stuck_entries) or not any(n["kind"] == "many" for n in by_id.values()) and stuck_entries - stuck_alone:
            wrong.append(f"stuck: {sorted(stuck_alone)} and {kinds['stuck']} in all told, {sorted(stuck_entries)} are")
        if kinds["freeze"] < 2:
            wrong.append(f"{kinds['freeze']} notices of the freeze, not of its begin and its end")
        if kinds["leader"] < 2:
            wrong.append(f"{kinds['leader']} notices of leaders")
        limit = PER_MINUTE[name]
        firsts = sorted({n["id"]: at for at, n, _ in reversed(all_)}.values()) if name != "mail" else []
        most = max((sum(a <= b < a + 60 for b in firsts) for a in firsts), default=0)
        # a bucket that is full holds a minute's worth; a new leader begins with a full one
        if most > 3 * limit or len(by_id) > limit * (args.minutes + 6):
            wrong.append(f"{most} notices within a minute, {len(by_id)} in all; per_minute is {limit}")
        refused = collections.Counter(status for *_, status in all_)
        with open(f"{ground.folder}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps([at, status, n]) + "\n" for at, n, status in all_)
        say(figure=f"receiver {name}", sent=len(all_), notices=len(by_id), kinds=dict(kinds), folded=sum(n["kind"] == "many" for n in by_id.values()),
            per_minute=limit, most_in_a_minute=most, answers={str(k): v for k, v in refused.items()})
        check(f"{name} is told everything at least once, not too often", wrong + [str(p) for p in pending if p.get("name") == name])
    delays = sorted(at - endings[n["entry"]][0] for at, n, _ in steady.got if n["kind"] == "finished" and n["entry"] in endings)
    if delays:
        say(figure="from an end in etcd to a receiver that is well", samples=len(delays), median_s=round(delays[len(delays) // 2], 2), longest_s=round(delays[-1], 2))
    passes = [l for l in metrics.splitlines() if l.startswith(("cketerm_pass_seconds_sum", "cketerm_pass_seconds_count", "cketerm_notices_total"))]
    say(figure="of the last leader", metrics=passes)
    say(figure="leaders", all=change, revisions=record.revision())


try:
    main()
except Failure as e:
    check("the story could be told", [str(e)])
finally:
    ground.down(keep=args.keep or not ok)
say(story="windows", ok=ok, minutes=args.minutes, program=os.path.basename(program))
sys.exit(0 if ok else 1)
