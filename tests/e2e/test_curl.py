# SPDX-License-Identifier: Apache-2.0
"""What a person types first: curl against the server."""

import json
import subprocess


def curl(*arguments: str) -> str:
    return subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], check=True, capture_output=True,
                          text=True).stdout


def test_chat(server):
    body = {"model": "tandem-small", "messages": [{"role": "user", "content": "What is 20 + 22?"}], "temperature": 0}
    answer = json.loads(curl(server.url + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d",
                             json.dumps(body)))
    assert "42" in answer["choices"][0]["message"]["content"]


def test_stream(server):
    body = {"model": "tandem-small", "prompt": "The", "max_tokens": 8, "temperature": 0, "stream": True}
    out = curl("-N", "-i", server.url + "/v1/completions", "-H", "Content-Type: application/json", "-d",
               json.dumps(body))
    head, _, stream = out.partition("\n\n")  # text mode turned \r\n into \n
    assert head.startswith("HTTP/1.1 200")
    assert "text/event-stream" in head.lower()
    events = [line[6:] for line in stream.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert all(json.loads(event)["object"] == "text_completion" for event in events[:-1])


def test_admin(server):
    assert curl("-o", "/dev/null", "-w", "%{http_code}", server.admin_url + "/live") == "200"
    assert curl("-o", "/dev/null", "-w", "%{http_code}", server.admin_url + "/ready") == "200"
    assert "# TYPE tandem_" in curl(server.admin_url + "/metrics")
    # Admin routes aren't on the public port.
    assert curl("-o", "/dev/null", "-w", "%{http_code}", server.url + "/metrics") == "404"
