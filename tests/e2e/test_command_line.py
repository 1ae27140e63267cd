# SPDX-License-Identifier: Apache-2.0
"""Exit codes and one clear line for what a person can get wrong; generate and inspect."""

import json
import shutil
import socket
import subprocess

import pytest

from server import MODEL, TANDEM


def tandem(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run([str(TANDEM), *arguments], capture_output=True, text=True, timeout=timeout)


def assert_one_clear_line(result: subprocess.CompletedProcess, *words: str) -> None:
    assert result.returncode == 2, result
    lines = [line for line in result.stderr.strip().splitlines() if line]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def test_help_explains_every_flag():
    for command in ("serve", "generate", "inspect"):
        result = tandem(command, "--help")
        assert result.returncode == 0
        assert "--" in result.stdout


@pytest.mark.parametrize("arguments, words", [
    (["serve", str(MODEL), "--no-such-flag"], ["--no-such-flag"]),
    (["serve", "/no/such/model"], ["/no/such/model"]),
    (["serve", str(MODEL), "--port", "70000"], ["port"]),
    (["serve", str(MODEL), "--page-tokens", "0"], ["page-tokens"]),
    (["serve", str(MODEL), "--page-tokens", "512", "--chunk-tokens", "256"], ["--chunk-tokens", "--page-tokens"]),
    (["serve", str(MODEL), "--context-tokens", "1000000"], ["--context-tokens", "max_position_embeddings"]),
    (["serve", str(MODEL), "--host", "not an address"], ["not an address"]),
    (["serve", str(MODEL), "--host", "0.0.0.0"], ["key"]),  # open to the network needs a key
    (["generate", "/no/such/model", "hello"], ["/no/such/model"]),
    (["inspect", "/no/such/model"], ["/no/such/model"]),
    (["dance"], ["dance"]),
    ([], []),
])
def test_mistakes_give_one_line_and_exit_code_2(arguments, words):
    assert_one_clear_line(tandem(*arguments), *words)


def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_clear_line(tandem("serve", str(MODEL), "--port", str(port)), str(port), "in use")


def test_generate_streams_the_greedy_answer():
    arguments = ["generate", str(MODEL), "What is 31 + 11?", "--temperature", "0", "--max-tokens", "64"]
    split, whole = tandem(*arguments), tandem(*arguments, "--whole")
    assert split.returncode == 0, split.stderr
    assert "42" in split.stdout
    assert split.stdout == whole.stdout


def test_inspect_tells_what_is_in_a_model():
    result = tandem("inspect", str(MODEL))
    assert result.returncode == 0, result.stderr
    for word in ("qwen3_moe", "16, 4 per token", "model-00001-of-"):
        assert word in result.stdout, result.stdout


def broken_model(tmp_path, change):
    folder = tmp_path / "broken"
    shutil.copytree(MODEL, folder)
    change(folder)
    return folder


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


def cut_a_shard(folder):
    with shards(folder)[-1].open("r+b") as file:
        file.truncate(shards(folder)[-1].stat().st_size - 1)


def drop_a_shard(folder):
    shards(folder)[-1].unlink()


def edit_config(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return change


@pytest.mark.parametrize("change, words", [
    (cut_a_shard, ["safetensors"]),
    (drop_a_shard, ["safetensors"]),
    (edit_config(num_attention_heads=0), ["config.json", "num_attention_heads"]),
    (edit_config(vocab_size=1 << 31), ["config.json", "vocab_size"]),
    (edit_config(hidden_size=128), ["safetensors"]),
    (edit_config(model_type="llama"), ["config.json", "llama"]),
    (lambda folder: (folder / "tokenizer.json").write_text("{"), ["tokenizer.json"]),
    (lambda folder: (folder / "tokenizer.json").unlink(), ["tokenizer.json"]),
    (lambda folder: (folder / "config.json").unlink(), ["config.json"]),
], ids=["cut", "missing shard", "heads 0", "vocab 2^31", "hidden", "family", "tokenizer", "no tokenizer", "no config"])
def test_wrong_files_do_not_load(tmp_path, change, words):
    folder = broken_model(tmp_path, change)
    assert_one_clear_line(tandem("serve", str(folder), "--port", "0"), *words)
