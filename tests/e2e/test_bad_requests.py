# SPDX-License-Identifier: Apache-2.0
"""Every kind of bad JSON, field, sampling value, token id and text, sent to a running server.

Each case checks the status and the field that the error names, that a long stream running beside it is not disturbed,
and at the end that the server still answers and holds no page.
"""

import json
import threading
import time
import urllib.request

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields) -> dict:
    return {"model": "tandem-small", "messages": HELLO, "max_tokens": 4, **fields}


def completion(**fields) -> dict:
    return {"model": "tandem-small", "prompt": "The", "max_tokens": 4, **fields}


def nested(depth: int) -> bytes:
    return b'{"model":"tandem-small","messages":[{"role":"user","content":"x"}],"metadata":' + \
        b"[" * depth + b"]" * depth + b"}"


def raw(field: str, literal: str) -> bytes:
    """A chat body with a literal that Python's json would not write."""
    return ('{"model":"tandem-small","messages":[{"role":"user","content":"x"}],"%s":%s}' % (field, literal)).encode()


# id: (path, body, status, param or None)
CASES: dict[str, tuple[str, dict | bytes, int, str | None]] = {
    # JSON itself
    "J1 nested 65": (CHAT, nested(65), 400, None),
    "J1 nested 1e6": (CHAT, nested(1_000_000), 400, None),
    "J2 duplicate n": (CHAT, b'{"model":"tandem-small","n":1,"n":2,"messages":[{"role":"user","content":"x"}]}', 400, "n"),
    "J2 duplicate messages": (CHAT, b'{"model":"tandem-small","messages":[],"messages":[{"role":"user","content":"x"}]}',
                              400, "messages"),
    "J2 duplicate inside a message": (CHAT, b'{"model":"tandem-small","messages":[{"role":"user","role":"system","content":"x"}]}',
                                      400, "messages[0].role"),
    "J3 n over 2^32": (CHAT, raw("n", "4294967297"), 400, "n"),
    "J3 n 1e999": (CHAT, raw("n", "1e999"), 400, None),
    "J3 n -5": (CHAT, raw("n", "-5"), 400, "n"),
    "J3 n 1.9": (CHAT, raw("n", "1.9"), 400, "n"),
    "J3 n true": (CHAT, raw("n", "true"), 400, "n"),
    "J3 n string": (CHAT, raw("n", '"3"'), 400, "n"),
    "J3 long number": (CHAT, raw("n", "1" * 10_000), 400, None),
    "J3 NaN": (CHAT, raw("temperature", "NaN"), 400, None),
    "J4 invalid UTF-8": (CHAT, b'{"model":"tandem-small","messages":[{"role":"user","content":"\xff\xfe"}]}', 400, None),
    "J4 overlong": (CHAT, b'{"model":"tandem-small","messages":[{"role":"user","content":"\xc0\xaf"}]}', 400, None),
    "J4 lone surrogate": (CHAT, b'{"model":"tandem-small","messages":[{"role":"user","content":"\\ud800"}]}', 400, None),
    "J4 byte order mark": (CHAT, b'\xef\xbb\xbf{"model":"tandem-small"}', 400, None),
    "J5 no messages": (CHAT, chat(messages=[]), 400, "messages"),
    "J5 messages not a list": (CHAT, chat(messages="hello"), 400, "messages"),
    "J5 message not an object": (CHAT, chat(messages=["hello"]), 400, "messages[0]"),
    "J5 too many messages": (CHAT, chat(messages=HELLO * 5000), 400, "messages"),
    "J5 unknown role": (CHAT, chat(messages=[{"role": "wizard", "content": "x"}]), 400, "messages[0].role"),
    "J5 content a number": (CHAT, chat(messages=[{"role": "user", "content": 7}]), 400, "messages[0].content"),
    "J5 part without text": (CHAT, chat(messages=[{"role": "user", "content": [{"type": "text"}]}]), 400,
                             "messages[0].content[0].text"),
    "C6 image by address": (CHAT, chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]}]), 400, "messages[0].content[0].type"),
    "J6 trailing text": (CHAT, json.dumps(chat()).encode() + b"x", 400, None),
    "J6 two documents": (CHAT, json.dumps(chat()).encode() * 2, 400, None),
    "J6 empty body": (CHAT, b"", 400, None),
    "J6 a list": (CHAT, b"[]", 400, None),
    # sampling and budget
    "S1 n 0": (CHAT, chat(n=0), 400, "n"),
    "S1 n 1e9": (CHAT, chat(n=1_000_000_000), 400, "n"),
    "S1 n 129": (CHAT, chat(n=129), 400, "n"),
    "S1 best_of": (COMPLETIONS, completion(best_of=1_000_000), 400, "best_of"),
    "S2 max_tokens 0": (CHAT, chat(max_tokens=0), 400, "max_tokens"),
    "S2 max_tokens -1": (CHAT, chat(max_tokens=-1), 400, "max_tokens"),
    "S2 max_tokens 2^31": (CHAT, chat(max_tokens=1 << 31), 400, "max_tokens"),
    "S2 max_tokens 2^63": (CHAT, raw("max_tokens", str(1 << 63)), 400, "max_tokens"),
    "S2 both kinds differ": (CHAT, chat(max_completion_tokens=0), 400, "max_completion_tokens"),
    "S3 prompt over the context": (COMPLETIONS, completion(prompt="word " * 60_000), 400, "prompt"),
    "S4 logprobs -1": (COMPLETIONS, completion(logprobs=-1), 400, "logprobs"),
    "S4 logprobs 1e6": (COMPLETIONS, completion(logprobs=1_000_000), 400, "logprobs"),
    "S4 top_logprobs 21": (CHAT, chat(logprobs=True, top_logprobs=21), 400, "top_logprobs"),
    "S4 top_logprobs alone": (CHAT, chat(top_logprobs=2), 400, "top_logprobs"),
    "S5 temperature -1": (CHAT, chat(temperature=-1), 400, "temperature"),
    "S5 temperature 1e38": (CHAT, chat(temperature=1e38), 400, "temperature"),
    "S5 top_p 0": (CHAT, chat(top_p=0), 400, "top_p"),
    "S5 top_p over 1": (CHAT, chat(top_p=1.0000001), 400, "top_p"),
    "S5 top_k -2": (CHAT, chat(top_k=-2), 400, "top_k"),
    "S5 top_k 2^31": (CHAT, chat(top_k=1 << 31), 400, "top_k"),
    "S5 min_p 2": (CHAT, chat(min_p=2), 400, "min_p"),
    "S5 presence 3": (CHAT, chat(presence_penalty=3), 400, "presence_penalty"),
    "S5 frequency -3": (CHAT, chat(frequency_penalty=-3), 400, "frequency_penalty"),
    "S5 repetition 0": (CHAT, chat(repetition_penalty=0), 400, "repetition_penalty"),
    "S5 seed 2^64": (CHAT, raw("seed", str(1 << 64)), 400, "seed"),
    "S6 bias id -1": (CHAT, chat(logit_bias={"-1": 1}), 400, "logit_bias"),
    "S6 bias id vocab": (CHAT, chat(logit_bias={"4096": 1}), 400, "logit_bias"),
    "S6 bias id 2^32": (CHAT, chat(logit_bias={str(1 << 32): 1}), 400, "logit_bias"),
    "S6 bias 1e30": (CHAT, chat(logit_bias={"1": 1e30}), 400, "logit_bias"),
    "S6 bias of 300,000 ids": (CHAT, chat(logit_bias={str(i): 0 for i in range(300_000)}), 400, "logit_bias"),
    "S6 bias key not a number": (CHAT, chat(logit_bias={"abc": 1}), 400, "logit_bias"),
    "S7 stop id vocab": (CHAT, chat(stop_token_ids=[4096]), 400, "stop_token_ids"),
    "S7 stop id -1": (CHAT, chat(stop_token_ids=[-1]), 400, "stop_token_ids"),
    "S7 prompt id vocab": (COMPLETIONS, completion(prompt=[1, 4096]), 400, "prompt"),
    "S7 prompt id -1": (COMPLETIONS, completion(prompt=[-1]), 400, "prompt"),
    "S7 prompt id 2^40": (COMPLETIONS, completion(prompt=[1 << 40]), 400, "prompt"),
    "S7 empty prompt list": (COMPLETIONS, completion(prompt=[]), 400, "prompt"),
    "S8 stop empty": (CHAT, chat(stop=""), 400, "stop"),
    "S8 stop 10,000": (CHAT, chat(stop=["x"] * 10_000), 400, "stop"),
    "S8 stop 1 MB": (CHAT, chat(stop="x" * 1_000_000), 400, "stop"),
    "S8 stop a number": (CHAT, chat(stop=[7]), 400, "stop"),
    "S9 min over max": (CHAT, chat(min_tokens=5), 400, "min_tokens"),
    "S10 model a path": (CHAT, chat(model="../../etc/passwd"), 404, "model"),
    "S10 model 1 MB": (CHAT, chat(model="m" * 1_000_000), 404, "model"),
    "S10 model a number": (CHAT, chat(model=7), 400, "model"),
    "S11 prompt_embeds": (COMPLETIONS, completion(prompt_embeds="AAAA"), 400, "prompt_embeds"),
    "S12 stream_options alone": (CHAT, chat(stream_options={"include_usage": True}), 400, "stream_options"),
    "S12 stream a string": (CHAT, chat(stream="yes"), 400, "stream"),
    "S12 response_format": (CHAT, chat(response_format={"type": "json_schema"}), 400, "response_format"),
    # template
    "T4 client template": (CHAT, chat(chat_template="{{ 7 }}"), 400, "chat_template"),
    "T4 kwargs reserved": (CHAT, chat(chat_template_kwargs={"tokenize": True}), 400, "chat_template_kwargs"),
    "T4 kwargs messages": (CHAT, chat(chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs"),
    "tokenize id": ("/v1/detokenize", {"model": "tandem-small", "tokens": [-1]}, 400, "tokens"),
    "tokenize no prompt": ("/v1/tokenize", {"model": "tandem-small"}, 400, None),
}


class LongStream(threading.Thread):
    """A greedy stream that runs beside the bad requests; its text must be what it is alone."""

    def __init__(self, url: str):
        super().__init__(daemon=True)
        self.url, self.text, self.finish = url, "", None

    def run(self) -> None:
        body = completion(max_tokens=400, temperature=0, stream=True, ignore_eos=True)
        request = urllib.request.Request(self.url + COMPLETIONS, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    choice = json.loads(line[6:])["choices"][0]
                    self.text += choice["text"]
                    self.finish = choice["finish_reason"] or self.finish


@pytest.fixture(scope="module")
def alone(server):
    stream = LongStream(server.url)
    stream.start()
    stream.join()
    assert stream.finish == "length"
    return stream.text


@pytest.fixture(scope="module")
def beside(server, alone):
    """Keeps a long stream running during all cases; each one that ends is compared and replaced."""
    streams, stop = [], threading.Event()

    def keep_running():
        while not stop.is_set():
            stream = LongStream(server.url)
            streams.append(stream)
            stream.start()
            stream.join()

    keeper = threading.Thread(target=keep_running, daemon=True)
    keeper.start()
    yield streams
    stop.set()
    keeper.join(120)
    assert streams
    for stream in streams:
        assert (stream.text, stream.finish) == (alone, "length")


@pytest.mark.parametrize("name", CASES)
def test_refused_by_name(server, beside, name):
    path, body, status, param = CASES[name]
    got, answer = server.post(path, body)
    assert got == status, answer
    error = answer["error"]
    assert error["message"] and error["type"]
    if param is not None:
        assert error["param"] and error["param"].startswith(param), error
    assert len(error["message"]) < 600
    assert "/home" not in error["message"] and "0x" not in error["message"]


@pytest.mark.parametrize("text", ["a" * 200_000, " " * 200_000, "\n" * 200_000, "." * 200_000, "世" * 60_000,
                                  "Ab" * 100_000, "e\u0301" * 60_000], ids=lambda t: repr(t[:2]))
def test_long_one_letter_texts_are_quick(server, beside, text):
    begin = time.monotonic()
    status, answer = server.post("/v1/tokenize", {"model": "tandem-small", "prompt": text})
    assert status == 200
    assert time.monotonic() - begin < 5
    assert server.post("/v1/detokenize", {"model": "tandem-small", "tokens": answer["tokens"]})[0] == 200


def test_special_tokens_in_user_text_stay_text(server):
    def prompt_tokens(content: str) -> int:
        status, answer = server.post(CHAT, chat(messages=[{"role": "user", "content": content}], max_tokens=1))
        assert status == 200
        return answer["usage"]["prompt_tokens"]

    # One control id would cost one token; as text it costs several.
    assert prompt_tokens("a<|im_end|>b") - prompt_tokens("ab") > 3


def test_stop_string_across_tokens_and_in_utf8(server):
    whole = server.post(COMPLETIONS, completion(max_tokens=60, temperature=0))[1]["choices"][0]["text"]
    for begin in range(0, len(whole) - 8, 7):
        stop = whole[begin:begin + 8]
        answer = server.post(COMPLETIONS, completion(max_tokens=60, temperature=0, stop=[stop]))[1]
        assert answer["choices"][0]["text"] == whole[:whole.index(stop)]


def test_private_text_is_in_no_metric(server):
    canary = "canary8142563"
    server.post(CHAT, chat(messages=[{"role": "user", "content": canary}]))
    server.post(CHAT, chat(messages=[{"role": canary, "content": canary}]))
    assert canary not in server.get("/metrics", admin=True)[1]
    assert canary not in server.log_path.read_text()


def test_afterwards_the_server_serves_and_holds_nothing(server):
    status, answer = server.post(CHAT, chat(messages=[{"role": "user", "content": "What is 20 + 22?"}], temperature=0,
                                            max_tokens=64))
    assert status == 200 and "42" in answer["choices"][0]["message"]["content"]
    assert server.get("/ready", admin=True)[0] == 200
    deadline = time.monotonic() + 10
    while server.metric("tandem_pages", state="used") != 0:
        assert time.monotonic() < deadline, "pages are still in use"
        time.sleep(0.05)
    # What came in went out, by kind; the stream beside the cases may be on its way.
    def balance() -> float:
        ended = sum(server.metric("tandem_requests_ended_total", outcome=o)
                    for o in ("ok", "client_error", "cancelled", "failed"))
        return server.metric("tandem_requests_total") - ended - server.metric("tandem_requests_running")

    deadline = time.monotonic() + 10
    while balance() != 0:
        assert time.monotonic() < deadline, "requests that came in and never ended"
        time.sleep(0.05)
