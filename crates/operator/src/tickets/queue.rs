//! The order of the queries of one check. Users take turns, so that one with many change tickets delays no other, and the
//! queries for grants come before those for waiting objects. While objects wait, one of four turns is for them: otherwise,
//! they would wait forever for a server that responds too slowly for all grants.

use std::collections::BTreeSet;

use oz_core::tickets::Subject;
use oz_engine::Flows;

/// The maximum number of consecutive turns of grants while objects wait.
const GRANTS_IN_ROW: usize = 3;

/// The queued queries of one check. A subject that several users wait for has a place of each of them, and leaves the queue
/// with the first turn.
#[derive(Default)]
pub(super) struct Queue {
    queued: BTreeSet<Subject>,
    grants: Lane,
    waiting: Lane,
    /// The number of turns of grants since the last one of a waiting object.
    in_row: usize,
}

/// The queued subjects of users who take turns, each once for a user. A subject may have left the queue.
#[derive(Default)]
struct Lane {
    turns: Flows<Subject>,
    taken: BTreeSet<(String, Subject)>,
}

impl Queue {
    /// Adds a subject for a user with an object that waits or is a grant. A subject is added once for a user.
    pub(super) fn push(&mut self, user: String, waits: bool, subject: Subject) {
        let lane = match waits {
            true => &mut self.waiting,
            false => &mut self.grants,
        };
        lane.push(user, subject.clone());
        self.queued.insert(subject);
    }

    /// Removes the subject of the next turn.
    pub(super) fn pop(&mut self) -> Option<Subject> {
        if self.in_row < GRANTS_IN_ROW
            && let Some(subject) = self.grants.pop(&mut self.queued)
        {
            self.in_row += 1;
            return Some(subject);
        }
        self.in_row = 0;
        let waiting = self.waiting.pop(&mut self.queued);
        waiting.or_else(|| self.grants.pop(&mut self.queued))
    }
}

impl Lane {
    fn push(&mut self, user: String, subject: Subject) {
        let place = (user, subject);
        if !self.taken.contains(&place) {
            self.turns.push(&place.0, place.1.clone());
            self.taken.insert(place);
        }
    }

    /// Removes the first subject of the next user that is still queued, from there too.
    fn pop(&mut self, queued: &mut BTreeSet<Subject>) -> Option<Subject> {
        let Self { turns, taken } = self;
        turns.pop_where(|user, subject| {
            taken.remove(&(user.to_owned(), subject.clone()));
            queued.remove(subject)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds `alice:1 bob!2`: the user and the subject, after `!` for a grant.
    fn add(queue: &mut Queue, text: &str) {
        for one in text.split_whitespace() {
            let (user, subject) = one.split_once([':', '!']).unwrap();
            let ticket = Subject::Ticket(subject.to_owned());
            queue.push(user.to_owned(), !one.contains('!'), ticket);
        }
    }

    fn drain(queue: &mut Queue) -> String {
        let subjects = std::iter::from_fn(|| queue.pop());
        let names = subjects.map(|subject| match subject {
            Subject::Ticket(name) => name,
            Subject::Requester(person) => person.user,
        });
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn users_take_turns_and_grants_come_first() {
        for (queries, expected) in [
            ("", ""),
            ("alice:1 alice:2 alice:3", "1 2 3"),
            ("alice:1 alice:2 alice:3 bob:4", "1 4 2 3"),
            ("alice:1 alice:2 bob:3 carol:4 bob:5", "1 3 4 2 5"),
            ("alice:1 bob!2", "2 1"),
            ("alice:1 alice:2 bob!3 alice!4", "3 4 1 2"),
            ("alice!1 alice!2 alice!3 bob!4", "1 4 2 3"),
            // Of four turns, one is for waiting objects.
            ("a!1 a!2 a!3 a!4 a!5 b:6 b:7", "1 2 3 6 4 5 7"),
            ("a!1 a!2 a!3 a!4 a!5", "1 2 3 4 5"),
            // A place more changes nothing.
            ("alice:1 alice:1 bob:2 alice:3", "1 2 3"),
            // One query for all users, at the first turn of one of them.
            ("alice:1 alice:2 bob:2", "1 2"),
            ("alice:1 bob:1 bob:2 alice:3", "1 2 3"),
            // The same subject of a waiting object and of a grant.
            ("alice:1 alice:2 bob!2", "2 1"),
        ] {
            let mut queue = Queue::default();
            add(&mut queue, queries);
            assert_eq!(drain(&mut queue), expected, "{queries}");
            assert_eq!(queue.pop(), None, "{queries}");
        }
    }

    #[test]
    fn user_who_arrives_later_waits_for_one_turn_of_each_other() {
        let mut queue = Queue::default();
        for number in 0..1000 {
            add(&mut queue, &format!("alice:a{number}"));
        }
        for _ in 0..500 {
            queue.pop();
        }
        add(&mut queue, "bob:b0 bob:b1");
        let text = drain(&mut queue);
        assert!(text.starts_with("a500 b0 a501 b1 a502 "), "{text}");
    }

    #[test]
    fn subject_that_left_is_queued_again_in_earlier_place() {
        let mut queue = Queue::default();
        add(&mut queue, "alice:1 bob:2 bob:1 bob:3");
        assert_eq!(queue.pop(), Some(Subject::Ticket("1".to_owned())));
        // The place of bob is still there, and holds again.
        add(&mut queue, "bob:1");
        assert_eq!(drain(&mut queue), "2 1 3");
    }
}
