//! Places for connections of which nothing is known.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Holds so many guests, and so many of one address. Whoever comes when all places are taken gets
/// that of the one who has been there for longest.
#[derive(Debug)]
pub struct Room {
    limit: usize,
    per_peer: usize,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    next: u64,
    /// The oldest first.
    inside: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// A place in a [`Room`], given back when this is dropped.
#[derive(Debug)]
pub struct Guest {
    room: Arc<Room>,
    number: u64,
    sent_away: CancellationToken,
}

impl Room {
    /// An empty room of `limit` places, of which one address has at most `per_peer`.
    #[must_use]
    pub fn new(limit: usize, per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            per_peer: per_peer.max(1),
            guests: Mutex::default(),
        })
    }

    /// Lets somebody in, and sends somebody else away if there is no place.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Guest {
        let sent_away = CancellationToken::new();
        let peer = peer.to_canonical();
        let mut guests = self.guests();
        let of_peer = guests.inside.values().filter(|(it, _)| *it == peer).count();
        let leaves = if of_peer >= self.per_peer {
            guests.inside.iter().find(|(_, (it, _))| *it == peer)
        } else if guests.inside.len() >= self.limit {
            guests.inside.iter().next()
        } else {
            None
        };
        if let Some(number) = leaves.map(|(number, _)| *number)
            && let Some((_, other)) = guests.inside.remove(&number)
        {
            other.cancel();
        }
        let number = guests.next;
        guests.next += 1;
        guests.inside.insert(number, (peer, sent_away.clone()));
        drop(guests);
        Guest {
            room: self.clone(),
            number,
            sent_away,
        }
    }

    /// How many are inside.
    pub fn len(&self) -> usize {
        self.guests().inside.len()
    }

    /// Whether nobody is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Ready when somebody else has been given the place.
    pub async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }

    /// Gives the place back, as somebody who is known by now: nobody sends them away any more.
    pub fn depart(&self) {
        self.room.guests().inside.remove(&self.number);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.depart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn is_sent_away(guest: &Guest) -> bool {
        guest.sent_away.is_cancelled()
    }

    #[test]
    fn the_one_who_came_first_makes_way() {
        let room = Room::new(2, 2);
        let (first, second) = (room.admit(from(1)), room.admit(from(2)));
        let third = room.admit(from(3));
        assert!(is_sent_away(&first));
        assert!(!is_sent_away(&second) && !is_sent_away(&third));
        drop(first);
        assert_eq!(room.len(), 2);
    }

    #[test]
    fn an_address_beyond_its_share_makes_way_for_itself() {
        let room = Room::new(10, 2);
        let other = room.admit(from(9));
        let crowd: Vec<_> = (0..5).map(|_| room.admit(from(1))).collect();
        let left: Vec<_> = crowd.iter().map(is_sent_away).collect();
        assert_eq!(left, [true, true, true, false, false]);
        assert!(!is_sent_away(&other));
        assert_eq!(room.len(), 3);
    }

    #[test]
    fn an_address_is_the_same_in_the_form_of_version_6() {
        let room = Room::new(10, 1);
        let first = room.admit(from(1));
        let _second = room.admit("::ffff:10.0.0.1".parse().unwrap());
        assert!(is_sent_away(&first));
    }

    #[test]
    fn whoever_departs_is_sent_away_by_nobody() {
        let room = Room::new(1, 1);
        let known = room.admit(from(1));
        known.depart();
        let _crowd: Vec<_> = (0..5).map(|_| room.admit(from(1))).collect();
        assert!(!is_sent_away(&known));
        drop(known);
        assert_eq!(room.len(), 1, "nobody else's place is given back");
    }
}
