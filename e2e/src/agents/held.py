"""An agent that holds connections and continues to send requests, and reports each change of the result: what its run
still reaches."""

import json
import os
import socket
import ssl
import sys
import threading
import time

WORKSPACE = os.environ["PADDOCK_WORKSPACE"]
HOST = "api.anthropic.com"
REPORTING = threading.Lock()


def report(**fields):
    with REPORTING, open(WORKSPACE + "/report.jsonl", "a") as file:
        file.write(json.dumps({"at": time.time(), **fields}) + "\n")


def connect(host=HOST):
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    stream = socket.create_connection((host, 443), timeout=30)
    return context.wrap_socket(stream, server_hostname=host)


def hold():
    """Receives an endless stream of events, with the key."""
    try:
        with connect() as stream:
            head = f"GET /ticks HTTP/1.1\r\nhost: {HOST}\r\nx-api-key: {os.environ['ANTHROPIC_API_KEY']}\r\n\r\n"
            stream.sendall(head.encode())
            first = stream.recv(4096)
            report(step="held", status=first.split(b"\r\n")[0].decode())
            while stream.recv(4096):
                pass
        report(step="cut", how="closed")
    except OSError as error:
        report(step="cut", how=repr(error))


def send():
    """Sends a request with the key over a new connection; returns the status, or the failure."""
    body = json.dumps({"model": "claude", "max_tokens": 8,
                       "messages": [{"role": "user", "content": "still there?"}]})
    head = (f"POST /v1/messages HTTP/1.1\r\nhost: {HOST}\r\nx-api-key: {os.environ['ANTHROPIC_API_KEY']}\r\n"
            f"anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n")
    try:
        with connect() as stream:
            stream.sendall((head + body).encode())
            answer = b""
            while b"\r\n" not in answer:
                part = stream.recv(4096)
                if not part:
                    return "closed"
                answer += part
            return answer.split(b" ")[1].decode()
    except OSError as error:
        return type(error).__name__


def main():
    threading.Thread(target=hold, daemon=True).start()
    last = None
    while not os.path.exists(WORKSPACE + "/release"):
        result = send()
        if result != last:
            report(step="sent", result=result)
            last = result
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
