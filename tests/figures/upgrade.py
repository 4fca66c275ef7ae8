#!/usr/bin/env python3
"""Two versions of cketerm side by side on real servers: upgrade, downgrade, a leader of either killed, words of each on what the other
wrote, and what a still newer one would write.

usage: tests/figures/upgrade.py OLD NEW [STORY…] [--keep]        (two programs; stories: up down killed-old killed-new words later)

Starts etcd, kube-apiserver, kube-controller-manager and kwok (tests/servers) for each story. How often a machine was rebooted is counted
in the log that the reboot command itself writes; everything else is read from etcd's watch. One JSON line a story with what was
checked and `ok`; exit 1 if something fails, and then its folder with all logs is kept.
"""
import collections, json, os, signal, sys, threading, time, http.server
from ground import *
from story import *

args = arguments("old", "new")
old, new = os.path.abspath(args.old), os.path.abspath(args.new)
NAMES = {old: "OLD", new: "NEW"}


class Post:
    """A webhook that is well."""

    def __init__(self):
        self.got, self.port = [], free_port()
        post = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                post.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler).serve_forever, daemon=True).start()


def ended(story):
    return story.ground.record.all("cketerm/history/reboots-")


def leads_alone(s, program, name, kept):
    """PROGRAM begins a story alone: it leads, one worker's pods are held back, and all machines are queued."""
    s.begin(program)
    s.since = s.ground.record.revision()
    s.holds_back(kept)
    first = s.ground.daemon(program, name)
    s.leads(first)
    s.queue(program, s.machines)
    return first


def up(s):
    """OLD leads with a queue in work, NEW waits beside it; OLD is stopped in mid-queue, NEW goes on."""
    g, kept = s.ground, s.workers[3]
    first = leads_alone(s, old, "old", kept)
    g.wait("it works", lambda: len(ended(s)) >= 1, LONG)
    second = g.daemon(new, "new")
    g.wait("NEW stands in line", lambda: len(g.record.under("leader//")) == 2)
    g.wait("three more have ended beside it", lambda: len(ended(s)) >= 4, LONG)
    g.wait("one drains", lambda: s.ground.of_status("draining"))
    s.check("NEW waits for the lock", g.record.leader() == first.pid and second.page("/readyz")[0] == 200)
    s.checked["what NEW says meanwhile"] = second.page("/readyz")[1].strip()
    s.check("NEW does nothing meanwhile", s.stays_out(second))
    in_mid = {i: e["status"] for i, e in g.entries().items() if in_work(e)}
    s.checked["in work when OLD was stopped"] = in_mid
    s.check("OLD ends well", first.end() == 0)
    s.leads(second)
    s.lets_go(kept)
    s.empty()
    s.every_end()


