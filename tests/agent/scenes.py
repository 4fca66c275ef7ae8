"""The checks: an order to the unit, and an order to the container of the DaemonSet, each until the machine has booted again."""
import json
import shutil
import time
from pathlib import Path

import credentials
import image
from checks import ROOT, expect, expect_equal, kubectl, objects, run
from live import bind
from node import ADDRESS

UNIT = "cketerm-agent.service"
KUBELET = """[Service]
ExecStart=/usr/bin/systemd-inhibit --what=shutdown --mode=delay --who=kubelet --why="graceful shutdown" /usr/local/lib/test/kubelet
SyslogIdentifier=kubelet
[Install]
WantedBy=multi-user.target
"""
MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
AGENT = "^/usr/bin/cketerm agent"
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"


def install(container, program):
    """Puts onto the disk: the program and the unit, as shipped; the kubelet; and a sign that the machine needs a reboot."""
    here = Path(__file__).resolve().parent
    (container.disk / "usr/bin").mkdir(parents=True)
    shutil.copy(program, container.disk / "usr/bin/cketerm")
    container.write(f"etc/systemd/system/{UNIT}", (ROOT / "docs/package" / UNIT).read_text())
    container.write("etc/systemd/system/kubelet.service", KUBELET)
    container.write("usr/local/lib/test/kubelet", (here / "kubelet").read_text(), 0o755)
    container.write("usr/local/lib/test/runtime.py", (here / "runtime.py").read_text())
    # the one setting that this machine needs: `boot` says why
    container.write("etc/default/cketerm-agent", "AGENT_OPTIONS=--boot-id-file /run/boot_id\n")
    # as the kubelet does it, with its own period
    container.write("etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nInhibitDelayMaxSec=30\n")
    container.write("etc/tmpfiles.d/test.conf", "f /run/reboot-required\n")
    for unit in (UNIT, "kubelet.service"):
        run("systemctl", "--root", container.disk, "enable", unit)


def boot(node, with_unit=True):
    """Boots the machine; waits for its kubelet and its agent."""
    container, environment = node.container, node.environment
    container.boot()
    environment.wait("the kubelet listens", lambda: "kubelet: listening" in container.logs())
    if with_unit:
        node.wait_for_report()


def properties(container, unit, *names):
    lines = container.run("systemctl", "show", unit, "-p", ",".join(names)).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def by_hand(node):
    cycled = node.power("cycle", node.name)
    expect("`power cycle` gives the order", cycled.returncode == 0 and "took the order to reboot" in cycled.stderr, cycled.stderr)


def by_queue(node):
    node.environment.daemon(node.program, "engine", node.config)
    node.environment.run_command(node.program, "rq", "add", ADDRESS)


def obeys(node, agent, give_order):
    """Gives an order, and checks how the machine goes down. `agent`: unit whose agent obeys. Returns the journal's texts."""
    container, first = node.container, node.container.boot_id
    node.report_boot()
    tested = node.power("test", node.name)
    expect("`power test` accepts it", tested.returncode == 0 and "the agent of Node" in tested.stdout, tested.stdout + tested.stderr)
    began = time.time()
    give_order(node)
    expect_equal("reboot(2) ended PID 1: SIGHUP stands for a restart", container.wait_for_end(), "SIGHUP")
    journal = container.journal(first)
    texts = [text for _, _, text in journal]
    steps = [next((i for i, text in enumerate(texts) if step in text), None) for step in (
        "The system will reboot now", "kubelet: announced", "kubelet: pods ended", "System is rebooting", f"Stopped {agent}",
        "Reached target reboot.target")]
    print(*(f"    {journal[i][0] - began:5.2f} s: {texts[i]}" for i in steps if i is not None), sep="\n")
    complete = expect("logind announces, waits for the kubelet, and then systemd shuts down",
                      None not in steps and steps == sorted(steps), f"{steps}\n" + "\n".join(texts[-80:]))
    expect_equal("nothing was stopping when the kubelet learnt of it", texts[steps[1]] if complete else None,
                 f"kubelet: announced {agent}=active jobs=0")
    expect_equal("one request to reboot", sum("The system will reboot now" in text for text in texts), 1)
    expect("polkit had no part in it", not any("polkit" in text.lower() for text in texts), texts[-80:])
    record = json.loads((container.disk / "var/lib/cketerm-agent/obeyed.json").read_text())
    expect("the disk has the record of this order", node.order()["attempt"] in json.dumps(record) and first in json.dumps(record), record)
    return texts


