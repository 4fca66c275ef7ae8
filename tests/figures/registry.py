#!/usr/bin/env python3
"""Cost of a daemon and of observing consoles with a machine registry and BareMetalHosts, compared with the same cluster without them.

usage: tests/figures/registry.py [PROGRAM] [--machines 5000] [--nodes 3100] [--idle 120] [--poll 60] [--starts 5] [--write docs/performance.md]

Starts etcd and kube-apiserver (tests/servers), creates --nodes Nodes, and measures PROGRAM (default: target/shipped/cketerm): a daemon that leads, and one
observing console in each of the views Overview, Machines and Hosts, all at once. Then it creates a BareMetalHost for each of --machines machines, starts a server that
answers as sabakan does, lets the daemon generate the definition, waits until the plan changes nothing and the Nodes have the definition's labels, and
measures the same again. The machines that are not in the cluster are spare. A last answer with one changed field shows the cost of an answer that needs a plan.

etcd accepts 1.5 MiB in one request, so the definition holds about 3,200 nodes with the labels and annotations that it generates here.

Prints one JSON line for each of the two and a table; --write puts that table between the marks of a Markdown file. The exit status is 1 if a figure is
over its budget.
"""
import argparse, base64, concurrent.futures, http.client, http.server, json, multiprocessing, os, re, shutil, socket, statistics, subprocess, sys, \
    tempfile, textwrap, threading, time, urllib.parse, urllib.request

from machine_speed import described_machine
from console import CACHE, WIDE, Cluster, address, last, number
from environment import free_port
from terminal import Terminal, ms

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KUBECTL = os.path.join(os.environ.get("CKETERM_SERVERS") or os.path.join(CACHE, "cketerm-servers", "bin"), "kubectl")
NAMESPACE, HOSTS = "metal3", "/apis/metal3.io/v1alpha1"
TICK = os.sysconf("SC_CLK_TCK")
RACK = 28
CONTROL_PLANES = (1, 2, 4)  # of the role cs
# views, and text that is on the screen once the view has its data
VIEWS = {"overview": r"\bRacks\b", "machines": r"SN\d{5}", "hosts": r"host-0\d+"}
# seconds after a request within which its answer has been processed
WORK = 4


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--machines", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=3100, help="machines in the cluster")
    parser.add_argument("--idle", type=float, default=120)
    parser.add_argument("--poll", type=int, default=60, help="policy sabakan_poll_seconds")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    args.nodes = min(args.nodes, args.machines)
    if args.nodes < 20:
        parser.error("--machines, --nodes: at least 20")
    return args


# Machines, as sabakan, Kubernetes and Metal3 know them

def role(i):
    return "cs" if i % 3 else "ss"  # as Cluster.fill labels the Nodes


def utc(seconds, fraction=""):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + fraction + "Z"


def ip(net, i):
    return f"10.{net + i // 60000}.{i // 250 % 240}.{i % 250 + 1}"


def machine(i, now, duration):
    """A machine of sabakan's answer. No lifetime passes one of the planner's thresholds (250, 500, 1,000 days) during the run."""
    day = 86400
    registered = now - (200 + i % 900) * day - 43210
    return {
        "spec": {"serial": f"SN{i:05}", "labels": [{"name": "machine-type", "value": f"r{(6525, 7525)[i % 3 == 0]}.{i % 4}"},
                                                    {"name": "product", "value": ("R6525", "R7525")[i % 3 == 0]}],
                 "rack": i // RACK, "indexInRack": i % RACK + 4, "role": role(i), "ipv4": [address(i), ip(72, i), ip(82, i)],
                 "registerDate": utc(registered, f".{i * 7919 % 10**9:09}"), "retireDate": utc(now + (100 + i % 17 * 90) * day + 43210),
                 "bmc": {"bmcType": "iDRAC-9", "ipv4": ip(101, i)}},
        # machines that are not healthy have a taint in the definition
        "status": {"state": "UNHEALTHY" if i % 200 == 77 else "HEALTHY", "timestamp": utc(now - duration, f".{i * 104729 % 10**9:09}"), "duration": "DURATION"}}


