//! Sessions that take somebody who watches (`spec.accessConfig.moderation`): when one opens, when it is held, and when it
//! ends, by who watches and how much time has passed.

use std::collections::BTreeSet;
use std::time::Duration;

use oz_api::{ModerationConfig, Requester};
use oz_core::access::approval::{is_listed, is_same_person};
use oz_core::connect::Refusal;
use oz_core::gate::watchers;

/// How long a session waits for people to watch it.
pub const WAIT: Duration = Duration::from_secs(10 * 60);
/// How long it is held when they have gone.
pub const HOLD: Duration = Duration::from_secs(60);

/// Whether enough people watch: members of the groups, each counted once by name and by the identity provider's id,
/// and none of them the one whose session it is, nor the one who asked for the access (`whose`). Who is a member is told by
/// the rule of approvals, by which a service account is none.
#[must_use]
pub fn is_enough<'a>(
    config: &ModerationConfig,
    whose: &[&Requester],
    viewers: impl IntoIterator<Item = &'a Requester>,
) -> bool {
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    let mut count = 0;
    for viewer in viewers {
        let theirs = whose.iter().any(|one| is_same_person(viewer, one));
        let counts = is_listed(&config.groups, &[], viewer);
        if theirs || !counts || names.contains(&viewer.user) || uids.contains(&viewer.uid) {
            continue;
        }
        names.insert(&viewer.user);
        if !viewer.uid.is_empty() {
            uids.insert(&viewer.uid);
        }
        count += 1;
    }
    count >= config.viewers
}

/// How a moderated session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It opens once enough people watch, or never, from then on. In time since it was asked for, as all that follows.
    Waiting(Duration),
    /// Enough people watch.
    Open,
    /// They have gone: nothing passes, and from then on it is over.
    Held(Duration),
    /// Nobody came in time.
    NobodyCame,
    /// They did not come back in time.
    NobodyCameBack,
}

/// Follows a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderated {
    phase: Phase,
}

impl Default for Moderated {
    fn default() -> Self {
        Self {
            phase: Phase::Waiting(WAIT),
        }
    }
}

impl Moderated {
    /// How it stands, by what was known when it was looked at last.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How it stands this long after it was asked for, with enough people or not.
    pub fn look(&mut self, passed: Duration, enough: bool) -> Phase {
        self.phase = match self.phase {
            Phase::Waiting(last) if passed >= last => Phase::NobodyCame,
            Phase::Held(last) if passed >= last => Phase::NobodyCameBack,
            Phase::Waiting(_) | Phase::Open | Phase::Held(_) if enough => Phase::Open,
            Phase::Open => Phase::Held(passed + HOLD),
            other => other,
        };
        self.phase
    }
}

/// Why a session was not opened that nobody came to watch.
#[must_use]
pub fn nobody_came(config: &ModerationConfig) -> Refusal {
    Refusal::new(
        "NotModerated",
        format!(
            "a session by this template opens once {} (ozctl sessions watch), and they did not within {} minutes; \
             agree on a time, and try again",
            watchers(config),
            WAIT.as_secs() / 60
        ),
    )
}

/// Why a session ended that nobody came back to watch.
#[must_use]
pub fn nobody_came_back(config: &ModerationConfig) -> Refusal {
    Refusal::new(
        "NotModerated",
        format!(
            "this session goes on only while {}, and they did not come back within {} seconds",
            watchers(config),
            HOLD.as_secs()
        ),
    )
}

/// What a user is told whose session is held.
#[must_use]
pub fn held(config: &ModerationConfig) -> String {
    format!(
        "this session is held until {}; it ends in {} seconds",
        watchers(config),
        HOLD.as_secs()
    )
}

/// What a user is told whose session goes on.
pub const RESUMED: &str = "this session goes on";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(viewers: i32) -> ModerationConfig {
        ModerationConfig {
            viewers,
            groups: vec!["security".to_owned(), "leads".to_owned()],
        }
    }

    fn person(user: &str, uid: &str, group: &str) -> Requester {
        Requester {
            user: user.to_owned(),
            uid: uid.to_owned(),
            groups: vec!["devs".to_owned(), group.to_owned()],
        }
    }

    #[test]
    fn people_count_who_are_of_the_groups_and_others_than_the_user() {
        let alice = person("alice", "1", "security");
        let bob = person("bob", "2", "security");
        let carol = person("carol", "3", "leads");
        let frank = person("frank", "6", "leads");
        let no_id = [person("dan", "", "leads"), person("erin", "", "leads")];
        for (why, viewers, watching, enough) in [
            ("nobody", 1, vec![], false),
            ("one", 1, vec![&bob], true),
            (
                "of no group",
                1,
                vec![&person("mallory", "9", "interns")],
                false,
            ),
            (
                "a service account",
                1,
                vec![&person("system:serviceaccount:ci:robot", "8", "security")],
                false,
            ),
            ("the user", 1, vec![&alice], false),
            (
                "the user by another name",
                1,
                vec![&person("alice2", "1", "security")],
                false,
            ),
            (
                "the user by another id",
                1,
                vec![&person("alice", "7", "security")],
                false,
            ),
            ("who asked for it", 1, vec![&frank], false),
            ("one of two", 2, vec![&bob], false),
            ("one of two, twice", 2, vec![&bob, &bob], false),
            (
                "one of two, by two names",
                2,
                vec![&bob, &person("bobby", "2", "leads")],
                false,
            ),
            ("two", 2, vec![&bob, &carol], true),
            ("two and the user", 2, vec![&bob, &alice, &carol], true),
            (
                "two of whom no id is known",
                2,
                vec![&no_id[0], &no_id[1]],
                true,
            ),
        ] {
            assert_eq!(
                is_enough(&config(viewers), &[&frank, &alice], watching),
                enough,
                "{why}"
            );
        }
        // Of whom no id is known is not somebody else of whom none is.
        assert!(is_enough(
            &config(1),
            &[&person("alice", "", "security")],
            [&no_id[0]]
        ));
    }

    #[test]
    fn it_opens_when_enough_watch_is_held_when_they_go_and_ends_when_they_do_not_come_back() {
        let at = Duration::from_secs;
        let (waiting, over) = (Phase::Waiting(WAIT), Phase::NobodyCame);
        for (why, looks) in [
            (
                "nobody came",
                vec![
                    (0, false, waiting),
                    (599, false, waiting),
                    (600, false, over),
                    (601, true, over),
                ],
            ),
            ("somebody came too late", vec![(600, true, over)]),
            (
                "they left, came back, and left for good",
                vec![
                    (5, true, Phase::Open),
                    (9, true, Phase::Open),
                    (10, false, Phase::Held(at(70))),
                    (69, false, Phase::Held(at(70))),
                    (69, true, Phase::Open),
                    (700, true, Phase::Open),
                    (700, false, Phase::Held(at(760))),
                    (760, false, Phase::NobodyCameBack),
                    (761, true, Phase::NobodyCameBack),
                ],
            ),
            (
                "they came back too late",
                vec![
                    (0, true, Phase::Open),
                    (1, false, Phase::Held(at(61))),
                    (61, true, Phase::NobodyCameBack),
                ],
            ),
        ] {
            let mut moderated = Moderated::default();
            assert_eq!(moderated.phase(), waiting);
            for (now, enough, expected) in looks {
                assert_eq!(moderated.look(at(now), enough), expected, "{why}, at {now}");
            }
        }
    }
}
