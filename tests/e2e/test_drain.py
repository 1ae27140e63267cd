# SPDX-License-Identifier: Apache-2.0
"""SIGTERM loses no accepted request inside the deadline, and ends what is over it with an honest error."""

import concurrent.futures
import json
import signal
import time

import pytest

from server import Server


def completion(tokens: int, stream: bool = False) -> dict:
    return {"model": "tandem-small", "prompt": "The", "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "stream": stream}


def wait_until_running(server: Server, count: int) -> None:
    deadline = time.monotonic() + 20
    while server.metric("tandem_requests_running") < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def send_long_stream(connection) -> None:
    body = json.dumps(completion(3900, stream=True)).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)


@pytest.mark.parametrize("mode", [[], ["--whole"]], ids=["split", "whole"])
def test_running_requests_finish(tmp_path, mode):
    server = Server(*mode, log_path=tmp_path / "log.txt")
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(server.post, "/v1/completions", completion(600)) for _ in range(4)]
            wait_until_running(server, 4)
            server.process.send_signal(signal.SIGTERM)
            for future in futures:
                status, answer = future.result(60)
                assert status == 200
                assert answer["usage"]["completion_tokens"] == 600
        assert server.process.wait(20) == 0
    finally:
        server.kill()


def test_what_is_over_the_deadline_gets_an_error_and_the_server_ends(tmp_path):
    server = Server("--drain-seconds", "1", log_path=tmp_path / "log.txt")
    try:
        with server.connect(60) as connection:
            send_long_stream(connection)
            wait_until_running(server, 1)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            answer = b""
            try:
                while chunk := connection.recv(65536):
                    answer += chunk
            except ConnectionResetError:
                pass
        assert time.monotonic() - begin < 10
        assert b"[DONE]" not in answer or answer.count(b"data: ") >= 3900 or b"error" in answer
        assert server.process.wait(20) == 0
    finally:
        server.kill()


def test_a_second_signal_ends_at_once(tmp_path):
    server = Server("--drain-seconds", "60", log_path=tmp_path / "log.txt")
    try:
        with server.connect(60) as connection:
            send_long_stream(connection)
            wait_until_running(server, 1)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(10)
            assert time.monotonic() - begin < 5
    finally:
        server.kill()
