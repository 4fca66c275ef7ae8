#!/usr/bin/env python3
"""Checker of `linearizability.py`: is a history of concurrent commands linearizable? Pure functions; contacts no server.

usage: tests/figures/linear_checker.py --self-test                (runs the tests at the end: good histories, and bad ones that it has to find)

A history has two halves. The clients' half is a list of operations: command, start, end, outcome (`ok`, `failed` or `unknown`) and the
printed result. etcd's half is every change below `/cke/` with its revision, which is the total order that the clients' half has to fit.

`check` judges three things:
(a) writes: an acknowledged command has exactly its records and effects in etcd's history, at a revision between its start and its end; a
    failed one has none; one with an unknown outcome has each effect at most once, after its start. No other change of what operators own
    exists, and every change of an entry is one that the program may make;
(b) reads: there is a revision for each printed state, between start and end, that respects the order of all other reads and writes;
(c) the clients' half alone, without revisions: for each object a search in the way of Wing and Gong finds an order of the commands that
    explains every answer. An operation with an unknown outcome may take effect at any time after its start, or never.

A command of several transactions (`rq cancel-all`, `rq cancel --batch`, …) is judged entry by entry: it promises no atomicity.
"""
import bisect, collections, copy, dataclasses, heapq, itertools, json, math, sys, unittest

MARK = "lin-"
NEVER = math.inf
QUEUES = ("reboots", "repairs")
# number of configurations that a search for one object may visit
SEARCH_LIMIT = 300_000
ZERO_TIME = "0001-01-01T00:00:00Z"
CONSTRAINTS = ("maximum-repair-queue-entries", "maximum-unreachable-nodes-for-reboot", "wait-seconds-to-repair-rebooting")
POLICIES = ("node_grace_seconds", "removal_wait_seconds")
READS = ("rq list", "rq list table", "rq is-enabled", "rq batches", "repair-queue list", "repair-queue is-enabled", "constraints show", "policy show")


@dataclasses.dataclass
class Operation:
    """One command of one client. Times are monotonic seconds; `end` is infinite if no answer came."""
    number: int
    kind: str
    arguments: dict
    start: float
    end: float
    outcome: str
    result: object = None
    client: int = 0
    text: str = ""

    @property
    def mark(self):
        """Reason that the command gave, by which its audit records are found."""
        return f"{MARK}{self.number}"

    def __str__(self):
        given = " ".join(str(v) for v in self.arguments.values() if v is not None)
        return f"operation {self.number} ({self.kind} {given}: {self.outcome})".replace(" :", ":")


@dataclasses.dataclass
class Sample:
    """A linearizable read of the present revision, by which revisions get times."""
    start: float
    end: float
    revision: int


def parse(text):
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


def entry_key(queue, index):
    return f"{queue}/data/{int(index):016x}"


def backs_off(entry):
    return bool(entry.get("drain_backoff_count")) or (entry.get("drain_backoff_expire") or ZERO_TIME) != ZERO_TIME


def reboot_row(entry):
    """Part of a reboot entry that is compared, in etcd and as `rq list` prints it."""
    return [entry["node"], entry["status"], backs_off(entry)]


def repair_row(entry):
    """The same of a repair entry."""
    return [entry["address"], entry["status"], entry.get("step", 0), entry.get("step_status", "waiting"), bool(entry.get("deleted"))]


def batch_row(batch):
    return [batch.get("paused") is not None, batch.get("cancelled") is not None, batch.get("asked"), batch.get("added")]


def finished(row):
    return row[1] in ("succeeded", "failed")


# etcd's half

class History:
    """Changes below the prefix, by revision: `{revision: {key: (before, after)}}`; keys without the prefix, values as text or None."""

    def __init__(self, changes, since=0):
        """`changes`: (revision, key, value) in order. `since`: the last revision before the first operation."""
        self.since, self.revisions, current = since, {}, {}
        for revision, key, value in changes:
            self.revisions.setdefault(revision, {})[key] = (current.get(key), value)
            current[key] = value
        self.audits = collections.defaultdict(list)
        for revision, change in self.revisions.items():
            for key, (before, after) in change.items():
                if key.startswith("cketerm/audit/") and before is None and after is not None:
                    record = parse(after)
                    if (record.get("reason") or "").startswith(MARK) and record["who"]["user"] != "engine":
                        self.audits[record["reason"]].append((revision, record))
        self.marked = {revision for records in self.audits.values() for revision, _ in records}
        self._series = {}

    def series(self, name):
        """Revisions at which a projection changed, and its values from there on."""
        if name not in self._series:
            relevant, project = PROJECTIONS[name]
            current, revisions, values = {}, [0], [project({})]
            for revision in sorted(self.revisions):
                changed = {k: after for k, (_, after) in self.revisions[revision].items() if relevant(k)}
                if not changed:
                    continue
                for key, after in changed.items():
                    current.pop(key, None)
                    if after is not None:
                        current[key] = parse(after) if after[:1] in "{[" else after
                revisions.append(revision)
                values.append(project(current))
            self._series[name] = (revisions, values)
        return self._series[name]

    def first_where(self, name, predicate, low, high):
        """First revision from `low` to `high` at which the projection satisfies the predicate, or None."""
        revisions, values = self.series(name)
        at = max(bisect.bisect_right(revisions, low) - 1, 0)
        while at < len(revisions) and revisions[at] <= high:
            if predicate(values[at]):
                return max(revisions[at], low)
            at += 1
        return None


def of_queue(queue):
    return lambda key: key.startswith(f"{queue}/data/")


def is_batch(key):
    return key.startswith("cketerm/batches/") and key.count("/") == 2


def rows_of(queue, row):
    def project(current):
        return {str(int(k.rsplit("/", 1)[1], 16)): row(v) for k, v in current.items() if k.startswith(f"{queue}/data/")}
    return project


def with_holds(current):
    held = {k.rsplit("/", 1)[1] for k, v in current.items() if k.startswith("cketerm/orders/") and v.get("verb") == "hold"}
    return {i: [row[1], i in held] for i, row in rows_of("reboots", reboot_row)(current).items()}


def enabled(key):
    return (lambda k: k == key, lambda current: current.get(key) != "true")


PROJECTIONS = {
    "reboots": (of_queue("reboots"), rows_of("reboots", reboot_row)),
    "held": (lambda key: key.startswith(("reboots/data/", "cketerm/orders/reboots/")), with_holds),
    "repairs": (of_queue("repairs"), rows_of("repairs", repair_row)),
    "reboots enabled": enabled("reboots/disabled"),
    "repairs enabled": enabled("repairs/disabled"),
    "constraints": (lambda key: key == "constraints", lambda current: {n: current.get("constraints", {}).get(n, 0) for n in CONSTRAINTS}),
    "policy": (lambda key: key == "cketerm/policy", lambda current: {n: current.get("cketerm/policy", {}).get(n) for n in POLICIES}),
    "stopped": (lambda key: key == "cketerm/stopped", lambda current: "cketerm/stopped" in current),
    "batches": (is_batch, lambda current: {k.rsplit("/", 1)[1]: batch_row(v) for k, v in current.items() if v.get("queue") == "reboot"}),
}


