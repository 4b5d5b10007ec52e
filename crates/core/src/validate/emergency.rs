//! Validation of `spec.accessConfig.emergency`, and of the subsequent reviews.

use oz_api::duration::GoDuration;
use oz_api::{AccessReviewSpec, EmergencyConfig, Reviewers};

use super::text::plain;
use super::{Found, Violation, attestation};
use crate::access::emergency::{MAX_REVIEWERS, reviewers_text};

/// The maximum time until a review is due.
const MAX_WITHIN: GoDuration = GoDuration::from_secs(30 * 24 * 60 * 60);
/// The maximum number of unreviewed emergencies that a template can allow.
const MAX_OPEN: i32 = 16;

/// Returns the violations of the emergency settings in the field at `place`.
#[must_use]
pub fn emergency_config(place: &str, config: &EmergencyConfig) -> Vec<Violation> {
    let mut found = Found::default();
    check(place, config, &mut found);
    found.0
}

/// Adds the violations of the emergency settings in the field at `place`.
pub(super) fn check(place: &str, config: &EmergencyConfig, found: &mut Found) {
    let review = &config.review;
    check_subjects(place, &config.groups, &config.users, found);
    let field = format!("{place}.review");
    check_subjects(&field, &review.groups, &review.users, found);
    let reviewers = Reviewers::from(review);
    if reviewers_text(&reviewers).len() > MAX_REVIEWERS {
        let message = format!(
            "names that take more than {MAX_REVIEWERS} bytes do not fit into the audit record of \
             an emergency; name groups instead of users"
        );
        found.add(&field, message);
    }
    if let ([], [user]) = (review.groups.as_slice(), review.users.as_slice())
        && config.users.contains(user)
    {
        let message = format!(
            "{user} is the only reviewer, and could not review their own \
            emergencies"
        );
        found.add(&format!("{field}.users"), message);
    }
    duration(
        &format!("{place}.maxDuration"),
        &config.max_duration,
        None,
        found,
    );
    duration(
        &format!("{field}.deadline"),
        &review.deadline,
        Some(MAX_WITHIN),
        found,
    );
    if !(1..=MAX_OPEN).contains(&config.open_reviews) {
        let message = format!("must be from 1 to {MAX_OPEN}");
        let given = config.open_reviews.to_string();
        found.check(
            &format!("{place}.openReviews"),
            given,
            Err::<(), _>(message),
        );
    }
}

fn check_subjects(field: &str, groups: &[String], users: &[String], found: &mut Found) {
    for (list, names) in [("groups", groups), ("users", users)] {
        for (at, name) in names.iter().enumerate() {
            if name.trim().is_empty() {
                found.add(&format!("{field}.{list}[{at}]"), "must not be empty");
            }
        }
    }
    if groups.is_empty() && users.is_empty() {
        found.add(field, "must name at least one group or user");
    }
}

fn duration(field: &str, text: &str, longest: Option<GoDuration>, found: &mut Found) {
    let Some(duration) = found.duration(field, text) else {
        return;
    };
    let wrong = match longest {
        _ if !duration.is_positive() => "must be greater than zero".to_owned(),
        Some(longest) if duration > longest => format!("must be at most {longest}"),
        _ => return,
    };
    found.check(field, text, Err::<(), _>(wrong));
}

/// Returns the violations of a review.
#[must_use]
pub fn review(spec: &AccessReviewSpec) -> Vec<Violation> {
    let mut found = Found::default();
    if spec.attestation.is_some() {
        attestation::check(spec, &mut found);
        return found.0;
    }
    match (&spec.finding, &spec.reason) {
        (None, None) => {}
        (Some(_), Some(reason)) => plain("spec.reason", reason, &mut found),
        (Some(_), None) => found.add("spec.reason", "must state the reason for the finding"),
        (None, Some(_)) => found.add(
            "spec.finding",
            "must be Justified, Unjustified or FollowUp if a reason is set",
        ),
    }
    found.0
}