def does_not_reboot_again(node, old):
    """Checks after the next boot: the old order is answered, and refused if it is open again."""
    expect("the machine has another boot id", node.container.boot_id != old, old)
    expect_equal("the old answer stays", (node.answer() or {}).get("obeyed"), True)
    answer = node.refused_again()
    expect("the old order is refused", answer.get("obeyed") is False and "has booted since" in answer.get("why", ""), answer)
    texts = node.container.logs()
    state = node.container.run("busctl", "get-property", *MANAGER, "PreparingForShutdown").stdout.strip()
    expect("no second reboot", node.container.process.poll() is None and state == "b false"
           and not any("will reboot now" in text for text in texts), (state, texts[-20:]))
    node.annotate("reboot-order", None)


def unit(node):
    """The unit, as docs/package has it, with the kubelet's own credentials."""
    container = node.container
    boot(node)
    verified = container.run("systemd-analyze", "verify", "--man=no", UNIT, check=False)
    expect_equal("systemd has no complaint about the unit", (verified.returncode, verified.stderr.strip()), (0, ""))
    expect_equal("systemd starts the unit as shipped", properties(container, UNIT, "ActiveState", "NRestarts", "DropInPaths"),
                 {"ActiveState": "active", "NRestarts": "0", "DropInPaths": ""})
    node.environment.wait("the agent reports the sign", lambda: node.annotation("reboot-needed"))
    expect_equal("it reports the need of a reboot", node.annotation("reboot-needed"), "sentinel /run/reboot-required")
    first = container.boot_id
    texts = obeys(node, UNIT, by_hand)
    expect("the agent ends cleanly with the machine", f"{UNIT}: Deactivated successfully." in texts, texts[-60:])
    (container.disk / "etc/tmpfiles.d/test.conf").unlink()
    boot(node)
    does_not_reboot_again(node, first)
    expect_equal("the new boot needs no reboot", node.annotation("reboot-needed"), None)
    began = time.monotonic()
    container.run("systemctl", "stop", UNIT)
    took = time.monotonic() - began
    state = properties(container, UNIT, "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
    expect_equal("`systemctl stop` ends it with status 0", state, {
        "ActiveState": "inactive", "Result": "success", "ExecMainCode": "1", "ExecMainStatus": "0"})
    print(f"    it took {took:.1f} s")
    container.run("systemctl", "disable", UNIT)
    directory = (container.disk / "var/lib/cketerm-agent").stat()
    expect_equal("only root reads the record", (directory.st_uid, directory.st_mode & 0o7777), (0, 0o700))
    other = credentials.kubectl_as(node.environment, container, "annotate", "node", "cp1", "cketerm.io/agent=x")
    expect("these credentials change no other Node", other.returncode != 0 and "orbidden" in other.stderr, other.stderr)


class Pod:
    """The DaemonSet's pod on the Node, run by `runtime.py` below the machine's systemd, as a container runtime would."""

    def __init__(self, node, program, folder):
        self.node, self.container, environment = node, node.container, node.environment
        kubectl(environment, "apply", "-f", ROOT / "docs/agent.yaml")
        name = environment.wait("the DaemonSet makes a pod", self.find, 60)
        bind(environment, "cketerm-agent", name, node.name)
        self.spec = json.loads(kubectl(environment, "get", "pod", name, "-n", "cketerm-agent", "-o", "json").stdout)["spec"]
        main = self.spec["containers"][0]
        expect_equal("the DaemonSet's security context is the one that the runtime applies", main["securityContext"], {
            "runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]}})
        expect("it has no namespace of the host", not {"hostPID", "hostIPC", "hostNetwork"} & self.spec.keys(), self.spec)
        token = kubectl(environment, "create", "token", "cketerm-agent", "-n", "cketerm-agent", "--bound-object-kind", "Pod",
                        "--bound-object-name", name).stdout.strip()
        self.container.write("var/lib/test/account/token", token, 0o600)
        self.container.write("var/lib/test/account/ca.crt", Path(environment.folder, "certs/apiserver.crt").read_text())
        self.container.write("var/lib/test/account/namespace", "cketerm-agent")
        root = self.container.disk / "var/lib/test/root"
        root.mkdir()
        dynamic = image.is_dynamic(program)
        made = image.made(program, Path(folder), "--revision", "0" * 40, *(["--allow-dynamic"] if dynamic else []))
        made.unpack(root)
        paths = {v["name"]: v["hostPath"]["path"] for v in self.spec["volumes"] if "hostPath" in v}
        mounts = [[paths[m["name"]], m["mountPath"], m.get("readOnly", False)] for m in main["volumeMounts"] if m["name"] in paths]
        mounts.append(["/var/lib/test/account", SECRETS, True])
        if dynamic:
            mounts += [[path, path, True] for path in ("/lib", "/lib64")]
        host, port = environment.server.removeprefix("https://").split(":")
        words = [word.replace("$(NODE_NAME)", node.name) for word in main["args"]]
        self.container.write("var/lib/test/spec.json", json.dumps({
            "root": "/var/lib/test/root", "mounts": mounts, "command": [*made.config["config"]["Entrypoint"], *words],
            "environment": {"NODE_NAME": node.name, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}}))
        self.start()

    def find(self):
        pods = objects(kubectl(self.node.environment, "get", "pods", "-n", "cketerm-agent", "-o", "json").stdout)
        return pods[0]["metadata"]["name"] if pods else None

    def start(self):
        """Does the kubelet's part after a boot."""
        self.container.run("install", "-d", "/var/lib/cketerm-agent")  # type: DirectoryOrCreate
        self.container.run("systemd-run", "--unit", "pod", "-p", "SyslogIdentifier=cketerm", "unshare", "--pid", "--mount", "--uts",
                           "--ipc", "--fork", "--kill-child", "python3", "/usr/local/lib/test/runtime.py", "/var/lib/test/spec.json")

    def processes(self):
        """Status of every process of the pod's agent."""
        found = []
        for pid in self.container.run("pgrep", "--full", AGENT).stdout.split():
            text = self.container.run("cat", f"/proc/{pid}/status").stdout
            found.append({k: v.split() for k, v in (line.split(":", 1) for line in text.splitlines())})
        return found


def daemon_set(node, program, folder):
    """The container of docs/agent.yaml, with the account, the rights and the policy that it has there."""
    pod = Pod(node, program, folder)
    node.annotate("agent", None)
    node.wait_for_report()
    facts = pod.processes()
    expect("root without a capability, and unable to get one", facts and all(
        set(f["Uid"]) == {"0"} and f["NoNewPrivs"] == ["1"]
        and all(int(f[name][0], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")) for f in facts), facts)
    expect_equal("PID 1 of a namespace of its own, and the agent below it", [f["NSpid"][1:] for f in facts][:1] + [len(facts)], [["1"], 2])
    first = node.container.boot_id
    obeys(node, "pod.service", by_queue)
    boot(node, with_unit=False)
    pod.start()
    node.wait_for_report()
    environment = node.environment
    expect("the queue waits for the kubelet's boot id", environment.with_status("rebooting") and node.name in environment.cordoned())
    node.report_boot()
    finished = environment.happens_within(lambda: not environment.entries() and not environment.cordoned())
    expect("with it the entry ends, and the Node is uncordoned", finished, environment.entries())
    does_not_reboot_again(node, first)
    # as a container runtime ends a pod: SIGTERM to its PID 1
    node.container.run("pkill", "-TERM", "--oldest", "--full", AGENT)
    node.environment.wait("the pod ends", lambda: not properties(node.container, "pod.service", "MainPID")["MainPID"].strip("0"))
    texts = node.container.logs()
    expect("the pod's agent ends with status 0", "pod.service: Deactivated successfully." in texts, texts[-10:])
    as_user = node.container.run("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "busctl", "call", *MANAGER,
                                 "Reboot", "b", "false", check=False)
    expect("logind takes a reboot from no other user than root", as_user.returncode != 0, as_user.stdout)
    print(f"    {as_user.stderr.strip()}")