class Window:
    """Bounds of revisions by time: what was certainly complete before an instant, and what certainly came after it."""

    def __init__(self, samples, writes):
        """`writes`: (operation, revision) of every write that is found in etcd's history."""
        ended = [(s.end, s.revision) for s in samples] + [(o.end, r) for o, r in writes if o.outcome == "ok"]
        begun = [(s.start, s.revision) for s in samples] + [(o.start, r - 1) for o, r in writes]
        self.ends, self.lows = self._extremes(sorted(ended), max)
        starts, highs = self._extremes(sorted(begun, reverse=True), min)
        self.starts, self.highs = starts[::-1], highs[::-1]

    @staticmethod
    def _extremes(points, extreme):
        times, revisions = [], []
        for time, revision in points:
            times.append(time)
            revisions.append(extreme(revisions[-1], revision) if revisions else revision)
        return times, revisions

    def low(self, start):
        """Newest revision that was acknowledged or read before `start`."""
        at = bisect.bisect_left(self.ends, start)
        return self.lows[at - 1] if at else 0

    def high(self, end):
        """Newest revision that may have existed at `end`."""
        at = bisect.bisect_right(self.starts, end)
        return self.highs[at] if at < len(self.starts) else NEVER


# (a) writes

def only(change, *keys):
    """Keys of a revision that a write of its kind should not have changed."""
    return sorted(k for k in change if k not in keys and not k.startswith("cketerm/audit/"))


def changed_fields(before, after):
    before, after = before or {}, after or {}
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def indexes_of(change, queue):
    return sorted(int(k.rsplit("/", 1)[1], 16) for k in change if k.startswith(f"{queue}/data/"))


def effect_of_add(queue, op, change, history):
    indexes, addresses = indexes_of(change, queue), op.arguments["nodes"]
    address = "node" if queue == "reboots" else "address"
    before, after = change.get(f"{queue}/write-index", (None, None))
    if len(indexes) != len(addresses):
        return f"it wrote {len(indexes)} entries for {len(addresses)} machines"
    if op.outcome == "ok" and op.result["indexes"] != indexes:
        return f"it printed the indexes {op.result['indexes']}, etcd has {indexes}"
    if indexes != list(range(int(before or 0), int(after or 0))):
        return f"write-index went from {before} to {after} for the indexes {indexes}"
    keys = [f"{queue}/write-index"]
    for index, machine in zip(indexes, addresses):
        key, request = entry_key(queue, index), f"cketerm/requests/{queue}/{index}"
        was, entry = change[key][0], parse(change[key][1])
        if was is not None or entry[address] != machine or entry["status"] != "queued":
            return f"{key} became {change[key][1]} from {was}"
        if parse(change.get(request, (None, None))[1] or "{}").get("reason") != op.mark:
            return f"{request} does not name it"
        keys += [key, request]
    more = [k for k in only(change, *keys) if not is_batch(k)]
    return f"it also changed {more}" if more else None


def withdrawal(queue, change, wanted=lambda entry: True):
    """Judges the entries that a revision withdraws: only the mark changes, and each was not withdrawn before."""
    field, mark = ("status", "cancelled") if queue == "reboots" else ("deleted", True)
    for index in indexes_of(change, queue):
        key = entry_key(queue, index)
        before, after = map(parse, change[key])
        if before is None or after is None or before.get(field) == mark or after.get(field) != mark or changed_fields(before, after) != [field]:
            return f"{key} went from {change[key][0]} to {change[key][1]}"
        if not wanted(before):
            return f"it withdrew {key}: {change[key][0]}"
    more = [k for k in only(change) if not k.startswith((f"{queue}/data/", f"cketerm/cancels/{queue}/"))]
    return f"it also changed {more}" if more else None


def effect_of_withdrawal(queue, op, change, history):
    if indexes_of(change, queue) != [op.arguments["index"]]:
        return f"it changed the entries {indexes_of(change, queue)}"
    return withdrawal(queue, change)


def effect_of_batch_cancel(queue, op, change, history):
    key = f"cketerm/batches/{op.arguments['batch']}"
    if key in change:
        before, after = map(parse, change[key])
        wrong = before is None or after is None or before.get("cancelled") is not None or changed_fields(before, after) != ["cancelled"] or only(change, key)
        return f"{key} went from {change[key][0]} to {change[key][1]}" if wrong else None
    return withdrawal(queue, change)


def effect_of_pause(paused):
    def judge(op, change, history):
        key = f"cketerm/batches/{op.arguments['batch']}"
        before, after = map(parse, change.get(key, (None, None)))
        wrong = before is None or after is None or changed_fields(before, after) != ["paused"] or (after.get("paused") is not None) != paused
        return f"{key} went from {before} to {after}" if wrong or only(change, key) else None
    return judge


def effect_of_reset(op, change, history):
    for index in indexes_of(change, "reboots"):
        before, after = map(parse, change[entry_key("reboots", index)])
        if before is None or after is None or not backs_off(before) or backs_off(after) or before["status"] == "cancelled" \
                or set(changed_fields(before, after)) - {"drain_backoff_count", "drain_backoff_expire"}:
            return f"reboots/{index} went from {before} to {after}"
    more = [k for k in only(change) if not k.startswith("reboots/data/")]
    return f"it also changed {more}" if more else None


def effect_of_order(verb):
    def judge(op, change, history):
        index = op.arguments["index"]
        key = f"cketerm/orders/reboots/{index}"
        before, after = map(parse, change.get(key, (None, None)))
        if (verb == "hold" and (after or {}).get("verb") != "hold") or (verb == "unhold" and ((before or {}).get("verb") != "hold" or after is not None)):
            return f"{key} went from {before} to {after}"
        return f"it also changed {only(change, key)}" if only(change, key) else None
    return judge


def effect_of_switch(queue, disabled):
    def judge(op, change, history):
        key = f"{queue}/disabled"
        if change.get(key, (None, None))[1] != disabled or only(change, key):
            return f"the revision changed {dict(change)}"
        return None
    return judge


def effect_of_stop(op, change, history):
    more = only(change, "reboots/disabled", "repairs/disabled", "cketerm/stopped")
    wrong = [k for k in change if k.endswith("/disabled") and change[k][1] != "true"]
    return f"it changed {more + wrong}" if more + wrong else None


