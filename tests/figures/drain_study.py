#!/usr/bin/env python3
"""Are the answers of `rq plan` about drains right? Measured on random clusters of a real control plane.

usage: tests/figures/drain_study.py [PROGRAM] [--seeds 200] [--from 1] [--policy JSON] [--processes N] [--write docs/drains.md]
       tests/figures/drain_study.py [PROGRAM] --seed N... [--keep]  (PROGRAM: default target/shipped/cketerm)

Starts etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok once. Each seed makes a cluster of 4 to 10 nodes, asks
`cketerm rq plan -o json`, and then does to the cluster what was asked about:

  refusals   Does the plan name the pods whose eviction is refused? A dry run of each eviction answers.
  causes     Can a budget that refuses ever open? All its pods are made healthy: unready pods and nodes become Ready, cordoned nodes are
             uncordoned, pods without a node get one. Positive: the disruption controller then allows an eviction.
  landing    Do the pods of a node, or of a wave of two or three, find another node? The nodes are cordoned and their pods deleted (not
             evicted: budgets do not matter here). Positive: a controller has fewer pods on nodes than before, and one that the scheduler
             refuses. Counted per drain, and per pod.
  waves      May two nodes go together? No budget over pods of both refuses at first. The pods of the first are evicted while no
             replacement becomes Ready. Positive: a dry run of the second is then refused that was not before. If all its dry runs pass but
             its evictions do not, the pair is counted apart.

No rule of cketerm is repeated here: controllers and the scheduler give every answer. Prints a JSON line per seed and a table at the end.
A seed gives the same objects; the scheduler places their pods at random among equal nodes. `--keep` stops before anything is measured and
leaves the servers. Seeds from 10000 are for reports and stay unused during development:
the report of 2026-11-28 began with 10000, that of 2026-11-29 with 20000.
"""
import argparse, collections, json, multiprocessing, os, platform, random, re, signal, sys, textwrap, time

from study_servers import HELD, MERGE, STRATEGIC, Program, Servers, full_name, is_ready, node, owner, split, wait, write

NAMESPACES = ("shop", "data")
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ADDRESS = {f"n{i}": f"10.1.0.{i + 1}" for i in range(10)}
NOT_READY = [{"key": "node.kubernetes.io/not-ready", "effect": e} for e in ("NoSchedule", "NoExecute")]
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


