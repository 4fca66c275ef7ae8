"""The chart installed with helm on real servers, and its two engines run from the image as its Deployment says.

There is no kubelet and no scheduler here: `Pod` does what they would do for a pod of the Deployment. The account and its
rights, the Secret, the arguments, user and group are the chart's; the API server's audit log tells what it refused.
"""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from checks import BIN, CHART, expect, expect_equal, kubectl, objects, run, skip
from environment import free_port
from image import is_dynamic
from templates import expressions, metrics_table

ACCOUNT = "system:serviceaccount:ops:cketerm"
AGENT = "system:serviceaccount:cketerm-agent:cketerm-agent"
SECRETS = "var/run/secrets/kubernetes.io/serviceaccount"
# Without the role cketerm-hosts-view an engine asks once whether there are BareMetalHosts; then it reads which kinds exist.
ASKED = "list /apis/metal3.io/v1alpha1/baremetalhosts?limit=1: 403"
# Arguments: root, user:group, state, config, account, libraries, then environment and command.
START = """
set -e
root=$1 user=$2 state=$3 config=$4 account=$5 libraries=$6; shift 6
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$state" "$root/var/lib/cketerm"
mount --bind "$config" "$root/etc/cketerm" && mount -o remount,bind,ro "$root/etc/cketerm"
mount --bind "$account" "$root/""" + SECRETS + """"
for folder in $libraries; do mount --bind "/$folder" "$root/$folder"; done
mount -o remount,bind,ro "$root"
exec env -i "$@"
"""


