"""Checks of docs/package/image: contents of the layer, reproducible bytes, refusals, and the archive as skopeo reads it."""
import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
from pathlib import Path

from checks import ROOT, expect, expect_equal, run, skip

SCRIPT = ROOT / "docs/package/image"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
# Path: type, mode, owner.
LAYER = {
    "etc": ("d", 0o755, 0), "etc/cketerm": ("d", 0o755, 0), "etc/group": ("-", 0o644, 0),
    "etc/nsswitch.conf": ("-", 0o644, 0), "etc/passwd": ("-", 0o644, 0), "etc/ssl": ("d", 0o755, 0),
    "etc/ssl/certs": ("d", 0o755, 0), CERTIFICATES: ("-", 0o644, 0), "usr": ("d", 0o755, 0),
    "usr/bin": ("d", 0o755, 0), "usr/bin/cketerm": ("-", 0o755, 0), "var": ("d", 0o755, 0),
    "var/lib": ("d", 0o755, 0), "var/lib/cketerm": ("d", 0o700, 65532),
}
EPOCH = "1700000000"


def is_dynamic(program):
    with tempfile.TemporaryDirectory(prefix="cketerm-image-") as folder:
        done = run(SCRIPT, program, "--output", Path(folder, "image.tar"), check=False)
    return "linked dynamically" in done.stderr


class Image:
    """An archive of docs/package/image, opened and verified."""

    def __init__(self, path):
        self.bytes = Path(path).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(self.bytes)) as tar:
            self.files = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
        index = json.loads(self.files["index.json"])
        self.descriptor = index["manifests"][0]
        self.manifest = json.loads(self.blob(self.descriptor))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layer = gzip.decompress(self.blob(self.manifest["layers"][0]))

    def blob(self, descriptor):
        data = self.files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert len(data) == descriptor["size"] and descriptor["digest"] == sha256(data), descriptor
        return data

    def members(self):
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            return [(m, tar.extractfile(m).read() if m.isfile() else None) for m in tar]

    def unpack(self, folder):
        """Writes the layer into a folder, as root with its owners."""
        for member, text in self.members():
            path = Path(folder) / member.name
            path.mkdir(exist_ok=True) if text is None else path.write_bytes(text)
            path.chmod(member.mode)
            if os.geteuid() == 0:
                os.chown(path, member.uid, member.gid)


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def make(program, output, *arguments, epoch=EPOCH, **more):
    # the environment of another user on another day
    environment = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": epoch, **more.pop("env", {})}
    return run(SCRIPT, program, "--output", output, *arguments, env=environment, **more)


def made(program, folder, *arguments, **more):
    make(program, folder / "made.tar", *arguments, **more)
    return Image(folder / "made.tar")


def elf(machine):
    """A program without segments."""
    return b"\x7fELF\x02\x01" + bytes(12) + machine.to_bytes(2, "little") + bytes(44)


def check(program):
    """Runs the checks; returns the image, which the caller unpacks."""
    dynamic = is_dynamic(program)
    folder = Path(tempfile.mkdtemp(prefix="cketerm-image-"))
    try:
        options = ["--revision", "0" * 40]
        if dynamic:
            skip(f"{program} needs libraries that the image lacks: THE IMAGE OF THE STATIC PROGRAM (make package) IS NOT TESTED")
            options.append("--allow-dynamic")
        return archive_is_exact(program, folder, options)
    finally:
        shutil.rmtree(folder)


