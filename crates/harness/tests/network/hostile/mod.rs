//! Attempts of an agent to reach a destination without the proxy. The doc comment of each test is a row of
//! docs/reference/attempts.md: the attempt, and the result after the colon. NetworkPolicies have no part in it.

use std::io;
use std::net::{SocketAddr, TcpStream};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::NETFILTER;
use rustix::net::sockopt::{
    Timeout, ip_original_dst, ipv6_original_dst, set_socket_linger, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketType, bind, ipproto, recv,
    sendto, socket,
};

use crate::pod::{
    AGENT, DEADLINE, OUTSIDE, POD, PRIVATE, PROXY, Pod, address, connect, datagrams, listen,
    once_free, receive, receive_from, send,
};

/// Users that an image or a container may choose: root, others, and neighbours of the users of oz.
const USERS: [u32; 5] = [AGENT, 0, 1, 1_336, 1_339];
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

#[track_caller]
fn refused<T: std::fmt::Debug>(sent: io::Result<T>) {
    assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

/// Checks that a datagram of the proxy is the first one that arrives outside.
fn nothing_arrived(pod: &Pod, outside: &std::net::UdpSocket) {
    let to = outside.local_addr().unwrap();
    pod.as_user(PROXY, || send(to, "from the proxy")).unwrap();
    assert_eq!(receive(outside), "from the proxy");
}

/// Returns the destination of a connection before it was redirected.
fn original(server: &TcpStream) -> SocketAddr {
    if server.local_addr().unwrap().is_ipv4() {
        SocketAddr::V4(ip_original_dst(server).unwrap())
    } else {
        SocketAddr::V6(ipv6_original_dst(server).unwrap())
    }
}

/// Checks that a connection to the outside arrives at the proxy, which learns the destination.
fn arrives_at_the_proxy(pod: &Pod, user: u32, to: SocketAddr, proxy: u16) {
    let outside = pod.outside(|| listen(to));
    outside.set_nonblocking(true).unwrap();
    let loopback = LOOPBACK[usize::from(to.is_ipv6())];
    let listener = pod.as_user(PROXY, || listen(address(loopback, proxy)));
    let client = pod.as_user(user, || connect(to)).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer.port(), client.local_addr().unwrap().port());
    assert_eq!(original(&server), to);
    assert_eq!(
        outside.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

/// Connecting to a host over IPv4 as root, as the agent or as another user, to any port: the connection arrives at the
/// proxy, which learns the destination.
#[test]
fn connection_over_ipv4_arrives_at_the_proxy() {
    let Some(pod) = Pod::confined() else { return };
    for user in USERS {
        for port in [22, 443, 15_001, 65_535] {
            arrives_at_the_proxy(&pod, user, address(OUTSIDE[0], port), 15_001);
        }
    }
}

/// Connecting to a host over IPv6, which many firewalls forget, as any user: the connection arrives at the proxy.
#[test]
fn connection_over_ipv6_arrives_at_the_proxy() {
    let Some(pod) = Pod::confined() else { return };
    for user in USERS {
        arrives_at_the_proxy(&pod, user, address(OUTSIDE[1], 443), 15_001);
    }
}

/// Connecting to the metadata address of a cloud, or to a private address, or sending datagrams there: the connection
/// arrives at the proxy, and the kernel refuses the datagram.
#[test]
fn connection_to_the_metadata_address_arrives_at_the_proxy() {
    let Some(pod) = Pod::confined() else { return };
    for host in PRIVATE {
        let to = address(host, 80);
        arrives_at_the_proxy(&pod, AGENT, to, 15_001);
        let outside = pod.outside(|| datagrams(to));
        refused(pod.as_user(AGENT, || send(to, "secret")));
        nothing_arrived(&pod, &outside);
    }
}

/// Connecting to the proxy's own port, by the loopback address or by an address of the pod: the proxy learns that it is
/// the destination itself, and does not receive the other connection.
#[test]
fn connection_to_the_proxy_itself_has_the_proxy_as_destination() {
    let Some(pod) = Pod::confined() else { return };
    for (loopback, own) in LOOPBACK.into_iter().zip(POD) {
        let proxy = address(loopback, 15_001);
        let listener = pod.as_user(PROXY, || listen(proxy));
        let _client = pod.as_user(AGENT, || connect(proxy)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(original(&server), proxy);
        let error = pod
            .as_user(AGENT, || connect(address(own, 15_001)))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

/// Asking a name server outside over UDP or TCP: the question arrives at the proxy's name server, and the answer
/// at the agent.
#[test]
fn r30_question_to_a_name_server_arrives_at_the_proxy() {
    let Some(pod) = Pod::confined() else { return };
    for family in [0, 1] {
        let to = address(OUTSIDE[family], 53);
        arrives_at_the_proxy(&pod, AGENT, to, 15_053);
        let outside = pod.outside(|| datagrams(to));
        let server = pod.as_user(PROXY, || datagrams(address(LOOPBACK[family], 15_053)));
        let client = pod.as_user(AGENT, || datagrams(address(POD[family], 0)));
        client.connect(to).unwrap();
        client.send(b"question").unwrap();
        let (question, peer) = receive_from(&server);
        assert_eq!(question, "question");
        server.send_to(b"answer", peer).unwrap();
        assert_eq!(receive(&client), "answer");
        nothing_arrived(&pod, &outside);
    }
}

/// Sending datagrams over IPv4 or IPv6 to a port other than DNS, as any user: the kernel refuses them.
#[test]
fn datagram_is_refused() {
    let Some(pod) = Pod::confined() else { return };
    for host in OUTSIDE {
        let to = address(host, 443);
        let outside = pod.outside(|| datagrams(to));
        for user in USERS {
            refused(pod.as_user(user, || send(to, "secret")));
        }
        nothing_arrived(&pod, &outside);
    }
}

/// Sending datagrams to every host of the link, by broadcast or multicast: the kernel refuses them.
#[test]
fn broadcast_and_multicast_are_refused() {
    let Some(pod) = Pod::confined() else { return };
    for host in [
        "255.255.255.255",
        "198.51.100.255",
        "224.0.0.251",
        "ff02::fb",
    ] {
        let to = address(host, 5_353);
        let error = pod.as_user(AGENT, || send(to, "secret")).unwrap_err();
        // A multicast address of IPv6 requires an interface; without one, the kernel finds no route.
        let kinds = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::NetworkUnreachable,
        ];
        assert!(kinds.contains(&error.kind()), "{host}: {error}");
    }
}

/// Creates a confined pod in which the kernel allows sockets for echo requests to all groups.
fn with_echo_requests() -> Option<Pod> {
    let pod = Pod::new()?;
    pod.set("ipv4/ping_group_range", "0 2147483647");
    let output = pod.netinit();
    assert!(output.status.success(), "{output:?}");
    Some(pod)
}

/// Sending echo requests of ICMP, where the kernel allows sockets for them to all groups: the kernel refuses the packets.
#[test]
fn echo_request_is_refused() {
    let Some(pod) = with_echo_requests() else {
        return;
    };
    let sent = pod.as_user(AGENT, || {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).unwrap();
        let packet = [8, 0, 0, 0, 0, 0, 0, 1];
        sendto(
            &socket,
            &packet,
            SendFlags::empty(),
            &address(OUTSIDE[0], 0),
        )
    });
    refused(sent.map_err(io::Error::from));
}

/// Sending echo requests of ICMPv6, where the kernel allows sockets for them to all groups: the kernel answers that they
/// are prohibited, and no answer of the host arrives.
#[test]
fn echo_request_of_ipv6_is_refused() {
    let Some(pod) = with_echo_requests() else {
        return;
    };
    let answer = pod.as_user(AGENT, || {
        let socket = socket(
            AddressFamily::INET6,
            SocketType::DGRAM,
            Some(ipproto::ICMPV6),
        )
        .unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(DEADLINE)).unwrap();
        // A connected socket receives errors.
        rustix::net::connect(&socket, &address(OUTSIDE[1], 0)).unwrap();
        rustix::net::send(&socket, &[128, 0, 0, 0, 0, 0, 0, 1], SendFlags::empty()).unwrap();
        retry_on_intr(|| recv(&socket, &mut [0; 64], RecvFlags::empty()))
    });
    assert_eq!(answer.unwrap_err(), Errno::ACCESS);
}

/// Opening raw sockets, of IP or of the interface, without a capability: the kernel refuses them.
#[test]
fn raw_socket_is_refused() {
    let Some(pod) = Pod::confined() else { return };
    let any = Protocol::from_raw(RawProtocol::new(0x0300).unwrap());
    for (family, protocol) in [
        (AddressFamily::INET, ipproto::ICMP),
        (AddressFamily::INET, ipproto::UDP),
        (AddressFamily::INET6, ipproto::ICMPV6),
        (AddressFamily::PACKET, any),
    ] {
        let opened = pod.as_user(AGENT, || socket(family, SocketType::RAW, Some(protocol)));
        refused(opened.map_err(io::Error::from));
    }
}

/// Sending packets of ICMP and of other protocols by raw sockets, with a capability that no container of a run has: the
/// kernel refuses the packets.
#[test]
fn packet_of_a_raw_socket_is_refused() {
    let Some(pod) = Pod::confined() else { return };
    for (protocol, packet) in [
        (ipproto::ICMP, [8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
        (ipproto::SCTP, [0; 8]),
        (ipproto::GRE, [0; 8]),
    ] {
        let sent = pod.as_user(0, || {
            let socket = socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap();
            sendto(
                &socket,
                &packet,
                SendFlags::empty(),
                &address(OUTSIDE[0], 0),
            )
        });
        refused(sent.map_err(io::Error::from));
    }
}

/// Binding the source port of a datagram that the proxy sent to the cluster's name server, and sending to the same
/// server, which the kernel takes for the same connection: the kernel refuses the datagram.
#[test]
fn datagrams_of_the_proxy_are_not_continued() {
    let Some(pod) = Pod::confined() else { return };
    for (host, outside) in POD.into_iter().zip(OUTSIDE) {
        let (from, to) = (address(host, 40_000), address(outside, 53));
        let server = pod.outside(|| datagrams(to));
        pod.as_user(PROXY, || {
            let socket = datagrams(from);
            socket.send_to(b"question", to).unwrap();
            assert_eq!(receive(&server), "question");
            server.send_to(b"answer", from).unwrap();
            assert_eq!(receive(&socket), "answer");
        });
        refused(pod.as_user(AGENT, || datagrams(from).send_to(b"secret", to)));
        nothing_arrived(&pod, &server);
    }
}

/// Binding the source port of a connection of the proxy that the other side reset, and connecting to the same host, which
/// the kernel takes for the same connection: the connection does not reach the host.
#[test]
fn connection_of_the_proxy_is_not_continued() {
    let Some(pod) = Pod::confined() else { return };
    let (from, to) = (address(POD[0], 40_001), address(OUTSIDE[0], 443));
    let listener = pod.outside(|| listen(to));
    let dial = |from: SocketAddr| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &from)?;
        retry_on_intr(|| rustix::net::connect(&socket, &to))?;
        Ok::<_, Errno>(socket)
    };
    pod.as_user(PROXY, || {
        let client = TcpStream::from(dial(from).unwrap());
        let (server, _) = listener.accept().unwrap();
        // A close with a linger time of zero sends a reset.
        set_socket_linger(&server, Some(std::time::Duration::ZERO)).unwrap();
        drop(server);
        let error = io::Read::read(&mut &client, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
    let dialed = pod.as_user(AGENT, || once_free(|| dial(from).map_err(io::Error::from)));
    assert_eq!(dialed.unwrap_err().kind(), io::ErrorKind::HostUnreachable);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

/// Reading the table, which the kernel requires the same capability for as for a change: the kernel refuses the request.
#[test]
fn table_is_not_available_to_the_agent() {
    let Some(pod) = Pod::confined() else { return };
    let mut answer = [0; 128];
    pod.as_user(AGENT, || {
        let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(NETFILTER)).unwrap();
        // nlmsghdr with NFT_MSG_GETTABLE, NLM_F_REQUEST and NLM_F_DUMP; nfgenmsg with NFPROTO_INET.
        let mut request = 20_u32.to_ne_bytes().to_vec();
        request.extend([0x0a01_u16, 0x301].map(u16::to_ne_bytes).concat());
        request.extend([0; 8]);
        request.extend([1, 0, 0, 0]);
        rustix::net::send(&socket, &request, SendFlags::empty()).unwrap();
        recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
    });
    // The error of nlmsgerr.
    assert_eq!(answer[16..20], (-1_i32).to_ne_bytes());
}
