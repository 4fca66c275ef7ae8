"""Checks of the chart: lint, refused values, a dry run of every object on a real API server, and no drift from docs/."""
import base64
import json
import re
import tempfile
from pathlib import Path

from checks import BIN, CHART, ROOT, expect, expect_equal, kubectl, objects, run, template, values

NAMES = ("default", "everything", "restricted")
DEFAULT_KINDS = {"ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret",
                 "Service", "ServiceAccount"}
# Arguments after the values file default.yaml, and what helm says.
REFUSED = (
    (["--set", "config.settings.etcd.endpoints=null"], "the chart brings no etcd"),
    (["--set", "config.existingSecret=mine"], "exclude each other"),
    (["--set", "config.files.config\\.yaml=x"], "use config.settings"),
    (["--set", "replica=3"], "replica"),
    (["--set", "state.type=disk"], "state"),
    (["--set", "image.digest=sha256:12"], "digest"),
    (["--set", "serviceAccount.create=false"], "serviceAccount.name is required"),
    (["--set", "agent.enabled=true", "--kube-version", "1.29"], "needs Kubernetes 1.30"),
    (["--kube-version", "1.27"], "incompatible with Kubernetes"),
)
# Written by the API server.
SERVER_FIELDS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


def check(environment, program):
    lint_and_refuse()
    restarts()
    versions()
    readme_lists_values()
    prepare(environment)
    found = {name: dry_run(environment, name) for name in NAMES}
    if not all(found.values()):
        return
    expect_equal("by default only these kinds", {o["kind"] for o in found["default"]}, DEFAULT_KINDS)
    expect_equal("each switch off: only these kinds", {o["kind"] for o in found["restricted"]}, {"Deployment", "Service"})
    rights(environment, found)
    agent(environment, found["everything"])
    alerts(environment, one(found["everything"], "PrometheusRule"))
    dashboard(one(found["everything"], "ConfigMap"))
    pods(environment, found)
    configuration(found, program, environment.facts["KUBECONFIG"])


