//! Moderated sessions (`spec.accessConfig.moderation`): the times at which a session opens, is held and ends, by its
//! viewers and the time that has passed.

use std::collections::BTreeSet;
use std::time::Duration;

use oz_api::{ModerationConfig, Requester};
use oz_core::access::approval::{is_listed, is_same_person};
use oz_core::connect::Refusal;
use oz_core::gate::watchers;

/// The time that a session waits for viewers.
pub const WAIT: Duration = Duration::from_secs(10 * 60);
/// The time for which a session is held after its viewers have left.
pub const HOLD: Duration = Duration::from_secs(60);

/// Checks whether enough viewers watch. A viewer counts if they are a member of the groups, once by name and once by
/// the id of the identity provider. The user of the session and the requester of the access (`whose`) do not count. The
/// rule of approvals decides on membership; by that rule a service account is not a member.
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

/// The phase of a moderated session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The session opens when enough viewers watch. It does not open from this time on. The time counts from the
    /// request for the session, as in the other variants.
    Waiting(Duration),
    /// Enough viewers watch.
    Open,
    /// The viewers have left: no data is forwarded, and the session ends at this time.
    Paused(Duration),
    /// The viewers did not arrive in time.
    ViewerTimeout,
    /// The viewers did not return in time.
    ViewerReturnTimeout,
}

/// The state of a moderated session over time.
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
    /// Returns the phase as of the last update.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Updates the phase at this time since the request for the session; `enough` is true if enough viewers watch.
    /// Returns the new phase.
    pub fn look(&mut self, passed: Duration, enough: bool) -> Phase {
        self.phase = match self.phase {
            Phase::Waiting(last) if passed >= last => Phase::ViewerTimeout,
            Phase::Paused(last) if passed >= last => Phase::ViewerReturnTimeout,
            Phase::Waiting(_) | Phase::Open | Phase::Paused(_) if enough => Phase::Open,
            Phase::Open => Phase::Paused(passed + HOLD),
            other => other,
        };
        self.phase
    }
}

/// Returns the notice for the user of a session that waits for viewers; `request` is the name of the access request.
#[must_use]
pub fn waits(config: &ModerationConfig, namespace: &str, request: &str) -> String {
    format!(
        "this session opens once {} (ozctl sessions watch {request} -n {namespace}); it waits for \
         at most {} minutes, and Ctrl-C stops the wait",
        watchers(config),
        WAIT.as_secs() / 60
    )
}

/// Returns the denial after the user stopped the wait for viewers.
#[must_use]
pub fn stopped() -> Refusal {
    Refusal::new(
        "NotModerated",
        "the wait for a moderator was stopped by Ctrl-C; the session was not opened",
    )
}

/// Returns the denial of a session whose viewers did not arrive in time.
#[must_use]
pub fn nobody_came(config: &ModerationConfig) -> Refusal {
    Refusal::new(
        "NotModerated",
        format!(
            "a session by this template opens once {} (ozctl sessions watch), and that did not \
             happen within {} minutes; agree on a time, and try again",
            watchers(config),
            WAIT.as_secs() / 60
        ),
    )
}

/// Returns the denial for a session whose viewers did not return in time.
#[must_use]
pub fn nobody_came_back(config: &ModerationConfig) -> Refusal {
    Refusal::new(
        "NotModerated",
        format!(
            "this session is open only while {}, and that was not the case for {} seconds",
            watchers(config),
            HOLD.as_secs()
        ),
    )
}

/// Returns the notice for the user of a session that is held.
#[must_use]
pub fn held(config: &ModerationConfig) -> String {
    format!(
        "this session is paused until {}; it ends in {} seconds",
        watchers(config),
        HOLD.as_secs()
    )
}

/// The notice for the user of a session that resumes.
pub const RESUMED: &str = "this session continues";

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
        // Two users without a known id are different users.
        assert!(is_enough(
            &config(1),
            &[&person("alice", "", "security")],
            [&no_id[0]]
        ));
    }

    #[test]
    fn notice_of_the_wait_names_groups_command_and_limit() {
        for (viewers, who) in [
            (1, "a user of security, leads"),
            (2, "2 users of security, leads"),
        ] {
            let notice = waits(&config(viewers), "shop", "mine");
            for words in [
                who,
                "ozctl sessions watch mine -n shop",
                "10 minutes",
                "Ctrl-C",
            ] {
                assert!(notice.contains(words), "{words}: {notice}");
            }
            assert!(!notice.contains('\n'), "{notice}");
        }
    }

    #[test]
    fn session_opens_with_enough_viewers_is_held_and_ends_without_them() {
        let at = Duration::from_secs;
        let (waiting, over) = (Phase::Waiting(WAIT), Phase::ViewerTimeout);
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
                    (10, false, Phase::Paused(at(70))),
                    (69, false, Phase::Paused(at(70))),
                    (69, true, Phase::Open),
                    (700, true, Phase::Open),
                    (700, false, Phase::Paused(at(760))),
                    (760, false, Phase::ViewerReturnTimeout),
                    (761, true, Phase::ViewerReturnTimeout),
                ],
            ),
            (
                "they came back too late",
                vec![
                    (0, true, Phase::Open),
                    (1, false, Phase::Paused(at(61))),
                    (61, true, Phase::ViewerReturnTimeout),
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
