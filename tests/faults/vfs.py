"""A disk that fails when told to, under the SQLite of this very process.

The functions of SQLite's own file layer are replaced, in memory, by ones that ask a `Disk`
first. It is for the whole process and for good: only children that end soon do this.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from threading import Lock
from typing import Any, Protocol

Original = Callable[..., int]
OK = 0
# SQLite's own writing takes no more than 128 KB at once, and does not say so.
PIECE = 65536
MAIN_DB, JOURNAL, WAL = 0x100, 0x800, 0x80000
KINDS = {MAIN_DB: "db", JOURNAL: "journal", WAL: "wal"}


class Disk(Protocol):
    """What is asked before anything is done: a result code, and how much to do all the same."""

    def open(self, kind: str) -> int: ...

    def opened(self, path: str, kind: str, *, is_new: bool) -> None: ...

    def read(self, kind: str) -> int: ...

    def write(self, path: str, kind: str, offset: int, data: bytes) -> tuple[int, int]:
        """The code, and how many bytes are written before it is given."""
        ...

    def truncate(self, path: str, kind: str, size: int) -> int: ...

    def sync(self, path: str, kind: str) -> int: ...

    def after_failed_sync(self, path: str) -> bytes | None:
        """What the file holds then, if it is not what it held."""
        ...

    def index(self) -> int:
        """The WAL's index gets another page."""
        ...

    def delete(self, path: str, kind: str) -> int: ...


_CLOSE = CFUNCTYPE(c_int, c_void_p)
_READ = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_WRITE = _READ
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_MAP = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p)
# The name as an address: SQLite goes on using it, and reads more behind its end.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)


class _Methods(Structure):
    _fields_ = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        *((f"other_{n}", c_void_p) for n in range(7)),
        ("map", c_void_p),
        *((f"more_{n}", c_void_p) for n in range(5)),
    ]


class _File(Structure):
    _fields_ = [("methods", POINTER(_Methods))]


class _Layer(Structure):
    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
    ]


def put_under_sqlite(disk: Disk) -> None:
    """From now on every file that SQLite opens in this process is on this disk."""
    _Faulty(disk)


class _Faulty:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, tuple[str, str]] = {}
        self._replaced: dict[int, _Methods] = {}
        # Of several threads that open a file which is not there, one makes it.
        self._opening = Lock()
        # A Python with SQLite built in has no file for it: then it is in the program itself.
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_vfs_find.restype = POINTER(_Layer)
        layer = library.sqlite3_vfs_find(None).contents
        self._open: Original = _OPEN(layer.open)
        self._delete: Original = _DELETE(layer.delete)
        self._kept = [_OPEN(self.open), _DELETE(self.delete)]
        layer.open, layer.delete = (_address(function) for function in self._kept)
        _IN_PLACE.append(self)

    def open(self, layer: int, name: int | None, file: int, flags: int, out: int) -> int:
        kind = next((kind for flag, kind in KINDS.items() if flags & flag), "other")
        path = ctypes.string_at(name).decode() if name else ""
        if kind == "other":
            return self._open(layer, name, file, flags, out)
        if code := self._disk.open(kind):
            ctypes.cast(file, POINTER(_File)).contents.methods = POINTER(_Methods)()
            return code
        with self._opening:
            is_new = not os.path.exists(path)
            code = self._open(layer, name, file, flags, out)
            if code == OK:
                opened = ctypes.cast(file, POINTER(_File)).contents
                opened.methods = ctypes.pointer(self._methods(opened.methods))
                self._files[file] = (path, kind)
                self._disk.opened(path, kind, is_new=is_new)
        return code

    def delete(self, layer: int, name: bytes, sync_folder: int) -> int:
        path = name.decode()
        kind = next((k for k in KINDS.values() if path.endswith(f"-{k}")), "other")
        if kind == "other" or not os.path.exists(path):
            return self._delete(layer, name, sync_folder)
        with self._opening:
            code = self._disk.delete(path, kind)
            return code or self._delete(layer, name, sync_folder)

    def _methods(self, original: Any) -> _Methods:
        key = ctypes.addressof(original.contents)
        if key not in self._replaced:
            self._replaced[key] = self._replace(original.contents)
        return self._replaced[key]

    def _replace(self, old: _Methods) -> _Methods:
        new = _Methods.from_buffer_copy(old)
        old_close: Original = _CLOSE(old.close)
        old_read: Original = _READ(old.read)
        old_write: Original = _WRITE(old.write)
        old_truncate: Original = _TRUNCATE(old.truncate)
        old_map: Original = _MAP(old.map or 0)
        disk, files = self._disk, self._files

        def close(file: int) -> int:
            files.pop(file, None)
            return old_close(file)

        def read(file: int, data: int, size: int, offset: int) -> int:
            return disk.read(files[file][1]) or old_read(file, data, size, offset)

        def write(file: int, data: int, size: int, offset: int) -> int:
            content = ctypes.string_at(data, size)
            code, done = disk.write(*files[file], offset, content)
            if done == 0 and code:
                return code
            return old_write(file, data, done, offset) or code

        def truncate(file: int, size: int) -> int:
            return disk.truncate(*files[file], size) or old_truncate(file, size)

        def sync(file: int, flags: int) -> int:
            # The machine does not go down: there is no need to wait for the real disk.
            code = disk.sync(*files[file])
            content = disk.after_failed_sync(files[file][0]) if code else None
            if content is not None:
                # By SQLite's own descriptor: closing another one would free its locks.
                code_of_revert = old_truncate(file, len(content))
                for start in range(0, len(content), PIECE):
                    piece = content[start : start + PIECE]
                    code_of_revert = code_of_revert or old_write(file, piece, len(piece), start)
                assert code_of_revert == OK
            return code

        def map_index(file: int, page: int, size: int, extend: int, out: int) -> int:
            return (extend and disk.index()) or old_map(file, page, size, extend, out)

        made: dict[str, Any] = {
            "close": _CLOSE(close),
            "read": _READ(read),
            "write": _WRITE(write),
            "truncate": _TRUNCATE(truncate),
            "sync": _SYNC(sync),
        }
        if old.map:
            made["map"] = _MAP(map_index)
        for name, function in made.items():
            setattr(new, name, _address(function))
        self._kept += made.values()
        return new


# SQLite holds addresses into these.
_IN_PLACE: list[_Faulty] = []


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value