def down(s):
    """NEW leads and writes whatever it has; OLD takes over, goes on, and leaves all of it as it was; then NEW comes back."""
    g, post = s.ground, Post()
    hook = g.configure("new.yaml", notices=[{"name": "hook", "url": f"http://127.0.0.1:{post.port}/", "per_minute": 600}])
    s.begin(new)
    s.since = g.record.revision()
    kept, held, cancelled = s.workers[2], s.workers[7], s.workers[1]
    s.holds_back(kept)
    windows = {"time_zone": "Europe/Berlin", "allow": ["* * * * *"], "deny": ["* * 29 2 *"], "margin_seconds": 10, "queues": ["reboot", "repair"],
               "machines": [{"name": "rack one", "rack": "1", "allow": ["0-29 * * * *", "30-59 * * * *"]}]}
    g.word(new, "policy", "set", "windows", json.dumps(windows))
    g.word(new, "policy", "set", "groups", '{"by": "rack", "limit": 2}')
    first = g.daemon(new, "new", hook)
    s.leads(first)
    g.wait("the receiver is known", lambda: g.record.value("cketerm/notices/hook"))
    g.word(new, "freeze", "--until", "1h", "--reason", "year end")
    s.queue(new, s.machines, "--reason", "kernel 6.12")
    index = {e["node"]: i for i, e in g.entries().items()} if g.wait("queued", lambda: len(g.entries()) == len(s.machines)) else {}
    g.word(new, "rq", "hold", str(index[held["address"]]), "--reason", "waits for the vendor")
    g.word(new, "repair-queue", "add", "reset", "box", "10.9.9.9", "SN7", "--reason", "INC-311")
    time.sleep(2)
    s.check("NEW keeps to its freeze", not g.power() and all(e["status"] == "queued" for e in g.entries().values()))
    g.word(new, "unfreeze")
    g.wait("some have ended, one drains, the repair is watched", lambda: len(ended(s)) >= 3 and g.of_status("draining")
           and any(e["step_status"] == "watching" for e in g.entries("repairs").values()), LONG)
    second = g.daemon(old, "old")
    g.wait("OLD stands in line", lambda: len(g.record.under("leader//")) == 2)
    time.sleep(3)
    s.check("OLD waits for the lock", g.record.leader() == first.pid)
    s.check("OLD does nothing meanwhile", s.stays_out(second))
    s.checked["in work when NEW was stopped"] = {i: e["status"] for i, e in g.entries().items() if in_work(e)}
    s.check("NEW ends well", first.end() == 0)
    s.leads(second)
    taken, before = g.record.revision(), dict(g.record.now)
    s.checked["ended before, and told"] = [len(ended(s)), sum(n["count"] for n in post.got if n["kind"] in ("finished", "many"))]
    s.lets_go(kept)
    g.wait("all but the one on hold are through", lambda: set(g.entries()) == {index[held["address"]]}, LONG)
    time.sleep(3)
    s.check("OLD keeps to NEW's hold", not any(p.address == held["address"] for p in g.power()))
    s.check("OLD shows who holds it, and why", "vendor" in g.word(old, "rq", "why", str(index[held["address"]]), "-o", "json"))
    mine = ("cketerm/policy", "cketerm/notices/", "cketerm/identity", "cketerm/schema", "constraints", "cluster")
    s.check("what NEW alone writes stays byte for byte", [k for k, v in before.items() if k.removeprefix("/cke/").startswith(mine) and g.record.now.get(k) != v])
    s.check("history and audit of NEW stay byte for byte", [k for k, v in before.items() if k.startswith(("/cke/cketerm/history/", "/cke/cketerm/audit/"))
            and g.record.now.get(k) != v and loads(v).get("result") != "begun"])
    s.check("the repair stays watched, and its command ran once", open(f"{g.folder}/repairs.log").read().split() == ["10.9.9.9"]
            and all(e["step_status"] == "watching" for e in g.entries("repairs").values()))
    g.word(old, "rq", "unhold", str(index[held["address"]]), "--reason", "the vendor was there")
    open(f"{g.folder}/well", "w").close()
    s.empty()
    g.wait("the repair has succeeded", lambda: all(e["status"] == "succeeded" for e in g.entries("repairs").values()))
    third = g.daemon(new, "new-again", hook)
    g.wait("NEW stands in line", lambda: len(g.record.under("leader//")) == 2)
    s.check("OLD ends well", second.end() == 0)
    s.leads(third)
    ends = len(ended(s)) + 1
    told = lambda: sum((n["counts"].get("finished", 0) if n["kind"] == "many" else n["kind"] == "finished") for n in {n["id"]: n for n in post.got}.values())
    s.check("NEW tells what ended while OLD led", [] if g.comes(lambda: told() >= ends) else [f"{told()} of {ends} ends were told"])
    leaders = [n["title"] for n in post.got if n["kind"] == "leader"]
    s.checked["told"] = {"ends": told(), "leaders": leaders}
    s.every_end()
    # a file with what is new is refused by name, not half read
    ran = g.ran(old, "rq", "list", config=hook)
    s.check("OLD reads NEW's configuration file, or refuses what it does not know by name", ran.returncode == 0 or (ran.returncode in (1, 2, 3) and "notices" in ran.stderr))
    s.checked["what OLD says of NEW's file"] = ran.stderr.strip()[:200]


