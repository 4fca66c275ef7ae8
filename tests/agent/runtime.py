"""Plays the container runtime for one container of a pod: `runtime.py SPEC`, in a PID and a mount namespace of its own. SPEC is
a JSON file:

    {"root": FOLDER, "mounts": [[HOST_PATH, PATH, READ_ONLY]…], "environment": {NAME: VALUE…}, "command": [WORD…]}

It does what runc does for `securityContext: {runAsUser: 0, capabilities: {drop: [ALL]}, allowPrivilegeEscalation: false,
readOnlyRootFilesystem: true}`, and then becomes the command.
"""
import ctypes
import json
import os
import subprocess
import sys

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
MNT_DETACH = 2
BOOT_ID = "proc/sys/kernel/random/boot_id"
libc = ctypes.CDLL(None, use_errno=True)


def call(what, *arguments):
    """Calls a function of libc; its failure ends this process."""
    if getattr(libc, what)(*arguments) != 0:
        sys.exit(f"runtime: {what}: {os.strerror(ctypes.get_errno())}")


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


with open(sys.argv[1]) as file:
    spec = json.load(file)
if os.getpid() != 1:
    sys.exit("runtime: no PID namespace of its own")
root = spec["root"]
mount("--make-rprivate", "/")
mount("--bind", root, root)
for source, target, read_only in [["/dev/null", "/dev/null", False], *spec["mounts"]]:
    target = root + target
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "a").close()
    mount("--rbind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)
os.makedirs(f"{root}/proc", exist_ok=True)
mount("-t", "proc", "proc", f"{root}/proc")
# a fresh /proc shows the kernel's boot id, not that of this machine (`boot`)
mount("--bind", f"/{BOOT_ID}", f"{root}/{BOOT_ID}")
mount("-o", "remount,bind,ro", root)
os.chdir(root)
call("pivot_root", b".", b".")
call("umount2", b".", MNT_DETACH)
os.chdir("/")
last = int(open("/proc/sys/kernel/cap_last_cap").read())
for capability in range(last + 1):
    call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
os.execve(spec["command"][0], spec["command"], spec["environment"])
