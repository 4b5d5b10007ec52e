"""A WebSocket with Python's own library (RFC 6455): a message goes to the upstream and back, masked as a client's is."""

import base64
import os
import socket
import ssl

HOST = "echo.test"


def main():
    context = ssl.create_default_context()
    stream = context.wrap_socket(socket.create_connection((HOST, 443), timeout=60), server_hostname=HOST)
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall((f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
    answer = stream.makefile("rb")
    status = answer.readline()
    assert b" 101 " in status, status
    while answer.readline() not in (b"\r\n", b""):
        pass
    text = b"of a WebSocket"
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
    stream.sendall(bytes([0x81, 0x80 | len(text)]) + mask + masked)
    head = answer.read(2)
    assert head == bytes([0x81, len(text)]), head
    back = answer.read(len(text))
    assert back == text, back
    print(back.decode())


main()