def killed(s, one, other):
    """The leader is killed in mid-drain, the other version goes on, and is killed in mid-command; the first comes back."""
    g, kept = s.ground, s.workers[1]
    first = leads_alone(s, one, "one", kept)
    g.wait("one drains, one has ended", lambda: g.of_status("draining") and ended(s), LONG)
    second = g.daemon(other, "other")
    g.wait("the other stands in line", lambda: len(g.record.under("leader//")) == 2)
    s.checked["in work at the first kill"] = {i: e["status"] for i, e in g.entries().items() if in_work(e)}
    first.end(signal.SIGKILL)
    s.leads(second)
    s.lets_go(kept)
    g.commands_take(5)
    opened = lambda: {p.entry for p in g.power() if p.what == "begin"} - {p.entry for p in g.power() if p.what == "end"}
    # of the dead leader's no command is open any more
    g.wait("two more have ended", lambda: len(ended(s)) >= 3, LONG)
    g.wait("a command runs", lambda: opened(), LONG)
    third = g.daemon(one, "third")
    g.wait("the first version is back in line", lambda: len(g.record.under("leader//")) == 2)
    g.wait("a command runs", lambda: opened(), LONG)
    s.checked["in work at the second kill"] = {i: e["status"] for i, e in g.entries().items() if in_work(e)}
    second.end(signal.SIGKILL)
    g.commands_take(1)
    s.leads(third)
    s.empty()
    s.every_end()


VIEWS = "overview reboots repairs nodes machines hosts history audit logs".split()
LOOKS = [w.split() for w in """rq list|rq list -o table|rq list -o yaml|rq is-enabled|rq plan|rq plan 10.0.1.13|rq why {entry}|rq why {entry} -o json|rq why {held}
repair-queue list|repair-queue list -o table|repair-queue is-enabled|repair-queue why {repair}|repair-queue plan reset box 10.9.9.9|sabakan is-enabled|sabakan get-url|sabakan get-template
sabakan get-variables|sabakan plan|sabakan diff|auto-repair is-enabled|auto-repair get-variables|auto-repair plan|constraints show|cluster get|cluster check {folder}/cluster.json
cluster identify|cluster init --from-kubernetes|machines list|nodes list|nodes list -o json|notices list|policy show|policy show -o json|windows|windows -o json|hosts list|power status 10.0.1.13|history|history -o table|history --ended
history --ended -o json|history --failed|history --node 10.0.1.11 --ended|audit|audit -o json|state|leader|status|config show|config check|config default|explain OnHold|info|info -o json""".replace("\n", "|").split("|")]


def look(s, program, values):
    """Every word that reads; exit 0, or a sentence that says why not. Returns what was said."""
    g, said, wrong = s.ground, {}, []
    words = [[w.format(**values) for w in ws] for ws in LOOKS] + [["screenshot", "--view", v, "--size", "140x40"] for v in VIEWS]
    for ws in words:
        ran = g.ran(program, *ws)
        line = (ran.stderr.strip().splitlines() or [""])[0]
        if ran.returncode == 0:
            if not ran.stdout.strip() and ws[0] not in ("config",):
                said[" ".join(ws)] = "prints nothing"
            continue
        said[" ".join(ws)] = f"exit {ran.returncode}: {line[:160]}"
        if ran.returncode not in (1, 2, 3) or not line or "panicked" in ran.stderr:
            wrong.append(f"{NAMES[program]} {' '.join(ws)}: exit {ran.returncode}: {ran.stderr.strip()[:200]}")
    return said, wrong, len(words)


