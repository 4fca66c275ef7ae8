"""Real servers, a client of the API server and cketerm's command line, for the studies of drains.

`Servers` starts etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok (tests/servers) in a folder of its own and
stops them in any case: at the end of a `with` block, or when this process is gone.
"""
import http.client, json, os, re, shutil, ssl, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
SERVERS = os.path.join(os.path.dirname(HERE), "servers")
BIN = os.environ.get("CKETERM_SERVERS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cketerm-servers/bin")
HELD = "study/held"  # annotation of a pod or Node whose status kwok leaves alone
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


def stages(path, ready_after_ms=0):
    """Writes kwok's usual stages, except that pods become Ready late and that held pods and Nodes keep their status."""
    held = f"    - key: '.metadata.annotations[\"{HELD}\"]'\n      operator: 'DoesNotExist'\n"
    documents = open(f"{BIN}/kwok.yaml").read().split("---\n")
    for i, document in enumerate(documents):
        name = re.search(r"\n  name: (\S+)", document)
        if name and name.group(1) in ("pod-ready", "node-initialize"):
            document = document.replace("    matchExpressions:\n", "    matchExpressions:\n" + held, 1)
            if ready_after_ms and name.group(1) == "pod-ready":
                document = document.replace("  next:\n", f"  delay:\n    durationMilliseconds: {ready_after_ms}\n  next:\n", 1)
            documents[i] = document
    with open(path, "w") as f:
        f.write("---\n".join(documents))


