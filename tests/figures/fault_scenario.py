"""A site, and the invariants of its record at the end, whatever happened to the engines. Used by `upgrade.py` and `faults.py`."""
import argparse, collections, json, sys, time

from environment import *

RACK = "cke.cybozu.com/rack"
# seconds until a queue has to make progress
QUEUE_TIMEOUT = 240


class Scenario:
    """A site of three API servers and eight workers in two racks; collects violations."""

    def __init__(self, name, environment=None, **reboot):
        self.environment, self.violations, self.checked, self.name = environment or Environment("upgrade-" + name), [], {}, name
        env = self.environment
        self.api_servers = [env.machine(f"cp{i}", f"10.0.0.{i + 11}", True) for i in range(3)]
        self.workers = [env.machine(f"w{i}", f"10.0.1.{i + 11}", labels={RACK: str(i % 2)}) for i in range(8)]
        self.machines = self.api_servers + self.workers
        self.reboot = {"max_concurrent_reboots": 2, "command_timeout_seconds": 8, **reboot}

    def begin(self, program):
        env, health = self.environment, ["sh", "-c", f"[ -e {self.environment.folder}/healthy ] && echo true || echo false"]
        env.create_nodes(self.machines)
        for m in self.workers:
            for i in range(2):
                env.pod(f"{m['name']}-{i}", m["name"])
        env.wait_until_pods_run()
        env.set_command_duration(2)
        step = {"repair_command": ["sh", "-c", f"echo $0 >> {env.folder}/repairs.log"], "watch_seconds": 600}
        env.set_up(program, self.machines, self.reboot, repair={"max_concurrent_repairs": 1, "repair_procedures": [
            {"machine_types": ["box"], "repair_operations": [{"operation": "reset", "health_check_command": health, "repair_steps": [step]}]}]})

    def block_drain(self, machine):
        """Blocks this drain until `unblock_drain`: kwok keeps a pod with a finalizer."""
        self.environment.pod(f"{machine['name']}-kept", machine["name"], finalizers=["figures.example/kept"])
        self.environment.wait_until_pods_run()

    def unblock_drain(self, machine):
        self.environment.api("PATCH", f"/api/v1/namespaces/default/pods/{machine['name']}-kept", {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    def queue(self, program, machines, *more):
        self.environment.run_command(program, "rq", "add", "-", *more, stdin=" ".join(m["address"] for m in machines))

    def wait_until_leading(self, daemon, timeout=60):
        self.environment.wait("the daemon leads", lambda: self.environment.record.leader() == daemon.pid, timeout)
        self.environment.wait("the daemon is ready", lambda: daemon.get("/readyz")[0] == 200, timeout)

    def check(self, name, good):
        """`good`: true, false, or a list of violations."""
        violations = good if isinstance(good, list) else ([] if good else [name])
        self.checked[name] = not violations
        self.violations += [f"{name}: {w}" if w != name else w for w in violations]

    def wait_until_empty(self, but=()):
        self.environment.wait("the queue is empty", lambda: set(self.environment.entries()) <= set(but), QUEUE_TIMEOUT)

    def actions_of_follower(self, daemon):
        """Audit records of a candidate that does not lead and so must have none."""
        registered = self.environment.record.all("cketerm/engines/")
        lease = next(c.key.rsplit("/", 1)[1] for c in registered if c.value and json.loads(c.value)["pid"] == daemon.pid)
        return [f"it wrote {c.key}" for c in self.environment.record.all("cketerm/audit/") if f"-{lease}-" in c.key]

    def check_invariants(self):
        """Checks the invariants, whichever engine led."""
        env, record, power = self.environment, self.environment.record, self.environment.power_events()
        count = collections.Counter((p.what, p.entry) for p in power)
        queued = [i for _, i, before, _ in status_changes(record) if before is None]
        self.check("every machine is rebooted exactly once", [f"reboots/{i}: {count['begin', f'reboots/{i}']} begun, {count['end', f'reboots/{i}']} ended"
                   for i in queued if (count["begin", f"reboots/{i}"], count["end", f"reboots/{i}"]) != (1, 1)])
        self.check("never two API servers, none beside another machine", concurrent_api_servers(record, {m["address"] for m in self.api_servers}))
        self.check("only legal status changes", illegal_transitions(record, power))
        self.check("no field is lost", lost_fields(record, self.since))
        self.check("no engine panics", panics(env))
        self.check("no cordon is left", [] if env.happens_within(lambda: not env.cordoned(), 20) else [f"cordoned: {sorted(env.cordoned())}"])
        now = None
        violations = []
        leaders = {revision: lease for revision, lease, _ in record.leaders()}
        for c in record.all():
            now = leaders.get(c.revision, now)
            if c.key.startswith("/cke/cketerm/audit/") and c.before is None and c.value and json.loads(c.value)["who"]["user"] == "engine":
                lease = c.key.rsplit("/", 1)[1].split("-")[1]
                what = json.loads(c.value)["what"]
                # A host reports the result of its own command, whichever engine leads by then. The keys of a migration's
                # records name no lease; its writes are fenced, and compared with the note of the migration.
                if lease != now and what not in ("cluster identify: proposed", "schema", "report result", "migrate"):
                    violations.append(f"revision {c.revision}: {what} by {lease}, {now} leads")
        self.check("only the leader acts", violations)

    def counts(self):
        power = self.environment.power_events()
        return {"commands": sum(p.what == "begin" for p in power), "leaders": len({l[1] for l in self.environment.record.leaders() if l[1]}),
                "revisions": self.environment.record.revision()}


def arguments(*programs, **defaults):
    """Parses the command line: the programs, then the scenarios to run, `--keep`."""
    parser = argparse.ArgumentParser()
    for name in programs:
        parser.add_argument(name, **({"nargs": "?", "default": defaults[name]} if name in defaults else {}))
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--keep", action="store_true", help="always keep the folders with the logs")
    return parser.parse_args()


def run_scenarios(scenarios, args, begin, end=lambda scenario: None):
    """Runs the requested scenarios, each on what `begin` returns for its name, prints a JSON line for each, and exits."""
    all_ok = True
    for name in args.scenarios or scenarios:
        began, s = time.monotonic(), begin(name)
        try:
            scenarios[name](s)
        except Failure as e:
            s.violations.append(str(e))
            s.violations += panics(s.environment)
        finally:
            counts = s.counts()
            end(s)
            s.environment.stop(keep=args.keep or bool(s.violations) or sys.exc_info()[0] is not None)
        all_ok = all_ok and not s.violations
        print_figure(scenario=name, ok=not s.violations, seconds=round(time.monotonic() - began), **counts, checked=s.checked, **({"violations": s.violations} if s.violations else {}))
    sys.exit(0 if all_ok else 1)
