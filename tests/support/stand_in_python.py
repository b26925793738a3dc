"""A `python` for shell scripts, whose programs start in forks of one that imported TensorFlow."""

import json
import os
import socket
import socketserver
import sys
import threading
from pathlib import Path

from tests.support import forked_programs

# The program `python`: what it was given goes to the server, with its streams, and it ends as the
# server says. {setup} may change `arguments`, or end the program.
_CLIENT = """#!{python} -SE
import json, os, socket, sys
arguments = sys.argv[1:]
{setup}
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b" "], [0, 1, 2])
    server.sendall(json.dumps([os.getcwd(), arguments, dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(8)))
"""


class StandInPython(socketserver.ThreadingUnixStreamServer):
    """Starts the programs of the `python` that `write` makes, while it is open."""

    daemon_threads = True

    def __init__(self, address: Path):
        super().__init__(str(address), _Program)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def write(self, path: Path, setup: str) -> None:
        """Writes a program `python`.

        Args:
            path: the file.
            setup: lines of Python that run first, with `arguments`, `os` and `sys`.
        """
        address = self.server_address
        path.write_text(_CLIENT.format(python=sys.executable, setup=setup, address=address))
        path.chmod(0o755)

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()


class _Program(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        _, streams, _, _ = socket.recv_fds(self.request, 1, 3)
        with self.request.makefile("rb") as request:
            folder, arguments, environment = json.load(request)
        words = [sys.executable, *arguments]
        program = forked_programs.start_in(folder, words, environment, streams)
        for stream in streams:
            os.close(stream)
        status = forked_programs.wait(program)
        self.request.sendall(b"%d" % (status if status >= 0 else 128 - status))
