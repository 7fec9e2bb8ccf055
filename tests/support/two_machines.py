"""Ray cluster of two machines on this one: in network namespaces where the system allows it, else two processes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HEAD, OTHER, SPACE, LINK = "10.213.77.1", "10.213.77.2", "ppax-other", "ppax-link"
MEMORY = 200_000_000  # bytes of each object store


class Cluster:
    """Address of a cluster whose second machine can be killed."""

    def __init__(self, folder, port=26379):
        self.apart = _separated()
        head, other = (HEAD, OTHER) if self.apart else ("127.0.0.1", "127.0.0.1")
        self.address, self._folder, self._raylets = f"{head}:{port}", folder, []
        self._begin(["--head", f"--port={port}", "--include-dashboard=false"], head, ())
        self._ready(1)
        inside = ("ip", "netns", "exec", SPACE) if self.apart else ()
        self._begin([f"--address={self.address}"], other, inside)
        self._ready(2)

    def _begin(self, options, ip, inside):
        log = open(self._folder / f"raylet{len(self._raylets)}.txt", "wb")  # noqa: SIM115 (until the process ends)
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", *options, f"--node-ip-address={ip}")
        words = [*inside, *ray, "--num-cpus=2", f"--object-store-memory={MEMORY}", "--block", "--disable-usage-stats"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_DISABLE_IMPORT_WARNING": "1"}
        self._raylets.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True))

    def _ready(self, machines):
        """Wait until that many machines are in the cluster."""
        count = "print(sum(node['Alive'] for node in ray.nodes()))"
        code = f"import ray; ray.init({self.address!r}, logging_level='error'); {count}"
        until = time.monotonic() + 90.0
        while time.monotonic() < until:
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            if found.stdout.strip().endswith(str(machines)):
                return
            assert self._raylets[-1].poll() is None, self.logs()
            time.sleep(0.5)
        raise AssertionError(self.logs())

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("raylet*.txt")))

    def pids_of_other(self):
        """Processes of the second machine."""
        if self.apart:
            return [
                int(x)
                for x in subprocess.run(
                    ["ip", "netns", "pids", SPACE], capture_output=True, text=True, check=True
                ).stdout.split()
            ]
        return _descendants(self._raylets[1].pid)

    def kill_other(self):
        """Kill the second machine at once: all its processes, with SIGKILL."""
        for pid in self.pids_of_other():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self):
        self.kill_other()
        for raylet in reversed(self._raylets):
            for pid in [*_descendants(raylet.pid), raylet.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raylet.wait(30.0)
        if self.apart:
            _run("ip", "netns", "del", SPACE)
            _run("ip", "link", "del", LINK)


def _descendants(pid):
    """Processes that a process has begun, and those that they have begun, also of other sessions."""
    found, pending = [], [pid]
    while pending:
        one = pending.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                children = [int(x) for x in (task / "children").read_text().split()]
                found += children
                pending += children
    return [*found, pid]


def _run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0


def _separated():
    """Make a network namespace for the second machine, connected with this one; return whether that is allowed."""
    if shutil.which("ip") is None or not _run("ip", "netns", "add", SPACE):
        return False
    peer = f"{LINK}-2"
    commands = (
        ("ip", "link", "add", LINK, "type", "veth", "peer", "name", peer),
        ("ip", "link", "set", peer, "netns", SPACE),
        ("ip", "addr", "add", f"{HEAD}/30", "dev", LINK),
        ("ip", "link", "set", LINK, "up"),
        ("ip", "-n", SPACE, "addr", "add", f"{OTHER}/30", "dev", peer),
        ("ip", "-n", SPACE, "link", "set", peer, "up"),
        ("ip", "-n", SPACE, "link", "set", "lo", "up"),
    )
    if all(_run(*words) for words in commands):
        return True
    _run("ip", "netns", "del", SPACE)
    _run("ip", "link", "del", LINK)
    return False
