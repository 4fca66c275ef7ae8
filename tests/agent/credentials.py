"""Credentials of a kubelet: a client certificate of `system:node:NAME`, and the kubeconfig that uses it."""
from pathlib import Path

from checks import BIN, run

KEY = "/var/lib/kubelet/pki/kubelet-client-current.pem"
CA = "/etc/kubernetes/pki/ca.crt"
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: default
contexts: [{name: default, context: {cluster: default, user: kubelet}}]
clusters: [{name: default, cluster: {server: "SERVER", certificate-authority: CA_FILE}}]
users: [{name: kubelet, user: {client-certificate: KEY, client-key: KEY}}]
"""


def make_authority(folder):
    """Makes a certificate authority; returns the API server's flags that trust it, and that limit a kubelet to its
    own Node."""
    folder = Path(folder)
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2",
        "-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    return [f"--client-ca-file={folder}/ca.crt", "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction"]


def install(environment, folder, container, node):
    """Writes the kubelet's files to a machine's disk, at the paths of kubeadm."""
    folder = Path(folder)
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/O=system:nodes/CN=system:node:{node}",
        "-keyout", folder / "node.key", "-out", folder / "node.csr")
    (folder / "extensions").write_text("keyUsage = digitalSignature\nextendedKeyUsage = clientAuth\n")
    run("openssl", "x509", "-req", "-in", folder / "node.csr", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
        "-CAcreateserial", "-days", "2", "-extfile", folder / "extensions", "-out", folder / "node.crt")
    container.write(KEY[1:], (folder / "node.crt").read_text() + (folder / "node.key").read_text(), 0o600)
    container.write(CA[1:], Path(environment.folder, "certs/apiserver.crt").read_text())
    text = KUBECONFIG.replace("SERVER", environment.server).replace("KEY", KEY).replace("CA_FILE", CA)
    container.write("etc/kubernetes/kubelet.conf", text, 0o600)


def kubectl_as(environment, container, *arguments):
    """Runs kubectl with the credentials on the machine's disk."""
    key, ca = container.disk / KEY[1:], container.disk / CA[1:]
    return run(BIN / "kubectl", "--kubeconfig", "/dev/null", "--server", environment.server, "--certificate-authority", ca,
               "--client-certificate", key, "--client-key", key, *arguments, check=False)