def one(all_objects, kind, name=None):
    found = [o for o in all_objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def lint_and_refuse():
    for name in NAMES:
        done = run(BIN / "helm", "lint", "--strict", CHART, "--values", values(name), check=False)
        expect(f"helm lint --strict with {name}.yaml", done.returncode == 0, done.stdout)
    for arguments, message in REFUSED:
        done = template("default", *arguments, check=False)
        expect(f"refused: {' '.join(arguments)}", done.returncode != 0 and message in done.stderr, done.stderr)
    done = template(None, check=False)
    expect("refused: no values at all", done.returncode != 0 and "the chart brings no etcd" in done.stderr, done.stderr)


def restarts():
    """A changed configuration changes the pods."""
    def checksum(*arguments):
        return re.search("checksum/config: (.+)", template("default", *arguments).stdout).group(1)
    changed = {checksum(), checksum("--set", "config.settings.log.json=true"), checksum("--set", "config.files.ca\\.crt=x")}
    expect("a changed configuration or file restarts the pods", len(changed) == 3 and checksum() in changed, changed)


def versions():
    ours = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    chart = dict(re.findall(r"^(\w+): (.+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE))
    expect_equal("versions of the chart", (chart["version"], chart["appVersion"]), (ours, ours))


def readme_lists_values():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def leaves(node, path):
        children = node.get("properties")
        return {path} if children is None else {leaf for name, child in children.items()
                                                for leaf in leaves(child, f"{path}.{name}".lstrip("."))}
    listed = set()
    text = (CHART / "README.md").read_text().split("## Values")[1]
    for cell in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE):
        names = re.findall(r"`(.+?)`", cell)
        parent = names[0].rpartition(".")[0]
        listed |= {parent + name if name.startswith(".") else name for name in names}
    expect_equal("the README lists exactly the values", listed, leaves(schema, "") - {"global"})
    links = re.findall(r"\]\(([^)#:]+)", (CHART / "README.md").read_text())
    expect("its links lead somewhere", len(links) > 5 and all((CHART / link).exists() for link in links), links)


def prepare(environment):
    kubectl(environment, "apply", "--server-side", "-f", Path(__file__).parent / "crds.yaml")
    kubectl(environment, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    for name, labels in (("ops", {}), ("metal3", {}), ("cketerm-agent", {}),
                         ("strict", {"pod-security.kubernetes.io/enforce": "restricted"})):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        kubectl(environment, "apply", "--server-side", "-f", "-", stdin=json.dumps(body))


def on_server(environment, text, check=True):
    """Objects as the API server would store them; it refuses unknown fields."""
    done = kubectl(environment, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts",
                   "-o", "json", "-f", "-", stdin=text, check=check)
    return objects(done.stdout) if done.returncode == 0 else done.stderr


def dry_run(environment, name):
    text = template(name).stdout
    found = on_server(environment, text, check=False)
    accepted = expect(f"the API server accepts every object with {name}.yaml", isinstance(found, list), found)
    expect(f"none is lost with {name}.yaml", accepted and len(found) == len(re.findall("^kind: ", text, re.MULTILINE)))
    return found if accepted else []


def rights(environment, found):
    documented = {o["metadata"]["name"]: o for o in on_server(environment, (ROOT / "docs/rbac.yaml").read_text())
                  if o["kind"] == "ClusterRole"}
    ours = {o["metadata"]["name"]: o for o in found["everything"] if o["kind"] == "ClusterRole"}
    ours.pop("cketerm-agent")
    expect_equal("the chart has every ClusterRole of docs/rbac.yaml", set(ours), set(documented))
    for name, role in documented.items():
        expect_equal(f"rules of {name}", ours.get(name, {}).get("rules"), role["rules"])
    expect_equal("by default the chart has only the roles of the engine and of volumes",
                 {o["metadata"]["name"] for o in found["default"] if o["kind"] == "ClusterRole"}, {"cketerm", "cketerm-volumes"})
    bindings = {o["roleRef"]["name"]: o["subjects"] for o in found["everything"] if o["kind"] == "ClusterRoleBinding"}
    bindings.pop("cketerm-agent")
    expect_equal("roles of people are bound to nobody", set(bindings), set(documented) - {"cketerm-hosts", "cketerm-fencing"})
    account = [{"kind": "ServiceAccount", "name": "cketerm", "namespace": "ops"}]
    expect("the others are bound to the account", all(s == account for s in bindings.values()), bindings)
    role = one(found["everything"], "Role")
    expect_equal("the Secrets of BMCs", (role["metadata"]["namespace"], role["rules"]), ("metal3", [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["bmc-w1", "bmc-w2"], "verbs": ["get"]}]))


def agent(environment, found):
    documented = on_server(environment, (ROOT / "docs/agent.yaml").read_text())
    expect_equal("the agent's objects", {o["kind"] for o in documented} - {o["kind"] for o in found}, set())
    for expected in documented:
        kind = expected["kind"]
        actual = one(found, kind, "cketerm-agent")
        labels = actual["metadata"].get("labels", {})
        for name in ("helm.sh/chart", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"):
            labels.pop(name, None)
        if kind == "DaemonSet":
            pod = actual["spec"]["template"]["spec"]
            container = pod["containers"][0]
            expect("the agent has the chart's image", container["image"].startswith("registry.example.com/cketerm@sha256:"))
            expect_equal("arguments of the agent", container["args"].pop(), "--poll=300")
            expect_equal("the agent's own values", (pod.pop("imagePullSecrets"), pod.pop("nodeSelector")),
                         ([{"name": "registry"}], {"kubernetes.io/os": "linux"}))
            container["image"] = expected["spec"]["template"]["spec"]["containers"][0]["image"]
        for item in (actual, expected):
            for field in SERVER_FIELDS:
                item["metadata"].pop(field, None)
            item["metadata"] = {k: v for k, v in item["metadata"].items() if v != {}}
        expect_equal(f"the agent's {kind} is that of docs/agent.yaml", actual, expected)


def alerts(environment, rule):
    text = "".join(f"  {line}\n" for line in (ROOT / "docs/alerts.yaml").read_text().splitlines())
    head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: expected, namespace: ops}\nspec:\n"
    expected = on_server(environment, head + text)[0]["spec"]
    expect_equal("rules of docs/alerts.yaml", rule["spec"], expected)
    expect("there are rules", len(expected["groups"][0]["rules"]) > 10)


def metrics_table():
    """Name: labels, of docs/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def panels():
    return json.loads((CHART / "files/dashboard.json").read_text())["panels"]


def expressions():
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


def dashboard(config_map):
    expect_equal("the dashboard has Grafana's label", config_map["metadata"]["labels"]["grafana_dashboard"], "1")
    expect_equal("the dashboard is the chart's file", json.loads(config_map["data"]["cketerm.json"])["panels"], panels())
    known, used, wrong = metrics_table(), set(), []
    for panel in panels():
        for target in panel.get("targets", []):
            names = {re.sub("_(bucket|count|sum)$", "", n) if n not in known else n
                     for n in re.findall(r"\b(?:cke|cketerm)_\w+", target["expr"])}
            used |= names
            wrong += [f"{panel['title']}: {name}" for name in names - set(known)]
            asked = {l for group in re.findall(r"(?:by|without) \(([\w, ]+)\)", target["expr"]) for l in group.split(", ")}
            asked |= set(re.findall(r"(\w+)(?:=~|!=|=)\"", target["expr"]))
            asked |= set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"}
            given = set().union(*(known.get(name, set()) for name in names))
            wrong += [f"{panel['title']}: label {label}" for label in asked - given]
    expect("the panels use only metrics and labels of docs/metrics.md", not wrong and len(used) > 15, wrong)
    cells = [(x, y) for at in (panel["gridPos"] for panel in panels())
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    expect("no panel covers another one or leaves the 24 columns", len(cells) == len(set(cells)) and max(cells)[0] < 24)


def pods(environment, found):
    deployment = one(found["default"], "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    expect_equal("two replicas, one after the other", (deployment["replicas"], deployment["strategy"]["rollingUpdate"]),
                 (2, {"maxSurge": 0, "maxUnavailable": 1}))
    term = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    expect_equal("each on a node of its own", (term["topologyKey"], term["labelSelector"]["matchLabels"]),
                 ("kubernetes.io/hostname", deployment["selector"]["matchLabels"]))
    grace = [one(found[name], "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for name in NAMES[:2]]
    expect_equal("the grace period is 75 s longer than the longest command", grace, [375, 3675])
    documented = re.search(r"terminationGracePeriodSeconds: (\d+)", (ROOT / "docs/packaging.md").read_text()).group(1)
    expect_equal("it is that of docs/packaging.md", str(grace[0]), documented)
    container = pod["containers"][0]
    expect_equal("the probes", (container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"]),
                 ("/healthz", "/readyz"))
    expect("neither the host's processes nor shared ones", not any(
        pod.get(field) for field in ("hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace")))
    expect_equal("the root file system is read-only", container["securityContext"]["readOnlyRootFilesystem"], True)
    # The API server judges pods, not Deployments.
    for what, name, arguments, allowed in (("an emptyDir", "restricted", [], True),
                                           ("a hostPath", "restricted", ["--set", "state.type=hostPath"], False)):
        text = template(name, *arguments, namespace="strict").stdout
        spec = one(on_server(environment, text), "Deployment")["spec"]["template"]["spec"]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "strict"}, "spec": spec}
        answer = on_server(environment, json.dumps(body), check=False)
        expect(f"PodSecurity restricted {'accepts' if allowed else 'refuses'} a pod with {what}",
               isinstance(answer, list) == allowed and (allowed or "hostPath" in answer), answer)


def configuration(found, program, account):
    """The configuration files are what `cketerm config check` accepts."""
    for name in NAMES[:2]:
        data = one(found[name], "Secret")
        with tempfile.TemporaryDirectory() as folder:
            for file, text in data["data"].items():
                text = base64.b64decode(text).decode()
                if file == "config.yaml":
                    expect(f"in_cluster is set, {name}.yaml", "in_cluster: true" in text, text)
                # the places that they have in the pod, and an account where there is no pod
                text = text.replace("/etc/cketerm/", f"{folder}/").replace("in_cluster: true", f"kubeconfig: {account}")
                Path(folder, file).write_text(text)
                Path(folder, file).chmod(0o600)
            done = run(program, "config", "check", Path(folder, "config.yaml"), check=False)
            expect(f"cketerm config check, {name}.yaml", done.returncode == 0, done.stdout + done.stderr)
            with Path(folder, "config.yaml").open("a") as file:
                file.write("unknown: 1\n")
            done = run(program, "config", "check", Path(folder, "config.yaml"), check=False)
            expect(f"an unknown setting is refused, {name}.yaml", done.returncode != 0)
