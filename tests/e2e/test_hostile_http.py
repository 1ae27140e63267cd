# SPDX-License-Identifier: Apache-2.0
"""Raw bytes against a running server: framing, smuggling, paths, slow and vanishing clients."""

import json
import socket
import struct
import threading
import time

import pytest

from server import Server

BODY = json.dumps({"model": "tandem-small", "prompt": "The", "max_tokens": 4, "temperature": 0}).encode()


def request(head: str, body: bytes = b"") -> bytes:
    return head.replace("\n", "\r\n").encode("latin-1") + body


def post(extra: str = "", body: bytes = BODY, length: str | None = None, path: str = "/v1/completions") -> bytes:
    if length is None:
        length = f"Content-Length: {len(body)}\n"
    return request(f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n{length}{extra}\n", body)


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer.split(b" ", 2)[1])


def exchange(server: Server, data: bytes, timeout: float = 15.0) -> bytes:
    """Sends bytes, reads until the server closes or the answer's head and body are complete."""
    with server.connect(timeout) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending: the answer may be there all the same
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                head, separator, rest = answer.partition(b"\r\n\r\n")
                if separator and b"content-length:" in head.lower():
                    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                    if len(rest) >= length:
                        break
        except ConnectionResetError:
            pass
        return answer


CASES = {
    "H1 400 headers": (post("".join(f"X-{i}: 1\n" for i in range(400))), {431}),
    "H1 one 1 MB header": (post("X: " + "a" * 1_000_000 + "\n"), {431}),
    "H2 body over the limit": (post(length=f"Content-Length: {33 << 20}\n", body=b""), {413}),
    "H3 length -2": (post(length="Content-Length: -2\n"), {400}),
    "H3 length +3": (post(length="Content-Length: +3\n"), {400}),
    "H3 length of 23 digits": (post(length="Content-Length: 11111111111111111111111\n"), {400, 413}),
    "H3 two lengths": (post(length=f"Content-Length: {len(BODY)}\nContent-Length: 3\n"), {400}),
    "H3 two equal lengths": (post(length=f"Content-Length: {len(BODY)}\nContent-Length: {len(BODY)}\n"), {400}),
    "H3 length list": (post(length="Content-Length: 3, 3\n"), {400}),
    "H3 chunk size -2": (post(length="Transfer-Encoding: chunked\n", body=b"-2\r\nab\r\n0\r\n\r\n"), {400}),
    "H3 chunk size 0x3": (post(length="Transfer-Encoding: chunked\n", body=b"0x3\r\nabc\r\n0\r\n\r\n"), {400}),
    "H3 chunk size 2^64": (post(length="Transfer-Encoding: chunked\n", body=b"10000000000000000\r\n"), {400, 413}),
    "H4 xchunked": (post(length="Transfer-Encoding: xchunked\n", body=b""), {400, 501}),
    "H4 chunked, identity": (post(length="Transfer-Encoding: chunked, identity\n", body=b""), {400, 501}),
    "H4 length and chunked": (post("Transfer-Encoding: chunked\n"), {400}),
    "H5 gzip": (post("Content-Encoding: gzip\n"), {415}),
    "H6 no Host": (request("GET /v1/models HTTP/1.1\n\n"), {400}),
    "H6 two Hosts": (request("GET /v1/models HTTP/1.1\nHost: a\nHost: b\n\n"), {400}),
    "H6 path in Host": (request("GET /v1/models HTTP/1.1\nHost: localhost/v1/models?\n\n"), {400}),
    "H6 absolute form": (request("GET http://localhost/v1/models HTTP/1.1\nHost: localhost\n\n"), {400}),
    "H6 dot dot": (request("GET /v1/../metrics HTTP/1.1\nHost: localhost\n\n"), {400, 404}),
    "H6 %2e%2e": (request("GET /v1/%2e%2e/metrics HTTP/1.1\nHost: localhost\n\n"), {400, 404}),
    "H6 %00": (request("GET /v1/models%00 HTTP/1.1\nHost: localhost\n\n"), {400, 404}),
    "H6 obs-fold": (request("GET /v1/models HTTP/1.1\nHost: localhost\nX: a\n b\n\n"), {400}),
    "H6 NUL": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", {400}),
    "H6 bare LF": (b"GET /v1/models HTTP/1.1\nHost: localhost\n\n", {400}),
    "H7 admin on the public port": (request("GET /metrics HTTP/1.1\nHost: localhost\n\n"), {404}),
    "H9 TRACE": (request("TRACE /v1/models HTTP/1.1\nHost: localhost\n\n"), {405}),
    "H9 wrong method": (request("GET /v1/completions HTTP/1.1\nHost: localhost\n\n"), {405}),
    "H9 HTTP/9.9": (request("GET /v1/models HTTP/9.9\nHost: localhost\n\n"), {400, 505}),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}),
    "J6 wrong content type": (post().replace(b"application/json", b"text/plain"), {400, 415}),
}


@pytest.fixture(scope="module")
def alone(server):
    return exchange_text(server)


def exchange_text(server: Server) -> str:
    answer = exchange(server, post("Connection: close\n"))
    assert status_of(answer) == 200
    return json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["text"]


@pytest.mark.parametrize("name", CASES)
def test_refused(server, alone, name):
    data, statuses = CASES[name]
    answer = exchange(server, data)
    if name == "garbage" and answer == b"":
        return  # closing without a word is a fine answer to something that isn't HTTP
    assert status_of(answer) in statuses, answer[:300]
    assert exchange_text(server) == alone


