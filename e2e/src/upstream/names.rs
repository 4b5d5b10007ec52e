//! A name server of the test: pods ask it, since they have no other. It records each question.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::net::UdpSocket;

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The same addresses for each question; none for a name that exists and has no address.
    Always(Vec<IpAddr>),
    /// The addresses in turn: another for each question.
    InTurn(Vec<IpAddr>),
}

/// A question that the server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name, in lower case, without the final dot.
    pub name: String,
    /// The number of the type: 1 for A, 28 for AAAA.
    pub kind: u16,
    /// The address of the client.
    pub from: SocketAddr,
}

#[derive(Debug, Default)]
struct Zone {
    names: BTreeMap<String, Resolution>,
    questions: Vec<Question>,
}

/// The server. Clones share names and questions.
#[derive(Clone, Debug, Default)]
pub struct NameServer(Arc<Mutex<Zone>>);

const A: u16 = 1;
const AAAA: u16 = 28;
/// The maximum size of a question over UDP without extensions.
const MAX_QUESTION: usize = 512;

impl NameServer {
    /// Sets the addresses of a name.
    pub fn set(&self, name: &str, resolution: Resolution) {
        self.0.lock().names.insert(name.to_lowercase(), resolution);
    }

    /// Returns the questions so far.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        self.0.lock().questions.clone()
    }

    pub(super) async fn serve(self, socket: UdpSocket) -> Result<()> {
        let mut buffer = [0; MAX_QUESTION];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            let message = buffer.get(..length).unwrap_or_default();
            if let Some(answer) = self.answer(message, from) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    /// Returns the response to a message with one question (RFC 1035, section 4); `None` if it is malformed.
    fn answer(&self, message: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        const HEADER: usize = 12;
        let header = message.get(..HEADER)?;
        let (name, end) = name(message, HEADER)?;
        let kind = u16::from_be_bytes(message.get(end..end + 2)?.try_into().ok()?);
        let question = message.get(HEADER..end + 4)?;
        let addresses = self.ask(Question { name, kind, from });
        let records: Vec<IpAddr> = addresses.iter().flatten().copied().collect();
        let code: u8 = if addresses.is_some() { 0 } else { 3 };
        let count = u16::try_from(records.len()).ok()?.to_be_bytes();
        let mut answer = Vec::new();
        answer.extend_from_slice(header.get(..2)?);
        // An authoritative response; recursion is desired as in the question, and available.
        answer.extend([0x84 | (header.get(2)? & 1), 0x80 | code, 0, 1]);
        answer.extend(count);
        answer.extend([0; 4]);
        answer.extend_from_slice(question);
        for address in records {
            // A pointer to the name of the question, the class IN, and a time to live of 0.
            answer.extend([0xc0, 0x0c]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0]);
            match address {
                IpAddr::V4(address) => {
                    answer.extend([0, 4]);
                    answer.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    answer.extend([0, 16]);
                    answer.extend(address.octets());
                }
            }
        }
        Some(answer)
    }

    /// Records a question, and returns the addresses of its type; `None` if the name does not exist.
    fn ask(&self, question: Question) -> Option<Vec<IpAddr>> {
        let mut zone = self.0.lock();
        let kind = question.kind;
        let has_kind = |address: &IpAddr| match kind {
            A => address.is_ipv4(),
            AAAA => address.is_ipv6(),
            _ => false,
        };
        let resolution = zone.names.get_mut(&question.name);
        let addresses = resolution.map(|resolution| match resolution {
            Resolution::Always(all) => all.iter().copied().filter(has_kind).collect(),
            Resolution::InTurn(all) => {
                let first = all.iter().position(has_kind);
                first.map_or(Vec::new(), |place| {
                    let address = all.remove(place);
                    all.push(address);
                    vec![address]
                })
            }
        });
        zone.questions.push(question);
        addresses
    }
}

/// Returns the name at this place of a message, and the place after it. A question contains no pointers.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn question_is_answered_by_addresses_of_its_type_and_recorded() {
        let server = NameServer::default();
        let from: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let two = ["203.0.113.10", "2001:db8::10"].map(|it| it.parse::<IpAddr>().unwrap());
        server.set("api.test", Resolution::Always(two.to_vec()));

        let answer = server.answer(&question("API.test", A), from).unwrap();
        assert_eq!(answer[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert!(answer.ends_with(&[0, 4, 203, 0, 113, 10]));
        let answer = server.answer(&question("api.test", AAAA), from).unwrap();
        assert_eq!(answer[6..8], [0, 1]);
        let answer = server.answer(&question("api.test", 16), from).unwrap();
        assert_eq!((answer[3], &answer[6..8]), (0x80, &[0, 0][..]));
        let answer = server.answer(&question("none.test", A), from).unwrap();
        assert_eq!((answer[3], &answer[6..8]), (0x83, &[0, 0][..]));
        assert_eq!(server.answer(&[1, 2, 3], from), None);
        let names: Vec<_> = server.questions().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["api.test", "api.test", "api.test", "none.test"]);
    }

    #[test]
    fn changing_name_has_another_address_for_each_question() {
        let server = NameServer::default();
        let from: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let two = ["203.0.113.10", "127.0.0.1"].map(|it| it.parse::<IpAddr>().unwrap());
        server.set("turns.test", Resolution::InTurn(two.to_vec()));
        let last = || {
            let answer = server.answer(&question("turns.test", A), from).unwrap();
            *answer.last().unwrap()
        };
        assert_eq!([last(), last(), last()], [10, 1, 10]);
    }
}