class Api:
    """Client of the API server with one connection per thread. Answers `(code, body)`; raises only if there is no answer."""

    def __init__(self, kubeconfig):
        text = open(kubeconfig).read()
        self.host = re.search(r'server: "?https://([^"\s}]+)', text).group(1)
        self.token = re.search(r'token: "?([^"\s}]+)', text).group(1)
        self.local = threading.local()

    def request(self, method, path, body=None, kind="application/json"):
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            if not getattr(self.local, "connection", None):
                self.local.connection = http.client.HTTPSConnection(self.host, context=ssl._create_unverified_context(), timeout=60)
            try:
                self.local.connection.request(method, path, data, headers)
                answer = self.local.connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith(b"{") else text
            except (http.client.HTTPException, OSError):
                self.local.connection = None
                if attempt == 2:
                    raise

    def do(self, method, path, body=None, kind="application/json", accept=(404, 409)):
        """The body of an answer; `None` for the codes in `accept`."""
        for _ in range(20):
            code, answer = self.request(method, path, body, kind)
            if code < 300:
                return answer
            if code in accept:
                return None
            if code != 429:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{method} {path}: {code} {str(answer)[:500]}")

    def list(self, path):
        return self.do("GET", path)["items"]

    def evict(self, pod, dry_run=False):
        """Code and message of an eviction. A conflict decides nothing, so the request is repeated."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        if dry_run:
            options = {"dryRun": ["All"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}, "deleteOptions": options}
        for _ in range(20):
            code, answer = self.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
            message = answer.get("message", "") if isinstance(answer, dict) else str(answer)
            if not (code == 409 or code == 429 and "still being processed" in message or code == 500 and "onflict" in message):
                break
            time.sleep(0.1)
        return code, message


class Servers:
    def __init__(self, options=("--kcm", "--scheduler", "--kwok"), ready_after_ms=0, keep=False):
        self.folder, self.keep = tempfile.mkdtemp(prefix="cketerm-study-"), keep
        subprocess.run([f"{SERVERS}/build", "kwok"], check=True)
        file = f"{self.folder}/stages.yaml"
        stages(file, ready_after_ms)
        tied = [] if keep else ["--while", str(os.getpid())]
        out = subprocess.run([f"{SERVERS}/up", *options, "--stages", file, *tied, self.folder], capture_output=True, text=True)
        if out.returncode:
            sys.exit(out.stderr)
        self.facts = dict(l.split("=", 1) for l in out.stdout.splitlines() if "=" in l)
        self.api = Api(self.facts["KUBECONFIG"])
        self.metrics = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.keep:
            print(f"left running: KUBECONFIG={self.facts['KUBECONFIG']}  config={self.folder}/config.yaml  stop: {SERVERS}/down --rm {self.folder}")
            return
        subprocess.run([f"{SERVERS}/down", self.folder], stderr=subprocess.DEVNULL)
        if kind in (None, KeyboardInterrupt, SystemExit):
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"the servers are stopped; their logs: {self.folder}/log", file=sys.stderr)

    def one(self, command, name):
        subprocess.run([f"{SERVERS}/one", self.folder, command, name], check=True)

    def scheduler_queues(self):
        """Number of pods in each queue of the scheduler."""
        for attempt in (1, 2):
            if self.metrics is None:
                host = self.facts["SCHEDULER"].removeprefix("https://")
                self.metrics = http.client.HTTPSConnection(host, context=ssl._create_unverified_context(), timeout=10)
            try:
                self.metrics.request("GET", "/metrics")
                text = self.metrics.getresponse().read().decode()
                return {q: int(float(n)) for q, n in re.findall(r'^scheduler_pending_pods\{queue="(\w+)"\} (\S+)', text, re.M)}
            except (http.client.HTTPException, OSError):
                self.metrics = None
                if attempt == 2:
                    raise


class Program:
    """cketerm with a configuration for these servers."""

    def __init__(self, path, servers):
        self.path, self.config = os.path.abspath(path), f"{servers.folder}/config.yaml"
        self.folder = servers.folder
        with open(self.config, "w") as f:
            json.dump({"etcd": {"endpoints": [servers.facts["ETCD"]]}, "kubernetes": {"kubeconfig": servers.facts["KUBECONFIG_BENCH"]}}, f)

    def run(self, *arguments, stdin=None, check=True):
        out = subprocess.run([self.path, "--config", self.config, *arguments], input=stdin, capture_output=True, text=True)
        if out.returncode and check:
            raise RuntimeError(f"cketerm {' '.join(arguments)}: exit {out.returncode}\n{out.stderr}")
        return out.stdout

    def define(self, address_of, concurrent, policy, control_plane=("cp", "10.1.9.1"), **reboot):
        """Stores a definition with these workers, and the policy: one object with a field per setting."""
        nodes = [{"address": control_plane[1], "hostname": control_plane[0], "user": "root", "control_plane": True}]
        nodes += [{"address": a, "hostname": n, "user": "root"} for n, a in address_of.items()]
        reboot = {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/sh", "-c", "echo true"], "max_concurrent_reboots": concurrent} | reboot
        with open(f"{self.folder}/cluster.json", "w") as f:
            json.dump({"name": "study", "nodes": nodes, "service_subnet": "10.0.0.0/16", "reboot": reboot}, f)
        self.run("cluster", "set", f"{self.folder}/cluster.json")
        for key, value in ({"control_plane_probe": "node", "etcd_members": "none"} | policy).items():
            self.run("policy", "set", key, value if isinstance(value, str) else json.dumps(value))
        self.run("cluster", "identify", "--confirm")


def node(name, address, labels, cpu="8", memory="32Gi", pods="110", taints=()):
    resources = {"cpu": cpu, "memory": memory, "pods": pods}
    names = ("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem", "osImage",
             "systemUUID", "architecture")
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | labels},
            "spec": {"taints": list(taints)},
            "status": {"addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}], "allocatable": resources,
                       "capacity": resources, "nodeInfo": {k: "" for k in names}}}


def is_ready(thing):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in thing.get("status", {}).get("conditions", []))


def owner(pod):
    """`Kind/name` of the pod's controller, or `None`."""
    return next((f"{o['kind']}/{o['name']}" for o in pod["metadata"].get("ownerReferences", []) if o.get("controller")), None)


def full_name(thing):
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def wait(what, seconds=60, every=0.05):
    """Waits until this is true; false after that time."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True


def split(path, mark):
    """The parts of a document before and after the text between two marks."""
    page, begin, end = open(path).read(), f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    if begin not in page or end not in page:
        sys.exit(f"{path} has no marks {begin.strip()} … {end}")
    return page.split(begin)[0] + begin, end + page.split(end)[1]


def write(path, mark, text):
    before, after = split(path, mark)
    with open(path, "w") as f:
        f.write(before + text + "\n" + after)