def test_two_hidden_requests_are_not_served(server):
    """What follows a refused request on the same connection is never answered: no smuggling."""
    smuggled = post(length="Transfer-Encoding: xchunked\n", body=b"") + request(
        "GET /v1/models HTTP/1.1\nHost: localhost\n\n")
    with server.connect() as connection:
        connection.sendall(smuggled)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    assert answer.count(b"HTTP/1.1 ") == 1


def test_chunked_bodies_work(server, alone):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i:i + 5]), BODY[i:i + 5]) for i in range(0, len(BODY), 5))
    answer = exchange(server, post(length="Transfer-Encoding: chunked\n", body=chunks + b"0\r\n\r\n"))
    assert status_of(answer) == 200
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["text"] == alone


def test_pipelined_requests_are_answered_in_order(server):
    count = 20
    with server.connect(60) as connection:
        connection.sendall(request("GET /v1/models HTTP/1.1\nHost: localhost\n\n") * (count - 1) + request(
            "GET /v1/models HTTP/1.1\nHost: localhost\nConnection: close\n\n"))
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.count(b"HTTP/1.1 200") == count


def stream_bytes(tokens: int) -> bytes:
    body = json.dumps({"model": "tandem-small", "prompt": "The", "max_tokens": tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True}).encode()
    return post(body=body)


def wait_for(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def nothing_runs(server: Server) -> bool:
    return server.metric("tandem_requests_running") == 0 and server.metric("tandem_pages", state="used") == 0


@pytest.mark.parametrize("read_first", [0, 1, 5, 50])
def test_a_vanished_client_is_cancelled(server, alone, read_first):
    cancelled = server.metric("tandem_requests_ended_total", outcome="cancelled")
    connection = server.connect()
    connection.sendall(stream_bytes(3000))
    answer = b""
    while answer.count(b"data: ") < read_first:
        answer += connection.recv(4096)
    if read_first == 0:
        wait_for(lambda: not nothing_runs(server), 10, "the request never ran")
    # RST instead of FIN.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    wait_for(lambda: nothing_runs(server), 5, "the request of a vanished client goes on")
    assert server.metric("tandem_requests_ended_total", outcome="cancelled") == cancelled + 1
    assert exchange_text(server) == alone


def test_many_idle_connections_do_not_stop_service(server, alone):
    idle = [server.connect() for _ in range(200)]
    try:
        assert exchange_text(server) == alone
    finally:
        for connection in idle:
            connection.close()


def test_an_unfinished_head_is_cut(tmp_path, alone):
    slow = Server("--head-timeout-ms", "500", log_path=tmp_path / "log.txt")
    try:
        begin = time.monotonic()
        with slow.connect() as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc")
            answer = connection.recv(4096)
            assert answer == b"" or status_of(answer) == 408
        assert time.monotonic() - begin < 5
        assert exchange_text(slow) == alone
    finally:
        assert slow.terminate() == 0


def test_keys_are_checked_on_every_route(tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("right-key-123\n")
    guarded = Server("--api-key-file", str(keys), log_path=tmp_path / "log.txt")
    try:
        for path in ("/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/tokenize", "/v1/detokenize", "/x",
                     "/metrics"):
            for key in (None, "right-key-124", "right-key-12", "k" * 10_000, "schlüssel"):
                header = f"Authorization: Bearer {key}\n" if key else ""
                answer = exchange(guarded, request(f"GET {path} HTTP/1.1\nHost: localhost\n{header}\n"))
                assert status_of(answer) in (401, 431), (path, key)
                assert b"right-key" not in answer
        answer = exchange(guarded, request("GET /v1/models?key=right-key-123 HTTP/1.1\nHost: localhost\n\n"))
        assert status_of(answer) == 401
        answer = exchange(guarded, request("GET /v1/models HTTP/1.1\nHost: localhost\n"
                                           "Authorization: Bearer right-key-123\n\n"))
        assert status_of(answer) == 200
        assert "right-key" not in (tmp_path / "log.txt").read_text()
    finally:
        assert guarded.terminate() == 0


def test_request_ids_are_validated(server):
    good = exchange(server, request("GET /v1/models HTTP/1.1\nHost: localhost\nX-Request-Id: abc.DEF-1_2\n\n"))
    assert b"abc.DEF-1_2" in good
    for bad in ("a" * 129, "a b", "a%0D%0ASet-Cookie: x"):
        answer = exchange(server, request(f"GET /v1/models HTTP/1.1\nHost: localhost\nX-Request-Id: {bad}\n\n"))
        assert status_of(answer) == 200
        assert bad.encode() not in answer


def test_a_client_that_reads_nothing_is_cut_and_others_go_on(tmp_path):
    bounded = Server("--write-timeout-ms", "1000", log_path=tmp_path / "log.txt")
    try:
        alone = exchange_text(bounded)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((bounded.host, bounded.port))
        stuck.sendall(stream_bytes(3500))
        done = threading.Event()

        def others():
            while not done.is_set():
                assert exchange_text(bounded) == alone

        thread = threading.Thread(target=others)
        thread.start()
        try:
            wait_for(lambda: bounded.metric("tandem_requests_running") > 0, 10, "the stream never ran")
            wait_for(lambda: bounded.metric("tandem_requests_ended_total", outcome="cancelled") == 1
                     or bounded.metric("tandem_requests_ended_total", outcome="ok") > 200, 60, "never cut")
        finally:
            done.set()
            thread.join()
            stuck.close()
        wait_for(lambda: nothing_runs(bounded), 10, "something still runs")
    finally:
        assert bounded.terminate() == 0