def effect_of_resume(op, change, history):
    more = only(change, "reboots/disabled", "repairs/disabled", "cketerm/stopped")
    wrong = [k for k in change if k.endswith("/disabled") and change[k] != ("true", "false")]
    removed = "cketerm/stopped" in change and change["cketerm/stopped"][1] is None
    return f"it changed {more + wrong}" if more + wrong or not removed else None


def effect_of_field(key):
    def judge(op, change, history):
        before, after = map(parse, change.get(key, (None, None)))
        name, value = op.arguments["name"], op.arguments["value"]
        others = [f for f in changed_fields(before, after) if f != name]
        if after is None or after.get(name) != value or others or only(change, key):
            return f"{key} went from {before} to {after}"
        return None
    return judge


def for_queue(judge, queue):
    return lambda op, change, history: judge(queue, op, change, history)


# what one transaction of a command may change
EFFECTS = {
    "rq add": for_queue(effect_of_add, "reboots"), "repair-queue add": for_queue(effect_of_add, "repairs"),
    "rq cancel": for_queue(effect_of_withdrawal, "reboots"), "repair-queue delete": for_queue(effect_of_withdrawal, "repairs"),
    "rq cancel-all": lambda op, change, history: withdrawal("reboots", change),
    "repair-queue delete-finished": lambda op, change, history: withdrawal("repairs", change, lambda e: e["status"] in ("succeeded", "failed")),
    "repair-queue delete-unfinished": lambda op, change, history: withdrawal("repairs", change, lambda e: e["status"] not in ("succeeded", "failed")),
    "rq cancel --batch": for_queue(effect_of_batch_cancel, "reboots"),
    "rq pause": effect_of_pause(True), "rq resume": effect_of_pause(False), "rq reset-backoff": effect_of_reset,
    "rq hold": effect_of_order("hold"), "rq unhold": effect_of_order("unhold"),
    "rq enable": effect_of_switch("reboots", "false"), "rq disable": effect_of_switch("reboots", "true"),
    "repair-queue enable": effect_of_switch("repairs", "false"), "repair-queue disable": effect_of_switch("repairs", "true"),
    "stop": effect_of_stop, "resume": effect_of_resume,
    "constraints set": effect_of_field("constraints"), "policy set": effect_of_field("cketerm/policy"),
}
# commands of any number of transactions, by the queue whose entries they change
SEVERAL = {"rq cancel-all": "reboots", "rq cancel --batch": "reboots", "rq reset-backoff": "reboots", "repair-queue delete-finished": "repairs",
           "repair-queue delete-unfinished": "repairs"}
# commands that write nothing if there is nothing to do; the state that justifies it is in `justification`
MAY_DO_NOTHING = {"rq cancel", "repair-queue delete", "rq pause", "rq resume", "resume", "policy set"}


def check_writes(operations, history, window):
    """(a) for the operations."""
    violations = []
    for op in operations:
        records = history.audits.get(op.mark, [])
        if op.kind in READS:
            violations += [f"{op} wrote at revision {r}" for r, _ in records]
            continue
        if op.outcome == "failed":
            violations += [f"{op} wrote at revision {r}, although it answered: {op.text.strip()[-300:]}" for r, _ in records]
            continue
        if op.kind not in SEVERAL:
            least = 1 if op.outcome == "ok" and op.kind not in MAY_DO_NOTHING else 0
            if not least <= len(records) <= 1:
                violations.append(f"{op} has {len(records)} records in etcd: revisions {[r for r, _ in records]}")
        low, high = window.low(op.start), window.high(op.end) if op.outcome == "ok" else NEVER
        for revision, record in records:
            if not low < revision <= high:
                violations.append(f"{op} took effect at revision {revision}, outside of {low + 1} to {high}")
            wrong = EFFECTS[op.kind](op, history.revisions[revision], history)
            if wrong:
                violations.append(f"{op} at revision {revision}: {wrong}")
        if op.kind in SEVERAL and op.outcome == "ok":
            written = [i for revision, _ in records for i in indexes_of(history.revisions[revision], SEVERAL[op.kind])]
            if sorted(written) != sorted(op.result["indexes"]):
                violations.append(f"{op} printed {op.result['indexes']}, etcd has {sorted(written)}")
    known = {op.mark for op in operations}
    violations += [f"revision {records[0][0]} names {mark}, which no client sent" for mark, records in history.audits.items() if mark not in known]
    return violations


# status of a reboot entry before and after a write of the engine; None = no entry
REBOOT_STEPS = {("queued", "queued"), ("queued", "draining"), ("draining", "draining"), ("draining", "queued"), ("draining", "rebooting"),
                ("rebooting", "rebooting"), ("rebooting", "queued"), ("rebooting", None), ("cancelled", None)}
REPAIR_STEPS = {("queued", "queued"), ("queued", "processing"), ("queued", "succeeded"), ("queued", "failed"), ("processing", "processing"),
                ("processing", "succeeded"), ("processing", "failed")}


def check_transitions(history):
    """(a) for all else: what operators own changes only by their commands, and entries change only as the engine may change them."""
    violations, used = [], {queue: set() for queue in QUEUES}
    owned = ("reboots/disabled", "repairs/disabled", "constraints", "cketerm/policy", "cketerm/stopped", "reboots/write-index", "repairs/write-index")
    for revision in sorted(history.revisions):
        change, by_command = history.revisions[revision], revision in history.marked
        for key, (before, after) in change.items():
            queue = key.split("/", 1)[0]
            if queue in QUEUES and key.startswith(f"{queue}/data/"):
                index = int(key.rsplit("/", 1)[1], 16)
                if before is None and after is not None:
                    if index in used[queue]:
                        violations.append(f"revision {revision}: the index of {key} is used again")
                    used[queue].add(index)
                if revision > history.since and not by_command:
                    violations += wrong_step(queue, revision, key, parse(before), parse(after))
            elif revision > history.since and not by_command:
                if key in owned:
                    violations.append(f"revision {revision}: {key} went from {before} to {after} without a command")
                elif key.startswith("cketerm/orders/") and after is not None:
                    violations.append(f"revision {revision}: {key} was written without a command")
                elif is_batch(key) and after is not None:
                    # the engine ends the pause of a batch that has ended
                    fields = set(changed_fields(parse(before), parse(after)))
                    if "cancelled" in fields or ("paused" in fields and "ended" not in fields):
                        violations.append(f"revision {revision}: {key} went from {before} to {after} without a command")
            if key == "reboots/write-index" or key == "repairs/write-index":
                if int(after or 0) <= int(before or 0):
                    violations.append(f"revision {revision}: {key} went from {before} to {after}")
            if key.startswith("cketerm/orders/reboots/") and after is None and not by_command and revision > history.since:
                # only the end of its entry ends a hold
                entry = entry_key("reboots", key.rsplit("/", 1)[1])
                if (parse(before) or {}).get("verb") == "hold" and history_value(history, entry, revision) is not None:
                    violations.append(f"revision {revision}: the hold of {entry} is gone, the entry is not")
    return violations


