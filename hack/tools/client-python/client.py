"""A program with the Python client of Kubernetes, with which the gate is tested on a real node
(e2e/tests/node/gate_clients.rs). It has the same actions as client-go/main.go:

    client.py KUBECONFIG NAMESPACE POD CONTAINER ACTION [ARGUMENT...]

The actions are

    exec WORD...      runs a command; its streams are those of this program, and so is its exit code
    input WORD...     the same, with the standard input of this program
    terminal WORD...  the same on a terminal of 33 rows and 101 columns
    attach            attaches to the container, with the standard input of this program
    forward PORT      sends the standard input of this program to the port, and writes as many bytes of the answer
    logs              writes the log
    follow BYTES      follows the log, and writes this many bytes of it

The Python client has WebSockets only.
"""

import json
import os
import select
import sys
import threading

from kubernetes import client, config
from kubernetes.stream import portforward, stream
from kubernetes.stream.ws_client import (
    RESIZE_CHANNEL,
    STDERR_CHANNEL,
    STDOUT_CHANNEL,
)

PIECE = 32 << 10


def main(kubeconfig, namespace, pod, container, action, *arguments):
    config.load_kube_config(kubeconfig)
    api = client.CoreV1Api()
    of_pod = {"name": pod, "namespace": namespace}
    of_container = {**of_pod, "container": container}

    def opened(method, **options):
        return stream(
            method,
            **of_container,
            **options,
            stdout=True,
            binary=True,
            _preload_content=False,
        )

    def run(stdin, tty):
        session = opened(
            api.connect_get_namespaced_pod_exec,
            command=list(arguments),
            stdin=stdin,
            stderr=not tty,
            tty=tty,
        )
        if tty:
            size = json.dumps({"Width": 101, "Height": 33})
            session.write_channel(RESIZE_CHANNEL, size.encode())
        carry(session, sys.stdin.buffer if stdin else None)
        return session.returncode

    if action == "exec":
        return run(stdin=False, tty=False)
    if action == "input":
        return run(stdin=True, tty=False)
    if action == "terminal":
        return run(stdin=True, tty=True)
    if action == "attach":
        method = api.connect_get_namespaced_pod_attach
        carry(opened(method, stdin=True, stderr=True, tty=False), sys.stdin.buffer)
        return 0
    if action == "forward":
        port = int(arguments[0])
        method = api.connect_get_namespaced_pod_portforward
        forward(portforward(method, **of_pod, ports=str(port)), port)
        return 0
    if action in ("logs", "follow"):
        log = api.read_namespaced_pod_log(
            **of_container, follow=action == "follow", _preload_content=False
        )
        copy(log, int(arguments[0]) if action == "follow" else None)
        return 0
    raise ValueError(f"action {action!r} does not exist")


def carry(session, source):
    """Copies bytes in both directions until the session ends."""
    outputs = (
        (STDOUT_CHANNEL, sys.stdout.buffer),
        (STDERR_CHANNEL, sys.stderr.buffer),
    )
    while session.is_open():
        said = source is not None and select.select([source], [], [], 0)[0]
        if said:
            piece = os.read(source.fileno(), PIECE)
            if piece:
                session.write_stdin(piece)
            else:
                # v4.channel.k8s.io has no end of input.
                source = None
        connection = session.sock.sock
        if connection and connection.pending():
            # TLS has a message in its buffer, and the client polls the socket: the pong arrives there.
            session.sock.ping()
        session.update(timeout=0 if said else 0.05)
        for channel, output in outputs:
            if heard := session.read_channel(channel):
                output.write(heard)
                output.flush()


def forward(forwarded, port):
    """Sends standard input to a port, and writes as many bytes of the answer."""
    sent = sys.stdin.buffer.read()
    connection = forwarded.socket(port)
    connection.setblocking(True)
    threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
    left = len(sent)
    while left:
        heard = connection.recv(min(left, PIECE))
        if not heard:
            raise EOFError(f"{left} bytes did not arrive: {forwarded.error(port)}")
        sys.stdout.buffer.write(heard)
        left -= len(heard)
    sys.stdout.buffer.flush()
    connection.close()


def copy(log, length):
    """Writes a log, or the first bytes of it, as they arrive."""
    left = length
    for piece in log.stream(PIECE):
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        if left == 0:
            break


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
