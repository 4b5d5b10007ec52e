"""An agent that speaks Claude's API with the variables of its container, as the libraries of Anthropic do, and no other
setting. It reports what it saw to a file of the workspace, and waits there until the test has looked at it."""

import json
import os
import sys
import time
import urllib.request

WORKSPACE = os.environ["PADDOCK_WORKSPACE"]
BASE = "https://api.anthropic.com"


def report(**fields):
    line = json.dumps(fields)
    print(line, flush=True)
    with open(WORKSPACE + "/report.jsonl", "a") as file:
        file.write(line + "\n")


def wait_for(name):
    while not os.path.exists(f"{WORKSPACE}/{name}"):
        time.sleep(0.05)


def request(path, body=None):
    headers = {
        "x-api-key": os.environ["ANTHROPIC_API_KEY"],
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-app": "cli",
        # An API must not learn these from an agent.
        "cookie": "session=of-the-agent",
        "x-forwarded-for": "192.0.2.1",
        "x-of-the-agent": "yes",
    }
    data = json.dumps(body).encode() if body is not None else None
    return urllib.request.Request(BASE + path, data=data, headers=headers)


def ask(text, stream):
    message = {"model": "claude", "max_tokens": 64, "stream": stream,
               "messages": [{"role": "user", "content": text}]}
    with urllib.request.urlopen(request("/v1/messages", message), timeout=60) as response:
        if not stream:
            return json.load(response)["content"][0]["text"]
        words = []
        for line in response:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                words.append(event.get("delta", {}).get("text", ""))
        return "".join(words)


def main():
    with open(os.environ["PADDOCK_PROMPT_PATH"]) as file:
        prompt = file.read()
    report(step="key", value=os.environ["ANTHROPIC_API_KEY"])
    # The command line sends some requests without a key.
    with urllib.request.urlopen(BASE + "/api/hello", timeout=60) as response:
        report(step="hello", status=response.status)
    report(step="whole", text=ask(prompt, False))
    report(step="stream", text=ask(prompt, True))
    report(step="done")
    wait_for("release")
    return 0


if __name__ == "__main__":
    sys.exit(main())