#[cfg(test)]
mod tests {
    use oz_api::{Finding, ReviewConfig};

    use super::*;

    fn config() -> EmergencyConfig {
        EmergencyConfig {
            groups: vec!["sre".into()],
            users: vec!["alice".into()],
            max_duration: "1h".into(),
            review: ReviewConfig {
                deadline: "24h".into(),
                groups: vec!["security".into()],
                users: Vec::new(),
            },
            open_reviews: 2,
        }
    }

    #[test]
    fn emergency_without_users_or_reviewers_is_rejected() {
        type Change = fn(&mut EmergencyConfig);
        let changes: [(Change, Option<&str>); 14] = [
            (|_| {}, None),
            (|it| it.groups.clear(), None),
            (
                |it| (it.groups, it.users) = (Vec::new(), Vec::new()),
                Some("spec.accessConfig.emergency"),
            ),
            (
                |it| it.groups.push(" ".into()),
                Some("spec.accessConfig.emergency.groups[1]"),
            ),
            (
                |it| it.review.groups.clear(),
                Some("spec.accessConfig.emergency.review"),
            ),
            (
                |it| {
                    it.review = ReviewConfig {
                        users: vec!["alice".into()],
                        groups: Vec::new(),
                        ..it.review.clone()
                    }
                },
                Some("spec.accessConfig.emergency.review.users"),
            ),
            (
                |it| it.review.users = vec!["u".repeat(500), "v".repeat(500)],
                Some("spec.accessConfig.emergency.review"),
            ),
            (
                |it| it.review.users.push(String::new()),
                Some("spec.accessConfig.emergency.review.users[0]"),
            ),
            (
                |it| it.max_duration = "0".into(),
                Some("spec.accessConfig.emergency.maxDuration"),
            ),
            (
                |it| it.max_duration = "soon".into(),
                Some("spec.accessConfig.emergency.maxDuration"),
            ),
            (
                |it| it.review.deadline = "-1h".into(),
                Some("spec.accessConfig.emergency.review.deadline"),
            ),
            (
                |it| it.review.deadline = "721h".into(),
                Some("spec.accessConfig.emergency.review.deadline"),
            ),
            (
                |it| it.open_reviews = 0,
                Some("spec.accessConfig.emergency.openReviews"),
            ),
            (
                |it| it.open_reviews = 17,
                Some("spec.accessConfig.emergency.openReviews"),
            ),
        ];
        for (number, (change, field)) in changes.into_iter().enumerate() {
            let mut config = config();
            change(&mut config);
            let mut found = Found::default();
            check("spec.accessConfig.emergency", &config, &mut found);
            let fields: Vec<&str> = found.0.iter().map(|one| one.field.as_str()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{number}");
        }
    }

    #[test]
    fn a_finding_has_a_reason_that_is_what_it_looks_like() {
        let long = "x".repeat(1024 * 1024);
        for (finding, reason, good) in [
            (None, None, true),
            (
                Some(Finding::Justified),
                Some("seen INC-42\n\tand it was"),
                true,
            ),
            (Some(Finding::FollowUp), Some("Größe, 漢字 and שלום"), true),
            (Some(Finding::Justified), None, false),
            (None, Some("well"), false),
            (Some(Finding::Justified), Some(" \n"), false),
            (Some(Finding::Justified), Some("\u{1b}[2J"), false),
            (Some(Finding::Justified), Some("\u{202e}deifitsuj"), false),
            (Some(Finding::Justified), Some("a\u{2066}b"), false),
            (Some(Finding::Justified), Some("a\u{200b}b"), false),
            (Some(Finding::Justified), Some(long.as_str()), false),
        ] {
            let spec = AccessReviewSpec {
                finding,
                reason: reason.map(ToOwned::to_owned),
                ..AccessReviewSpec::default()
            };
            let shown: String = reason.unwrap_or_default().chars().take(20).collect();
            assert_eq!(review(&spec).is_empty(), good, "{finding:?} {shown}");
        }
    }
}