def history_value(history, key, revision):
    """Value of an entry at a revision."""
    queue = key.split("/", 1)[0]
    revisions, values = history.series(queue)
    return values[bisect.bisect_right(revisions, revision) - 1].get(str(int(key.rsplit("/", 1)[1], 16)))


def wrong_step(queue, revision, key, before, after):
    was, now = before and before["status"], after and after["status"]
    if queue == "reboots":
        good = (was, now) in REBOOT_STEPS
    else:
        withdrawn = bool((before or {}).get("deleted"))
        good = withdrawn if now is None else (was, now) in REPAIR_STEPS and withdrawn == bool(after.get("deleted"))
    return [] if good else [f"revision {revision}: {key} went from {was} to {now} without a command"]


# (b) reads

def exactly(result):
    return lambda value: value == result


def justification(op, history):
    """The state that an answer reports: (projection, predicate), or None if it reports none. It is a read, or a command that found nothing
    to do, or one that was refused because of the state."""
    index = str(op.arguments.get("index"))
    if op.outcome == "ok":
        read = {"rq list": "reboots", "rq list table": "held", "rq is-enabled": "reboots enabled", "rq batches": "batches", "repair-queue list": "repairs",
                "repair-queue is-enabled": "repairs enabled", "constraints show": "constraints", "policy show": "policy"}.get(op.kind)
        if read:
            return read, exactly(op.result)
        if history.audits.get(op.mark):
            return None
        batch = op.arguments.get("batch")
        return {
            "rq cancel": ("reboots", lambda value: value.get(index, ["", ""])[1] == "cancelled"),
            "repair-queue delete": ("repairs", lambda value: index in value and value[index][4]),
            "rq reset-backoff": ("reboots", lambda value: not any(row[2] and row[1] != "cancelled" for i, row in value.items()
                                                                  if op.arguments.get("index") is None or i == index)),
            "resume": ("stopped", lambda value: not value),
            "policy set": ("policy", lambda value: value.get(op.arguments["name"]) == op.arguments["value"]),
            "rq pause": ("batches", lambda value: batch in value and value[batch][0]),
            "rq resume": ("batches", lambda value: batch in value and not value[batch][0]),
            "rq cancel-all": ("reboots", lambda value: all(row[1] == "cancelled" for row in value.values())),
            "repair-queue delete-finished": ("repairs", lambda value: all(row[4] or not finished(row) for row in value.values())),
            "repair-queue delete-unfinished": ("repairs", lambda value: all(row[4] or finished(row) for row in value.values())),
        }.get(op.kind)
    found = op.result.get("found") if op.outcome == "failed" and isinstance(op.result, dict) else None
    queue = "repairs" if op.kind.startswith("repair-queue") else "reboots"
    if found == "absent":
        return queue, lambda value: index not in value
    if found == "not held":
        return "held", lambda value: index in value and not value[index][1]
    if found in ("queued", "draining", "rebooting", "cancelled"):
        return "reboots", lambda value: index in value and value[index][1] == found
    return None


def check_reads(operations, history, window):
    """(b). Takes the smallest revision that each read can have, in the order of their starts: if any assignment exists, this one does.
    Returns the violations, the number of reads, and how many revisions each could have had by time alone."""
    violations, ended, newest, widths = [], [], 0, []
    for op in sorted(operations, key=lambda op: op.start):
        reported = justification(op, history)
        if reported is None:
            continue
        while ended and ended[0][0] < op.start:
            newest = max(newest, heapq.heappop(ended)[1])
        low, high = max(window.low(op.start), newest), window.high(op.end)
        widths.append(high - low if high < NEVER else 0)
        at = history.first_where(*reported, low, high)
        if at is None:
            name, predicate = reported
            ever = history.first_where(name, predicate, 0, NEVER)
            violations.append(f"{op} reports a state of {name} that no revision from {low} to {high} has" + (
                f" (revision {ever} has it)" if ever is not None else ", nor any other"))
            continue
        heapq.heappush(ended, (op.end, at))
    return violations, len(widths), widths


# (c) the clients' half alone

@dataclasses.dataclass(frozen=True)
class Step:
    """An operation on one object. `unknown`: it may take effect at any time after its start, or never."""
    name: str
    start: float
    end: float
    action: tuple
    unknown: bool = False


# actions that change nothing
OBSERVERS = ("get", "unheld", "nothing to cancel", "nothing to delete")


class Undecided(Exception):
    """The search has visited too many configurations."""


def linearize(steps, initial, apply, internal=lambda state: (), limit=SEARCH_LIMIT):
    """Searches for an order of the steps that respects time. `apply(state, action)` returns the states after it, none if the answer does
    not fit; `internal(state)` those that the object may reach by itself. Returns None, or the step that no order explains.

    Configurations are pairs of a state and the steps that took effect before their answers. At each answer, every configuration is
    extended until that step has taken effect. An observer takes effect as soon as it fits, which excludes nothing; a write that changes
    nothing does not, because it may be needed later. Unknown steps of the same action are interchangeable, so they are only counted."""
    events = sorted([(s.start, 0, i) for i, s in enumerate(steps)] + [(s.end, 1, i) for i, s in enumerate(steps) if not s.unknown])
    open_steps, spare, visited = {}, collections.Counter(), 0
    configurations = {(initial, frozenset(), ())}

    def settled(state, done, used):
        """Lets all open reads take effect that fit."""
        reads = [i for i, action in open_steps.items() if action[0] in OBSERVERS and i not in done and apply(state, action)]
        return (state, done | frozenset(reads), used) if reads else (state, done, used)

    for _, kind, i in events:
        if kind == 0:
            if steps[i].unknown:
                spare[steps[i].action] += 1
            else:
                open_steps[i] = steps[i].action
            continue
        reached, seen, heap, order = set(), collections.defaultdict(list), [], itertools.count()

        def reach(state, done, used):
            heapq.heappush(heap, (sum(n for _, n in used), next(order), settled(state, done, used)))
        for configuration in configurations:
            reach(*configuration)
        # fewest unknown steps first: a configuration that needs more of them than another one with the same state is never needed
        while heap:
            _, _, (state, done, used) = heapq.heappop(heap)
            counted = dict(used)
            if any(all(counted.get(action, 0) >= n for action, n in fewer) for fewer in seen[state, done]):
                continue
            seen[state, done].append(used)
            visited += 1
            if visited > limit:
                raise Undecided
            if i in done:
                reached.add((state, done - {i}, used))
                continue
            for other, action in open_steps.items():
                if other not in done:
                    for after in apply(state, action):
                        reach(after, done | {other}, used)
            for action, count in spare.items():
                if counted.get(action, 0) < count:
                    more = tuple(sorted({**counted, action: counted.get(action, 0) + 1}.items(), key=repr))
                    for after in apply(state, action):
                        if after != state:
                            reach(after, done, more)
            for after in internal(state):
                reach(after, done, used)
        del open_steps[i]
        if not reached:
            return steps[i]
        configurations = reached
    return None


