"""Pretence of Windows on Linux, for a process of its own: no name that Windows lacks, and files that behave as there.

`pretend()`, called before ppax is imported, lets the modules of ppax see `os`, `sys`, `signal` and `select` without the
names of POSIX, and no module that Windows lacks; other libraries see the system as it is, for they have their own
branches. For everyone, a file that is open cannot be renamed, replaced or removed, nor can a folder that holds one, and
only a file open for writing is flushed. A text file of ppax opened without an encoding is an error: elsewhere it
is UTF-8.
"""

import builtins
import fcntl
import os
import signal
import sys
import types
import warnings
from pathlib import Path

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = """
    O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE WNOHANG
    chown chroot confstr ctermid eventfd fchdir fchown fork forkpty fwalk getegid geteuid getgid getgroups getloadavg
    getpgid getpgrp getpriority getresuid getsid getuid getxattr initgroups killpg lchown lockf major memfd_create minor
    mkfifo mknod nice openpty pathconf pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv
    register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setpriority setsid setuid setxattr
    statvfs sync sysconf sysconf_names tcgetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
"""
OF_SIGNAL = """
    SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm pause
    pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
"""
OF_SELECT = "devpoll epoll kqueue poll"
HIDDEN = {"os": OF_OS, "signal": OF_SIGNAL, "select": OF_SELECT, "sys": ""}
INSTEAD = {"os": {"name": "nt", "sep": "\\"}, "sys": {"platform": "win32"}}


class Seen(types.ModuleType):
    """A module without the names that Windows lacks."""

    def __init__(self, module):
        super().__init__(module.__name__)
        self.__dict__["of"] = module

    def __getattr__(self, name):
        known = self.__dict__["__name__"]
        if name in HIDDEN[known].split():
            raise AttributeError(f"module {known!r} has no attribute {name!r}")
        return INSTEAD.get(known, {}).get(name, getattr(self.__dict__["of"], name))

    def __setattr__(self, name, value):
        setattr(self.__dict__["of"], name, value)


def pretend():
    """Make this process look like Windows to ppax, from now on."""
    import_ = builtins.__import__
    seen = {name: Seen(sys.modules[name] if name in sys.modules else import_(name)) for name in HIDDEN}

    def import_as_seen(name, globals=None, locals=None, fromlist=(), level=0):
        of_ppax = ((globals or {}).get("__name__") or "").partition(".")[0] in ("ppax", "ppax_command")
        if of_ppax and level == 0 and name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return seen[name] if of_ppax and name in seen else import_(name, globals, locals, fromlist, level)

    builtins.__import__ = import_as_seen
    for name in ("rename", "replace"):
        setattr(os, name, _guarded(getattr(os, name), both=True))
    for name in ("unlink", "remove", "rmdir"):
        setattr(os, name, _guarded(getattr(os, name), both=False))
    os.fsync = _only_written(os.fsync)
    warnings.filterwarnings("error", category=EncodingWarning, module="ppax")  # with `python -X warn_default_encoding`


def _guarded(function, both):
    """Return a function of `os` that refuses an open file: as its source, and where `both`, as its target."""

    def guarded(*paths, dir_fd=None, **options):
        base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
        for path in paths[: 1 + both]:
            _require_closed(base / os.fsdecode(path))
        return function(*paths, **options | ({} if dir_fd is None else {"dir_fd": dir_fd}))

    return guarded


def _require_closed(path):
    inside = os.path.abspath(path) + os.sep
    for handle in os.listdir("/proc/self/fd"):
        try:
            there = os.readlink(f"/proc/self/fd/{handle}")
        except OSError:  # of the listing itself
            continue
        if os.path.isfile(there) and (there + os.sep).startswith(inside):
            raise PermissionError(13, "The process cannot access the file: it is open", str(path))


def _only_written(function):
    def fsync(file):
        handle = file if isinstance(file, int) else file.fileno()
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        return function(handle)

    return fsync


assert hasattr(signal, "SIGHUP")  # the pretence is of Windows on another system
