"""A stand-in of the Hugging Face hub on loopback, for the real client to talk to.

`StandIn(root)` serves root/{owner}/{name}/... as datasets, in the hub's own URL shapes:

    HEAD, GET  /datasets/{id}/resolve/{revision}/{path}     files, with ranges
    GET        /api/datasets/{id}[/revision/{revision}]     the commit and the files
    GET        /api/datasets/{id}/tree/{revision}/{folder}  one folder, folders as folders
    POST       /api/datasets/{id}/paths-info/{revision}     some of the files

A commit is the sha1 of all files: a changed byte is another revision. `fail(...)` makes
requests fail: a status, a connection cut after some bytes, or bytes that trickle.
Run as a program it serves a folder: python stand_in.py ROOT [PORT].
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SLOW_CHUNK_BYTES = 4096


@dataclass(kw_only=True)
class Fault:
    """Make the next `times` GET requests whose path contains `path` fail.

    status: answer with it · cut_after: send so many bytes and drop the connection ·
    slow: wait so many seconds before each 4 KiB. `from_byte` lets requests for earlier parts
    of a file pass.
    """

    path: str
    times: int = 1
    from_byte: int = 0
    status: int | None = None
    cut_after: int | None = None
    slow: float | None = None


@dataclass(kw_only=True)
class Account:
    """Count what was asked for and what was made to fail."""

    requests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class StandIn:
    """Serve a folder of datasets until `close`."""

    def __init__(self, root: Path, *, port: int = 0) -> None:
        self.root = root
        self.account = Account()
        self._faults: list[Fault] = []
        self._sums: dict[tuple[Path, int, int], str] = {}
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, path: str, **how: Any) -> None:
        """Add a fault; see Fault."""
        with self._lock:
            self._faults.append(Fault(path=path, **how))

    def heal(self) -> None:
        """Remove all faults and start the account anew."""
        with self._lock:
            self._faults.clear()
            self.account = Account()

    def next_fault(self, path: str, start: int) -> Fault | None:
        """Return the fault of this request, and count it as used."""
        with self._lock:
            self.account.requests.append(path)
            for fault in self._faults:
                if fault.path in path and fault.times and start >= fault.from_byte:
                    fault.times -= 1
                    self.account.failed.append(path)
                    return fault
            return None

    def commit(self, dataset: str) -> str:
        """Return the commit of a dataset as it is now."""
        digest = hashlib.sha1()
        for path in sorted(self.files(dataset)):
            digest.update(f"{path}\0{self.sha1(self.root / dataset / path)}".encode())
        return digest.hexdigest()

    def sha1(self, path: Path) -> str:
        """Return the sha1 of a file, computed again only when the file changed."""
        facts = path.stat()
        key = (path, facts.st_size, facts.st_mtime_ns)
        if key not in self._sums:
            self._sums[key] = hashlib.sha1(path.read_bytes()).hexdigest()
        return self._sums[key]

    def files(self, dataset: str) -> list[str]:
        """Return the paths of all files of a dataset."""
        base = self.root / dataset
        return [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]


class _Handler(BaseHTTPRequestHandler):
    hub: StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def do_HEAD(self) -> None:
        self._file(*self._resolve(), with_body=False)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind, dataset, revision, _ = self._api()
        if kind != "paths-info" or not self._is_current(dataset, revision):
            return self._error(404, "RepoNotFound")
        if "json" in self.headers.get("Content-Type", ""):
            paths = json.loads(body)["paths"]
        else:
            paths = parse_qs(body.decode())["paths"]
        base = self.hub.root / dataset
        return self._json([self._entry(base, path) for path in paths if (base / path).exists()])

    def do_GET(self) -> None:
        fault = self.hub.next_fault(self.path, self._range(1 << 62)[0])
        if fault is not None and fault.status is not None:
            return self._error(fault.status, "Unavailable")
        path = urlsplit(self.path).path
        if path.startswith("/datasets/"):
            return self._file(*self._resolve(), with_body=True, fault=fault)
        if not path.startswith("/api/datasets/"):
            return self._error(404, "EntryNotFound")
        kind, dataset, revision, rest = self._api()
        if not self._is_current(dataset, revision):
            missing = not (self.hub.root / dataset).is_dir()
            return self._error(404, "RepoNotFound" if missing else "RevisionNotFound")
        if kind == "tree":
            return self._tree(dataset, rest)
        if kind != "revision":
            return self._error(404, "EntryNotFound")
        siblings = [{"rfilename": name} for name in sorted(self.hub.files(dataset))]
        facts = {"_id": "0", "id": dataset, "private": False, "gated": False, "disabled": False}
        return self._json({**facts, "sha": self.hub.commit(dataset), "siblings": siblings})

    def _api(self) -> tuple[str, str, str, str]:
        parts = unquote(urlsplit(self.path).path).split("/")[3:]
        dataset = "/".join(parts[:2])
        kind = parts[2] if len(parts) > 2 else "revision"
        revision = parts[3] if len(parts) > 3 else "main"
        return kind, dataset, revision, "/".join(parts[4:])

    def _resolve(self) -> tuple[str, str, str]:
        parts = unquote(urlsplit(self.path).path).split("/")[2:]
        return "/".join(parts[:2]), parts[3], "/".join(parts[4:])

    def _is_current(self, dataset: str, revision: str) -> bool:
        if not (self.hub.root / dataset).is_dir():
            return False
        return revision == "main" or revision == self.hub.commit(dataset)

    def _tree(self, dataset: str, folder: str) -> None:
        base = self.hub.root / dataset
        if not (base / folder).is_dir():
            return self._error(404, "EntryNotFound")
        query = parse_qs(urlsplit(self.path).query)
        deep = query.get("recursive", ["false"])[0].lower() == "true"
        found = (base / folder).rglob("*") if deep else (base / folder).iterdir()
        names = sorted(path.relative_to(base).as_posix() for path in found)
        return self._json([self._entry(base, name) for name in names])

    def _file(
        self, dataset: str, revision: str, path: str, *, with_body: bool, fault: Fault | None = None
    ) -> None:
        file = self.hub.root / dataset / path
        if not self._is_current(dataset, revision):
            return self._error(404, "RevisionNotFound")
        if not file.is_file():
            return self._error(404, "EntryNotFound")
        size = file.stat().st_size
        start, stop = self._range(size)
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(stop - start))
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{self.hub.sha1(file)}"')
        self.send_header("X-Repo-Commit", self.hub.commit(dataset))
        self.end_headers()
        if with_body:
            with file.open("rb") as opened:
                opened.seek(start)
                self._send(opened.read(stop - start), fault)
        return None

    def _send(self, data: bytes, fault: Fault | None) -> None:
        if fault is None:
            self.wfile.write(data)
        elif fault.cut_after is not None:
            self.wfile.write(data[: fault.cut_after])
            self.wfile.flush()
            # Lingering for zero seconds makes the close a reset, as a lost connection is.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
        else:
            for start in range(0, len(data), SLOW_CHUNK_BYTES):
                time.sleep(fault.slow or 0)
                self.wfile.write(data[start : start + SLOW_CHUNK_BYTES])

    def _range(self, size: int) -> tuple[int, int]:
        asked = self.headers.get("Range")
        if asked is None:
            return 0, size
        first, _, last = asked.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last) + 1) if last else size

    def _entry(self, base: Path, name: str) -> dict[str, Any]:
        path = base / name
        if path.is_dir():
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
        size = path.stat().st_size
        return {"type": "file", "oid": self.hub.sha1(path), "size": size, "path": name}

    def _json(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def main() -> None:
    """Serve a folder until interrupted."""
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    hub = StandIn(Path(sys.argv[1]), port=port)
    print(hub.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
