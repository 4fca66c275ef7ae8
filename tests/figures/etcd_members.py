"""Three members of etcd for cketerm alone, and TCP proxies that misbehave. Used by `faults.py` and `linearizability.py`."""
import glob, json, os, signal, socket, subprocess, threading, time

from environment import Record, TTL, free_port


class TcpProxy:
    """TCP proxy to a server. Modes: `normal`, `slow` (half a second each way), `silent` (nothing arrives), `half` (the server's side is
    closed to the client, whose side stays open), `cut` (all connections closed, none accepted)."""

    def __init__(self, to):
        host, port = to.rsplit("//", 1)[-1].rsplit(":", 1)
        self.to, self.mode, self.pairs, self.lock = (host, int(port)), "normal", [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def mode_of(self, pair):
        """Mode of one connection."""
        return self.mode

    def pair(self, client, server):
        """A new connection."""
        return (client, server)

    def set_mode(self, mode):
        self.mode = mode
        self.apply()

    def apply(self):
        """Closes the connections whose mode requires it."""
        with self.lock:
            pairs = [(pair, self.mode_of(pair)) for pair in self.pairs]
            self.pairs = [pair for pair, mode in pairs if mode != "cut"]
        for pair, mode in pairs:
            client, server = pair[:2]
            if mode == "cut":
                for end in (client, server):
                    try:
                        # a reset, so that both ends notice at once
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                        end.shutdown(socket.SHUT_RDWR)
                        end.close()
                    except OSError:
                        pass  # already closed
            elif mode == "half":
                try:
                    client.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            pair = self.pair(client, None)
            if self.mode_of(pair) == "cut":
                client.close()
                continue
            try:
                server = socket.create_connection(self.to, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = (client, server, *pair[2:])
            with self.lock:
                self.pairs.append(pair)
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(one, other, pair), daemon=True).start()

    def _carry(self, one, other, pair):
        try:
            while data := one.recv(1 << 16):
                if self.mode_of(pair) == "slow":
                    time.sleep(0.5)
                while self.mode_of(pair) == "silent":
                    time.sleep(0.05)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (one, other):
                try:
                    end.close()
                except OSError:
                    pass
        with self.lock:
            if pair in self.pairs and one is pair[0]:
                self.pairs.remove(pair)


class PeerProxy(TcpProxy):
    """Proxy in front of the peer port of one member. The mode of a connection depends on both members."""

    def __init__(self, to, members, index):
        self.members, self.index = members, index
        super().__init__(to)

    def pair(self, client, server):
        return (client, server, self.members.owner_of(client.getpeername()[1]))

    def mode_of(self, pair):
        return self.members.cut_off.get(pair[2]) or self.members.cut_off.get(self.index) or "normal"


class Members:
    """Three members of one etcd for cketerm alone; kube-apiserver keeps its own. With `proxied`, they reach each other through proxies, so
    that a member can be cut off from the other two while clients still reach it."""

    def __init__(self, folder, proxied=False):
        self.folder, self.processes, self.cut_off, self.proxies = folder, {}, {}, []
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        if proxied:
            self.proxies = [PeerProxy(peer, self, i) for i, peer in enumerate(peers)]
        advertised = [f"http://127.0.0.1:{p.port}" for p in self.proxies] or peers
        initial = ",".join(f"m{i}={p}" for i, p in enumerate(advertised))
        self.argv = [["etcd", "--name", f"m{i}", "--data-dir", f"{folder}/m{i}", "--listen-client-urls", url, "--advertise-client-urls", url,
                      "--listen-peer-urls", peer, "--initial-advertise-peer-urls", public, "--initial-cluster", initial]
                     for i, (url, peer, public) in enumerate(zip(self.urls, peers, advertised))]
        for i in range(3):
            self.start(i)

    def start(self, i):
        with open(f"{self.folder}/m{i}-etcd.txt", "a") as log:
            self.processes[i] = subprocess.Popen(self.argv[i], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()

    def signal(self, i, number):
        self.processes[i].send_signal(number)

    def partition(self, i, mode):
        """Cuts member `i` off from the other two: `silent` (what is under way arrives when the partition ends), `cut`, or None: ends it."""
        if mode:
            self.cut_off[i] = mode
        else:
            self.cut_off.pop(i, None)
        for proxy in self.proxies:
            proxy.apply()

    def owner_of(self, port):
        """Index of the member whose process has a connection from this port, or None."""
        wanted = f"0100007F:{port:04X}"
        inodes = {f"socket:[{w[9]}]" for w in map(str.split, open("/proc/net/tcp")) if w[1] == wanted}
        for i, process in list(self.processes.items()):
            for fd in glob.glob(f"/proc/{process.pid}/fd/*"):
                try:
                    if os.readlink(fd) in inodes:
                        return i
                except OSError:
                    pass  # just closed
        return None

    def ctl(self, *arguments, endpoints=None):
        out = subprocess.run(["etcdctl", "--endpoints", ",".join(endpoints or self.urls), "--command-timeout", "3s", *arguments], capture_output=True, text=True,
                             env=dict(os.environ, ETCDCTL_API="3"))
        return out.stdout

    def statuses(self):
        """Status of each member that answers."""
        try:
            return json.loads(self.ctl("endpoint", "status", "-w", "json") or "[]")
        except ValueError:
            return []

    def leading(self):
        """Index of the leader among the members that answer, or None."""
        return next((self.urls.index(s["Endpoint"]) for s in self.statuses() if s["Status"].get("leader") == s["Status"]["header"]["member_id"]), None)

    def all_answer(self):
        """Whether all members answer and follow one leader."""
        statuses = self.statuses()
        leaders = {s["Status"].get("leader", 0) for s in statuses}
        return len(statuses) == 3 and len(leaders) == 1 and 0 not in leaders

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()


def use_members(env, proxied=False):
    """Gives an environment three members of etcd for cketerm, instead of the etcd of Kubernetes."""
    env.record.watch.kill()
    env.members = Members(env.folder, proxied)
    env.wait("a member leads", lambda: env.members.leading() is not None, 30)
    env.etcd = env.members.urls[0]
    env.config = f"{env.folder}/config.yaml"
    with open(env.config, "w") as f:
        json.dump({"etcd": {"endpoints": env.members.urls}, "kubernetes": {"kubeconfig": env.facts["KUBECONFIG_BENCH"]},
                   "engine": {"lease_ttl_seconds": TTL}}, f)
    # a watch follows the whole cluster, whichever member dies
    env.record = Record(",".join(env.members.urls))
