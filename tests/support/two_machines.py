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
RAY = (sys.executable, "-m", "ray.scripts.scripts")
MEMORY = 200_000_000  # bytes of each object store
# given, because a raylet waits only a few seconds until agents that choose theirs have started
PORTS = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "runtime-env-agent-port", "metrics-export-port")


os.environ.setdefault("RAY_AUTH_MODE", "token")  # for machines and drivers; Ray reads it once, when it is imported


def token():
    """Make the token of this user's clusters, in the home directory, where there is none."""
    subprocess.run([*RAY, "get-auth-token", "--generate"], capture_output=True, check=True)


class Cluster:
    """Address of a cluster whose second machine can be killed."""

    def __init__(self, folder, port=26379):
        self.apart = _separated()
        head, other = (HEAD, OTHER) if self.apart else ("127.0.0.1", "127.0.0.1")
        self.address, self._folder, self._raylets = f"{head}:{port}", folder, []
        inside = ("ip", "netns", "exec", SPACE) if self.apart else ()
        token()
        try:
            self._begin(["--head", f"--port={port}", "--include-dashboard=false"], head, ())
            self._begin([f"--address={self.address}"], other, inside)
        except BaseException:
            self.close()
            raise

    def _begin(self, options, ip, inside):
        """Begin a machine, and wait until it is in the cluster."""
        number = len(self._raylets)
        log = self._folder / f"raylet{number}.txt"
        options = [*options, *(f"--{name}={26400 + 10 * number + i}" for i, name in enumerate(PORTS))]
        options += [f"--node-ip-address={ip}", "--num-cpus=2", f"--object-store-memory={MEMORY}"]
        words = [*inside, *RAY, "start", *options, "--block", "--disable-usage-stats"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_raylet_start_wait_time_s": "120"}
        with open(log, "wb") as file:
            one = subprocess.Popen(words, stdout=file, stderr=file, env=environment, start_new_session=True)
        self._raylets.append(one)
        self._wait(log)

    def _wait(self, log):
        """Wait until the last machine is in the cluster."""
        until = time.monotonic() + 150.0
        while b"Ray runtime started" not in log.read_bytes():
            assert self._raylets[-1].poll() is None, self.logs()
            assert time.monotonic() < until, self.logs()
            time.sleep(0.2)

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
        if len(self._raylets) > 1:
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
