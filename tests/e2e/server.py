# SPDX-License-Identifier: Apache-2.0
"""Starts a real `tandem serve` for a test and ends it, by its own process id."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TANDEM_BUILD", ROOT / "build"))
TANDEM = BUILD / "tandem"
MODEL = ROOT / "models" / "tandem-small"


class Server:
    """One server on free ports of the loopback interface."""

    def __init__(self, *flags: str, model: Path = MODEL, log_path: Path | None = None):
        self.log_path = log_path
        command = [str(TANDEM), "serve", str(model), "--port", "0", "--admin-port", "0", *flags]
        # stdout is a pipe for the two lines with the ports; the log goes to a file, so that no pipe can fill up.
        self.log_file = open(log_path, "w") if log_path else subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log_file, text=True)
        self.host = "127.0.0.1"
        self.port = self.admin_port = 0
        deadline = time.monotonic() + 60
        while not (self.port and self.admin_port):
            line = self.process.stdout.readline()
            if not line or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start: exit code {self.process.poll()}")
            if found := re.search(r"listening on http://[\d.]+:(\d+)", line):
                self.port = int(found.group(1))
            if found := re.search(r"admin on http://[\d.]+:(\d+)", line):
                self.admin_port = int(found.group(1))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://{self.host}:{self.admin_port}"

    def connect(self, timeout: float = 10.0) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def get(self, path: str, admin: bool = False) -> tuple[int, str]:
        try:
            with urllib.request.urlopen((self.admin_url if admin else self.url) + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, body: dict | bytes, headers: dict[str, str] | None = None,
             timeout: float = 60.0) -> tuple[int, dict]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data,
                                         headers={"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include the given ones."""
        total, found = 0.0, False
        for line in self.get("/metrics", admin=True)[1].splitlines():
            match = re.match(r"(\w+)(?:\{(.*)\})? (\S+)$", line)
            if not match or match.group(1) != name:
                continue
            have = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2) or ""))
            if all(have.get(key) == value for key, value in labels.items()):
                total, found = total + float(match.group(3)), True
        if not found:
            raise KeyError(f"no metric {name} with {labels}")
        return total

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM, as a supervisor would; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if self.log_path:
            self.log_file.close()