def words(s):
    """Each version's words on what the other wrote and leads, those that read and those that ask."""
    g = s.ground
    s.begin(new)
    s.since = g.record.revision()
    windows = {"time_zone": "Asia/Kathmandu", "allow": ["* * * * *"], "margin_seconds": 5}
    for leader, guest, queued, slow in ((new, old, s.workers[:3], s.workers[6]), (old, new, s.workers[3:6], s.workers[7])):
        daemon = g.daemon(leader, f"{NAMES[leader]}-leads")
        s.leads(daemon)
        g.word(leader, "policy", "set", "windows", json.dumps(windows))
        s.queue(leader, queued, "--reason", "one reboots, one drains, one is on hold")
        index = {e["node"]: i for i, e in g.entries().items()} if g.wait("queued", lambda: len(g.entries()) >= 3) else {}
        held = index[queued[2]["address"]]
        g.word(leader, "rq", "hold", str(held), "--reason", "waits for the vendor")
        g.wait("two have ended", lambda: set(g.entries()) == {held}, LONG)
        s.holds_back(slow)
        s.queue(leader, [slow])
        g.wait("one drains", lambda: g.of_status("draining"), 60)
        drains = g.of_status("draining")[0]
        g.word(leader, "repair-queue", "add", "reset", "box", "10.9.9.9")
        repair = g.wait("a repair is watched", lambda: [i for i, e in g.entries("repairs").items() if e["step_status"] == "watching"])[0]
        time.sleep(2)
        name = f"{NAMES[guest]} beside {NAMES[leader]}"
        before = dict(g.record.now)
        said, wrong, count = look(s, guest, {"entry": drains, "held": held, "repair": repair, "folder": g.folder})
        s.check(f"words of {name} that read", wrong)
        s.checked[f"{name}: not 0"] = said
        ours, _, _ = look(s, leader, {"entry": drains, "held": held, "repair": repair, "folder": g.folder})
        new_only = lambda text: "unrecognized subcommand" in text
        s.check(f"{name}: no word fails that the leader's own does", [f"{w}: {t}" for w, t in said.items() if w not in ours and not new_only(t)])
        s.check(f"{name}: looking writes nothing", sorted(k for k, v in g.record.now.items() if before.get(k) != v and not k.startswith((
            "/cke/cketerm/progress/", "/cke/status", "/cke/cketerm/audit/", "/cke/records", "/cke/cketerm/engines/"))))
        # a state of the one, decided by the other
        with open(f"{g.folder}/state.json", "w") as f:
            f.write(daemon.page("/state")[1])
        ran = g.ran(guest, "decide", "--from", f"{g.folder}/state.json")
        s.check(f"{name}: decide --from the leader's state", ran.returncode in (0, 1, 2, 3) and "panicked" not in ran.stderr and (ran.returncode == 0 or bool(ran.stderr.strip())))
        s.checked[f"{name}: decide says"] = f"exit {ran.returncode}: {(ran.stderr or ran.stdout).strip().splitlines()[0][:160]}"
        # what asks
        asked = [("rq", "disable"), ("rq", "enable"), ("freeze", "--until", "1h", "--reason", "x"), ("rq", "unhold", str(held)), ("rq", "hold", str(held), "--reason", "y"),
                 ("unfreeze",), ("policy", "set", "stuck_seconds", "1700"), ("constraints", "set", "maximum-unreachable-nodes-for-reboot", "3"),
                 ("rq", "reset-backoff"), ("rq", "cancel", str(held), "--reason", "z"), ("repair-queue", "disable"), ("repair-queue", "enable"),
                 ("repair-queue", "delete", str(repair)), ("nodes", "cordon", "w0", "--reason", "disk"), ("nodes", "uncordon", "w0")]
        policy = g.record.value("cketerm/policy")
        refused = [f"{' '.join(ws)}: exit {r.returncode}: {r.stderr.strip()[:160]}" for ws in asked for r in [g.ran(guest, *ws)] if r.returncode]
        s.check(f"{name}: words that ask", refused)
        s.check(f"{name}: the policy keeps every field", paths(policy) <= paths(g.record.value("cketerm/policy") or {}) | {"freeze"} | {p for p in paths(policy) if p.startswith("freeze")})
        s.lets_go(slow)
        s.check(f"{name}: what was asked is done", [] if g.comes(lambda: not g.entries() and not g.entries("repairs"), 90) else [str(g.entries())])
        s.check(f"{NAMES[leader]} ends well", daemon.end() == 0)
    power = collections.Counter(p.entry for p in g.power() if p.what == "begin")
    s.check("every command once", [f"{e}: {n}" for e, n in power.items() if n != 1])
    s.check("no field is lost", lost_fields(g.record, s.since))
    s.check("nobody panics", panics(g))


