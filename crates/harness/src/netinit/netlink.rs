//! The socket to the kernel's nf_tables: writes a batch as one transaction, and reads tables, chains and rules.
//!
//! The kernel answers within the call that sends: <https://docs.kernel.org/userspace-api/netlink/intro.html>.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::message::{Attributes, Header, encode, kind, messages};
use super::uapi::*;

/// The size of the largest datagram that the kernel sends.
const DATAGRAM: usize = 32 * 1024;
/// The maximum number of messages that a list is read from. Other tables of the pod may have rules too.
const MAX_MESSAGES: usize = 10_000;
/// The number of attempts to read a list that changes during the read.
const ATTEMPTS: u32 = 5;
/// The timeout of an answer of the kernel.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A change in a transaction.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) message: u16,
    pub(super) flags: u16,
    pub(super) attributes: Attributes,
}

/// A failed exchange with the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    /// The step that the kernel refused, unless it refused the transaction as a whole.
    pub(super) step: Option<usize>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { errno, step: None }
    }
}

/// A socket of the netlink family `NETLINK_NETFILTER`.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens the socket. It receives from the kernel only.
    pub(super) fn open() -> Result<Self, Failure> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(NETFILTER),
        )?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self(socket))
    }

    /// Performs all steps, or none.
    pub(super) fn write(&self, steps: &[Step]) -> Result<(), Failure> {
        send(&self.0, &batch(steps), SendFlags::empty())?;
        let mut buffer = vec![0; DATAGRAM];
        let mut acknowledged = 0;
        while acknowledged < steps.len() {
            for (header, payload) in messages(self.receive(&mut buffer)?) {
                if header.kind != NLMSG_ERROR {
                    continue;
                }
                if let Some(errno) = errno(payload) {
                    // Message 0 begins the batch.
                    let step = (header.sequence as usize).checked_sub(1);
                    let step = step.filter(|step| *step < steps.len());
                    return Err(Failure { errno, step });
                }
                acknowledged += 1;
            }
        }
        Ok(())
    }

    /// Returns the payloads of the responses to a request for a list.
    pub(super) fn list(
        &self,
        message: u16,
        attributes: &Attributes,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        for attempt in 1..=ATTEMPTS {
            if let Some(found) = self.list_once(message, attributes, attempt)? {
                return Ok(found);
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Returns none for a list that changed while it was read.
    fn list_once(
        &self,
        message: u16,
        attributes: &Attributes,
        sequence: u32,
    ) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let header = Header {
            kind: kind(message),
            flags: NLM_F_REQUEST | NLM_F_DUMP,
            sequence,
        };
        let request = encode(header, NFPROTO_INET, 0, attributes);
        send(&self.0, &request, SendFlags::empty())?;
        let mut buffer = vec![0; DATAGRAM];
        let mut found = Vec::new();
        let mut is_whole = true;
        loop {
            for (header, payload) in messages(self.receive(&mut buffer)?) {
                is_whole &= header.flags & NLM_F_DUMP_INTR == 0;
                match header.kind {
                    NLMSG_DONE => return Ok(is_whole.then_some(found)),
                    NLMSG_ERROR => {
                        if let Some(errno) = errno(payload) {
                            return Err(errno.into());
                        }
                    }
                    _ if found.len() < MAX_MESSAGES => found.push(payload.to_vec()),
                    _ => return Err(Errno::OVERFLOW.into()),
                }
            }
        }
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Failure> {
        let (length, _) = retry_on_intr(|| recv(&self.0, &mut *buffer, RecvFlags::empty()))?;
        Ok(buffer.get(..length).unwrap_or_default())
    }
}

/// Returns the datagram of a transaction: each step has the number of its place as sequence, from 1, and is
/// acknowledged.
fn batch(steps: &[Step]) -> Vec<u8> {
    let edge = |message, sequence| {
        let header = Header {
            kind: message,
            flags: NLM_F_REQUEST,
            sequence,
        };
        encode(
            header,
            NFPROTO_UNSPEC,
            NFNL_SUBSYS_NFTABLES,
            &Attributes::default(),
        )
    };
    let mut bytes = edge(NFNL_MSG_BATCH_BEGIN, 0);
    let mut sequence = 0;
    for step in steps {
        sequence += 1;
        let header = Header {
            kind: kind(step.message),
            flags: NLM_F_REQUEST | NLM_F_ACK | step.flags,
            sequence,
        };
        bytes.extend(encode(header, NFPROTO_INET, 0, &step.attributes));
    }
    bytes.extend(edge(NFNL_MSG_BATCH_END, sequence + 1));
    bytes
}

/// Returns the error of an answer (`nlmsgerr`), or none for an acknowledgement.
fn errno(payload: &[u8]) -> Option<Errno> {
    let code = payload
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    // The kernel's numbers of errors end at MAX_ERRNO.
    match code.checked_neg() {
        Some(0) => None,
        Some(code @ 1..4096) => Some(Errno::from_raw_os_error(code)),
        _ => Some(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_has_a_begin_an_end_and_an_acknowledgement_of_each_step() {
        let steps = [3, 6].map(|message| Step {
            message,
            flags: NLM_F_CREATE,
            attributes: Attributes::default().number(1, 2),
        });
        let bytes = batch(&steps);
        let headers: Vec<_> = messages(&bytes)
            .iter()
            .map(|(header, payload)| {
                (
                    header.kind,
                    header.flags,
                    header.sequence,
                    payload[0],
                    payload[3],
                )
            })
            .collect();
        assert_eq!(
            headers,
            [
                (16, 1, 0, 0, 10),
                (0xa03, 0x405, 1, 1, 0),
                (0xa06, 0x405, 2, 1, 0),
                (17, 1, 3, 0, 10),
            ]
        );
    }

    #[test]
    fn answer_is_an_error_or_an_acknowledgement() {
        assert_eq!(errno(&0_i32.to_ne_bytes()), None);
        assert_eq!(errno(&(-1_i32).to_ne_bytes()), Some(Errno::PERM));
        assert_eq!(errno(&i32::MIN.to_ne_bytes()), Some(Errno::IO));
        assert_eq!(errno(&7_i32.to_ne_bytes()), Some(Errno::IO));
        assert_eq!(errno(&[]), None);
    }
}
