"""A Google Cloud Storage in memory, on this machine, for tests of gs:// paths.

TensorFlow's client knows only the real host names. But it uses the proxy that `https_proxy` names
and trusts the certificates in CURL_CA_BUNDLE. This server is the proxy and, with its own
certificate, the storage behind it.
"""

import contextlib
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

HOSTS = ("www.googleapis.com", "storage.googleapis.com")


class StandinStorage(ThreadingHTTPServer):
    """The server.

    objects: bucket/name -> content.
    forbidden: names of buckets to which every access is denied.
    requests: method and URL of each request.
    """

    daemon_threads = True

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.forbidden: set[str] = set()
        self.requests: list[str] = []
        self.unfinished: dict[str, bytes] = {}
        self.certificate = folder / "certificate.pem"
        key = folder / "key.pem"
        names = ",".join(f"DNS:{host}" for host in HOSTS)
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=stand-in".split()
        command += ["-addext", f"subjectAltName={names}"]
        command += ["-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate, key)

    def environment(self) -> dict[str, str]:
        """Returns the variables with which a process finds this storage instead of the real one."""
        return {
            "https_proxy": f"http://127.0.0.1:{self.server_port}",
            "CURL_CA_BUNDLE": str(self.certificate),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
        }


@contextlib.contextmanager
def running(folder: Path) -> Iterator[StandinStorage]:
    """Yields a storage that answers while the `with` block lasts; `folder` gets its certificate."""
    with StandinStorage(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandinStorage

    def log_message(self, *unused) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def _answer(self, status: int, content: bytes | dict = b"", **headers: str) -> None:
        if isinstance(content, dict):
            content = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _dispatch(self) -> None:
        body = self._body()
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        host = self.headers["Host"]
        self.server.requests.append(f"{self.command} {host}{self.path}")
        if host == "storage.googleapis.com":
            bucket, _, name = unquote(url.path).lstrip("/").partition("/")
            action = "content"
        else:
            found = re.match(r"(/upload)?/storage/v1/b/([^/]+)(?:/o(?:/([^/]+))?)?(.*)", url.path)
            bucket, name = found.group(2), unquote(found.group(3) or query.get("name", ""))
            if found.group(1):
                action = "upload"
            else:
                action = unquote(found.group(4)).strip("/") or ("object" if name else "list")
        if bucket in self.server.forbidden:
            self._answer(403, {"error": {"code": 403, "message": "forbidden"}})
        elif action == "upload":
            self._upload(f"{bucket}/{name}", body)
        elif action == "list":
            self._list(bucket, query.get("prefix", ""), query.get("delimiter"))
        elif f"{bucket}/{name}" not in self.server.objects:
            self._answer(404, {"error": {"code": 404, "message": "not found"}})
        else:
            self._object(f"{bucket}/{name}", action)

    do_GET = do_POST = do_PUT = do_DELETE = _dispatch

    def _upload(self, path: str, body: bytes) -> None:
        """Resumable upload: a POST makes a session, PUTs bring the content."""
        if self.command == "POST":
            self.server.unfinished[path] = b""
            self._answer(200, Location=f"https://{self.headers['Host']}{self.path}")
            return
        content = self.server.unfinished[path] = self.server.unfinished[path] + body
        total = self.headers.get("Content-Range", "/0").rpartition("/")[
            2
        ]  # none for an empty folder
        if total == str(len(content)):
            self.server.objects[path] = self.server.unfinished.pop(path)
            self._answer(200, {})
        else:
            self._answer(308, Range=f"bytes=0-{len(content) - 1}")

    def _list(self, bucket: str, prefix: str, delimiter: str | None) -> None:
        items, prefixes = [], set()
        for path in sorted(self.server.objects):
            in_bucket, _, name = path.partition("/")
            if in_bucket == bucket and name.startswith(prefix):
                head, separator, _ = name[len(prefix) :].partition(delimiter or "\0")
                if separator:
                    prefixes.add(prefix + head + separator)
                else:
                    items.append({"name": name, **self._status(path)})
        self._answer(200, {"items": items, "prefixes": sorted(prefixes)})

    def _status(self, path: str) -> dict[str, str]:
        size = str(len(self.server.objects[path]))
        return {"size": size, "generation": "1", "updated": "2020-01-01T00:00:00.000Z"}

    def _object(self, path: str, action: str) -> None:
        if self.command == "DELETE":
            del self.server.objects[path]
            self._answer(204)
        elif action == "content":
            content = self.server.objects[path]
            first, last = re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()
            part = content[int(first) : int(last) + 1]
            self._answer(206 if part else 416, part)
        elif action.startswith("rewriteTo/b/"):
            bucket, _, name = action.removeprefix("rewriteTo/b/").partition("/o/")
            self.server.objects[f"{bucket}/{name}"] = self.server.objects[path]
            self._answer(200, {"done": True})
        else:
            self._answer(200, self._status(path))