def register(state, action):
    """A value: `set`, `get`."""
    if action[0] == "set":
        return (action[1],)
    return (state,) if state == action[1] else ()


def counter(state, action):
    """The next index: `add` with the number of entries, and the first index if it was printed."""
    _, count, first = action
    return (state + count,) if first is None or first == state else ()


def switches(state, action):
    """Both switches and what a stop disabled: (reboots enabled, repairs enabled, queues of the record or None, those of them that nobody
    has switched since)."""
    on, record, untouched = dict(zip(QUEUES, state[:2])), state[2], state[3]
    def packed():
        return (on["reboots"], on["repairs"], record, untouched)
    if action[0] == "get":
        return (state,) if on[action[1]] == action[2] else ()
    if action[0] == "set":
        on[action[1]], untouched = action[2], untouched - {action[1]}
        return (packed(),)
    if action[0] == "stop":
        was_on = frozenset(q for q in QUEUES if on[q])
        if action[1] is not None and action[1] != was_on:
            return ()
        if queues := was_on | frozenset(q for q in untouched if not on[q]):
            record = untouched = queues
            on.update(dict.fromkeys(queues, False))
        return (packed(),)
    # resume
    if record is None:
        return (state,) if action[1] is None or action[1] == "nothing" else ()
    turned = frozenset(q for q in record & untouched if not on[q])
    if action[1] is not None and action[1] != turned:
        return ()
    on.update(dict.fromkeys(turned, True))
    record, untouched = None, frozenset()
    return (packed(),)


def reboot_entry(state, action):
    """One reboot entry: (status, held); the status is also `none` before it is added and `gone` after its end."""
    status, held = state
    present = status not in ("none", "gone")
    verb = action[0]
    if verb == "add":
        return (("queued", False),) if status == "none" else ()
    if verb == "get":
        return (state,) if action[1] == (status if present else "absent") and action[2] in (None, held) else ()
    if verb == "cancel":
        return (("cancelled", held),) if present else ()
    if verb == "cancelled now":
        return (("cancelled", held),) if present and status != "cancelled" else ()
    if verb == "nothing to cancel":
        return (state,) if not present or status == "cancelled" else ()
    if verb == "hold":
        return ((status, True),) if present and status != "rebooting" else ()
    if verb == "unhold":
        return ((status, False),) if present and held else ()
    raise ValueError(verb)


def reboot_engine(state):
    status, held = state
    steps = {"queued": ("draining",), "draining": ("queued", "rebooting"), "rebooting": ("queued", "gone"), "cancelled": ("gone",)}
    return tuple((s, held and s != "gone") for s in steps.get(status, ()))


def repair_entry(state, action):
    """One repair entry: `none`, `open`, `finished`, `gone`, and whether it is deleted."""
    status, deleted = state
    present = status not in ("none", "gone")
    verb = action[0]
    if verb == "add":
        return (("open", False),) if status == "none" else ()
    if verb == "get":
        return (state,) if action[1] == (status if present else "absent") and action[2] in (None, deleted) else ()
    if verb == "delete":
        return ((status, True),) if present else ()
    if verb == "deleted now":
        return ((status, True),) if present and not deleted and action[1] in (None, status) else ()
    if verb == "nothing to delete":
        return (state,) if not present or deleted or status != action[1] else ()
    raise ValueError(verb)


def repair_engine(state):
    status, deleted = state
    return ((("finished", deleted),) if status == "open" else ()) + ((("gone", deleted),) if deleted and status != "gone" else ())


def step(op, *action):
    return Step(str(op), op.start, op.end, action, op.outcome == "unknown")


def entry_steps(operations, queue):
    """Steps of every entry of a queue, by index."""
    reboots = queue == "reboots"
    add, list_kinds = ("rq add", ("rq list", "rq list table")) if reboots else ("repair-queue add", ("repair-queue list",))
    steps, reads, unknown_adds = collections.defaultdict(list), [], []
    several = []
    for op in operations:
        index = op.arguments.get("index")
        if op.kind == add:
            if op.outcome == "ok":
                for i in op.result["indexes"]:
                    steps[i].append(step(op, "add"))
            elif op.outcome == "unknown":
                unknown_adds.append(op)
        elif op.kind in list_kinds:
            if op.outcome == "ok":
                reads.append(op)
                for i, row in op.result.items():
                    if op.kind == "rq list table":
                        seen = ("get", row[0], row[1])
                    elif reboots:
                        seen = ("get", row[1], None)
                    else:
                        seen = ("get", "finished" if finished(row) else "open", row[4])
                    steps[int(i)].append(step(op, *seen))
        elif op.kind in ("rq cancel", "rq hold", "rq unhold") and reboots or op.kind == "repair-queue delete" and not reboots:
            found = op.result.get("found") if isinstance(op.result, dict) and op.outcome == "failed" else None
            if op.outcome != "failed":
                steps[index].append(step(op, op.kind.rsplit(" ", 1)[1]))
            elif found == "absent":
                steps[index].append(step(op, "get", "absent", None))
            elif found == "not held":
                steps[index].append(step(op, "unheld"))
            elif found:
                steps[index].append(step(op, "get", found, None))
        elif op.kind in SEVERAL and SEVERAL[op.kind] == queue and op.kind != "rq reset-backoff" and op.outcome != "failed":
            several.append(op)
    for op in several:
        # by the entries that some answer shows
        which = {"repair-queue delete-finished": "finished", "repair-queue delete-unfinished": "open"}.get(op.kind)
        now, nothing = (("cancelled now",), ("nothing to cancel",)) if reboots else (("deleted now", which), ("nothing to delete", which))
        for i, known in list(steps.items()):
            if op.outcome == "unknown":
                if op.start <= max(s.end for s in known):
                    steps[i].append(step(op, *now))
            elif i in op.result["indexes"]:
                steps[i].append(step(op, *now))
            elif op.kind != "rq cancel --batch" and min(s.start for s in known) <= op.end and op.start <= max(s.end for s in known if not s.unknown or s.end < NEVER):
                steps[i].append(step(op, *nothing))
        for i in op.result["indexes"] if op.outcome == "ok" else ():
            if i not in steps:
                steps[i].append(step(op, *now))
    reads.sort(key=lambda op: op.start)
    starts = [op.start for op in reads]
    for i, known in steps.items():
        if unknown_adds and not any(s.action == ("add",) for s in known):
            known.append(Step("an add of unknown outcome", min(op.start for op in unknown_adds), NEVER, ("add",), True))
        # An answer that fits an entry that is not there says something only between the first and the last step that needs it: before it is
        # added and after its end such an answer always fits.
        needed, others = [], []
        for s in known:
            fits_absence = s.action[:2] == ("get", "absent") or s.action[0] in ("nothing to cancel", "nothing to delete")
            (others if fits_absence else needed).append(s)
        first = min((s.start for s in needed if not s.unknown or s.action == ("add",)), default=NEVER)
        last = max((s.end for s in needed if not s.unknown), default=0)
        others += [step(op, "get", "absent", None) for op in reads[:bisect.bisect_right(starts, last)] if op.end >= first and str(i) not in op.result]
        steps[i] = needed + [s for s in others if s.start <= last and s.end >= first]
    return steps