def archive_is_exact(program, folder, options):
    first = make(program, folder / "a.tar", *options)
    image = Image(folder / "a.tar")
    members = image.members()
    kind = lambda m: "d" if m.isdir() else "-" if m.isfile() else "?"
    expect_equal("the layer has exactly these paths, modes and owners",
                 {m.name: (kind(m), m.mode, m.uid) for m, _ in members}, LAYER)
    expect("no path is there twice, and groups are the owners'",
           len(members) == len(LAYER) and all(m.gid == m.uid for m, _ in members))
    expect_equal("one time everywhere", {m.mtime for m, _ in members}, {int(EPOCH)})
    texts = {m.name: text for m, text in members}
    expect("the program is unchanged", texts["usr/bin/cketerm"] == Path(program).read_bytes())
    expect_equal("one user", texts["etc/passwd"].decode(),
                 "cketerm:x:65532:65532:cketerm:/var/lib/cketerm:/sbin/nologin\n")
    system = Path("/usr/share/ca-certificates/mozilla")
    expect_equal("Debian's certificates, each once", texts[CERTIFICATES].count(b"-----BEGIN CERTIFICATE-----"),
                 len(list(system.glob("*.crt"))))
    config = image.config["config"]
    expect_equal("user and entrypoint", (config["User"], config["Entrypoint"]), ("65532:65532", ["/usr/bin/cketerm"]))
    expect_equal("the layer's digest", image.config["rootfs"]["diff_ids"], [sha256(image.layer)])
    labels = config["Labels"]
    expect("labels name version, revision and time", labels["org.opencontainers.image.revision"] == "0" * 40
           and labels["org.opencontainers.image.created"] == "2023-11-14T22:13:20Z"
           and labels["org.opencontainers.image.version"] in (ROOT / "Cargo.toml").read_text(), labels)
    expect("the output names the digest", image.descriptor["digest"] in first.stdout, first.stdout)

    copy = folder / "copy"
    shutil.copy(program, copy)
    os.utime(copy, (1, 1))
    copy.chmod(0o700)
    make(copy, folder / "b.tar", *options, cwd="/", umask=0o077, env={"TZ": "Asia/Kathmandu", "LC_ALL": "C"})
    expect("two builds give the same bytes", Image(folder / "b.tar").bytes == image.bytes)
    small = folder / "small"
    small.write_bytes(elf(62))
    digests = [made(small, folder, *options, epoch=epoch).descriptor["digest"] for epoch in (EPOCH, EPOCH, "1700000001")]
    expect("another time gives another digest", digests[0] == digests[1] != digests[2], digests)
    bare = made(small, folder, *options, "--ca-certificates", "none")
    expect_equal("without certificates", {m.name for m, _ in bare.members()},
                 {name for name in LAYER if not name.startswith("etc/ssl")})

    for what, file, message in (("a dynamic program", "/bin/true", "linked dynamically"),
                                ("a script", SCRIPT, "no 64-bit ELF program")):
        refused = make(file, folder / "refused.tar", check=False)
        expect(f"{what} is refused", refused.returncode != 0 and message in refused.stderr
               and not (folder / "refused.tar").exists(), refused.stderr)
    small.write_bytes(elf(183))
    expect_equal("an aarch64 program makes an arm64 image", made(small, folder, *options).config["architecture"], "arm64")
    small.write_bytes(elf(243))
    os.mkfifo(folder / "fifo")
    refused = make(program, folder / "fifo", *options, check=False)
    expect("nothing but a file is replaced", "is no file" in refused.stderr and stat.S_ISFIFO((folder / "fifo").stat().st_mode),
           refused.stderr)
    expect("another architecture is refused", "ELF machine 243" in make(small, folder / "f.tar", check=False).stderr)

    if not shutil.which("skopeo"):
        skip("no skopeo (apt install skopeo): THE ARCHIVE IS READ BY NO OTHER PROGRAM")
    else:
        seen = json.loads(run("skopeo", "inspect", f"oci-archive:{folder / 'a.tar'}").stdout)
        expect_equal("skopeo reads the same digest", seen["Digest"], image.descriptor["digest"])
        run("skopeo", "copy", "--preserve-digests", f"oci-archive:{folder / 'a.tar'}", f"dir:{folder / 'pushed'}")
        expect("a copy keeps the manifest", sha256((folder / "pushed/manifest.json").read_bytes()) == seen["Digest"])
    root = folder / "root"
    root.mkdir()
    image.unpack(root)
    mode = stat.S_IMODE((root / "var/lib/cketerm").stat().st_mode)
    expect_equal("the state directory, unpacked", mode, 0o700)
    return image
