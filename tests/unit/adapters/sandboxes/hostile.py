"""Hostile commands: each tries to leave its sandbox, or to take more than it may.

A command that succeeds in what it must not do ends with exit code 42. Placeholders: @SECRET is a
file of the host beside the workspace, @PORT a port on which the host listens, @PID a process of
the host, @TOKEN a name that nothing else has.
"""

from __future__ import annotations

from typing import NamedTuple


class Hostile(NamedTuple):
    """A command, and how it must end: any way but 42, or by one of the limits."""

    name: str
    command: str
    stopped: str = ""
    seconds: int = 20
    is_python: bool = False


def _python(name: str, code: str, stopped: str = "", seconds: int = 20) -> Hostile:
    return Hostile(name, code, stopped, seconds, is_python=True)


# What must not succeed: any error is fine, and getting through is not.
def _attempt(name: str, code: str) -> Hostile:
    lines = "\n".join(f"    {line}" for line in code.strip().splitlines())
    return _python(
        name,
        f"import ctypes, os, socket, sys\ntry:\n{lines}\n"
        "except Exception as error:\n    print(repr(error))\nelse:\n    sys.exit(42)",
    )


COMMON = [
    _attempt(
        "reach the host by its loopback address", 'socket.create_connection(("127.0.0.1", @PORT))'
    ),
    Hostile("leave a process behind", "(setsid sleep 1000 &) ; sleep 1000 & exit 0"),
    _python(
        "fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "2 seconds",
        2,
    ),
    Hostile("10 GB file", "dd if=/dev/zero of=big bs=1M count=10000 && exit 42"),
    Hostile("endless output", "yes", "1 seconds", 1),
    Hostile(
        "read through a link",
        "ln -s @SECRET link; cat link && exit 42; echo x > link && exit 42; true",
    ),
    Hostile("change the machine's devices", "chmod 600 /dev/null && exit 42; true"),
    _attempt("kill a process of the host", "os.kill(@PID, 9)"),
]