class Cluster:
    """Objects of one seed."""

    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.features, self.workloads, self.objects, self.groups = collections.Counter(), [], [], set()
        zones = "abc"[:r.choice((2, 3, 3))]
        self.nodes = {}
        for i in range(r.randint(4, 10)):
            name = f"n{i}"
            labels = {ZONE: zones[i % len(zones)], "disk": r.choice(("ssd", "ssd", "hdd")), "pool": r.choice("xy")}
            taints = [DEDICATED] if i > 2 and r.random() < 0.15 else []
            self.nodes[name] = {"labels": labels, "taints": taints, "cpu": r.choice((4, 4, 8)), "pods": r.choice((110, 110, 110, 9)), "ready": True, "cordoned": False}
        self.zones = zones
        target = r.uniform(0.25, 0.75) * sum(n["cpu"] for n in self.nodes.values()) * 1000
        used = 0
        while used < target and len(self.workloads) < 14:
            used += self.workload(f"w{len(self.workloads)}")
        if r.random() < 0.3:
            self.daemon_set()
        for w in self.workloads:
            self.budgets(w)
        if r.random() < 0.25:
            self.feature("budget: matches nothing")
            self.budget("nothing", r.choice(NAMESPACES), {"matchLabels": {"app": "nobody"}}, {"minAvailable": 1})
        for name, n in self.nodes.items():
            if r.random() < 0.08:
                self.feature("node: NotReady")
                n["ready"] = False
            elif r.random() < 0.08:
                self.feature("node: cordoned")
                n["cordoned"] = True

    def feature(self, name):
        self.features[name] += 1

    def workload(self, name):
        """Adds a workload and its volumes; returns the CPU it requests, in thousandths."""
        r = self.random
        kind = r.choices(("Deployment", "StatefulSet", "ReplicaSet", "Pod"), (50, 28, 12, 10))[0]
        replicas = r.choices((1, 2, 3, 4, 5), (25, 25, 30, 10, 10))[0]
        cpu = r.choices((100, 500, 1000, 2000, 3000), (20, 30, 25, 18, 7))[0]
        labels, namespace = {"app": name}, r.choice(NAMESPACES)
        if r.random() < 0.15:
            labels["group"] = "shared"
        spec = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "registry.local/pause:1", "resources": {
            "requests": {"cpu": f"{cpu}m", "memory": r.choice(("64Mi", "512Mi", "2Gi"))}}}]}
        own = {"matchLabels": {"app": name}}
        self.feature(kind)
        for constraint in r.sample(("selector", "affinity", "spread", "anti", "none", "none", "none", "none"), r.choice((1, 1, 2))):
            if constraint == "selector":
                self.feature("node selector")
                spec["nodeSelector"] = r.choice(({ZONE: r.choice(self.zones)}, {"disk": "ssd"}, {"disk": "hdd"}, {"pool": "x"}, {"pool": "x", "disk": "ssd"}))
            elif constraint == "affinity":
                self.feature("node affinity")
                hosts = r.sample(list(self.nodes), r.randint(2, 4))
                expression = r.choice(({"key": ZONE, "operator": "NotIn", "values": [r.choice(self.zones)]}, {"key": HOST, "operator": "In", "values": hosts},
                                       {"key": "pool", "operator": "Exists"}))
                spec.setdefault("affinity", {})["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            elif constraint == "spread" and kind != "Pod":
                self.feature("topology spread")
                spec["topologySpreadConstraints"] = [{"maxSkew": r.choice((1, 1, 2)), "topologyKey": r.choice((ZONE, HOST)), "whenUnsatisfiable": "DoNotSchedule", "labelSelector": own}]
            elif constraint == "anti" and kind != "Pod":
                self.feature("pod anti-affinity")
                other = {"matchLabels": {"app": r.choice(self.workloads)["name"]}} if self.workloads and r.random() < 0.2 else own
                key = ZONE if r.random() < 0.2 else HOST
                spec.setdefault("affinity", {})["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": other, "topologyKey": key}]}
        if r.random() < 0.2:
            self.feature("toleration")
            spec["tolerations"] = [DEDICATED | {"operator": "Equal"}]
        if r.random() < 0.07:
            self.feature("priority")
            spec["priorityClassName"] = "high"
        if r.random() < 0.08:
            self.feature("cannot be scheduled")
            if r.random() < 0.5:
                spec["nodeSelector"] = {"disk": "none"}
            else:
                spec["containers"][0]["resources"]["requests"]["cpu"] = "64"
            cpu = 0
        template = {"metadata": {"labels": labels}, "spec": spec}
        w = {"name": name, "namespace": namespace, "kind": kind, "replicas": replicas, "labels": labels, "spec": spec, "sick": None}
        if kind == "StatefulSet" and r.random() < 0.35:
            self.volumes(w)
        if r.random() < 0.45:
            reason = r.choices(("CrashLoopBackOff", "ImagePullBackOff", "not ready"), (50, 20, 30))[0]
            self.feature(f"unhealthy: {reason}")
            w["sick"] = [reason, r.choice((1, 1, replicas))]
        metadata = {"name": name, "namespace": namespace}
        if kind == "Pod":
            for i in range(replicas):
                self.objects.append((f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": f"{name}-{i}", "labels": labels}, "spec": spec}))
        else:
            body = {"metadata": metadata, "spec": {"replicas": replicas, "selector": own, "template": template}}
            if kind == "StatefulSet":
                body["spec"] |= {"serviceName": name, "podManagementPolicy": r.choice(("Parallel", "OrderedReady"))}
                if "claims" in w:
                    body["spec"]["volumeClaimTemplates"] = [w["claims"]]
            self.objects.append((f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s", body))
        self.workloads.append(w)
        return cpu * replicas

    def volumes(self, w):
        """Bound pairs of claims and volumes: local ones, or ones of a zone."""
        r, name, namespace = self.random, w["name"], w["namespace"]
        local = r.random() < 0.6
        self.feature("volume: local" if local else "volume: of a zone")
        size = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"}
        w["claims"] = {"metadata": {"name": "d"}, "spec": size | {"resources": {"requests": {"storage": "1Gi"}}}}
        hosts = r.sample(list(self.nodes), min(w["replicas"], len(self.nodes)))
        for i in range(w["replicas"]):
            claim, volume = f"d-{name}-{i}", f"{namespace}-{name}-{i}"
            host = hosts[i % len(hosts)]
            value = [HOST, host] if local else [ZONE, r.choice(self.zones)]
            source = {"local": {"path": "/mnt/d"}} if local else {"csi": {"driver": "study.local", "volumeHandle": volume}}
            affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": value[0], "operator": "In", "values": [value[1]]}]}]}}
            self.objects.append(("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": size | source | {
                "capacity": {"storage": "1Gi"}, "nodeAffinity": affinity, "claimRef": {"namespace": namespace, "name": claim}}}))
            bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
            self.objects.append((f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", {
                "metadata": {"name": claim, "annotations": bound}, "spec": w["claims"]["spec"] | {"volumeName": volume}}))

    def daemon_set(self):
        self.feature("DaemonSet")
        labels = {"app": "agent"}
        spec = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "registry.local/pause:1", "resources": {"requests": {"cpu": "50m"}}}]}
        self.objects.append(("/apis/apps/v1/namespaces/shop/daemonsets", {"metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}}))

    def budget(self, name, namespace, selector, limit):
        spec = {"selector": selector} | limit
        if self.random.random() < 0.15:
            self.feature("budget: AlwaysAllow")
            spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
        self.objects.append((f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec}))

    def budgets(self, w):
        r, n = self.random, w["replicas"]
        group = (w["namespace"], w["labels"].get("group"))
        if group in self.groups or r.random() > (0.9 if w["sick"] else 0.65):
            return
        limits = {"minAvailable: all": {"minAvailable": n}, "minAvailable: all but one": {"minAvailable": max(n - 1, 1)}, "minAvailable: 1": {"minAvailable": 1},
                  "minAvailable: more than all": {"minAvailable": n + 1}, "minAvailable: percent": {"minAvailable": r.choice(("50%", "100%"))},
                  "maxUnavailable: 0": {"maxUnavailable": 0}, "maxUnavailable: 1": {"maxUnavailable": 1}, "maxUnavailable: percent": {"maxUnavailable": r.choice(("20%", "50%"))}}
        # the healthy replicas that are needed are fewer than all for most workloads with unhealthy pods
        weights = (4, 22, 8, 2, 12, 4, 42, 14) if w["sick"] else (8, 20, 8, 3, 12, 8, 35, 14)
        kind = r.choices(list(limits), weights)[0]
        self.feature(f"budget: {kind}")
        shared = "group" in w["labels"]
        if shared:
            self.groups.add(group)
            self.feature("budget: over several workloads")
        self.budget(w["name"], w["namespace"], {"matchLabels": {"group": "shared"} if shared else {"app": w["name"]}}, limits[kind])
        if r.random() < 0.07:
            self.feature("budget: two over a pod")
            self.budget(w["name"] + "-b", w["namespace"], {"matchLabels": {"app": w["name"]}}, {"maxUnavailable": 1})


def over(pod, budgets):
    """Names of the budgets that select this pod."""
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels", {}).items()
    return sorted(k for k, b in budgets.items() if b["metadata"]["namespace"] == namespace and b["spec"]["selector"]["matchLabels"].items() <= labels)


class Site:
    """The running cluster of one seed: what it looks like, and what is done to it."""

    def __init__(self, servers, cluster):
        self.servers, self.api, self.cluster = servers, servers.api, cluster

    # what it looks like

    def pods(self):
        return [p for p in self.api.list("/api/v1/pods") if "deletionTimestamp" not in p["metadata"]]

    def budgets(self):
        return {full_name(b): b for b in self.api.list("/apis/policy/v1/poddisruptionbudgets")}

    def drained_pods(self, name, pods):
        """Pods that a drain of this node removes."""
        return [p for p in pods if p["spec"].get("nodeName") == name and not (owner(p) or "").startswith("DaemonSet/")]

    def is_quiet(self, ready=True):
        """Each controller has made its pods, and the scheduler has answered for all of them."""
        pods = self.api.list("/api/v1/pods")
        if any("deletionTimestamp" in p["metadata"] for p in pods):
            return False
        waiting = [p for p in pods if not p["spec"].get("nodeName")]
        queues = self.servers.scheduler_queues()
        if queues["active"] or queues["backoff"] or queues["unschedulable"] + queues["gated"] != len(waiting):
            return False
        if any(not any(c["type"] == "PodScheduled" and c["status"] == "False" for c in p["status"].get("conditions", [])) for p in waiting):
            return False
        if ready and any(p["spec"].get("nodeName") and not is_ready(p) and HELD not in p["metadata"].get("annotations", {}) for p in pods):
            return False
        by_owner = collections.Counter((p["metadata"]["namespace"], owner(p)) for p in pods)
        unready = {(p["metadata"]["namespace"], owner(p)) for p in pods if not is_ready(p)}
        sets = self.api.list("/apis/apps/v1/replicasets")
        owned = {(s["metadata"]["namespace"], owner(s)) for s in sets}
        for d in self.api.list("/apis/apps/v1/deployments"):
            if (d["metadata"]["namespace"], "Deployment/" + d["metadata"]["name"]) not in owned:
                return False
        for kind, items in (("ReplicaSet", sets), ("StatefulSet", self.api.list("/apis/apps/v1/statefulsets"))):
            for s in items:
                key = (s["metadata"]["namespace"], f"{kind}/{s['metadata']['name']}")
                if s["spec"].get("podManagementPolicy") == "OrderedReady" and key in unready:
                    continue  # creates no further pod before this one is Ready
                if by_owner[key] != s["spec"]["replicas"]:
                    return False
        return True

    def settle(self, seconds=20, ready=True):
        """Waits for two quiet looks in a row; false if the time is over."""
        until = time.monotonic() + seconds
        seen = 0
        while seen < 2:
            if time.monotonic() > until:
                return False
            seen = seen + 1 if self.is_quiet(ready) else 0
            time.sleep(0.08)
        return True

    def wait_for_budgets(self):
        """Waits until the disruption controller has counted the pods as they are now. Of several budgets over a pod it counts only one
        again when the pod changes."""
        def is_counted():
            pods, budgets = self.pods(), self.budgets()
            several = {b for p in pods for b in over(p, budgets) if len(over(p, budgets)) > 1}
            for name, budget in budgets.items():
                if name in several:
                    continue
                status = budget.get("status", {})
                if status.get("observedGeneration") != budget["metadata"].get("generation"):
                    return False
                if any(c["reason"] == "SyncFailed" for c in status.get("conditions", [])):
                    continue
                mine = [p for p in pods if name in over(p, budgets)]
                if status.get("disruptedPods") or status.get("currentHealthy") != sum(map(is_ready, mine)):
                    return False
            return True
        return wait(is_counted, 8)

    # what is done to it

    def build(self):
        for name, n in self.cluster.nodes.items():
            self.api.do("POST", "/api/v1/nodes", node(name, ADDRESS[name], n["labels"], cpu=str(n["cpu"]), pods=str(n["pods"]), taints=n["taints"]), accept=())
        wait(lambda: all(map(is_ready, self.api.list("/api/v1/nodes"))), 20)
        for path, body in self.cluster.objects:
            made = self.api.do("POST", path, body, accept=())
            if path.endswith(("persistentvolumes", "persistentvolumeclaims")):
                self.api.do("PATCH", f"{path}/{made['metadata']['name']}/status", {"status": {"phase": "Bound"}}, MERGE)
        return self.settle()

    def clear(self):
        """Deletes everything of the seed and waits until it is gone."""
        background = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        for kind in ("deployments", "statefulsets", "daemonsets", "replicasets"):
            for namespace in NAMESPACES:
                self.api.do("DELETE", f"/apis/apps/v1/namespaces/{namespace}/{kind}", background)
        for namespace in NAMESPACES:
            self.api.do("DELETE", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", background)

        def is_empty():
            for namespace in NAMESPACES:
                self.api.do("DELETE", f"/api/v1/namespaces/{namespace}/pods", background)
            left = self.api.list("/api/v1/pods") + self.api.list("/apis/apps/v1/replicasets") + self.api.list("/apis/apps/v1/statefulsets")
            return not left
        wait(is_empty, 30)
        for path in [f"/api/v1/namespaces/{n}/persistentvolumeclaims" for n in NAMESPACES] + ["/api/v1/persistentvolumes"]:
            for thing in self.api.list(path):
                # no controller is there to remove the finalizers
                self.api.do("PATCH", f"{path}/{thing['metadata']['name']}", {"metadata": {"finalizers": None}}, MERGE)
                self.api.do("DELETE", f"{path}/{thing['metadata']['name']}")
        for n in self.cluster.nodes:
            self.api.do("DELETE", f"/api/v1/nodes/{n}")
        gone = wait(lambda: not any(self.servers.scheduler_queues().values()) and len(self.api.list("/api/v1/nodes")) == 1, 20)
        if not gone:
            raise RuntimeError("the cluster of the last seed does not go away")

    def patch_pod_status(self, pod, reason):
        """Makes this pod healthy (`None`) or unhealthy."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self.api.do("PATCH", path, {"metadata": {"annotations": {HELD: reason}}}, MERGE)
        waits = {"waiting": {"reason": reason, "message": f"back-off: {reason}"}}
        runs = {"running": {"startedAt": pod["status"].get("startTime", "2026-01-01T00:00:00Z")}}
        good = "False" if reason else "True"
        container = {"name": "c", "image": "registry.local/pause:1", "imageID": "", "ready": not reason, "restartCount": 7 if reason == "CrashLoopBackOff" else 0,
                     "state": waits if (reason or "").endswith("BackOff") else runs}
        conditions = [{"type": t, "status": good, "reason": "ContainersNotReady" if reason else None} for t in ("Ready", "ContainersReady")]
        if reason == "NodeNotReady":  # as the node lifecycle controller does: it knows nothing of containers
            container |= {"ready": True, "state": runs}
            conditions = [{"type": "Ready", "status": "False"}]
        status = {"phase": "Pending" if reason == "ImagePullBackOff" else "Running", "conditions": conditions, "containerStatuses": [container]}
        self.api.do("PATCH", path + "/status", {"status": status}, STRATEGIC)

    def set_node(self, name, ready=True, cordoned=False):
        """Makes a node Ready or not, schedulable or not. No node lifecycle controller runs beside kwok, so its taints and the conditions of
        the node's pods are written here."""
        spec = {"taints": self.cluster.nodes[name]["taints"] + ([] if ready else NOT_READY), "unschedulable": cordoned or None}
        self.api.do("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {HELD: None if ready else "NotReady"}}, "spec": spec}, MERGE)
        if not ready:
            condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"}
            self.api.do("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
        for pod in self.pods():
            held = pod["metadata"].get("annotations", {}).get(HELD)
            if pod["spec"].get("nodeName") == name and (held == "NodeNotReady" if ready else not held):
                self.patch_pod_status(pod, None if ready else "NodeNotReady")
        return wait(lambda: is_ready(self.api.do("GET", f"/api/v1/nodes/{name}")) == ready, 10)

    def set_nodes(self, healthy=False):
        for name, n in self.cluster.nodes.items():
            if not (n["ready"] and not n["cordoned"]):
                self.set_node(name, healthy or n["ready"], not healthy and n["cordoned"])

    def sicken(self):
        """Makes pods unhealthy as the seed has it."""
        pods = self.pods()
        for w in self.cluster.workloads:
            if w["sick"]:
                mine = [p for p in pods if p["metadata"]["namespace"] == w["namespace"] and p["metadata"].get("labels", {}).get("app") == w["name"]]
                mine = [p for p in mine if p["spec"].get("nodeName") and is_ready(p)]
                for pod in sorted(mine, key=full_name)[:w["sick"][1]]:
                    self.patch_pod_status(pod, w["sick"][0])

    def heal(self):
        """Makes every pod healthy; returns those that were put on a node although the scheduler found none."""
        forced, nodes = [], sorted(self.cluster.nodes)
        self.set_nodes(healthy=True)
        self.settle(5, ready=False)
        until = time.monotonic() + 15
        while time.monotonic() < until:
            pods = self.pods()
            for pod in pods:
                if not pod["spec"].get("nodeName"):
                    target = {"apiVersion": "v1", "kind": "Node", "name": nodes[len(forced) % len(nodes)]}
                    forced.append(pod)
                    self.api.do("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/binding",
                                {"metadata": {"name": pod["metadata"]["name"]}, "target": target})
                elif pod["metadata"].get("annotations", {}).get(HELD):
                    self.patch_pod_status(pod, None)
            if all(p["spec"].get("nodeName") and is_ready(p) for p in pods) and self.is_quiet():
                return forced
            time.sleep(0.1)
        raise RuntimeError("the pods do not become healthy")

    def delete_pods(self, pods):
        for pod in pods:
            self.api.do("DELETE", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}",
                        {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})


def plan(program, names):
    """The answer of `rq plan`, by node."""
    out = json.loads(program.run("rq", "plan", "-o", "json", *names))
    return {row["name"]: row for row in (out if isinstance(out, list) else out["nodes"])}


def measure_refusals(site, rows):
    """Compares blockers with a dry run of every eviction. Returns cases of pods and the refused ones."""
    pods, cases, refused = site.pods(), [], {}
    for name, row in rows.items():
        drain = row.get("drain") or {}
        named = {b["pod"]: b["why"] for b in drain.get("blockers", [])}
        for pod in site.drained_pods(name, pods):
            code, message = site.api.evict(pod, dry_run=True)
            if code >= 300:
                refused[full_name(pod)] = (code, message)
            answer = None if not row.get("drain") else full_name(pod) in named
            cases.append({"pod": full_name(pod), "node": name, "truth": code >= 300, "answer": answer, "code": code, "why": named.get(full_name(pod))})
    return cases, refused


def measure_causes(site, rows, refused):
    """Heals everything and looks whether each refusing budget opens."""
    budgets, pods = site.budgets(), {full_name(p): p for p in site.pods()}
    predicted = {}  # budgets of a blocker: its answer
    for row in rows.values():
        for b in (row.get("drain") or {}).get("blockers", []):
            why = b["why"]
            if why["kind"] == "budget":
                predicted.setdefault(why["budget"], why.get("cause"))
            elif why["kind"] == "many_budgets":
                predicted.setdefault(" ".join(sorted(why["budgets"])), {"opens": {"kind": "never"}})
    cases = {}
    for name, (code, _) in refused.items():
        those = over(pods[name], budgets)
        cases.setdefault(" ".join(those), {"budget": " ".join(those), "pod": name, "code": code, "before": [budgets[b]["status"] for b in those],
                                           "spec": [budgets[b]["spec"] for b in those]})
    if not cases:
        return []
    forced = site.heal()
    site.wait_for_budgets()
    now = site.budgets()
    healed = {full_name(p): p for p in site.pods()}
    for key, case in cases.items():
        names = key.split()
        if len(names) == 1:
            case["truth"] = now[key]["status"]["disruptionsAllowed"] > 0
        else:
            code, _ = site.api.evict(healed[case["pod"]], dry_run=True) if case["pod"] in healed else (500, "")
            case["truth"] = code < 300
        case["after"] = [now[b]["status"] for b in names]
        cause = predicted.get(key)
        kind = ((cause or {}).get("opens") or {}).get("kind")
        case["answer"] = {"never": False, "when_healthy": True, "unknown": "uncertain"}.get(kind)
        case["cause"] = cause
    site.delete_pods(forced)
    return list(cases.values())


def placed(pods):
    """Number of pods on nodes and of pods without one, by controller."""
    on, off = collections.Counter(), collections.Counter()
    for p in pods:
        (on if p["spec"].get("nodeName") else off)[(p["metadata"]["namespace"], owner(p))] += 1
    return on, off


def measure_landing(site, program, names):
    """Takes the first wave of these nodes away and looks where their pods go. `None` if it cannot be measured."""
    rows = plan(program, names)
    first = min((r["wave"] for r in rows.values() if r.get("wave")), default=None)
    if first is None:
        return None
    names = [n for n, r in rows.items() if r.get("wave") == first]
    before = site.pods()
    leaving = [p for n in names for p in site.drained_pods(n, before)]
    on_before, _ = placed(before)
    gone = collections.Counter((p["metadata"]["namespace"], owner(p)) for p in leaving if owner(p))
    if not gone:
        return None
    for name in names:
        site.set_node(name, site.cluster.nodes[name]["ready"], cordoned=True)
    site.delete_pods(leaving)
    if not site.settle():
        restore(site, names)
        return {"nodes": names, "truth": None, "unmeasured": "not quiet"}
    after = site.pods()
    on, off = placed(after)
    case = {"nodes": names, "controllers": {}, "truth": False}
    landing = [rows[n].get("landing") for n in names]
    per_pod = {p["pod"]: p for l in landing if l for p in l["pods"]}
    case["pods"] = {"definite": 0, "wrong": 0, "uncertain": 0, "no_answer": 0, "not_landed": 0, "count": 0}
    for key, count in gone.items():
        landed = on[key] - (on_before[key] - count)
        stuck = landed < count and not off[key]  # an OrderedReady set waits for another of its pods: the scheduler was not asked
        predicted = collections.Counter((per_pod.get(full_name(p)) or {}).get("answer") for p in leaving if (p["metadata"]["namespace"], owner(p)) == key)
        case["controllers"]["/".join(map(str, key))] = {"left": count, "landed": landed, "stuck": stuck, "predicted": {str(k): v for k, v in predicted.items()}}
        if stuck:
            continue
        case["truth"] = case["truth"] or landed < count
        open_, fits = predicted["uncertain"], predicted["fits"]
        case["pods"]["count"] += count
        case["pods"]["not_landed"] += max(0, count - landed)
        if predicted[None]:
            case["pods"]["no_answer"] += count
        else:
            case["pods"]["uncertain"] += open_
            case["pods"]["definite"] += count - open_
            wrong = max(0, fits - landed) + max(0, landed - fits - open_)
            case["pods"]["wrong"] += wrong
            case["controllers"]["/".join(map(str, key))]["wrong"] = wrong
    if not case["truth"] and any(c["stuck"] for c in case["controllers"].values()):
        case |= {"truth": None, "unmeasured": "a set waits for another of its pods"}
    answers = [l["answer"] if l else None for l in landing]
    case["answer"] = None if None in answers else True if "cannot" in answers else "uncertain" if "uncertain" in answers else False
    case["why"] = {p: a for p, a in per_pod.items() if a["answer"] != "fits"}
    case["refused"] = {full_name(p): next((c.get("message") for c in p["status"].get("conditions", []) if c["type"] == "PodScheduled"), None)
                       for p in after if not p["spec"].get("nodeName") and (p["metadata"]["namespace"], owner(p)) in gone}
    restore(site, names)
    return case


def restore(site, names):
    for name in names:
        site.set_node(name, site.cluster.nodes[name]["ready"], site.cluster.nodes[name]["cordoned"])
    site.settle()


def measure_pair(site, program, pair):
    """Evicts the pods of the first node, then tries those of the second. `None` if a budget over pods of both refuses now."""
    pods, budgets = site.pods(), site.budgets()
    leaving, refusing, covers = {n: site.drained_pods(n, pods) for n in pair}, set(), {}
    refused_now = set()
    for n in pair:
        covers[n] = {b for p in leaving[n] for b in over(p, budgets)}
        for p in leaving[n]:
            if site.api.evict(p, dry_run=True)[0] >= 300:
                refused_now.add(full_name(p))
                refusing.update(over(p, budgets))
    if refusing & covers[pair[0]] & covers[pair[1]]:
        return None
    rows = plan(program, pair)
    waves = [rows[n].get("wave") if n in rows else None for n in pair]
    same_zone = len({site.cluster.nodes[n]["labels"][ZONE] for n in pair}) == 1
    case = {"nodes": pair, "waves": waves, "same_zone": same_zone, "answer": None if None in waves else waves[0] != waves[1]}
    site.servers.one("freeze", "kwok")  # no replacement becomes Ready
    try:
        for n in pair:
            site.set_node(n, site.cluster.nodes[n]["ready"], cordoned=True)
        first = {full_name(p): site.api.evict(p)[0] for p in leaving[pair[0]]}
        site.settle(10, ready=False)
        site.wait_for_budgets()
        second = {full_name(p): site.api.evict(p, dry_run=True) for p in leaving[pair[1]]}
        refused = {p: m for p, (code, m) in second.items() if code >= 300 and code != 404 and p not in refused_now}
        case |= {"truth": bool(refused), "refused": refused, "first": first}
        if not refused:
            case["partly"] = any(site.api.evict(p)[0] not in (201, 404) for p in leaving[pair[1]] if full_name(p) not in refused_now)
            if case["partly"]:
                case["truth"] = None
    finally:
        site.servers.one("thaw", "kwok")
    restore(site, pair)
    return case


def pairs_of(site):
    """Pairs of ready nodes with protected pods, in random order: more often those whose common budget allows few evictions."""
    r, pods, budgets = site.cluster.random, site.pods(), site.budgets()
    covers = {n: collections.Counter(b for p in site.drained_pods(n, pods) for b in over(p, budgets)) for n in site.cluster.nodes}
    able = sorted(n for n in covers if covers[n] and site.cluster.nodes[n]["ready"])
    pairs = [[a, b] for i, a in enumerate(able) for b in able[i + 1:]]
    is_tight = lambda a, b: any(n in covers[b] and 0 < budgets[n]["status"]["disruptionsAllowed"] <= count for n, count in covers[a].items())
    tight, others = [p for p in pairs if is_tight(*p)], [p for p in pairs if not is_tight(*p)]
    r.shuffle(tight), r.shuffle(others)
    mixed = []
    while tight or others:
        mixed.append((tight if tight and (not others or r.random() < 0.7) else others).pop())
    return mixed


def study(servers, program, seed, keep):
    began, cluster = time.monotonic(), Cluster(seed)
    site, r = Site(servers, cluster), cluster.random
    result = {"seed": seed, "nodes": len(cluster.nodes), "features": dict(cluster.features), "refusals": [], "causes": [], "landing": [], "waves": []}
    try:
        if not site.build():
            result["unsettled"] = True
        site.sicken()
        site.set_nodes()
        site.settle()
        site.wait_for_budgets()
        rows = plan(program, list(cluster.nodes))
        if keep:
            print(json.dumps(rows, indent=1))
            return result
        result["refusals"], refused = measure_refusals(site, rows)
        result["causes"] = measure_causes(site, rows, refused)
        if not refused:
            site.heal()
        site.set_nodes()
        site.settle()
        site.wait_for_budgets()
        ready = [n for n in cluster.nodes if cluster.nodes[n]["ready"]]
        for count in (1, 1, r.choice((2, 3))):
            case = measure_landing(site, program, r.sample(ready, min(count, len(ready))))
            if case:
                result["landing"].append(case)
        site.set_nodes(healthy=True)
        for pod in site.pods():
            if pod["metadata"].get("annotations", {}).get(HELD):
                site.patch_pod_status(pod, None)
        site.set_nodes()
        site.settle()
        site.wait_for_budgets()
        for pair in pairs_of(site)[:8]:
            case = measure_pair(site, program, pair)
            if case:
                result["waves"].append(case)
            if len(result["waves"]) == 2:
                break
            site.wait_for_budgets()
    finally:
        if not keep:
            site.clear()
    result["seconds"] = round(time.monotonic() - began, 1)
    return result


CLASSES = {"refusals": ("plan names the pods that are refused", "refused"), "causes": ("a refusing budget can open", "opens"),
           "landing": ("pods of a drain cannot land", "cannot"), "waves": ("two nodes may not go together", "may not")}


class Score:
    def __init__(self):
        self.by = {c: collections.Counter() for c in CLASSES}
        self.pods, self.features, self.seeds = collections.Counter(), collections.Counter(), 0
        self.failed = 0

    def add(self, result):
        """Counts the cases of a seed; returns its wrong ones."""
        self.seeds += 1
        self.features.update({f: 1 for f in result["features"]})
        wrong = []
        for name, by in self.by.items():
            for case in result[name]:
                if case["truth"] is None:
                    by["partly" if case.get("partly") else "unmeasured"] += 1
                    continue
                by["cases"] += 1
                by["positive"] += case["truth"]
                kind = "no answer" if case["answer"] is None else "uncertain" if case["answer"] == "uncertain" else "right" if case["answer"] == case["truth"] else "wrong"
                by[kind] += 1
                if kind == "wrong":
                    wrong.append({"class": name} | case)
        for case in result["landing"]:
            self.pods.update(case.get("pods", {}))
        return wrong

    def include(self, other):
        """Adds the counts of another process."""
        for name, by in self.by.items():
            by.update(other.by[name])
        self.pods.update(other.pods)
        self.features.update(other.features)
        self.seeds += other.seeds
        self.failed += other.failed

    def rows(self):
        percent = lambda part, whole: f"{100 * part / whole:.1f} %" if whole else "–"
        for name, (title, positive) in CLASSES.items():
            by = self.by[name]
            yield (title, by["cases"], f"{percent(by['positive'], by['cases'])} {positive}", by["right"], by["wrong"], by["uncertain"], by["no answer"],
                   percent(by["right"], by["right"] + by["wrong"]), percent(by["uncertain"], by["cases"]))
            if name == "landing":
                p = self.pods
                yield ("… per pod", p["count"], f"{percent(p['not_landed'], p['count'])} cannot", p["definite"] - p["wrong"], p["wrong"], p["uncertain"], p["no_answer"],
                       percent(p["definite"] - p["wrong"], p["definite"]), percent(p["uncertain"], p["count"]))

    def table(self, first, policy):
        machine = f"{os.cpu_count()} processors, {platform.system()} {platform.release()}"
        with_policy = f"policy {json.dumps(policy)}" if policy else "the default policy"
        head = f"{time.strftime('%Y-%m-%d')}, {self.seeds} clusters (seeds from {first}), {with_policy}, {machine}."
        text = textwrap.fill(head, 100) + "\n\n"
        text += "| question | cases | positive | right | wrong | uncertain | no answer | right of definite | uncertain of all |\n" + "| --- " * 9 + "|\n"
        text += "".join("| " + " | ".join(map(str, row)) + " |\n" for row in self.rows())
        apart = [f"{self.by['waves']['partly']} pairs of nodes drain together only in part"]
        apart += [f"{by['unmeasured']} cases of {name} could not be measured" for name, by in self.by.items() if by["unmeasured"]]
        if self.failed:
            apart.append(f"{self.failed} further seeds failed as a whole")
        text += "\n" + textwrap.fill(f"Counted apart: {'; '.join(apart)}.", 100) + "\n\n"
        mix = ", ".join(f"{f} {100 * n // self.seeds} %" for f, n in sorted(self.features.items()))
        return text + textwrap.fill(f"Share of the clusters with each feature: {mix}.", 100)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default="target/shipped/cketerm")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--seed", type=int, nargs="+", metavar="N")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--processes", type=int, default=1, help="clusters at the same time, each with servers of its own")
    parser.add_argument("--policy", type=json.loads, default={}, metavar="JSON", help='settings of the policy, for example {"api_server_order": "first"}')
    parser.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    if args.write:
        split(args.write, "drain-study")  # fails before anything is started
    seeds = args.seed or range(args.first, args.first + args.seeds)
    score = Score()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        if args.processes == 1:
            run(args, seeds, score)
        else:
            together(args, seeds, score)
    finally:
        if score.seeds and score.seeds + score.failed < len(seeds):
            print(f"\nonly {score.seeds + score.failed} of {len(seeds)} seeds:\n{score.table(seeds[0], args.policy)}")
    if score.seeds:
        table = score.table(seeds[0], args.policy)
        print("\n" + table)
        if args.write:
            write(args.write, "drain-study", table)


def together(args, seeds, score):
    """Shares the seeds out to several processes and adds up what they count."""
    context = multiprocessing.get_context("fork")
    counted, parts = context.Queue(), [seeds[i :: args.processes] for i in range(args.processes)]
    children = [context.Process(target=run_part, args=(args, part, counted)) for part in parts]
    for child in children:
        child.start()
    for _ in children:
        score.include(counted.get())
    for child in children:
        child.join()


def run_part(args, seeds, counted):
    score = Score()
    try:
        run(args, seeds, score)
    finally:
        score.failed = len(seeds) - score.seeds  # also those that were never begun
        counted.put(score)


def run(args, seeds, score):
    with Servers(keep=args.keep) as servers:
        program = Program(args.program, servers)
        for namespace in NAMESPACES:
            servers.api.do("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        servers.api.do("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        servers.api.do("POST", "/api/v1/nodes", node("cp", "10.1.9.1", {}, taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]))
        program.define(ADDRESS, 3, args.policy)
        left, tried = collections.deque(seeds), set()
        while left:
            seed = left.popleft()
            try:
                result = study(servers, program, seed, args.keep)
            except RuntimeError as why:
                print(json.dumps({"seed": seed, "failed": str(why)}), flush=True)
                if seed not in tried:  # on a busy machine pods become healthy too late: once more, after the others
                    tried.add(seed)
                    left.append(seed)
                else:
                    score.failed += 1
                continue
            if args.keep:
                return
            wrong = score.add(result)
            short = {k: v for k, v in result.items() if k not in CLASSES}
            print(json.dumps(short | {c: [[x["truth"], x["answer"]] for x in result[c]] for c in CLASSES}), flush=True)
            objects = Cluster(seed) if wrong else None
            for case in result["landing"]:  # pods of a drain that are wrong, even if the drain as a whole is right
                for controller, counts in case.get("controllers", {}).items():
                    if counts.get("wrong"):
                        print(f"WRONG PODS seed {seed}: {case['nodes']} {controller} {json.dumps(counts)} {json.dumps(case['why'])} {json.dumps(case['refused'])}", flush=True)
            for case in wrong:
                print(f"WRONG seed {seed}: {json.dumps(case)}")
            if wrong:
                print("  nodes: " + json.dumps(objects.nodes))
                for path, body in objects.objects:
                    if re.search(rf"\\b{body['metadata']['name'].split('-')[0]}\\b", json.dumps(wrong)):
                        print(f"  {path}: {json.dumps(body)}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
