//! `ozctl port-forward`: forwards ports of a pod to this machine, if the template's operations
//! include PortForward.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use clap_complete::ArgValueCompleter;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use oz_api::{ExecAccessRequest, Operation};
use oz_client::pods;
use tokio::net::TcpListener;

use crate::access::{self, AccessFlags, Granted, Want};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::target::Target;
use crate::{complete, session};

/// Forward local ports to a pod, if its template allows PortForward
///
/// Ends with Ctrl-C, or with the access; connections that are open then are cut.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl port-forward deploy/db 5432
  ozctl port-forward pod/db-0 15432:5432 --duration 2h

Exit codes: 130 after Ctrl-C, 124 when access ended, 1 if ozctl failed.")]
pub(crate) struct PortForward {
    /// Pod or workload, as for `ozctl exec`
    #[arg(add = ArgValueCompleter::new(complete::targets))]
    target: Target,
    /// Ports; before the colon that of this machine, 0 or nothing for any
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    ports: Vec<Ports>,
    /// Address of this machine to listen at
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    #[command(flatten)]
    access: AccessFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

impl std::str::FromStr for Ports {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| {
            text.parse::<u16>()
                .map_err(|_| Failure::new(format!("{text} is not a port")))
        };
        let (local, remote) = match text.split_once(':') {
            Some(("", remote)) => (0, number(remote)?),
            Some((local, remote)) => (number(local)?, number(remote)?),
            None => (number(text)?, number(text)?),
        };
        if remote == 0 {
            return Err(Failure::new("the pod's port cannot be 0"));
        }
        Ok(Self { local, remote })
    }
}

impl PortForward {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        // A port that cannot be listened on is reported before any request for access.
        let mut listeners = Vec::new();
        for ports in &self.ports {
            let address = SocketAddr::new(self.address, ports.local);
            let listener = TcpListener::bind(address).await.map_err(|error| {
                Failure::new(format!("failed to listen at {address}: {error}"))
                    .next("name another port before the colon, or 0 for any")
            })?;
            listeners.push((listener, ports.remote));
        }
        let want = Want {
            target: &self.target,
            operation: Operation::PortForward,
            container: None,
            verb: "port-forward",
        };
        let body = async |cluster: &Cluster, granted: &Granted| {
            forward(context, cluster, granted, listeners).await
        };
        access::with::<ExecAccessRequest>(context, &self.access, want, body).await
    }
}

async fn forward(
    context: &Context,
    cluster: &Cluster,
    granted: &Granted,
    listeners: Vec<(TcpListener, u16)>,
) -> Result<Exit> {
    let pod = &granted.access.pod;
    let mut ways = FuturesUnordered::new();
    for (listener, remote) in listeners {
        let local = listener.local_addr()?;
        context.say(&format!("Forwarding {local} to port {remote} of pod {pod}"));
        ways.push(accept(context, cluster, listener, pod, remote));
    }
    tokio::select! {
        Some(failed) = ways.next() => Err(failed),
        () = session::end_of::<ExecAccessRequest>(granted) => Ok(Exit::ENDED),
    }
}

/// Accepts connections while the access lasts; returns the reason for its end. The connections are
/// part of this future, and end with it.
async fn accept(
    context: &Context,
    cluster: &Cluster,
    listener: TcpListener,
    pod: &str,
    remote: u16,
) -> Failure {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connections.push(pods::forward(cluster, pod, remote, stream)),
                Err(error) => return error.into(),
            },
            Some(ended) = connections.next() => if let Err(failure) = ended {
                context.say(&format!("oz: {}", failure.message()));
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ports;

    #[test]
    fn ports_are_read_as_kubectl_reads_them() {
        let read = |text: &str| {
            text.parse::<Ports>()
                .map(|ports| (ports.local, ports.remote))
                .ok()
        };
        assert_eq!(read("80"), Some((80, 80)));
        assert_eq!(read("8080:80"), Some((8080, 80)));
        assert_eq!(read(":80"), Some((0, 80)));
        for bad in ["", "http", "80:", "80:0", "70000"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}