class Answer:
    """sabakan's answer, rendered once but for the durations."""

    def __init__(self, count):
        self.began = now = time.time()
        self.ages = [3600 + i * 997 % 5_000_000 + i % 1000 / 1000 for i in range(count)]
        text = json.dumps({"data": {"searchMachines": [machine(i, now, age) for i, age in enumerate(self.ages)]}}, separators=(",", ":"))
        self.parts = text.split('"DURATION"')
        self.changed = False

    def render(self):
        passed = time.time() - self.began
        out = [self.parts[0].replace("iDRAC-9", "iDRAC-9x", 1) if self.changed else self.parts[0]]
        for age, part in zip(self.ages, self.parts[1:]):
            out += [f"{age + passed:.6f}", part]
        return "".join(out).encode()


def process_of(port, server_port):
    """Id of the local process that owns this end of a connection; 0 if unknown."""
    wanted = f":{port:04X}", f":{server_port:04X}"
    inode = next((f[9] for f in (line.split() for line in open("/proc/net/tcp")) if f[1].endswith(wanted[0]) and f[2].endswith(wanted[1])), None)
    for pid in filter(str.isdigit, os.listdir("/proc")) if inode else ():
        try:
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]" for fd in os.listdir(f"/proc/{pid}/fd")):
                return int(pid)
        except OSError:
            pass  # it has exited
    return 0


def serve(port, count):
    """Runs in a process of its own. /graphql is sabakan's; /polls lists the requests so far; /change changes one field of all further answers."""
    answer, polls = Answer(count), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        pid = None

        def send(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            at, text = time.monotonic(), self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path == "/change":
                answer.changed = True
                return self.send(200, b"{}")
            if self.path != "/graphql" or b"searchMachines" not in text:
                return self.send(404, b'{"error":"requested resource is not found"}')
            if self.pid is None:
                self.pid = process_of(self.client_address[1], port)
            body = answer.render()
            polls.append({"at": at, "pid": self.pid, "bytes": len(body)})
            self.send(200, body)

        def do_GET(self):
            self.send(200, json.dumps(polls).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.handle_error = lambda *_: None  # a console that quits does not wait for its answer
    server.serve_forever()


class Sabakan:
    def __init__(self, count):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = multiprocessing.get_context("fork").Process(target=serve, args=(port, count), daemon=True)
        self.process.start()
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("the server in place of sabakan does not start")

    def polls(self, pid=None):
        return [p for p in json.load(urllib.request.urlopen(f"{self.url}/polls", timeout=10)) if pid in (None, p["pid"])]

    def change(self):
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/change", b"{}"), timeout=10).read()

    def stop(self):
        self.process.terminate()
        self.process.join()


def host(i):
    """A BareMetalHost without its status, and the status: an inspected, provisioned server."""
    name = f"host-{i:05}"
    mac = lambda n: f"00:16:3e:{i >> 8 & 255:02x}:{i & 255:02x}:{n:02x}"
    nic = lambda n: {"name": f"ens{n}f0np0", "model": "0x8086 0x1592", "mac": mac(n), "speedGbps": 25, "vlanId": 0, "pxe": n == 1} | ({"ip": address(i)} if n == 1 else {})
    disk = lambda n: {"name": f"/dev/disk/by-path/pci-0000:{n:02x}:00.0-nvme-1", "type": "NVME", "sizeBytes": 1920383410176, "model": "Dell Ent NVMe v2 AGN RI U.2 1.92TB",
                      "serialNumber": f"S6UNG0{i:05}{n:02}", "wwn": f"eui.36554e3052{i:08x}{n:02x}"}
    flags = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat clflush mmx fxsr sse sse2 ht syscall nx mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good " \
            "nopl nonstop_tsc cpuid extd_apicid aperfmperf rapl pni pclmulqdq monitor ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand lahf_lm svm"
    spec = {"online": True, "bootMACAddress": mac(1), "bootMode": "UEFI", "automatedCleaningMode": "metadata", "externallyProvisioned": False,
            "bmc": {"address": f"redfish://{ip(101, i)}/redfish/v1/Systems/System.Embedded.1", "credentialsName": f"{name}-bmc", "disableCertificateVerification": True},
            "consumerRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": f"machine-{i:05}", "namespace": NAMESPACE},
            "image": {"url": "http://images.local/node.raw", "checksum": "http://images.local/node.raw.sha256sum", "checksumType": "sha256", "format": "raw"}}
    status = {"poweredOn": True, "operationalStatus": "OK", "errorType": "", "errorMessage": "", "errorCount": 0, "hardwareProfile": "unknown",
              "provisioning": {"ID": f"5b1c4d5e-0000-4000-8000-{i:012}", "state": "provisioned", "lastPoweredOn": "2026-06-01T00:00:00Z", "bootMode": "UEFI", "image": spec["image"]},
              "hardware": {"hostname": f"node-{i:05}", "ramMebibytes": 262144, "nics": [nic(n) for n in range(1, 5)], "storage": [disk(n) for n in range(1, 5)],
                           "systemVendor": {"manufacturer": "Dell Inc.", "productName": "PowerEdge R6525", "serialNumber": f"SN{i:05}"},
                           "firmware": {"bios": {"vendor": "Dell Inc.", "version": "2.14.1", "date": "12/17/2023"}},
                           "cpu": {"arch": "x86_64", "model": "AMD EPYC 7502P 32-Core Processor", "count": 64, "clockMegahertz": 2500, "flags": flags.split()}}}
    return {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}, status


def create_hosts(cluster, count):
    crd = open(f"{ROOT}/docs/baremetalhost-crd.yaml").read()
    run([KUBECTL, "--kubeconfig", cluster.facts["KUBECONFIG"], "apply", "-f", "-"], crd)
    run([KUBECTL, "--kubeconfig", cluster.facts["KUBECONFIG"], "wait", "--for=condition=Established", "--timeout=60s", "crd/baremetalhosts.metal3.io"])
    run([KUBECTL, "--kubeconfig", cluster.facts["KUBECONFIG"], "create", "namespace", NAMESPACE])
    path = f"{HOSTS}/namespaces/{NAMESPACE}/baremetalhosts"
    wait_for("BareMetalHosts are served", lambda: succeeds(lambda: cluster.request("GET", path)), 60)

    def make(i):
        body, status = host(i)
        cluster.request("POST", path, body)
        cluster.request("PATCH", f"{path}/{body['metadata']['name']}/status", {"status": status}, "application/merge-patch+json")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(count)))


