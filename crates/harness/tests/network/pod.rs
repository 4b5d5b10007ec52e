//! A pod and the outside: two network namespaces, connected by a pair of virtual interfaces.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, move_into_link_name_space,
    remove_capability_from_bounding_set, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user of the agent's container.
pub(crate) const AGENT: u32 = 65_532;
pub(crate) const PROXY: u32 = 1_337;
pub(crate) const REPORTER: u32 = 1_338;
/// The addresses of the pod.
pub(crate) const POD: [&str; 2] = ["198.51.100.2", "2001:db8:1::2"];
/// The addresses of a host outside, by family.
pub(crate) const OUTSIDE: [&str; 2] = ["203.0.113.7", "2001:db8:2::7"];
/// The metadata address of clouds, and addresses of private networks, which hosts outside have too.
pub(crate) const PRIVATE: [&str; 4] = ["169.254.169.254", "10.0.0.1", "192.168.0.1", "fd00::1"];
/// The addresses that `netinit` tries.
const TRIED: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// A deadline for packets between the namespaces; no test waits for it to pass.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

static NUMBER: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Pod {
    inside: String,
    outside: String,
    directory: tempfile::TempDir,
}

impl Pod {
    /// Creates a pod with addresses and default routes of both families. Returns none where it is not possible, unless
    /// `OZ_REQUIRE_ALL` makes this a failure.
    pub(crate) fn new() -> Option<Self> {
        let pod = Self::unconnected()?;
        let (a, b) = (pod.inside.as_str(), pod.outside.as_str());
        ip(&format!(
            "-n {a} link add eth0 type veth peer name eth0 netns {b}"
        ));
        for (namespace, number) in [(a, 2), (b, 1)] {
            ip(&format!(
                "-n {namespace} address add 198.51.100.{number}/24 dev eth0"
            ));
            ip(&format!(
                "-n {namespace} address add 2001:db8:1::{number}/64 dev eth0 nodad"
            ));
            ip(&format!("-n {namespace} link set eth0 up"));
        }
        for address in OUTSIDE.into_iter().chain(TRIED).chain(PRIVATE) {
            ip(&format!("-n {b} address add {address} dev lo"));
        }
        ip(&format!("-n {a} route add default via 198.51.100.1"));
        ip(&format!("-n {a} -6 route add default via 2001:db8:1::1"));
        Some(pod)
    }

    /// Creates a pod with the interface `lo` only.
    pub(crate) fn unconnected() -> Option<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("oz-{}-{number}", std::process::id());
        let pod = Self {
            inside: format!("{name}-in"),
            outside: format!("{name}-out"),
            directory: tempfile::tempdir().unwrap(),
        };
        let created = Command::new("ip")
            .args(["netns", "add", &pod.inside])
            .output();
        if !created.as_ref().is_ok_and(|output| output.status.success()) {
            skip("the test requires root, network namespaces and iproute2");
            return None;
        }
        ip(&format!("netns add {}", pod.outside));
        for namespace in [&pod.inside, &pod.outside] {
            ip(&format!("-n {namespace} link set lo up"));
        }
        Some(pod)
    }

    /// Creates a pod with confined connections.
    pub(crate) fn confined() -> Option<Self> {
        let pod = Self::new()?;
        let output = pod.netinit();
        assert!(output.status.success(), "{output:?}");
        Some(pod)
    }

    /// Runs `netinit` as in its container: as root with NET_ADMIN only.
    pub(crate) fn netinit(&self) -> Output {
        self.netinit_with(CapabilitySet::NET_ADMIN)
    }

    pub(crate) fn netinit_with(&self, capabilities: CapabilitySet) -> Output {
        let run = || {
            for capability in CapabilitySet::all() - capabilities {
                // The kernel may not know the newest ones.
                let _ = remove_capability_from_bounding_set(capability);
            }
            Command::new(env!("CARGO_BIN_EXE_oz-harness"))
                .arg("netinit")
                .env("OZ_TERMINATION_LOG", self.directory.path().join("message"))
                .output()
                .unwrap()
        };
        within(&self.inside, run)
    }

    pub(crate) fn termination_message(&self) -> String {
        fs::read_to_string(self.directory.path().join("message")).unwrap_or_default()
    }

    /// Runs a function in the pod as a user without capabilities, or as root with all.
    pub(crate) fn as_user<T: Send>(&self, user: u32, run: impl FnOnce() -> T + Send) -> T {
        let run = move || {
            if user != 0 {
                set_thread_groups(&[]).unwrap();
                let group = Gid::from_raw(AGENT);
                set_thread_res_gid(group, group, group).unwrap();
                let user = Uid::from_raw(user);
                set_thread_res_uid(user, user, user).unwrap();
            }
            run()
        };
        within(&self.inside, run)
    }

    /// Runs a function outside.
    pub(crate) fn outside<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        within(&self.outside, run)
    }

    /// Writes a setting of the pod's namespace.
    pub(crate) fn set(&self, setting: &str, value: &str) {
        let path = format!("/proc/sys/net/{setting}");
        within(&self.inside, || fs::write(&path, value)).unwrap();
    }

    /// Adds a rule of iptables in the pod. Returns false without iptables.
    pub(crate) fn iptables(&self, rule: &str) -> bool {
        let run = || Command::new("iptables").args(rule.split(' ')).output();
        match within(&self.inside, run) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                skip("the test requires iptables");
                false
            }
            output => {
                let output = output.unwrap();
                assert!(output.status.success(), "iptables {rule}: {output:?}");
                true
            }
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for namespace in [&self.inside, &self.outside] {
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}

/// Reports that a test is skipped. Panics if `OZ_REQUIRE_ALL` is set.
fn skip(lacking: &str) {
    assert!(std::env::var_os("OZ_REQUIRE_ALL").is_none(), "{lacking}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    // The test runner counts lines of this form.
    let _ = writeln!(io::stderr(), "testkit: skipped {test}: {lacking}");
}

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {output:?}");
}

/// Runs a function in a new thread in the namespace; the processes that it starts are there too.
fn within<T: Send>(namespace: &str, run: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

pub(crate) fn address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// Repeats an operation while its address is in use: a process that another test starts holds copies of closed sockets
/// from its fork to its exec.
pub(crate) fn once_free<T>(operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::yield_now();
            }
            result => return result,
        }
    }
}

/// Listens; an accept fails after the deadline.
pub(crate) fn listen(on: SocketAddr) -> TcpListener {
    let listener = once_free(|| TcpListener::bind(on)).unwrap();
    set_socket_timeout(&listener, Timeout::Recv, Some(DEADLINE)).unwrap();
    listener
}

pub(crate) fn datagrams(on: SocketAddr) -> UdpSocket {
    let socket = once_free(|| UdpSocket::bind(on)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&to, DEADLINE)
}

/// Sends a datagram from any port.
pub(crate) fn send(to: SocketAddr, text: &str) -> io::Result<usize> {
    let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
    let socket = UdpSocket::bind(address(any, 0))?;
    socket.set_broadcast(true)?;
    socket.send_to(text.as_bytes(), to)
}

pub(crate) fn receive(socket: &UdpSocket) -> String {
    receive_from(socket).0
}

/// Returns a datagram and its sender.
pub(crate) fn receive_from(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 64];
    loop {
        match socket.recv_from(&mut buffer) {
            // The kernel does not repeat a call with a timeout.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => {
                let (length, sender) = received.unwrap();
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                return (text, sender);
            }
        }
    }
}