class Pod:
    """A container with a PID namespace of its own, seen from outside."""

    def __init__(self, environment, name, image, spec, secret, dynamic, state=None):
        """`state`: state directory of the node, left by an earlier pod."""
        self.folder = Path(environment.folder, f"pod-{name}")
        self.environment, self.http = environment, f"127.0.0.1:{free_port()}"
        for part in ("root", "config", "account", "state"):
            (self.folder / part).mkdir(parents=True)
        root = self.folder / "root"
        image.unpack(root)
        libraries = ["lib", "lib64"] if dynamic else []
        for mount in ("proc", "dev", SECRETS, *libraries):
            (root / mount).mkdir(parents=True, exist_ok=True)
        user, group = spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]
        mode = next(v["secret"]["defaultMode"] for v in spec["volumes"] if v["name"] == "config")
        for file, text in secret["data"].items():
            self.write(self.folder / "config" / file, base64.b64decode(text), mode, group)
        ca = Path(environment.folder, "certs/apiserver.crt").read_bytes()
        token = kubectl(environment, "create", "token", spec["serviceAccountName"], "-n", "ops").stdout.strip()
        for file, text in (("token", token.encode()), ("ca.crt", ca), ("namespace", b"ops")):
            self.write(self.folder / "account" / file, text, 0o440, group)
        # made as NOTES.txt says
        self.state = state or self.folder / "state"
        os.chown(self.state, user, group)
        self.state.chmod(0o700)
        host, port = environment.server.removeprefix("https://").split(":")
        container = spec["containers"][0]
        # both pods share this host's network
        arguments = [self.http if a == "0.0.0.0:10181" else a for a in container["args"]]
        variables = [*image.config["config"]["Env"], "HOME=/var/lib/cketerm", f"KUBERNETES_SERVICE_HOST={host}",
                     f"KUBERNETES_SERVICE_PORT={port}"]
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.unshare = subprocess.Popen(
                ["unshare", "--pid", "--mount", "--fork", "--kill-child", "bash", "-c", START, "pod", root, f"{user}:{group}",
                 self.state, self.folder / "config", self.folder / "account", " ".join(libraries), *variables,
                 "/usr/bin/setpriv", "--no-new-privs", "/usr/sbin/chroot", f"--userspec={user}:{group}", root,
                 *image.config["config"]["Entrypoint"], *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        environment.daemons.append(self)

    # what `Environment` expects of a daemon
    @property
    def process(self):
        return self.unshare

    @staticmethod
    def write(path, text, mode, group):
        """A file as the kubelet mounts it: of root, and of the pod's group."""
        path.write_bytes(text)
        path.chmod(mode)
        os.chown(path, 0, group)

    def page(self, path):
        done = run("curl", "-s", "-m", "5", "-w", "\n%{http_code}", f"http://{self.http}{path}", check=False)
        body, _, code = done.stdout.rpartition("\n")
        return int(code or 0), body

    def is_ready_as(self, state):
        code, text = self.page("/readyz")
        return code == 200 and text.startswith(state)

    def init(self):
        return children(self.unshare.pid)[0]

    def tree(self):
        """Command lines from PID 1 downwards, each below its parent."""
        def below(pid):
            return [(pid, command_line(pid)), *(line for child in children(pid) for line in below(child))]
        return below(self.init())


def children(pid):
    """Children of all threads of a process."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, file.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ").strip()
    except FileNotFoundError:
        return ""


def status(pid):
    lines = (line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value.split() for name, value in lines}


def bind(environment, namespace, pod, node):
    """Does the scheduler's part."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    kubectl(environment, "create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", "-f", "-", stdin=json.dumps(body))


class Agent:
    """`cketerm agent` with the chart's account, on a Node whose reboot is a new boot id."""

    def __init__(self, environment, program, node):
        self.environment, self.node, folder = environment, node, Path(environment.folder, f"agent-{node}")
        folder.mkdir()
        pod = environment.wait(f"the DaemonSet makes a pod for {node}", lambda: self.pod(environment, node), 60)
        bind(environment, "cketerm-agent", pod, node)
        token = kubectl(environment, "create", "token", "cketerm-agent", "-n", "cketerm-agent", "--bound-object-kind", "Pod",
                        "--bound-object-name", pod).stdout.strip()
        admin = Path(environment.facts["KUBECONFIG"])
        (folder / "kubeconfig").write_text(admin.read_text().replace(environment.token, token))
        (folder / "kubeconfig").chmod(0o600)
        (folder / "boot_id").write_text(f"first-{node}\n")
        self.reboots = folder / "reboots"
        patch = json.dumps({"status": {"nodeInfo": {"bootID": f"second-{node}"}}})
        (folder / "reboot").write_text(
            f"echo reboot >>{self.reboots}\n{BIN}/kubectl --kubeconfig {admin} patch node {node} --subresource status "
            f"--type merge -p '{patch}'\n")
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [program, "agent", "--poll", "1", "--node", node, "--kubeconfig", folder / "kubeconfig", "--sentinel",
                 folder / "reboot-required", "--state-directory", folder / "state", "--boot-id-file", folder / "boot_id",
                 "--reboot-command", f"/bin/sh {folder}/reboot"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment.process_env())
        environment.daemons.append(self)

    @staticmethod
    def pod(environment, node):
        """Name of the pod that the scheduler would bind to this Node."""
        for pod in objects(kubectl(environment, "get", "pods", "-n", "cketerm-agent", "-o", "json").stdout):
            terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            if terms[0]["matchFields"][0]["values"] == [node]:
                return pod["metadata"]["name"]
        return None

    def annotation(self, name):
        return self.environment.api("GET", f"/api/v1/nodes/{self.node}")["metadata"].get("annotations", {}).get(name)


def check(environment, program, image):
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return skip("no root, unshare or setpriv: THE IMAGE'S PROCESSES AND THE RIGHTS OF THE CHART'S ACCOUNT ARE NOT TESTED")
    settings = {"etcd": {"endpoints": [environment.etcd]}, "engine": {"lease_ttl_seconds": 5}, "power": {"bmcs": "bmcs.yaml"}}
    values = {"config": {"settings": settings, "files": {"bmcs.yaml": "others: {driver: agent, settings: {deadline-seconds: 90}}\n"}},
              "agent": {"enabled": True}, "rbac": {"endpoints": True}}
    chart_values = Path(environment.folder, "values.json")
    chart_values.write_text(json.dumps(values))
    helm = [BIN / "helm", "--kubeconfig", environment.facts["KUBECONFIG"], "--namespace", "ops"]
    notes = run(*helm, "install", "cketerm", CHART, "--create-namespace", "--values", chart_values).stdout
    expect("helm install prints the next steps", all(text in notes for text in (
        "install -d -m 0700 -o 65532 -g 65532 /var/lib/cketerm", "-n ops exec deployment/cketerm", "cluster identify --confirm"))
           and "WARNING" not in notes, notes)

    machines = [environment.machine("cp1", "10.0.0.11", True), environment.machine("w1", "10.0.1.11"),
                environment.machine("w2", "10.0.1.12")]
    environment.create_nodes(machines)
    environment.set_up(program, machines, {"reboot_command": ["cketerm", "power", "cycle"],
                                           "boot_check_command": ["cketerm", "power", "booted"],
                                           "command_timeout_seconds": 120})
    environment.pod("web", "w1")
    environment.wait_until_pods_run()
    agent = Agent(environment, program, "w1")
    environment.wait("the agent reports", lambda: agent.annotation("cketerm.io/agent"))

    found = objects(kubectl(environment, "get", "deployment,secret", "-n", "ops", "-o", "json").stdout)
    spec = next(o for o in found if o["kind"] == "Deployment")["spec"]["template"]["spec"]
    secret = next(o for o in found if o["kind"] == "Secret" and o["metadata"]["name"] == "cketerm")
    dynamic = is_dynamic(program)
    first, second, third = None, None, None
    try:
        first = Pod(environment, "a", image, spec, secret, dynamic)
        environment.wait("the first engine leads", lambda: first.is_ready_as("leading"))
        second = Pod(environment, "b", image, spec, secret, dynamic)
        environment.wait("the second engine stands by", lambda: second.is_ready_as("standing by"))
        reboot_under_term(environment, program, agent, first, second)
        # the Deployment's next pod on that node
        third = Pod(environment, "c", image, spec, secret, dynamic, state=first.state)
        entry_ends(environment, agent, third)
        own_pod_is_evicted(environment, program, second, third)
        pages(third)
        os.kill(third.init(), signal.SIGTERM)
        expect_equal("PID 1 of an idle engine ends with 0 on SIGTERM", third.unshare.wait(timeout=60), 0)
    except Exception:
        print(environment.run_program(program, "rq", "why", "0").stdout)
        for pod in filter(None, (first, second, third)):
            print(pod.log.read_text()[-4000:])
        print(agent.log.read_text()[-2000:])
        raise
    audit(environment)
    run(*helm, "uninstall", "cketerm", "--wait")
    left = kubectl(environment, "get", "all,secret,serviceaccount,pdb,networkpolicy,clusterrole,clusterrolebinding,validatingadmissionpolicy,"
                   "validatingadmissionpolicybinding", "-A", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name").stdout
    expect_equal("helm uninstall leaves nothing", left, "")


def reboot_under_term(environment, program, agent, first, second):
    agent.process.send_signal(signal.SIGSTOP)
    environment.run_command(program, "rq", "add", "10.0.1.11")
    environment.wait("the order to reboot", lambda: agent.annotation("cketerm.io/reboot-order"))
    tree = first.tree()
    lines = [line for _, line in tree]
    expect("the process tree: init, engine, helper, command", len(lines) == 4 and lines[0] == lines[1]
           and "--daemon" in lines[0] and "run-command" in lines[2] and "power cycle 10.0.1.11" in lines[3], lines)
    facts = [status(pid) for pid, _ in tree]
    expect_equal("all run as user and group 65532", {(*f["Uid"], *f["Gid"]) for f in facts}, {("65532",) * 8})
    expect("none has a capability, none can get one", all(
        f["NoNewPrivs"] == ["1"] and int(f["CapEff"][0], 16) == 0 for f in facts), facts)
    results = first.folder / "state/results"
    expect_equal("results are kept in the state directory", (results.stat().st_uid, results.stat().st_mode & 0o7777), (65532, 0o700))

    init, command = tree[0][0], tree[3][0]
    os.kill(init, signal.SIGTERM)
    environment.wait("the second engine leads", lambda: second.is_ready_as("leading"))
    expect("after SIGTERM another engine leads, and PID 1 waits for the command",
           first.unshare.poll() is None and "power cycle" in command_line(command), first.log.read_text())
    expect("the engine has ended", not any("--daemon" in line for _, line in first.tree()[1:]), first.tree())
    agent.process.send_signal(signal.SIGCONT)
    expect_equal("PID 1 ends with 0 once the command has ended", first.unshare.wait(timeout=90), 0)
    log = first.log.read_text()
    expect("PID 1 says what it waited for", "waiting for its commands" in log and "panicked" not in log, log)
    expect_equal("the command's result is in the node's state directory", len(list(results.iterdir())), 1)


def entry_ends(environment, agent, third):
    environment.wait("another pod on the node reports the result", lambda: not list((third.state / "results").iterdir()))
    environment.wait("the entry ends", lambda: not environment.entries())
    environment.wait("w1 is uncordoned", lambda: not environment.cordoned())
    expect_equal("the machine was rebooted once", agent.reboots.read_text(), "reboot\n")
    # without that directory it would be unknown, and only after the command's time limit
    outcomes = [json.loads(c.value).get("outcome") for c in environment.record.all("cketerm/attempts/reboots/") if c.value]
    expect_equal("its outcome is known", [o["end"] for o in outcomes if o][:1], [{"exit": 0}])


def own_pod_is_evicted(environment, program, leader, other):
    """The leader's own pod is on the node that it drains. The kubelet's part, SIGTERM after the eviction, is played here."""
    agent = Agent(environment, program, "w2")
    environment.wait("the agent reports", lambda: agent.annotation("cketerm.io/agent"))
    selector = "app.kubernetes.io/name=cketerm"

    def pods():
        return objects(kubectl(environment, "get", "pods", "-n", "ops", "-l", selector, "-o", "json").stdout)
    names = [pod["metadata"]["name"] for pod in environment.wait("the Deployment has two pods", lambda: len(pods()) == 2 and pods())]
    for pod, node in zip(names, ("w2", "w1")):
        bind(environment, "ops", pod, node)

    def allowed():
        budget = json.loads(kubectl(environment, "get", "pdb", "-n", "ops", "cketerm", "-o", "json").stdout)
        return budget["status"].get("disruptionsAllowed") == 1
    environment.wait("the budget allows one eviction", allowed)
    # a kubelet keeps the pod until its processes have ended; kwok would not
    keep = ["-n", "ops", "patch", "pod", names[0], "--type", "merge", "-p"]
    kubectl(environment, *keep, '{"metadata": {"finalizers": ["example.com/kubelet"]}}')
    environment.run_command(program, "rq", "add", "10.0.1.12")
    environment.wait("the leader's pod is evicted", lambda: names[0] in [
        pod["metadata"]["name"] for pod in pods() if "deletionTimestamp" in pod["metadata"]])
    os.kill(leader.init(), signal.SIGTERM)
    expect_equal("the evicted leader ends with 0", leader.unshare.wait(timeout=120), 0)
    environment.wait("another engine leads", lambda: other.is_ready_as("leading"))
    kubectl(environment, *keep, '{"metadata": {"finalizers": null}}')
    environment.wait("the entry ends", lambda: not environment.entries(), 200)
    environment.wait("w2 is uncordoned", lambda: not environment.cordoned())
    expect_equal("the leader's own node was rebooted once", agent.reboots.read_text(), "reboot\n")
    records = [c.value for c in environment.record.all("cketerm/attempts/reboots/1/") if c.value]
    numbers = {json.loads(text)["number"] for text in records}
    expect_equal("by one attempt", numbers, {1})
    started = [re.search(r"command started.+reboots/1", pod.log.read_text()) is not None for pod in (leader, other)]
    expect_equal("the other engine started it", started, [False, True])


def pages(leader):
    text = leader.page("/metrics")[1]
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    wanted = {name for name in metrics_table() if any(name in expression for expression in expressions())}
    wanted = {name.removesuffix("_total") for name in wanted}
    expect("the leader serves every metric of the dashboard", wanted <= served and len(wanted) > 15, wanted - served)
    expect_equal("only this host may read the state", leader.page("/state")[0], 200)


def audit(environment):
    kubectl(environment, "get", "nodes", "--as", "system:serviceaccount:ops:stranger", check=False)

    def events():
        lines = Path(environment.folder, "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def user(event):
        return event.get("impersonatedUser", event["user"])["username"]

    def refused(name):
        return [f"{e['verb']} {e['requestURI']}: {e['responseStatus']['code']}" for e in events()
                if user(e) == name and e["responseStatus"].get("code") in (401, 403, 422)]
    environment.wait("the audit log shows a refusal", lambda: refused("system:serviceaccount:ops:stranger"), 30)
    for name, least in ((ACCOUNT, 20), (AGENT, 3)):
        number = sum(user(e) == name for e in events())
        wrong = [request for request in refused(name) if request != ASKED]
        expect(f"{number} requests of {name}, none refused that matters", number >= least and not wrong, wrong)
    did = {(e["verb"], e["objectRef"]["resource"], e["objectRef"].get("subresource")) for e in events()
           if user(e) == ACCOUNT and "objectRef" in e and e["responseStatus"]["code"] < 300}
    expect("the account cordoned, evicted and recorded events", did >= {
        ("patch", "nodes", None), ("create", "pods", "eviction"), ("create", "events", None)}, did)