def unheld(state, action):
    """`reboot_entry`, and an `unhold` that was refused."""
    if action[0] == "unheld":
        return (state,) if state[0] not in ("none", "gone") and not state[1] else ()
    return reboot_entry(state, action)


def objects(operations, initial):
    """Every object of a history: (name, steps, first state, model, steps by itself). `initial`: the states at the first operation."""
    for queue, model, engine, first in (("reboots", unheld, reboot_engine, ("none", False)), ("repairs", repair_entry, repair_engine, ("none", False))):
        for index, steps in sorted(entry_steps(operations, queue).items()):
            if index >= initial["next"][queue]:
                yield f"{queue}/{index}", steps, first, model, engine
    for queue, kind in (("reboots", "rq add"), ("repairs", "repair-queue add")):
        steps = [step(op, "add", len(op.arguments["nodes"]), op.result["indexes"][0] if op.outcome == "ok" else None)
                 for op in operations if op.kind == kind and op.outcome != "failed"]
        yield f"{queue}/write-index", steps, initial["next"][queue], counter, lambda state: ()
    turning, words = [], {"rq": "reboots", "repair-queue": "repairs"}
    for op in operations:
        name, _, verb = op.kind.partition(" ")
        if op.outcome == "failed":
            continue
        if verb in ("enable", "disable"):
            turning.append(step(op, "set", words[name], verb == "enable"))
        elif verb == "is-enabled" and op.outcome == "ok":
            turning.append(step(op, "get", words[name], op.result))
        elif op.kind in ("stop", "resume"):
            turned = op.result and op.result.get("turned")
            turning.append(step(op, op.kind, turned if turned in (None, "nothing") else frozenset(turned)))
    yield "the switches", turning, (*(initial["enabled"][q] for q in QUEUES), None, frozenset()), switches, lambda state: ()
    for show, change, first in (("constraints show", "constraints set", initial["constraints"]), ("policy show", "policy set", initial["policy"])):
        for name in first:
            steps = []
            for op in operations:
                if op.kind == change and op.arguments["name"] == name and op.outcome != "failed":
                    steps.append(step(op, "set", op.arguments["value"]))
                elif op.kind == show and op.outcome == "ok":
                    steps.append(step(op, "get", op.result.get(name)))
            yield f"{change.split()[0]} {name}", steps, first[name], register, lambda state: ()


def check_objects(operations, initial, limit=SEARCH_LIMIT):
    """(c). Returns the violations, the number of objects, of steps, and the names of objects that are undecided."""
    violations, count, total, undecided = [], 0, 0, []
    for name, steps, first, model, engine in objects(operations, initial):
        # unknown reads say nothing
        steps = [s for s in steps if not (s.unknown and s.action[0] in ("get", "unheld"))]
        count, total = count + 1, total + len(steps)
        try:
            failed = linearize(steps, first, model, engine, limit)
        except Undecided:
            undecided.append(name)
            continue
        if failed:
            violations.append(f"{name}: no order of the commands explains the answer of {failed.name} ({' '.join(map(str, failed.action))})")
    return violations, count, total, undecided


# the whole

