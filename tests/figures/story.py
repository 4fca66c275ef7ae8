"""A site and what has to be true of its record at the end, whatever happened to the engines: `upgrade.py` and `faults.py`."""
import argparse, collections, json, sys, time

from ground import *

RACK = "cke.cybozu.com/rack"
# seconds for a queue to get on
LONG = 240


class Story:
    """A site of three API servers and eight workers in two racks; collects what is wrong."""

    def __init__(self, name, ground=None, **reboot):
        self.ground, self.wrong, self.checked, self.name = ground or Ground("upgrade-" + name), [], {}, name
        g = self.ground
        self.api_servers = [g.machine(f"cp{i}", f"10.0.0.{i + 11}", True) for i in range(3)]
        self.workers = [g.machine(f"w{i}", f"10.0.1.{i + 11}", labels={RACK: str(i % 2)}) for i in range(8)]
        self.machines = self.api_servers + self.workers
        self.reboot = {"max_concurrent_reboots": 2, "command_timeout_seconds": 8, **reboot}

    def begin(self, program):
        g, health = self.ground, ["sh", "-c", f"[ -e {self.ground.folder}/well ] && echo true || echo false"]
        g.bring(self.machines)
        for m in self.workers:
            for i in range(2):
                g.pod(f"{m['name']}-{i}", m["name"])
        g.pods_run()
        g.commands_take(2)
        step = {"repair_command": ["sh", "-c", f"echo $0 >> {g.folder}/repairs.log"], "watch_seconds": 600}
        g.set_up(program, self.machines, self.reboot, repair={"max_concurrent_repairs": 1, "repair_procedures": [
            {"machine_types": ["box"], "repair_operations": [{"operation": "reset", "health_check_command": health, "repair_steps": [step]}]}]})

    def holds_back(self, machine):
        """This drain goes on until somebody `lets_go`: kwok keeps a pod with a finalizer."""
        self.ground.pod(f"{machine['name']}-kept", machine["name"], finalizers=["figures.example/kept"])
        self.ground.pods_run()

    def lets_go(self, machine):
        self.ground.api("PATCH", f"/api/v1/namespaces/default/pods/{machine['name']}-kept", {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    def queue(self, program, machines, *more):
        self.ground.word(program, "rq", "add", "-", *more, stdin=" ".join(m["address"] for m in machines))

    def leads(self, daemon, at_most=60):
        self.ground.wait("it leads", lambda: self.ground.record.leader() == daemon.pid, at_most)
        self.ground.wait("it says so", lambda: daemon.page("/readyz")[0] == 200, at_most)

    def check(self, name, good):
        """`good`: true, false, or a list of what is wrong."""
        wrong = good if isinstance(good, list) else ([] if good else [name])
        self.checked[name] = not wrong
        self.wrong += [f"{name}: {w}" if w != name else w for w in wrong]

    def empty(self, but=()):
        self.ground.wait("the queue is empty", lambda: set(self.ground.entries()) <= set(but), LONG)

    def stays_out(self, daemon):
        """It has a place in the line, and has done nothing."""
        registered = self.ground.record.all("cketerm/engines/")
        lease = next(c.key.rsplit("/", 1)[1] for c in registered if c.value and json.loads(c.value)["pid"] == daemon.pid)
        return [f"it wrote {c.key}" for c in self.ground.record.all("cketerm/audit/") if f"-{lease}-" in c.key]

    def every_end(self, twice=()):
        """The invariants, whoever led."""
        g, record, power = self.ground, self.ground.record, self.ground.power()
        count = collections.Counter((p.what, p.entry) for p in power)
        queued = [i for _, i, before, _ in moves(record) if before is None]
        self.check("every machine is rebooted exactly once", [f"reboots/{i}: {count['begin', f'reboots/{i}']} begun, {count['end', f'reboots/{i}']} ended"
                   for i in queued if (count["begin", f"reboots/{i}"], count["end", f"reboots/{i}"]) != (1, 1)])
        self.check("never two API servers, none beside another machine", api_servers_alone(record, {m["address"] for m in self.api_servers}))
        self.check("only steps that there are", steps_are_legal(record, power))
        self.check("no field is lost", lost_fields(record, self.since))
        self.check("nobody panics", panics(g))
        self.check("no cordon is left", [] if g.comes(lambda: not g.cordoned(), 20) else [f"cordoned: {sorted(g.cordoned())}"])
        led = {}
        now = None
        wrong = []
        leaders = {revision: lease for revision, lease, _ in record.leaders()}
        for c in record.all():
            now = leaders.get(c.revision, now)
            if c.key.startswith("/cke/cketerm/audit/") and c.before is None and c.value and json.loads(c.value)["who"]["user"] == "engine":
                lease = c.key.rsplit("/", 1)[1].split("-")[1]
                what = json.loads(c.value)["what"]
                # a host reports how a command of its own ended, whoever leads by then
                if lease != now and what not in ("cluster identify: proposed", "schema", "report result"):
                    wrong.append(f"revision {c.revision}: {what} by {lease}, {now} leads")
        self.check("only the leader acts", wrong)

    def counted(self):
        power = self.ground.power()
        return {"commands": sum(p.what == "begin" for p in power), "leaders": len({l[1] for l in self.ground.record.leaders() if l[1]}),
                "revisions": self.ground.record.revision()}


def arguments(*programs, **defaults):
    """The words of a proof made of stories: the programs, then which stories, `--keep`."""
    parser = argparse.ArgumentParser()
    for name in programs:
        parser.add_argument(name, **({"nargs": "?", "default": defaults[name]} if name in defaults else {}))
    parser.add_argument("stories", nargs="*")
    parser.add_argument("--keep", action="store_true", help="keep the folders with the logs in any case")
    return parser.parse_args()


def tell(stories, args, begin, end=lambda story: None):
    """Tells the stories that are asked for, each from what `begin` makes of its name, with a line of JSON about each; ends the program."""
    well = True
    for name in args.stories or stories:
        began, s = time.monotonic(), begin(name)
        try:
            stories[name](s)
        except Failure as e:
            s.wrong.append(str(e))
            s.wrong += panics(s.ground)
        finally:
            counted = s.counted()
            end(s)
            s.ground.down(keep=args.keep or bool(s.wrong) or sys.exc_info()[0] is not None)
        well = well and not s.wrong
        say(story=name, ok=not s.wrong, seconds=round(time.monotonic() - began), **counted, checked=s.checked, **({"wrong": s.wrong} if s.wrong else {}))
    sys.exit(0 if well else 1)
