//! Messages of nfnetlink and their attributes, written and read.
//!
//! The layouts are those of linux/netlink.h (`nlmsghdr`, `nlattr`) and linux/netfilter/nfnetlink.h (`nfgenmsg`). A header
//! is in the byte order of the host; numbers in attributes of nf_tables are big-endian.

use super::uapi::{NFNL_SUBSYS_NFTABLES, NLA_TYPE_MASK};

/// The size of `nlmsghdr` in bytes.
pub(super) const HEADER: usize = 16;
/// The size of `nfgenmsg` in bytes.
const GENERAL: usize = 4;
/// The size of `nlattr` in bytes.
const ATTRIBUTE: usize = 4;
/// The alignment of messages and attributes in bytes.
const ALIGNMENT: usize = 4;

/// A list of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // The longest attribute of this program has some hundred bytes.
        let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        align(&mut self.0);
        self
    }

    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nested(self, kind: u16, value: &Self) -> Self {
        self.bytes(kind, &value.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
}

/// Returns a message with the header `nfgenmsg`, of the family and the resource.
pub(super) fn encode(
    header: Header,
    family: u8,
    resource: u16,
    attributes: &Attributes,
) -> Vec<u8> {
    let length = HEADER + GENERAL + attributes.0.len();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(header.kind.to_ne_bytes());
    message.extend(header.flags.to_ne_bytes());
    message.extend(header.sequence.to_ne_bytes());
    // The port of the sender: the kernel knows it.
    message.extend(0_u32.to_ne_bytes());
    // NFNETLINK_V0
    message.extend([family, 0]);
    message.extend(resource.to_be_bytes());
    message.extend(&attributes.0);
    message
}

/// Returns the type of a message of nf_tables.
pub(super) const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

/// Returns the messages of a datagram: each header, and the bytes after it. A message that is cut ends the list.
pub(super) fn messages(mut rest: &[u8]) -> Vec<(Header, &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let header = Header {
            kind: u16::from_ne_bytes([e, f]),
            flags: u16::from_ne_bytes([g, h]),
            sequence: u32::from_ne_bytes([i, j, k, l]),
        };
        let Some(payload) = rest.get(HEADER..length) else {
            break;
        };
        found.push((header, payload));
        rest = rest
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
    }
    found
}

/// Returns the attributes after the header `nfgenmsg` of a message.
pub(super) fn after_general(payload: &[u8]) -> &[u8] {
    payload.get(GENERAL..).unwrap_or_default()
}

/// Returns the attributes of a list: type and value. An attribute that is cut ends the list.
pub(super) fn attributes(mut rest: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(&[a, b, c, d]) = rest.first_chunk::<ATTRIBUTE>() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = rest.get(ATTRIBUTE..length) else {
            break;
        };
        found.push((u16::from_ne_bytes([c, d]) & NLA_TYPE_MASK, value));
        rest = rest
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
    }
    found
}

/// Returns the value of the first attribute of a type.
pub(super) fn find(list: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(list)
        .into_iter()
        .find_map(|(found, value)| (found == kind).then_some(value))
}

/// Returns a text attribute without the byte at its end.
pub(super) fn find_text(list: &[u8], kind: u16) -> Option<&str> {
    let value = find(list, kind)?;
    std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_the_layout_of_nfnetlink() {
        let attributes = Attributes::default()
            .text(1, "oz")
            .number(2, 0x0102_0304)
            .nested(4, &Attributes::default().bytes(1, &[7]));
        let header = Header {
            kind: kind(6),
            flags: 0x405,
            sequence: 9,
        };
        let message = encode(header, 1, 10, &attributes);
        let expected: &[u8] = &[
            // nlmsghdr: length, type, flags, sequence, port
            48, 0, 0, 0, 6, 10, 5, 4, 9, 0, 0, 0, 0, 0, 0, 0, //
            // nfgenmsg: family, version, resource
            1, 0, 0, 10, //
            7, 0, 1, 0, b'o', b'z', 0, 0, //
            8, 0, 2, 0, 1, 2, 3, 4, //
            12, 0, 4, 0, 5, 0, 1, 0, 7, 0, 0, 0,
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(message, expected);
        }
        let read = messages(&message);
        assert_eq!(read.len(), 1);
        let (found, payload) = read[0];
        assert_eq!(found, header);
        let list = after_general(payload);
        assert_eq!(list, attributes.as_bytes());
        assert_eq!(find_text(list, 1), Some("oz"));
        assert_eq!(find(list, 2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find(find(list, 4).unwrap(), 1), Some(&[7][..]));
        assert_eq!(find(list, 3), None);
    }

    #[test]
    fn bytes_that_are_cut_end_the_list() {
        let whole = encode(
            Header {
                kind: 2,
                flags: 0,
                sequence: 1,
            },
            0,
            0,
            &Attributes::default().number(1, 5).number(2, 6),
        );
        for length in 0..whole.len() {
            let cut = &whole[..length];
            assert_eq!(messages(cut), []);
            assert!(attributes(cut.get(20..).unwrap_or_default()).len() < 2);
        }
        // Lengths of zero must not keep the reader in a loop.
        assert_eq!(messages(&[0; 64]), []);
        assert_eq!(attributes(&[0; 64]), []);
    }
}