def check(operations, changes, samples, since, initial, limit=SEARCH_LIMIT):
    """Judges a history; returns a dictionary of violations and counts."""
    history = History(changes, since)
    writes = [(op, revision) for op in operations for revision, _ in history.audits.get(op.mark, [])]
    window = Window(samples, writes)
    written = check_writes(operations, history, window) + check_transitions(history)
    read, reads, widths = check_reads(operations, history, window)
    searched, count, steps, undecided = check_objects(operations, initial, limit)
    widths.sort()
    return {"writes": written, "reads": read, "objects": searched, "counts": {
        "writes in the history of etcd": len(writes), "reads and other reported states": reads,
        "revisions that a read could have by time": {"median": widths[len(widths) // 2], "largest": widths[-1]} if widths else {},
        "objects": count, "steps on objects": steps, "undecided objects": undecided}}


def violations_of(found):
    return [f"({part}) {text}" for part, name in (("a", "writes"), ("b", "reads"), ("c", "objects")) for text in found[name]]


# Injected errors: each takes a good history, makes it a bad one, and names the checks that have to find it. None if the history lacks what
# it needs.

def acknowledged(operations, history, *kinds):
    return [op for op in operations if op.kind in kinds and op.outcome == "ok" and len(history.audits.get(op.mark, [])) == 1]


def middle(found):
    return found[len(found) // 2] if found else None


def break_lost_write(operations, changes, history):
    """An acknowledged write vanishes from etcd's history."""
    op = middle(acknowledged(operations, history, "rq cancel", "rq hold", "constraints set"))
    if op:
        revision = history.audits[op.mark][0][0]
        return operations, [c for c in changes if c[0] != revision], "writes"


def break_refused_write(operations, changes, history):
    """A command that was carried out answered that nothing was done."""
    op = middle(acknowledged(operations, history, "rq add", "rq cancel"))
    if op:
        op.outcome, op.result = "failed", None
        return operations, changes, "writes"


def break_doubled_write(operations, changes, history):
    """A write took effect twice."""
    op = middle(acknowledged(operations, history, "rq disable", "rq enable"))
    if op:
        revision = history.audits[op.mark][0][0]
        last = changes[-1][0]
        doubled = [(last + 1, k + ("-again" if k.startswith("cketerm/audit/") else ""), v) for r, k, v in changes if r == revision]
        return operations, changes + doubled, "writes"


def break_late_write(operations, changes, history):
    """A command answered before it took effect."""
    op = middle(acknowledged(operations, history, "constraints set", "rq hold"))
    if op:
        length = (op.end - op.start) / 2
        op.start, op.end = op.start - 60 - length, op.start - 60
        return operations, changes, "writes"


def break_stale_read(operations, changes, history):
    """A read returned what an earlier one had returned, long after it had changed."""
    reads = sorted((op for op in operations if op.kind == "constraints show" and op.outcome == "ok"), key=lambda op: op.start)
    late, early = middle(reads), reads[0] if reads else None
    if late and late.result != early.result:
        late.result = copy.deepcopy(early.result)
        return operations, changes, "reads", "objects"


def break_reversed_reads(operations, changes, history):
    """Two reads, one after the other, saw two writes in the opposite order."""
    reads = sorted((op for op in operations if op.kind == "constraints show" and op.outcome == "ok"), key=lambda op: op.start)
    for one, other in reversed(list(zip(reads, reads[3:]))):
        if one.end < other.start and one.result != other.result and all(one.result[n] < other.result[n] for n in one.result if one.result[n] != other.result[n]):
            one.result, other.result = other.result, one.result
            return operations, changes, "reads", "objects"


def break_lost_update(operations, changes, history):
    """A change of one field restored the old value of another field."""
    op = middle(acknowledged(operations, history, "constraints set"))
    if op:
        revision = history.audits[op.mark][0][0]
        other = next(n for n in CONSTRAINTS if n != op.arguments["name"])
        def altered(change):
            if change[:2] != (revision, "constraints"):
                return change
            return (*change[:2], json.dumps({**parse(change[2]), other: 7}))
        return operations, [altered(c) for c in changes], "writes"


def break_doubled_index(operations, changes, history):
    """Two commands printed the same index."""
    adds = acknowledged(operations, history, "rq add")
    if len(adds) > 1:
        one, other = adds[len(adds) // 2 - 1:][:2]
        other.result = {**other.result, "indexes": list(one.result["indexes"])}
        return operations, changes, "writes", "objects"


def break_revived_entry(operations, changes, history):
    """A list showed an entry as queued after its cancel was acknowledged."""
    for cancel in acknowledged(operations, history, "rq cancel"):
        for op in operations:
            if op.kind == "rq list" and op.outcome == "ok" and op.start > cancel.end + 0.5:
                op.result[str(cancel.arguments["index"])] = ["10.0.1.11", "queued", False]
                return operations, changes, "reads", "objects"


def break_vanished_entry(operations, changes, history):
    """A list did not show an entry that lists before and after it showed."""
    lists = sorted((op for op in operations if op.kind == "rq list" and op.outcome == "ok"), key=lambda op: op.start)
    for one, two in zip(lists, lists[1:]):
        for later in lists:
            common = set(one.result) & set(two.result) & set(later.result) if one.end < two.start and two.end < later.start else ()
            if common:
                del two.result[min(common, key=int)]
                return operations, changes, "reads", "objects"


BREAKS = {name.removeprefix("break_").replace("_", "-"): f for name, f in list(globals().items()) if name.startswith("break_")}


def check_broken(name, operations, changes, samples, since, initial, limit=SEARCH_LIMIT):
    """Injects one error. Returns the checks that found something, or None if the history lacks what the error needs, and the violations.
    The good history has to be without a violation."""
    broken = BREAKS[name]([dataclasses.replace(op, result=copy.deepcopy(op.result)) for op in operations], list(changes), History(changes, since))
    if broken is None:
        return None, []
    found = check(broken[0], broken[1], samples, since, initial, limit)
    missed = [part for part in broken[2:] if not found[part]]
    return ([] if missed else list(broken[2:])), violations_of(found)


# Tests: small histories, good and bad. A history is built from commands whose effects are written in order.

class Built:
    """A history in the making: `write` appends a revision, `did` and `saw` operations; one second is one unit of time."""

    def __init__(self):
        self.operations, self.changes, self.samples, self.revision = [], [(1, "constraints", json.dumps(dict.fromkeys(CONSTRAINTS, 0)))], [], 1

    def write(self, **keys):
        """One revision with these keys; `__` stands for a slash."""
        return self.put({k.replace("__", "/"): v for k, v in keys.items()})

    def put(self, keys, by=None, who="alice"):
        self.revision += 1
        if by is not None:
            keys = {**keys, f"cketerm/audit/{self.revision:020}-{by}": {"reason": f"{MARK}{by}", "who": {"user": who}}}
        for key, value in keys.items():
            self.changes.append((self.revision, key, value if value is None or isinstance(value, str) else json.dumps(value)))
        return self.revision

    def did(self, start, end, kind, result=None, outcome="ok", **arguments):
        op = Operation(len(self.operations), kind, arguments, start, NEVER if outcome == "unknown" else end, outcome, result)
        self.operations.append(op)
        return op

    def set(self, start, end, name, value, effect=True, outcome="ok"):
        op = self.did(start, end, "constraints set", None, outcome, name=name, value=value)
        if effect:
            stored = json.loads(next(v for _, k, v in reversed(self.changes) if k == "constraints"))
            self.put({"constraints": {**stored, name: value}}, op.number)
        return op

    def show(self, start, end, **values):
        return self.did(start, end, "constraints show", {n: values.get(n.split("-")[0], 0) for n in CONSTRAINTS})

    def add(self, start, end, index, node="10.0.0.1", printed=None, outcome="ok"):
        op = self.did(start, end, "rq add", {"indexes": [index if printed is None else printed]} if outcome == "ok" else None, outcome, nodes=[node])
        self.put({entry_key("reboots", index): {"index": str(index), "node": node, "status": "queued"}, "reboots/write-index": str(index + 1),
                  f"cketerm/requests/reboots/{index}": {"reason": op.mark}}, op.number)
        return op

    def cancel(self, start, end, index, effect=True, outcome="ok", result=None):
        op = self.did(start, end, "rq cancel", result, outcome, index=index)
        if effect:
            self.put({entry_key("reboots", index): {"index": str(index), "node": "10.0.0.1", "status": "cancelled"}}, op.number)
        return op

    def engine(self, index, status):
        """A transition by the engine."""
        entry = None if status is None else {"index": str(index), "node": "10.0.0.1", "status": status}
        self.put({entry_key("reboots", index): entry})

    def list(self, start, end, **entries):
        return self.did(start, end, "rq list", {i.removeprefix("e"): ["10.0.0.1", status, False] for i, status in entries.items()})

    def found(self):
        """Parts of the check that found something: a, b, c."""
        initial = {"next": dict.fromkeys(QUEUES, 0), "enabled": dict.fromkeys(QUEUES, True), "constraints": dict.fromkeys(CONSTRAINTS, 0),
                   "policy": dict.fromkeys(POLICIES)}
        found = check(self.operations, self.changes, self.samples, 1, initial)
        return "".join(part for part, name in (("a", "writes"), ("b", "reads"), ("c", "objects")) if found[name])


REPAIRS, UNREACHABLE, WAIT = CONSTRAINTS


class GoodHistories(unittest.TestCase):
    def test_sequential_commands(self):
        h = Built()
        h.set(0, 1, REPAIRS, 5), h.show(2, 3, maximum=0), h.add(4, 5, 0), h.list(6, 7, e0="queued"), h.cancel(8, 9, 0), h.list(10, 11, e0="cancelled")
        h.operations[1].result[REPAIRS] = 5
        h.engine(0, None), h.list(12, 13)
        self.assertEqual(h.found(), "")

    def test_a_concurrent_read_may_see_either_state(self):
        for value in (0, 5):
            h = Built()
            h.set(0, 10, WAIT, 5), h.show(1, 9, wait=value)
            self.assertEqual(h.found(), "")

    def test_an_unknown_outcome_may_take_effect_late_or_never(self):
        h = Built()
        h.show(3, 4, wait=0)
        h.set(0, 1, WAIT, 5, outcome="unknown"), h.show(5, 6, wait=5)
        self.assertEqual(h.found(), "")
        h = Built()
        h.set(0, 1, WAIT, 5, effect=False, outcome="unknown"), h.show(5, 6, wait=0)
        self.assertEqual(h.found(), "")

    def test_an_add_of_unknown_outcome_explains_an_entry(self):
        h = Built()
        h.add(0, 1, 0, outcome="unknown"), h.add(2, 3, 1), h.list(4, 5, e0="queued", e1="queued")
        self.assertEqual(h.found(), "")

    def test_the_engine_works_between_reads(self):
        h = Built()
        h.add(0, 1, 0), h.list(2, 3, e0="queued")
        h.engine(0, "draining"), h.engine(0, "rebooting"), h.list(4, 5, e0="rebooting"), h.engine(0, None), h.list(6, 7)
        self.assertEqual(h.found(), "")

    def test_a_second_cancel_changes_nothing(self):
        h = Built()
        h.add(0, 1, 0), h.cancel(2, 3, 0), h.cancel(4, 5, 0, effect=False), h.engine(0, None)
        h.cancel(6, 7, 0, effect=False, outcome="failed", result={"found": "absent"})
        self.assertEqual(h.found(), "")

    def test_a_write_that_changes_nothing_now_may_be_needed_later(self):
        h = Built()
        h.set(0, 1, WAIT, 5), h.set(2, 4, WAIT, 7), h.set(3, 6, WAIT, 5), h.show(5, 8, wait=5)
        self.assertEqual(h.found(), "")

    def test_stop_and_resume(self):
        on, both = (True, True, None, frozenset()), frozenset(QUEUES)
        steps = [Step("stop", 0, 1, ("stop", both)), Step("enable", 2, 3, ("set", "repairs", True)), Step("resume", 4, 5, ("resume", frozenset({"reboots"}))),
                 Step("resume", 6, 7, ("resume", "nothing")), Step("read", 8, 9, ("get", "reboots", True))]
        self.assertIsNone(linearize(steps, on, switches))
        self.assertEqual(linearize([*steps[:2], Step("resume", 4, 5, ("resume", both))], on, switches).name, "resume")


class BadHistories(unittest.TestCase):
    def test_lost_update(self):
        h = Built()
        h.set(0, 1, REPAIRS, 5), h.set(2, 3, UNREACHABLE, 6)
        h.changes[-2] = (h.revision, "constraints", json.dumps({**dict.fromkeys(CONSTRAINTS, 0), UNREACHABLE: 6}))
        h.show(4, 5).result.update({UNREACHABLE: 6})
        self.assertEqual(h.found(), "ac")

    def test_stale_read(self):
        h = Built()
        h.set(0, 1, WAIT, 5), h.show(2, 3, wait=0)
        self.assertEqual(h.found(), "bc")

    def test_stale_read_known_by_a_sample(self):
        h = Built()
        h.set(0, 1, WAIT, 5, outcome="unknown"), h.samples.append(Sample(2, 3, h.revision)), h.show(4, 5, wait=0)
        self.assertEqual(h.found(), "b", "without revisions the write may still be under way")

    def test_reads_in_reversed_order(self):
        h = Built()
        h.set(0, 10, WAIT, 5), h.show(1, 2, wait=5), h.show(3, 4, wait=0)
        self.assertEqual(h.found(), "bc")

    def test_reads_that_disagree_about_the_order_of_two_objects(self):
        h = Built()
        h.set(0, 10, REPAIRS, 5), h.set(0, 10, UNREACHABLE, 6)
        h.show(1, 9).result.update({UNREACHABLE: 6})
        self.assertEqual(h.found(), "b", "each object alone is in order")

    def test_writes_in_reversed_order(self):
        h = Built()
        h.set(2, 3, REPAIRS, 5), h.set(0, 1, UNREACHABLE, 6)
        self.assertEqual(h.found(), "a")

    def test_acknowledged_write_that_vanished(self):
        h = Built()
        h.set(0, 1, WAIT, 5, effect=False)
        self.assertEqual(h.found(), "a")
        h.show(2, 3, wait=0)
        self.assertEqual(h.found(), "ac")

    def test_refused_command_that_was_carried_out(self):
        h = Built()
        h.set(0, 1, WAIT, 5, outcome="failed")
        self.assertEqual(h.found(), "a")

    def test_doubled_write(self):
        h = Built()
        op = h.set(0, 1, WAIT, 5)
        h.put({"constraints": json.dumps({**dict.fromkeys(CONSTRAINTS, 0), WAIT: 5})}, op.number)
        self.assertEqual(h.found(), "a")

    def test_doubled_index(self):
        h = Built()
        h.add(0, 1, 0), h.add(2, 3, 1, printed=0)
        self.assertEqual(h.found(), "ac")
        h = Built()
        h.add(0, 1, 0), h.engine(0, "draining"), h.engine(0, "rebooting"), h.engine(0, None), h.add(2, 3, 0)
        self.assertEqual(h.found(), "ac")

    def test_skipped_index(self):
        h = Built()
        h.add(0, 1, 0), h.add(2, 3, 2)
        self.assertEqual(h.found(), "ac")

    def test_forgotten_entry(self):
        h = Built()
        h.add(0, 1, 0), h.engine(0, None)
        self.assertEqual(h.found(), "a")

    def test_overwritten_cancel(self):
        h = Built()
        h.add(0, 1, 0), h.cancel(2, 3, 0), h.engine(0, "draining"), h.list(4, 5, e0="draining")
        self.assertEqual(h.found(), "ac")

    def test_entry_that_comes_back(self):
        h = Built()
        h.add(0, 1, 0), h.cancel(2, 3, 0), h.engine(0, None), h.list(4, 5), h.list(6, 7, e0="cancelled")
        self.assertEqual(h.found(), "bc")

    def test_entry_from_nowhere(self):
        h = Built()
        h.list(0, 1, e0="queued")
        self.assertEqual(h.found(), "bc")

    def test_switch_without_a_command(self):
        h = Built()
        h.write(reboots__disabled="true")
        self.assertEqual(h.found(), "a")

    def test_an_unknown_command_may_not_take_effect_before_its_start(self):
        h = Built()
        h.show(0, 1, wait=5), h.set(2, 3, WAIT, 5, outcome="unknown")
        self.assertEqual(h.found(), "bc")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--self-test"]:
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
