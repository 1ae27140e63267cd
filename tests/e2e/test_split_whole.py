# SPDX-License-Identifier: Apache-2.0
"""Split and whole serving answer alike, over the whole HTTP surface: texts, finish reasons, logprobs, usage."""

import concurrent.futures
import random

import pytest

from server import Server

WORDS = "the of and to in is you that it he was for on are as with his they at be this have from".split()


def requests_of(seed: int) -> list[tuple[str, dict]]:
    """Requests of every kind; the same list for the same seed."""
    rng = random.Random(seed)
    shared = " ".join(rng.choice(WORDS) for _ in range(300))

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    chats = [{"messages": [{"role": "user", "content": f"What is {rng.randint(10, 99)} + {rng.randint(10, 99)}?"}]}
             for _ in range(6)]
    chats += [{"messages": [{"role": "system", "content": text(20)}, {"role": "user", "content": text(8)},
                            {"role": "assistant", "content": text(5)}, {"role": "user", "content": text(6)}],
               "chat_template_kwargs": {"enable_thinking": False}}]
    completions = [
        {"prompt": text(5), "temperature": 0},
        {"prompt": text(900), "temperature": 0},                                # several chunks
        {"prompt": shared + " " + text(4), "temperature": 0},                   # shared prefixes
        {"prompt": shared + " " + text(4), "temperature": 0.9, "seed": 3},
        {"prompt": shared, "n": 3, "temperature": 1.0, "seed": 4},
        {"prompt": text(9), "temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 5, "logprobs": 4},
        {"prompt": text(9), "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4,
         "seed": 6, "logprobs": 0},
        {"prompt": text(9), "logit_bias": {"300": 5, "301": -100}, "seed": 7},
        {"prompt": text(9), "stop": ["e ", " t"], "seed": 8},
        {"prompt": text(40), "max_tokens": 0, "echo": True, "logprobs": 2},
        {"prompt": text(40), "max_tokens": 3, "echo": True, "logprobs": 1, "temperature": 0},
        {"prompt": text(3), "ignore_eos": True, "max_tokens": 200, "temperature": 0},
        {"prompt": text(3), "min_tokens": 10, "max_tokens": 30, "seed": 9},
        {"prompt": [text(3), text(4)], "temperature": 0},
    ]
    out = [("/v1/chat/completions", {"model": "tandem-small", "max_tokens": 48, "temperature": 0.7, "seed": 1,
                                     "logprobs": True, "top_logprobs": 2, **c}) for c in chats]
    out += [("/v1/completions", {"model": "tandem-small", "max_tokens": 32, **c}) for c in completions]
    return out


def answers(server: Server, requests: list[tuple[str, dict]], at_once: int) -> list[dict]:
    def ask(request):
        status, answer = server.post(*request, timeout=240)
        assert status == 200, answer
        return {"choices": answer["choices"],
                "usage": {k: v for k, v in answer["usage"].items() if k.endswith("_tokens")}}

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(ask, requests))


@pytest.fixture(scope="module")
def reference(server):
    """The split server, one request at a time."""
    return answers(server, requests_of(1), at_once=1)


@pytest.mark.parametrize("flags", [
    ["--whole"],
    ["--whole", "--no-prefix-cache"],
    ["--whole", "--page-tokens", "16", "--chunk-tokens", "64"],
    ["--page-tokens", "32", "--chunk-tokens", "128"],
], ids=" ".join)
@pytest.mark.parametrize("at_once", [1, 8])
def test_same_answers(tmp_path, reference, flags, at_once):
    other = Server(*flags, log_path=tmp_path / "log.txt")
    try:
        for request, want, got in zip(requests_of(1), reference, answers(other, requests_of(1), at_once)):
            assert got == want, request
    finally:
        assert other.terminate() == 0


def test_same_answers_in_a_busy_batch(server, reference):
    for request, want, got in zip(requests_of(1), reference, answers(server, requests_of(1), at_once=16)):
        assert got == want, request