# Commands and settings

def run(argv, stdin=None, statuses=(0,)):
    """Standard output of a command. A status that is not expected ends the script."""
    out = subprocess.run(argv, input=stdin, text=True, capture_output=True)
    if out.returncode not in statuses:
        sys.exit(f"{' '.join(argv)}: exit {out.returncode}\n{out.stderr[:2000]}{out.stdout[:500]}")
    return out.stdout


def succeeds(work):
    try:
        work()
        return True
    except (RuntimeError, OSError):
        return False


def wait_for(what, condition, seconds, pause=0.2):
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return time.monotonic() - began


def note(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


REBOOT = {"reboot_command": ["/bin/true"], "boot_check_command": ["/bin/echo", "true"]}


def definition(count):
    nodes = [{"address": address(i), "hostname": f"node-{i:05}", "user": "root", "control_plane": i in CONTROL_PLANES} for i in range(count)]
    return {"name": "figures", "nodes": nodes, "service_subnet": "10.0.0.0/16", "reboot": REBOOT}


def template():
    labels = lambda role, **more: {"cke.cybozu.com/role": role} | {f"cke.cybozu.com/{k}": v for k, v in more.items()}
    nodes = [{"user": "root", "control_plane": True, "labels": labels("cs")}, {"user": "root", "labels": labels("cs", weight="2.0")},
             {"user": "root", "labels": labels("ss", weight="1.0")}]
    return {"name": "figures", "nodes": nodes, "service_subnet": "10.0.0.0/16", "reboot": REBOOT}


class Program:
    """The measured program with its configuration."""

    def __init__(self, path, cluster):
        self.path, self.cluster, self.folder = path, cluster, cluster.folder
        self.config = f"{self.folder}/config.yaml"
        with open(self.config, "w") as f:
            json.dump({"etcd": {"endpoints": [cluster.facts["ETCD"]]}, "kubernetes": {"kubeconfig": cluster.facts["KUBECONFIG"]}}, f)
        self.env = {"HOME": f"{self.folder}/home", "CKETERM_STATE_DIRECTORY": f"{self.folder}/state"}
        for folder in self.env.values():
            os.makedirs(folder, exist_ok=True)

    def command(self, *arguments, stdin=None, statuses=(0,)):
        return run([self.path, "--config", self.config, *arguments], stdin, statuses)

    def store_definition(self):
        for setting in (("constraints", "set", "control-plane-count", str(len(CONTROL_PLANES))),
                        ("constraints", "set", "minimum-workers", str(self.cluster.nodes * 9 // 10 - len(CONTROL_PLANES))),
                        ("constraints", "set", "maximum-workers", str(self.cluster.nodes - len(CONTROL_PLANES)))):
            self.command(*setting)
        self.command("cluster", "set", "-", stdin=json.dumps(definition(self.cluster.nodes)))
        for setting in (("policy", "set", "control_plane_probe", "node"), ("policy", "set", "etcd_members", "none"), ("cluster", "identify", "--confirm")):
            self.command(*setting)

    def store_registry(self, url, poll):
        self.command("sabakan", "disable")
        self.command("sabakan", "set-url", url)
        self.command("sabakan", "set-template", "-", stdin=json.dumps(template()))
        self.command("sabakan", "set-variables", "-", stdin=json.dumps({"having": None, "notHaving": {"roles": ["boot"], "states": ["RETIRED"]}}))
        if poll != 60:
            self.command("policy", "set", "sabakan_poll_seconds", str(poll))
        self.command("sabakan", "enable")

    def apply_definition(self):
        """Waits until the leader has applied the generated definition and the Nodes have its labels. Returns figures of that."""
        figure, began = {}, time.monotonic()
        while True:
            applying = json.loads(self.command("sabakan", "diff", "-o", "json"))["applying"]
            if applying["state"] == "settled":
                break
            if applying["state"] == "approval":
                self.command("sabakan", "approve")
            if time.monotonic() - began > 600:
                sys.exit(f"the generated definition is not applied: {applying}")
            time.sleep(1)
        figure["definition_s"] = round(time.monotonic() - began, 1)
        note("the definition is in force")
        is_synced = lambda: json.loads(self.command("sabakan", "diff", "--nodes", "-o", "json")) == []
        figure["nodes_synced_s"] = round(wait_for("the Nodes have the labels of the definition", is_synced, 3600, 3), 1)
        with open(f"{self.folder}/daemon.log") as log:
            figure["failed"] = sum("effect failed" in line for line in log)
        plan = json.loads(self.command("sabakan", "plan", "-o", "json"))
        if plan["changed"]:
            sys.exit(f"the plan still changes something: {plan['action']}: {plan['reason']}")
        figure |= {"plan": plan["action"], "warnings": len(plan["warnings"]), "definition_bytes": len(self.etcd_value("/cke/cluster"))}
        return figure

    def etcd(self, method, body):
        place = urllib.parse.urlsplit(self.cluster.facts["ETCD"])
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        connection.request("POST", f"/v3/kv/{method}", json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"etcd {method}: {answer.status} {text[:500]}")
        return json.loads(text)

    def etcd_value(self, key):
        return base64.b64decode(self.etcd("range", {"key": encoded(key)})["kvs"][0]["value"])


def encoded(text):
    return base64.b64encode(text.encode()).decode()


# Processes

def memory(pid, what):
    """VmRSS or VmHWM in MiB."""
    return int(re.search(rf"{what}:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024


def cpu_seconds(pid):
    return sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / TICK


class Sampler(threading.Thread):
    """CPU time of processes in nanoseconds, sampled every half second. Threads that exit between two samples lose what they used since the first one."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.samples = {pid: [] for pid in pids}
        self.tasks = {pid: {} for pid in pids}
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            for pid in self.samples:
                self.sample(pid)
            self.over.wait(0.5)

    def sample(self, pid):
        used, tasks = 0, {}
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                try:
                    tasks[task] = int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0])
                except OSError:
                    continue
                used += tasks[task] - self.tasks[pid].get(task, 0)
        except OSError:
            return  # it has exited
        samples = self.samples[pid]
        samples.append((time.monotonic(), samples[-1][1] + used if samples else 0))
        self.tasks[pid] = tasks

    def stop(self):
        self.over.set()
        self.join()

    def used(self, pid, begin, end):
        """CPU seconds from the last sample before `begin` to the first one after `end`, and the time between the two."""
        samples = self.samples[pid]
        first = max((s for s in samples if s[0] <= begin), default=samples[0])
        final = min((s for s in samples if s[0] >= end), default=samples[-1])
        return (final[1] - first[1]) / 1e9, final[0] - first[0]

    def per_poll_ms(self, pid, polls):
        """Median CPU time in ms around each of these requests, above the usage between them."""
        inside = [self.used(pid, at, at + WORK) for at in polls]
        if not inside:
            return None
        samples = self.samples[pid]
        total = (samples[-1][1] - samples[0][1]) / 1e9, samples[-1][0] - samples[0][0]
        rest = total[0] - sum(i[0] for i in inside), total[1] - sum(i[1] for i in inside)
        usual = max(0, rest[0] / rest[1]) if rest[1] > 1 else 0
        return round(1000 * statistics.median(cpu - usual * took for cpu, took in inside), 1)


class Daemon:
    def __init__(self, program):
        self.port, self.log = free_port(), open(f"{program.folder}/daemon.log", "a")
        began = time.monotonic()
        self.process = subprocess.Popen([program.path, "--config", program.config, "--daemon", "--http", f"127.0.0.1:{self.port}"], stderr=self.log,
                                        env=os.environ | program.env)
        self.pid = self.process.pid
        wait_for("the daemon leads", self.is_leading, 300, 0.02)
        self.leads_s = round(time.monotonic() - began, 2)

    def is_leading(self):
        if self.process.poll() is not None:
            sys.exit(f"the daemon has exited: {open(self.log.name).read()[-2000:]}")
        try:
            page = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5).read().decode()
        except OSError:
            return False
        return re.search(r"^cke_leader 1", page, re.M) is not None

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(100)


def console(program, view):
    return Terminal([program.path, "--config", program.config, "--observe", "--view", view], WIDE, program.env)


def at_once(work, items):
    """Results of the work on each item, each in a thread."""
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(work, items))


def measure(program, args, sabakan):
    """One daemon and three observing consoles, with the registry or without it."""
    figure = {"registry": sabakan is not None, "count": args.machines}
    has_data = lambda view: sabakan is not None or view == "overview"
    daemon, consoles = Daemon(program), {}
    try:
        figure["daemon"] = {"leads_s": daemon.leads_s}
        for view, pattern in VIEWS.items():
            starts = []
            for _ in range(args.starts if has_data(view) else 0):
                terminal = console(program, view)
                starts.append(terminal.shows(pattern))
                if starts[-1] is None:
                    sys.exit(f"no rows in the view {view}: {last(terminal)}")
                terminal.quit("q")
            figure[view] = {"rows_ms": ms(statistics.median(starts)), "rows_spread_ms": [ms(min(starts)), ms(max(starts))]} if starts else {}
        note("starts are measured")
        consoles = {view: console(program, view) for view in VIEWS}
        at_once(lambda view: has_data(view) and consoles[view].shows(VIEWS[view]), list(VIEWS))
        pids = {"daemon": daemon.pid} | {view: terminal.pid for view, terminal in consoles.items()}
        # the memory of an answer and of a second one, which replaces it
        pump = lambda seconds: at_once(lambda t: t.pump(seconds), list(consoles.values()))
        pump(args.poll + 8 if sabakan else 8)
        sampler, used, began = Sampler(pids.values()), cpu_seconds(daemon.pid), time.monotonic()
        sampler.start()
        usages = at_once(lambda t: t.watch_usage(args.idle), list(consoles.values()))
        ended = time.monotonic()
        figure["daemon"] |= {"cpu_pct": round(100 * (cpu_seconds(daemon.pid) - used) / (ended - began), 2)}
        for view, usage in zip(consoles, usages):
            figure[view] |= usage
        for who, pid in pids.items():
            figure[who] |= {"rss_mib": round(memory(pid, "VmRSS"), 1), "peak_mib": round(memory(pid, "VmHWM"), 1)}
        if sabakan:
            pump(WORK + 1)  # the end of an answer's work
        sampler.stop()
        note("idle usage is measured")
        if sabakan:
            within = lambda pid, begin, end: [p["at"] for p in sabakan.polls(pid) if begin <= p["at"] < end]
            figure["idle_s"], figure["answer_bytes"] = round(ended - began), sabakan.polls()[-1]["bytes"]
            for who, pid in pids.items():
                polls = within(pid, began, ended)
                figure[who] |= {"polls": len(polls), "polls_min": round(60 * len(polls) / (ended - began), 2), "poll_cpu_ms": sampler.per_poll_ms(pid, polls)}
            sampler, changed = Sampler(pids.values()), time.monotonic()
            sabakan.change()
            sampler.start()
            pump(args.poll + WORK + 2)
            sampler.stop()
            for who, pid in pids.items():
                figure[who]["plan_cpu_ms"] = sampler.per_poll_ms(pid, within(pid, changed, time.monotonic())[:1])
            note("an answer that needs a plan is measured")
        for view, terminal in consoles.items():
            if has_data(view):
                figure[view]["keys"] = terminal.keys("j", args.keys)
        # an operator's look at everything
        for key in "0123456":
            consoles["overview"].press(key)
            consoles["overview"].pump(1)
        for who, pid in pids.items():
            figure[who] |= {"rss_end_mib": round(memory(pid, "VmRSS"), 1), "peak_end_mib": round(memory(pid, "VmHWM"), 1)}
        figure["quit_by"] = [terminal.quit("q") for terminal in consoles.values()]
        consoles.clear()
    finally:
        for terminal in consoles.values():
            terminal.quit("q")
        daemon.stop()
    return figure


def each(name):
    return lambda f: [f[view][name] for view in VIEWS]


# row, unit, most allowed of each value with the registry, values of a figure. None = unlimited. A value that was not measured is None.
SLASH = "overview / machines / hosts"
ROWS = [
    (f"console: start to its rows, median: {SLASH}", "ms", (None,) * 3, lambda f: [f[view].get("rows_ms") for view in VIEWS]),
    ("… resident memory", "MiB", (60,) * 3, each("rss_mib")),
    ("… peak of it since the start", "MiB", (None,) * 3, each("peak_mib")),
    ("… peak after a look at all views", "MiB", (None,), lambda f: (f["overview"]["peak_end_mib"],)),
    ("… idle: CPU", "%", (0.5,) * 3, each("cpu_pct")),
    ("… idle: bytes per second", "", (60,) * 3, each("bytes_s")),
    ("… key to the first byte, median", "ms", (2,) * 3, lambda f: [f[view].get("keys", {}).get("median_ms") for view in VIEWS]),
    ("… key to the first byte, longest", "ms", (None,) * 3, lambda f: [f[view].get("keys", {}).get("max_ms") for view in VIEWS]),
    ("… requests to sabakan while idle", "", (None,) * 3, lambda f: [f[view].get("polls") for view in VIEWS]),
    ("… CPU time of an answer without a change", "ms", (None,) * 3, lambda f: [f[view].get("poll_cpu_ms") for view in VIEWS]),
    ("… CPU time of an answer that needs a plan", "ms", (None,) * 3, lambda f: [f[view].get("plan_cpu_ms") for view in VIEWS]),
    ("daemon: start until it leads", "s", (None,), lambda f: (f["daemon"]["leads_s"],)),
    ("… until all Nodes have the definition's labels", "s", (120,), lambda f: (f.get("prepared", {}).get("nodes_synced_s"),)),
    ("… effects that failed meanwhile", "", (0,), lambda f: (f.get("prepared", {}).get("failed"),)),
    ("… resident memory", "MiB", (60,), lambda f: (f["daemon"]["rss_mib"],)),
    ("… peak of it since the start", "MiB", (None,), lambda f: (f["daemon"]["peak_mib"],)),
    ("… idle: CPU", "%", (0.5,), lambda f: (f["daemon"]["cpu_pct"],)),
    ("… requests to sabakan while idle", "", (None,), lambda f: (f["daemon"].get("polls"),)),
    ("… CPU time of an answer without a change / that needs a plan", "ms", (None, None), lambda f: [f["daemon"].get(n) for n in ("poll_cpu_ms", "plan_cpu_ms")]),
]


def is_over(limits, values):
    """Whether a value misses its budget. One that was not measured does."""
    return any(limit is not None and (value is None or value > limit) for limit, value in zip(limits, values, strict=True))


def table(figures):
    with_registry = f"with a registry and hosts of {figures[-1]['count']:,} machines"
    lines = [f"| measurement | budget | without | {with_registry} |", "| --- | --- | --- | --- |"]

    def cell(unit, limits, values, figure):
        values = values(figure)
        measured = any(value is not None for value in values)
        text = " / ".join("–" if value is None else number(value) for value in values) + f" {unit}".rstrip() if measured else "–"
        return f"**{text}** over" if figure["registry"] and is_over(limits, values) else text

    for what, unit, limits, values in ROWS:
        limit = next((limit for limit in limits if limit is not None), None)
        budget = "–" if limit is None else f"≤ {number(limit)} {unit}".strip()
        lines.append(f"| {what} | {budget} | " + " | ".join(cell(unit, limits, values, figure) for figure in figures) + " |")
    return "\n".join(lines)


def write(path, text):
    page = open(path).read()
    begin, end = "<!-- registry: begin -->", "<!-- registry: end -->"
    if begin not in page or end not in page:
        sys.exit(f"{path} has no marks {begin} … {end}")
    with open(path, "w") as f:
        f.write(page.split(begin)[0] + begin + "\n" + text + "\n" + end + page.split(end)[1])


def prepare(program, args, sabakan):
    """Creates the hosts, stores the settings of the registry, and lets a daemon apply the definition."""
    began = time.monotonic()
    create_hosts(program.cluster, args.machines)
    note(f"{args.machines} BareMetalHosts in {time.monotonic() - began:.0f} s")
    program.store_registry(sabakan.url, args.poll)
    daemon = Daemon(program)
    try:
        return program.apply_definition()
    finally:
        daemon.stop()


def main():
    args = parse()
    path = os.path.abspath(args.program)
    folder = tempfile.mkdtemp(prefix="cketerm-registry-")
    sabakan = Sabakan(args.machines)
    cluster = None
    try:
        cluster = Cluster(folder, args.nodes)
        cluster.fill()
        note(f"{args.nodes} Nodes")
        program = Program(path, cluster)
        program.store_definition()
        figures = [measure(program, args, None)]
        print(json.dumps(figures[0]), flush=True)
        prepared = prepare(program, args, sabakan)
        figures.append(measure(program, args, sabakan) | {"prepared": prepared})
        print(json.dumps(figures[1]), flush=True)
    finally:
        if cluster:
            cluster.stop()
        sabakan.stop()
        shutil.rmtree(folder, ignore_errors=True)
    heading = (f"{time.strftime('%Y-%m-%d')}, {args.nodes:,} nodes, {described_machine()}, all in one run; idle over {args.idle:.0f} s, sabakan_poll_seconds {args.poll}. "
               f"An answer of sabakan has {figures[1]['answer_bytes'] / 1e6:.1f} MB, the definition {prepared['definition_bytes'] / 1e6:.1f} MB.")
    text = f"{textwrap.fill(heading, 100)}\n\n{table(figures)}"
    print(text)
    if args.write:
        write(args.write, text)
    missed = [what for what, _, limits, values in ROWS if is_over(limits, values(figures[1]))]
    for what in missed:
        print(f"MISSED: {what}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