MORE = [
    # --- network ---
    _attempt("reach an address", 'socket.create_connection(("1.1.1.1", 53), timeout=3)'),
    _attempt(
        "send a datagram", 'socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53))'
    ),
    _attempt("resolve a name", 'socket.getaddrinfo("example.com", 80)'),
    _attempt("reach a socket without a file", r'socket.socket(socket.AF_UNIX).connect("\0@TOKEN")'),
    _attempt("read packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"),
    Hostile("see a network device", "grep -v lo: /proc/net/dev | grep : && exit 42; true"),
    # --- processes ---
    _python(
        "fork bomb with sessions",
        "import os\nwhile True:\n    try: os.fork() or os.setsid()\n    except OSError: pass",
        "2 seconds",
        2,
    ),
    _python(
        "thread bomb",
        "import threading, time\nwhile True:\n"
        "    try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    except RuntimeError: pass",
        "2 seconds",
        2,
    ),
    Hostile(
        "daemon that hears no signal",
        "(trap '' HUP INT TERM; exec setsid sleep 1000 </dev/null >/dev/null 2>&1 &); exit 0",
    ),
    Hostile("kill everything", "kill -9 -1; kill -9 1; kill -9 0"),
    Hostile("kill its parent", "kill -9 $PPID; exit 0"),
    Hostile("stop itself", "kill -STOP $$", "1 seconds", 1),
    Hostile("stop everything", "kill -STOP 1; kill -STOP -1; sleep 60", "1 seconds", 1),
    Hostile("hear no signal", "trap '' HUP INT TERM QUIT; while :; do :; done", "1 seconds", 1),
    Hostile("close its output and stay", "exec >&- 2>&-; sleep 60", "1 seconds", 1),
    _python(
        "use all processors",
        "import os\nfor _ in range(4): os.fork()\nwhile True: pass",
        "1 seconds",
        1,
    ),
    _attempt("trace a process of the host", "assert ctypes.CDLL(None).ptrace(16, @PID, 0, 0) == 0"),
    Hostile(
        "find secrets in environments", "cat /proc/*/environ | grep -a @TOKEN && exit 42; true"
    ),
    Hostile("find processes of the host", "cat /proc/@PID/status && exit 42; true"),
    # --- memory ---
    _attempt("10 GB of memory", "bytearray(10 * 2**30)"),
    _python(
        "memory of many processes",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        x = b'x' * 300_000_000; time.sleep(60); os._exit(0)\nprint(os.wait())",
        "memory",
        30,
    ),
    Hostile("fill /tmp", "head -c 1G /dev/zero > /tmp/big && exit 42; true"),
    Hostile("fill /dev/shm", "head -c 1G /dev/zero > /dev/shm/big && exit 42; true"),
    _attempt(
        "10 GB without a name",
        'file = open(os.memfd_create("x"), "wb")\nfor _ in range(10240): file.write(bytes(2**20))',
    ),
    Hostile("raise a limit", "ulimit -f unlimited && exit 42; true"),
    Hostile("leave shared memory behind", "ipcmk -M 1000000; true"),
    # --- files ---
    Hostile("10 GB file with a hole", "truncate -s 10G big && exit 42; true"),
    Hostile(
        "fill the disk",
        "for i in $(seq 100); do head -c 60M /dev/zero > big$i || exit; done; exit 42",
        "files in the workspace",
        60,
    ),
    _python(
        "a million files",
        "for number in range(10**6): open(f'file{number}', 'w').close()",
        "files in the workspace",
        60,
    ),
    _python(
        "directories without end", "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')"
    ),
    Hostile("directories that can't be entered", "mkdir -p a/b; touch a/b/c; chmod 0 a/b a ."),
    Hostile("a file that can't be read", "echo x > file; chmod 0 file"),
    Hostile("a pipe that nothing writes to", "mkfifo pipe"),
    _python("a socket", "import socket\nsocket.socket(socket.AF_UNIX).bind('socket')"),
    _python("a name that is not text", r"open(b'\xff\xfe', 'w'); open('a\nb', 'w')"),
    Hostile("the temporary name of restoring", "mkdir -p .turnledger-restoring/a"),
    Hostile("remove everything", "rm -rf /workspace /tmp /dev /usr/bin; true"),
    Hostile("write beside the workspace", "echo x > ../@TOKEN && exit 42; true"),
    Hostile(
        "write to the system",
        "touch /usr/bin/@TOKEN /etc/@TOKEN /@TOKEN /dev/@TOKEN && exit 42; true",
    ),
    Hostile("write what is gone", "echo x > /tmp/@TOKEN; echo x > /dev/shm/@TOKEN"),
    Hostile("read a file by its path on the host", "cat @SECRET && exit 42; true"),
    Hostile("read through a process's root", "cat /proc/1/root@SECRET && exit 42; true"),
    Hostile(
        "read what users have", "ls /home /var /mnt && exit 42; cat /etc/shadow && exit 42; true"
    ),
    Hostile("a second name for a file of the system", "ln /usr/bin/env stolen && exit 42; true"),
    # --- privileges ---
    Hostile(
        "a program with another user's rights",
        "cp /bin/sh s; chmod 4755 s; test $(./s -c 'id -u') = 0 && exit 42; true",
    ),
    Hostile("become root", "test \"$(su -c 'id -u' </dev/null)\" = 0 && exit 42; true"),
    _attempt("become another user", "os.setuid(0)"),
    Hostile("make a device", "mknod disk b 254 0 && exit 42; mknod mem c 1 1 && exit 42; true"),
    Hostile(
        "read the machine's memory",
        "head -c 1 /dev/mem && exit 42; head -c 1 /proc/kcore && exit 42; true",
    ),
    Hostile(
        "mount", "mount -t tmpfs none /tmp && exit 42; mount --bind /proc /tmp && exit 42; true"
    ),
    Hostile(
        "mount in another namespace",
        "unshare -Urm sh -c 'umount -l /workspace /usr; mount -t proc p /proc; "
        "cat @SECRET /proc/@PID/status' && exit 42; true",
    ),
    Hostile("unmount", "umount -l /workspace && exit 42; umount /dev/null && exit 42; true"),
    _attempt("change its root", 'os.chroot("/usr")'),
    Hostile(
        "change the kernel's settings",
        "for file in kernel/core_pattern kernel/hostname vm/drop_caches; "
        "do echo 1 > /proc/sys/$file && exit 42; done; "
        "echo h > /proc/sysrq-trigger && exit 42; true",
    ),
    Hostile(
        "use control groups",
        "find /sys/fs/cgroup -name cgroup.procs -writable 2>/dev/null | grep . && exit 42; true",
    ),
    _attempt("restart the machine", "assert ctypes.CDLL(None).reboot(0x01234567) == 0"),
    _attempt("set the clock", "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)"),
    _attempt("write to the terminal", 'import fcntl\nfcntl.ioctl(open("/dev/tty"), 0x5412, b"x")'),
    # --- output ---
    Hostile("endless errors", "yes >&2", "1 seconds", 1),
    Hostile("output that is not text", "head -c 100000 /dev/urandom; head -c 100 /dev/zero"),
    Hostile("escape codes", r"printf '\033]0;x\007\033[2J\0'"),
]
