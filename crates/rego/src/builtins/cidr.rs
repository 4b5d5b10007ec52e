//! `net.cidr_*` that the interpreter does not have.

use std::collections::BTreeSet;
use std::net::IpAddr;

use regorus::Value;

use super::bounds::{Excess, MAX_ITEMS};
use super::operand::{Answer, Failure, failed, items, text};

/// A network: its first address as 128 bits, and the number of bits of an address and of the prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Network {
    first: u128,
    bits: u32,
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Result<Self, Failure> {
        let invalid = || Failure::Failed(format!("invalid CIDR address: {text}"));
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address = address.parse().map_err(|_| invalid())?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| digits);
        let (address, bits) = number(address);
        match prefix {
            Some(prefix) if prefix <= bits => Ok(Self::new(address, bits, prefix)),
            _ => Err(invalid()),
        }
    }

    fn new(address: u128, bits: u32, prefix: u32) -> Self {
        Self {
            first: address & !mask(bits - prefix),
            bits,
            prefix,
        }
    }

    fn last(self) -> u128 {
        self.first | mask(self.bits - self.prefix)
    }

    fn contains(self, address: u128, bits: u32) -> bool {
        self.bits == bits && (self.first..=self.last()).contains(&address)
    }

    fn written(self) -> String {
        match self.bits {
            32 => {
                let address = std::net::Ipv4Addr::from(u32::try_from(self.first).unwrap_or(0));
                format!("{address}/{}", self.prefix)
            }
            _ => format!("{}/{}", std::net::Ipv6Addr::from(self.first), self.prefix),
        }
    }
}

/// Returns that many ones.
fn mask(ones: u32) -> u128 {
    1_u128
        .checked_shl(ones)
        .map_or(u128::MAX, |power| power - 1)
}

/// Returns an address as a number with its bits; one of IPv4 within IPv6 is one of IPv4.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => (u128::from(address.to_bits()), 32),
            None => (address.to_bits(), 128),
        },
    }
}

/// Implements `net.cidr_intersects`.
pub(super) fn intersects(values: &[Value]) -> Answer {
    let (a, b) = (
        Network::parse(text(values, 0)?)?,
        Network::parse(text(values, 1)?)?,
    );
    Ok(Value::from(
        a.contains(b.first, b.bits) || b.contains(a.first, a.bits),
    ))
}

/// Implements `net.cidr_contains`, and `net.cidr_overlap`, which OPA had before 1.0.
pub(super) fn contains(values: &[Value]) -> Answer {
    let network = Network::parse(text(values, 0)?)?;
    Ok(Value::from(is_in(network, text(values, 1)?)?))
}

fn is_in(network: Network, text: &str) -> Result<bool, Failure> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let (address, bits) = number(address);
        return Ok(network.contains(address, bits));
    }
    let Ok(other) = Network::parse(text) else {
        return failed(format!(
            "not a valid textual representation of an IP address or CIDR: {text}"
        ));
    };
    Ok(network.contains(other.first, other.bits) && network.contains(other.last(), other.bits))
}

/// Implements `net.cidr_contains_matches`.
pub(super) fn contains_matches(values: &[Value]) -> Answer {
    let (networks, others) = (entries(values, 0)?, entries(values, 1)?);
    if networks.len().saturating_mul(others.len()) > MAX_ITEMS {
        return Err(Excess::Elements.into());
    }
    let mut pairs = BTreeSet::new();
    for (network, at) in &networks {
        let network = Network::parse(network)?;
        for (other, other_at) in &others {
            if is_in(network, other)? {
                pairs.insert(Value::from(vec![at.clone(), other_at.clone()]));
            }
        }
    }
    Ok(Value::from(pairs))
}

/// Returns the networks of an operand, each with its place in it.
fn entries(values: &[Value], at: usize) -> Result<Vec<(String, Value)>, Failure> {
    let entry = |value: &Value, place: Value| {
        let value = match value {
            Value::Array(items) => items.iter().next().cloned(),
            other => Some(other.clone()),
        };
        match value {
            Some(Value::String(text)) => Ok((text.to_string(), place)),
            _ => failed(format!(
                "operand {}: element must be string or non-empty array",
                at + 1
            )),
        }
    };
    match values.get(at) {
        Some(Value::String(text)) => Ok(vec![(text.to_string(), Value::String(text.clone()))]),
        Some(Value::Array(items)) => {
            let places = items.iter().enumerate();
            places
                .map(|(place, item)| entry(item, Value::from(place)))
                .collect()
        }
        Some(Value::Set(items)) => items.iter().map(|item| entry(item, item.clone())).collect(),
        Some(Value::Object(fields)) => {
            let fields = fields.iter_sorted();
            fields
                .map(|(key, value)| entry(value, key.clone()))
                .collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// Implements `net.cidr_expand`: invalid networks have no addresses.
pub(super) fn check_network(values: &[Value]) -> Result<(), Failure> {
    Network::parse(text(values, 0)?).map(drop)
}

/// Implements `net.cidr_merge`.
pub(super) fn merge(values: &[Value]) -> Answer {
    let mut networks = Vec::new();
    for item in items(values, 0)? {
        let Value::String(text) = item else {
            return failed("element must be string");
        };
        networks.push(match text.parse::<IpAddr>().map(number) {
            Ok((address, 32)) => Network {
                first: address,
                bits: 32,
                prefix: class(address),
            },
            Ok(_) => return failed("IPv6 invalid: needs prefix length"),
            Err(_) => Network::parse(&text)?,
        });
    }
    let mut ranges: Vec<Range> = networks.into_iter().map(Range::from_network).collect();
    ranges.sort_unstable_by_key(|range| (range.bits, range.first, range.last));
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if before.meets(&range) => {
                before.last = before.last.max(range.last);
                before.alone = None;
            }
            _ => merged.push(range),
        }
    }
    let mut written = BTreeSet::new();
    for range in merged {
        match range.alone {
            // An address keeps its bits behind the prefix.
            Some(network) => {
                written.insert(Value::from(network.written()));
            }
            None => cover(range.bits, range.first, range.last, &mut written),
        }
    }
    Ok(Value::from(written))
}

/// A range of addresses, and its network if that is all of it.
struct Range {
    bits: u32,
    first: u128,
    last: u128,
    alone: Option<Network>,
}

impl Range {
    fn from_network(network: Network) -> Self {
        let whole = Network::new(network.first, network.bits, network.prefix);
        Self {
            bits: whole.bits,
            first: whole.first,
            last: whole.last(),
            alone: Some(network),
        }
    }

    /// Checks whether another range begins within this one or after its end.
    fn meets(&self, next: &Self) -> bool {
        self.bits == next.bits && next.first <= self.last.saturating_add(1)
    }
}

/// Returns the prefix of an address of IPv4 by its class.
fn class(address: u128) -> u32 {
    match address >> 24 {
        0..=127 => 8,
        128..=191 => 16,
        192..=223 => 24,
        _ => 32,
    }
}

/// Covers a range with the fewest networks.
fn cover(bits: u32, mut first: u128, last: u128, written: &mut BTreeSet<Value>) {
    loop {
        let mut free = first.trailing_zeros().min(bits);
        while mask(free) > last - first {
            free -= 1;
        }
        let network = Network {
            first,
            bits,
            prefix: bits - free,
        };
        written.insert(Value::from(network.written()));
        match network.last().checked_add(1) {
            Some(next) if next <= last => first = next,
            _ => return,
        }
    }
}
