# SPDX-License-Identifier: Apache-2.0
"""The real `openai` package against a running split server."""

import openai
import pytest

PROMPT = [{"role": "user", "content": "What is 17 + 25?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def test_models(client, model):
    assert model == "tandem-small"
    assert client.models.retrieve(model).id == model


def test_chat_answers_and_counts(client, model):
    answer = client.chat.completions.create(model=model, messages=PROMPT, temperature=0, max_tokens=64)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert "42" in choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens > 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream_equals_whole(client, model):
    arguments = dict(model=model, messages=PROMPT, max_tokens=40, temperature=0.8, seed=5)
    whole = client.chat.completions.create(**arguments)
    text, reasons, usage = "", [], None
    for chunk in client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usage == whole.usage or usage.total_tokens == whole.usage.total_tokens


def test_seed_fixes_the_draw_and_choices_differ(client, model):
    arguments = dict(model=model, prompt="The", max_tokens=24, temperature=1.0, n=4)
    first = client.completions.create(**arguments, seed=11)
    again = client.completions.create(**arguments, seed=11)
    other = client.completions.create(**arguments, seed=12)
    texts = [c.text for c in first.choices]
    assert texts == [c.text for c in again.choices]
    assert texts != [c.text for c in other.choices]
    assert len(set(texts)) > 1
    assert [c.index for c in first.choices] == [0, 1, 2, 3]


def test_stop_strings_end_the_text_before_them(client, model):
    whole = client.completions.create(model=model, prompt="The", max_tokens=40, temperature=0).choices[0].text
    stop = whole[len(whole) // 2:len(whole) // 2 + 3]
    cut = client.completions.create(model=model, prompt="The", max_tokens=40, temperature=0, stop=[stop]).choices[0]
    assert cut.text == whole[:whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_length_ends_a_completion(client, model):
    answer = client.completions.create(model=model, prompt="The", max_tokens=7, temperature=0,
                                       extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7


def test_chat_logprobs(client, model):
    answer = client.chat.completions.create(model=model, messages=PROMPT, temperature=0, max_tokens=12,
                                            logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert content
    for entry in content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        best = entry.top_logprobs[0]
        assert best.logprob == max(t.logprob for t in entry.top_logprobs)
        assert best.token == entry.token  # greedy takes the best
    text = b"".join(bytes(entry.bytes) for entry in content).decode()
    assert text.startswith(answer.choices[0].message.content[:5])


def test_echo_scores_the_prompt(client, model):
    answer = client.completions.create(model=model, prompt="The quick brown fox", max_tokens=0, echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "The quick brown fox"
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert "".join(choice.logprobs.tokens) == choice.text


def test_errors_are_openais(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=PROMPT, temperature=9)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="another", messages=PROMPT)


def test_async_client_many_at_once(server, model):
    import asyncio

    async def ask(client, i):
        answer = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": f"What is {10 + i} + {20 + i}?"}], temperature=0,
            max_tokens=64)
        return answer.choices[0].message.content

    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as client:
            together = await asyncio.gather(*(ask(client, i) for i in range(12)))
            alone = [await ask(client, i) for i in range(12)]
            return together, alone

    together, alone = asyncio.run(run())
    assert together == alone


def test_tokenize_and_detokenize(server, model):
    status, tokens = server.post("/v1/tokenize", {"model": model, "prompt": "Grüße, 世界 🙂"})
    assert status == 200
    status, text = server.post("/v1/detokenize", {"model": model, "tokens": tokens["tokens"]})
    assert status == 200
    assert text["prompt"] == "Grüße, 世界 🙂"