def later(s):
    """What a newer version than both might write: either only observes, says so, and keeps it."""
    g = s.ground
    s.begin(new)
    s.since = g.record.revision()
    s.queue(new, s.workers[:4], "--reason", "INC-4")
    # fields of others in entries and requests; nobody may lose them
    g.wait("queued", lambda: len(g.entries()) == 4)
    for i, e in g.entries().items():
        g.put(f"reboots/data/{i:016x}", {**e, "later": {"ticket": [1, 2]}})
        g.put(f"cketerm/requests/reboots/{i}", {**g.record.value(f"cketerm/requests/reboots/{i}"), "later": "kept"})
    for key in ("constraints", "cketerm/identity"):
        g.put(key, {**g.record.value(key), "later": 7})
    policy = g.record.value("cketerm/policy")
    g.put("cketerm/policy", {**policy, "later": {"a": 1}, "windows": {"time_zone": "UTC", "later": True}})
    for program in (old, new):
        name = NAMES[program]
        daemon = g.daemon(program, f"{name}-observes")
        g.wait("it has looked", lambda: daemon.page("/readyz")[0], 30)
        time.sleep(5)
        status, text = daemon.page("/readyz")
        s.checked[f"{name} with a later policy"] = f"{status}: {text.strip()[:160]}"
        s.check(f"{name} only observes a policy with later fields", not g.power() and g.record.leader() is None and "later" in text)
        g.word(program, "policy", "set", "stuck_seconds", "1600" if program == old else "1500")
        now = g.record.value("cketerm/policy")
        s.check(f"{name}'s `policy set` keeps later fields", now.get("later") == {"a": 1} and (now.get("windows") or {}).get("later") is True)
        g.word(program, "constraints", "set", "maximum-unreachable-nodes-for-reboot", "2" if program == old else "3")
        s.check(f"{name}'s `constraints set` keeps later fields", g.record.value("constraints").get("later") == 7)
        # another layout
        layout = int(g.record.value("cketerm/schema"))
        g.put("cketerm/schema", str(layout + 1))
        g.wait("it says so", lambda: str(layout + 1) in daemon.page("/readyz")[1] and "schema" in daemon.page("/readyz")[1], 10)
        s.check(f"{name} only observes a later layout", g.record.leader() is None)
        ran = g.ran(program, "policy", "set", "stuck_seconds", "1400")
        s.check(f"{name} refuses to change the policy of a later layout", ran.returncode in (1, 3) and "schema" in ran.stderr)
        g.put("cketerm/schema", str(layout))
        s.check(f"{name} ends well", daemon.end() == 0)
    # an older and a newer one share the work on entries with fields that neither knows
    now = g.record.value("cketerm/policy")
    now.pop("later"), now.pop("windows")
    g.put("cketerm/policy", now)
    s.since = g.record.revision()
    first = g.daemon(old, "old")
    s.leads(first)
    g.wait("two have ended", lambda: len(ended(s)) >= 2, LONG)
    s.check("OLD ends well", first.end() == 0)
    second = g.daemon(new, "new")
    s.leads(second)
    s.empty()
    stories = [json.loads(c.value) for c in ended(s)]
    s.check("history keeps an entry's later fields", [f"reboots {e['entry']}" for e in stories if (e["last"] or {}).get("later") != {"ticket": [1, 2]}])
    s.checked["history keeps a request's later fields"] = all((e.get("request") or {}).get("later") == "kept" for e in stories)
    s.every_end()


STORIES = {"up": up, "down": down, "killed-old": lambda s: killed(s, old, new), "killed-new": lambda s: killed(s, new, old), "words": words, "later": later}
tell(STORIES, args, Story)
