"""Test environment shared by `upgrade.py`, `faults.py`, `windows.py` and `linearizability.py`: real servers (tests/servers), daemons,
commands, machines with a log of their own, and a record of every change below `/cke/`, as etcd's watch shows it."""
import base64, collections, glob, json, os, re, shutil, signal, socket, ssl, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SERVERS = os.path.join(os.path.dirname(HERE), "servers")
TTL = 5
Change = collections.namedtuple("Change", "revision at key value before")
PowerEvent = collections.namedtuple("PowerEvent", "at what address entry attempt")
TLS = ssl._create_unverified_context()


class Failure(Exception):
    """Violation that a script found."""


def print_figure(**figure):
    print(json.dumps(figure), flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def unix_time(text):
    """Unix time of an RFC 3339 text; None for Go's zero time."""
    if not text or text.startswith("0001-"):
        return None
    whole, fraction = re.fullmatch(r"(\d+-\d+-\d+T\d+:\d+:\d+)(?:\.(\d+))?Z", text).groups()
    at = time.strptime(whole, "%Y-%m-%dT%H:%M:%S")
    import calendar
    return calendar.timegm(at) + float(f"0.{fraction or 0}")


def parse_json(value):
    try:
        return json.loads(value) if value is not None else None
    except ValueError:
        return None


class Record(threading.Thread):
    """Every change below `/cke/`, with the time at which the watch reported it."""

    def __init__(self, etcd):
        super().__init__(daemon=True)
        self.etcd, self.changes, self.lock = etcd, [], threading.Lock()
        self.current = {}
        self._watch(1)
        self.start()

    def _watch(self, revision):
        argv = ["etcdctl", "--endpoints", self.etcd, "watch", "--prefix", "/cke/", "--rev", str(revision), "-w", "json"]
        self.watch = subprocess.Popen(argv, stdout=subprocess.PIPE, env=dict(os.environ, ETCDCTL_API="3"))

    def run(self):
        self._follow()
        # etcd ends a watch while it has no leader; whoever needs no more changes kills it
        while self.watch.wait() >= 0:
            time.sleep(0.5)
            self._watch(self.revision() + 1)
            self._follow()

    def _follow(self):
        for line in self.watch.stdout:
            at, text = time.time(), lambda b: base64.b64decode(b).decode("utf-8", "replace")
            for event in json.loads(line).get("Events") or []:
                kv, gone = event["kv"], event.get("type") == 1
                key, value = text(kv["key"]), None if gone else text(kv.get("value", ""))
                with self.lock:
                    before = self.current.get(key)
                    self.current[key] = value
                    self.changes.append(Change(kv["mod_revision"], at, key, value, before))

    def all(self, prefix=""):
        with self.lock:
            return [c for c in self.changes if c.key.startswith("/cke/" + prefix)]

    def value(self, key):
        with self.lock:
            return parse_json(self.current.get("/cke/" + key))

    def values_below(self, prefix):
        """Current values below a prefix, by key."""
        with self.lock:
            return {k: parse_json(v) for k, v in self.current.items() if k.startswith("/cke/" + prefix) and v is not None}

    def revision(self):
        with self.lock:
            return self.changes[-1].revision if self.changes else 0

    def leaders(self):
        """Leaders in order: (revision, lease, pid). The lease is None while nobody holds the lock."""
        engines, candidates, led = {}, {}, []
        for c in self.all():
            if c.key.startswith("/cke/cketerm/engines/") and c.value is not None:
                engines[c.key.rsplit("/", 1)[1]] = json.loads(c.value)["pid"]
            elif c.key.startswith("/cke/leader//"):
                lease = c.key.rsplit("/", 1)[1]
                if c.value is None:
                    candidates.pop(lease, None)
                else:
                    candidates.setdefault(lease, c.revision)
            else:
                continue
            first = min(candidates, key=candidates.get) if candidates else None
            if not led or led[-1][1] != first:
                led.append((c.revision, first, None))
        return [(revision, lease, engines.get(lease)) for revision, lease, _ in led]

    def leader(self):
        """Process id of the current leader."""
        led = self.leaders()
        return led[-1][2] if led else None


class Environment:
    """Servers, a configuration, and the operations that a scenario needs."""

    def __init__(self, name, audit=False, flags=()):
        """`flags`: more flags of the API server."""
        self.folder = tempfile.mkdtemp(prefix=f"cketerm-{name}-")
        self.daemons, self.record = [], None
        argv = [f"{SERVERS}/up", "--kcm", "--kwok", "--while", str(os.getpid())] + (["--audit"] if audit else [])
        argv += [word for flag in flags for word in ("--apiserver-flag", flag)] + [self.folder]
        out = subprocess.run(argv, capture_output=True, text=True)
        if out.returncode:
            sys.exit(out.stderr)
        self.facts = dict(l.split("=", 1) for l in out.stdout.splitlines() if "=" in l)
        text = open(self.facts["KUBECONFIG"]).read()
        self.token = re.search(r'token: "?([^"\s}]+)', text).group(1)
        self.server, self.etcd = self.facts["APISERVER"], self.facts["ETCD"]
        self.config = self.configure("config.yaml")
        self.record = Record(self.etcd)

    def configure(self, name, **more):
        """A configuration file; JSON is YAML."""
        path = f"{self.folder}/{name}"
        with open(path, "w") as f:
            json.dump({"etcd": {"endpoints": [self.etcd]}, "kubernetes": {"kubeconfig": self.facts["KUBECONFIG_BENCH"]},
                       "engine": {"lease_ttl_seconds": TTL}, **more}, f)
        os.chmod(path, 0o600)
        return path

    def stop(self, keep=False):
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
        if self.record:
            self.record.watch.kill()
        subprocess.run([f"{SERVERS}/down", self.folder], stderr=subprocess.DEVNULL)
        if keep:
            # `up --while` removes the folder
            shutil.move(self.folder, self.folder + "-kept")
            with open(f"{self.folder}-kept/record.jsonl", "w") as f:
                f.writelines(json.dumps(c._asdict()) + "\n" for c in self.record.all() if not c.key.startswith("/cke/cketerm/progress/"))
            print(f"logs: {self.folder}-kept", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def control_server(self, verb, name):
        subprocess.run([f"{SERVERS}/one", self.folder, verb, name], check=True)

    def api(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(self.server + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"Authorization": "Bearer " + self.token, "Content-Type": kind})
        try:
            return json.load(urllib.request.urlopen(request, context=TLS, timeout=30))
        except urllib.error.HTTPError as e:
            if e.code in (404, 409):
                return None
            raise Failure(f"{method} {path}: {e.code} {e.read()[:300]}")

    def put(self, key, value):
        """Writes below `/cke/` without cketerm."""
        text = value if isinstance(value, str) else json.dumps(value)
        subprocess.run(["etcdctl", "--endpoints", self.etcd, "put", "/cke/" + key], input=text, text=True, check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, ETCDCTL_API="3"))

    # machines

    def machine(self, name, address, control_plane=False, labels=None):
        return {"name": name, "address": address, "control_plane": control_plane, "labels": labels or {}}

    def create_nodes(self, machines):
        for m in machines:
            self.api("POST", "/api/v1/nodes", {
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": m["name"], "labels": {"kubernetes.io/hostname": m["name"], **m["labels"]}},
                "status": {"addresses": [{"type": "InternalIP", "address": m["address"]}, {"type": "Hostname", "address": m["name"]}],
                           "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}, "capacity": {"cpu": "32", "memory": "256Gi", "pods": "110"},
                           "nodeInfo": {"bootID": "first-" + m["name"], **{k: "" for k in (
                               "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem",
                               "osImage", "systemUUID", "architecture")}}}})
        ready = lambda n: any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", []))
        self.wait("the nodes are Ready", lambda: sum(map(ready, self.api("GET", "/api/v1/nodes")["items"])) >= len(machines), 120)

    def pod(self, name, on, app="work", finalizers=()):
        self.api("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}, "finalizers": list(finalizers)},
            "spec": {"nodeName": on, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "c", "image": "registry.local/pause:1"}]}})

    def wait_until_pods_run(self):
        phase = lambda p: p["status"].get("phase") == "Running"
        self.wait("the pods run", lambda: all(map(phase, self.api("GET", "/api/v1/namespaces/default/pods")["items"])), 120)

    def cordoned(self):
        return {n["metadata"]["name"] for n in self.api("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue")["items"]}

    def definition(self, machines, reboot, **more):
        nodes = [{"address": m["address"], "hostname": m["name"], "user": "root", "control_plane": m["control_plane"], "labels": m["labels"]} for m in machines]
        script = f"{SERVERS}/fake-reboot"
        section = {"reboot_command": [script, self.folder, "reboot"], "boot_check_command": [script, self.folder, "check"],
                   "eviction_timeout_seconds": 300, "command_timeout_seconds": 20, **reboot}
        return {"name": "figures", "nodes": nodes, "service_subnet": "10.0.0.0/24", "reboot": section, **more}

    def set_up(self, program, machines, reboot, settle=3, **more):
        """Sets the definition, constraints, a policy for tests, and the identity."""
        with open(f"{self.folder}/cluster.json", "w") as f:
            json.dump(self.definition(machines, reboot, **more), f)
        self.run_command(program, "constraints", "set", "control-plane-count", str(sum(m["control_plane"] for m in machines)))
        self.run_command(program, "cluster", "set", f"{self.folder}/cluster.json")
        self.run_command(program, "policy", "set", "settle_seconds", str(settle))
        # these control planes run no etcd; a version without this policy fails here, which is fine
        self.run_program(program, "policy", "set", "etcd_members", "none")
        self.run_command(program, "policy", "set", "control_plane_probe", self.server + "/readyz?of={address}")
        self.run_command(program, "cluster", "identify", "--confirm")

    def power_events(self):
        """Power commands, as the machines logged them."""
        try:
            lines = open(f"{self.folder}/reboots.log").read().splitlines()
        except FileNotFoundError:
            return []
        return [PowerEvent(float(w[0]), w[1], w[2], w[3], w[4]) for w in (l.split(" ") for l in lines) if len(w) >= 5]

    def set_command_duration(self, duration):
        with open(f"{self.folder}/seconds", "w") as f:
            f.write(str(duration))

    # the program

    def process_env(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CKETERM_", "KUBE", "XDG_"))}
        return {**kept, "HOME": "/nonexistent", "NO_COLOR": "1", "USER": "figures"}

    def run_program(self, program, *arguments, stdin="", config=None):
        return subprocess.run([program, "--config", config or self.config, *arguments], input=stdin, capture_output=True, text=True,
                              env=self.process_env(), timeout=60)

    def run_command(self, program, *arguments, stdin="", config=None):
        out = self.run_program(program, *arguments, stdin=stdin, config=config)
        if out.returncode:
            raise Failure(f"cketerm {' '.join(arguments)}: exit {out.returncode}\n{out.stdout}{out.stderr}")
        return out.stdout

    def daemon(self, program, name, config=None, **options):
        daemon = Daemon(self, program, name, config or self.config, **options)
        self.daemons.append(daemon)
        return daemon

    def entries(self, queue="reboots"):
        """Entries in etcd by index."""
        found = self.record.values_below(f"{queue}/data/")
        return {int(k.rsplit("/", 1)[1], 16): v for k, v in sorted(found.items())}

    def with_status(self, *status):
        return [i for i, e in self.entries().items() if e["status"] in status]

    def wait(self, what, condition, timeout=60):
        began = time.monotonic()
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() - began > timeout:
                raise Failure(f"timed out after {timeout} s: {what}")
            time.sleep(0.1)

    def happens_within(self, condition, timeout=60):
        """Whether the condition holds within the time."""
        try:
            return bool(self.wait("", condition, timeout))
        except Failure:
            return False


class Daemon:
    """An engine in its own process."""

    def __init__(self, environment, program, name, config, prefix=(), output=None):
        """`prefix`: command in front of the program; `output`: file for its output instead of its log."""
        self.http, self.log = f"127.0.0.1:{free_port()}", f"{environment.folder}/{name}.log"
        open(self.log, "w").close()
        with open(output or self.log, "w") as out:
            self.process = subprocess.Popen([*prefix, program, "--daemon", "--config", config, "--http", self.http], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=out, env=environment.process_env())
        self.pid = self.process.pid

    def get(self, path):
        try:
            answer = urllib.request.urlopen(f"http://{self.http}{path}", timeout=10)
            return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, ""

    def stop(self, signal_number=signal.SIGTERM, timeout=30):
        self.process.send_signal(signal_number)
        return self.process.wait(timeout=timeout)

    def log_text(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", open(self.log).read())


# checks of a record, whichever version wrote it

def status_changes(record):
    """Changes of reboot entries: (change, index, entry before, entry after)."""
    for c in record.all("reboots/data/"):
        yield c, int(c.key.rsplit("/", 1)[1], 16), parse_json(c.before), parse_json(c.value)


def in_progress(entry):
    return entry is not None and entry["status"] in ("draining", "rebooting")


def illegal_transitions(record, power):
    """Status changes that no entry may make; `rebooting` goes back to `queued` only before its command began."""
    legal = {(None, "queued"), ("queued", "queued"), ("queued", "draining"), ("draining", "queued"), ("draining", "rebooting"), ("rebooting", "rebooting")}
    violations = []
    for c, index, before, after in status_changes(record):
        was, now = before and before["status"], after and after["status"]
        if (was, now) in legal or "cancelled" in (was, now) or (was, now) == ("rebooting", None):
            continue
        if (was, now) == ("rebooting", "queued") and not any(p.entry == f"reboots/{index}" and p.at <= c.at for p in power):
            continue
        violations.append(f"revision {c.revision}: reboots/{index}: {was} → {now}")
    return violations


def concurrent_api_servers(record, api_servers):
    """Revisions at which an API server is in progress together with another machine."""
    violations, busy = [], {}
    for c, index, _, after in status_changes(record):
        busy.pop(index, None)
        if in_progress(after):
            busy[index] = after["node"]
        if len(busy) > 1 and any(a in api_servers for a in busy.values()):
            violations.append(f"revision {c.revision}: {sorted(busy.values())}")
    return violations


def field_paths(value, at=""):
    """Path of every field of a JSON object."""
    if not isinstance(value, dict):
        return set()
    return {f"{at}{k}" for k in value} | {p for k, v in value.items() for p in field_paths(v, f"{at}{k}.")}


def lost_fields(record, since):
    """Fields that a change since this revision removed from a key that still exists."""
    kept = ("reboots/data/", "repairs/data/", "cluster", "constraints", "cketerm/policy", "cketerm/identity", "cketerm/schema", "cketerm/constraints",
            "cketerm/requests/", "cketerm/attempts/", "cketerm/history/", "cketerm/audit/", "sabakan/")
    violations = []
    for c in record.all():
        name = c.key.removeprefix("/cke/")
        if c.revision <= since or c.value is None or c.before is None or not name.startswith(kept):
            continue
        for gone in sorted(field_paths(parse_json(c.before)) - field_paths(parse_json(c.value))):
            # a count of 0 is not written; a freeze is lifted
            if gone != "drain_backoff_count" and gone.split(".")[0] != "freeze":
                violations.append(f"revision {c.revision}: {name} lost {gone}")
    return violations


def panics(environment):
    return [f"{os.path.basename(log)}: {line.strip()}" for log in glob.glob(f"{environment.folder}/*.log")
            for line in open(log, errors="replace") if "panicked at" in line]
