//! The start of `netinit`: with what it starts, and with which message it fails.

use std::io;

use rustix::thread::CapabilitySet;

use crate::pod::{
    AGENT, OUTSIDE, PROXY, Pod, REPORTER, address, connect, datagrams, listen, receive, send,
};

#[test]
fn table_is_written_and_replaced_by_a_second_start() {
    let Some(pod) = Pod::new() else { return };
    for _ in 0..2 {
        let output = pod.netinit();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            said,
            "oz-harness: table inet oz confines the connections of the pod\n"
        );
    }
    assert_eq!(pod.termination_message(), "");
}

#[test]
fn start_with_a_running_proxy_replaces_the_table() {
    let Some(pod) = Pod::confined() else { return };
    let _proxy = pod.as_user(PROXY, || {
        ["127.0.0.1", "::1"].map(|host| {
            (
                listen(address(host, 15_001)),
                listen(address(host, 15_053)),
                datagrams(address(host, 15_053)),
            )
        })
    });
    let output = pod.netinit();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("port 15001 is in use"), "{said}");
}

#[test]
fn connections_of_the_proxy_and_of_oz_leave_the_pod() {
    let Some(pod) = Pod::confined() else { return };
    for user in [PROXY, REPORTER] {
        for outside in OUTSIDE {
            let (tcp, udp) = pod.outside(|| {
                (
                    listen(address(outside, 443)),
                    datagrams(address(outside, 53)),
                )
            });
            let own = pod.as_user(user, || {
                send(address(outside, 53), "question").unwrap();
                let stream = connect(address(outside, 443)).unwrap();
                stream.local_addr().unwrap()
            });
            assert_eq!(tcp.accept().unwrap().1.port(), own.port());
            assert_eq!(receive(&udp), "question");
        }
    }
}

#[test]
fn pod_without_a_family_is_confined() {
    let Some(pod) = Pod::new() else { return };
    pod.set("ipv6/conf/all/disable_ipv6", "1");
    let output = pod.netinit();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("IPv6: not tried"), "{said}");
    assert!(!said.contains("IPv4: not tried"), "{said}");
    let Some(alone) = Pod::unconnected() else {
        return;
    };
    let output = alone.netinit();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn missing_capability_is_named_in_the_termination_message() {
    let Some(pod) = Pod::new() else { return };
    let output = pod.netinit_with(CapabilitySet::empty());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = pod.termination_message();
    for expected in [
        "failed to write table inet oz",
        "NET_ADMIN",
        "pod-security.kubernetes.io/enforce=privileged",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(log, format!("oz-harness: {said}\n"));
}

#[test]
fn rule_of_another_table_that_comes_first_fails_the_pod() {
    let Some(pod) = Pod::new() else { return };
    // What is not tracked is not redirected.
    if !pod.iptables("-t raw -A OUTPUT -p tcp --dport 443 -j CT --notrack") {
        return;
    }
    let output = pod.netinit();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = pod.termination_message();
    assert!(
        said.starts_with(
            "failed to redirect connections of the pod to its proxy: IPv4: to 192.0.2.1:443"
        ),
        "{said}"
    );
}

#[test]
fn destination_that_another_table_rewrites_is_refused() {
    let Some(pod) = Pod::confined() else { return };
    let to = address(OUTSIDE[0], 9);
    let outside = pod.outside(|| datagrams(to));
    let rule = format!("-t nat -A OUTPUT -p udp --dport 10 -j DNAT --to-destination {to}");
    if !pod.iptables(&rule) {
        return;
    }
    let sent = pod.as_user(AGENT, || send(address(OUTSIDE[0], 10), "secret"));
    assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    pod.as_user(PROXY, || send(to, "from the proxy")).unwrap();
    assert_eq!(receive(&outside), "from the proxy");
}
