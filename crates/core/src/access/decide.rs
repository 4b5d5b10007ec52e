//! The decision about a requester: the rules of a template applied to a verified requester. The webhook decides at
//! admission, and the operator decides again before it grants; both use this module.

use k8s_openapi::api::rbac::v1::Subject;
use oz_api::{AccessConfig, Bind, Operation, Requester};

use super::denial::list;
use super::{emergency_rule, ticket};

/// The end of the denial of a request without a reason: the field to set.
pub const REASON_REQUIRED: &str = "; set spec.reason";

pub use super::ask::Ask;
pub use super::denial::Denial;

/// The name of the rule about change tickets.
const TICKET: &str = "ticket";

const RBAC: &str = "rbac.authorization.k8s.io";

/// A rule of a template, and its result for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The subject of the rule.
    pub name: &'static str,
    /// The reason why the rule holds, or the denial.
    pub verdict: Result<String, Denial>,
}

/// Checks whether `requester` may have the access that `template` (its name) grants. This check decides who gets
/// access: each of the [`rules`] must hold.
///
/// # Errors
/// The [`Denial`] of the first rule that does not hold, with the next step.
pub fn may(
    requester: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<(), Denial> {
    rules(requester, template, config, ask).try_for_each(|rule| rule.verdict.map(drop))
}

/// Checks whether `requester` may request access by a template, provided that the request has the reason and the change
/// ticket that the template requires.
///
/// # Errors
/// As [`may`].
pub fn may_ask(
    requester: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<(), Denial> {
    let reason = Some("given later");
    let ask = Ask { reason, ..ask };
    let mut rules = rules(requester, template, config, ask).filter(|rule| rule.name != TICKET);
    rules.try_for_each(|rule| rule.verdict.map(drop))
}

/// Returns the rules in the order in which they apply, each with its result regardless of the other rules.
pub fn rules<'a>(
    requester: &'a Requester,
    template: &'a str,
    config: &'a AccessConfig,
    ask: Ask<'a>,
) -> impl Iterator<Item = Rule> + 'a {
    const RULES: [(&str, Check); 5] = [
        ("service accounts", service_account),
        ("membership", membership),
        ("reason", reason),
        (TICKET, ticket),
        ("container", container),
    ];
    RULES.into_iter().map(move |(name, check)| Rule {
        name,
        verdict: check(requester, template, config, ask),
    })
}

type Check = fn(&Requester, &str, &AccessConfig, Ask<'_>) -> Result<String, Denial>;

fn service_account(
    requester: &Requester,
    template: &str,
    config: &AccessConfig,
    _: Ask<'_>,
) -> Result<String, Denial> {
    let user = &requester.user;
    if requester.service_account().is_none() {
        return Ok(format!("{user} is not a service account"));
    }
    if config.allow_service_accounts {
        return Ok(format!("template {template} allows service accounts"));
    }
    Err(Denial::new(
        "ServiceAccountsNotAllowed",
        format!(
            "{user} is a service account, and template {template} does not allow service accounts; \
             request access as a person, or have its owners set \
             spec.accessConfig.allowServiceAccounts"
        ),
    ))
}

fn membership(
    requester: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<String, Denial> {
    if ask.emergency {
        return emergency_rule::may(requester, template, config);
    }
    let user = &requester.user;
    if config.allowed_users.contains(user) {
        return Ok(format!("{user} is among allowedUsers"));
    }
    let mut groups = requester.groups.iter();
    if let Some(group) = groups.find(|group| config.allowed_groups.contains(group)) {
        return Ok(format!("{user} is in group {group}"));
    }
    Err(Denial::new(
        "NotAllowed",
        format!(
            "{user} is in none of the groups that template {template} allows ({}); request \
             membership, or use another template",
            list(&config.allowed_groups)
        ),
    ))
}

fn ticket(
    _: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<String, Denial> {
    let who = || format!("template {template}");
    ticket::validate(config.ticket.as_ref(), who, ask)
}

fn reason(
    _: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<String, Denial> {
    if !config.require_reason && !ask.emergency {
        return Ok("none is required".to_owned());
    }
    reason_given(ask.reason, || match ask.emergency {
        true => "an emergency".to_owned(),
        false => format!("template {template}"),
    })
}

/// Checks whether the reason that `who` requires is given.
///
/// # Errors
/// A [`Denial`] with the next step.
pub fn reason_given(reason: Option<&str>, who: impl Fn() -> String) -> Result<String, Denial> {
    if reason.is_some_and(|reason| !reason.trim().is_empty()) {
        return Ok("one is given".to_owned());
    }
    Err(Denial::new(
        "ReasonRequired",
        format!("{} requires a reason{REASON_REQUIRED}", who()),
    ))
}

fn container(
    _: &Requester,
    template: &str,
    config: &AccessConfig,
    ask: Ask<'_>,
) -> Result<String, Denial> {
    match ask.container {
        _ if config.containers.is_empty() => Ok("all are allowed".to_owned()),
        None => Ok("none is named".to_owned()),
        Some(container) if config.containers.iter().any(|allowed| allowed == container) => {
            Ok(format!("{container} is allowed"))
        }
        Some(container) => Err(Denial::new(
            "ContainerNotAllowed",
            format!(
                "template {template} does not allow container {container}; name one of: {}",
                list(&config.containers)
            ),
        )),
    }
}

/// Returns the subjects of a grant: the requester alone, unless the template has `bind: Groups`; then the groups, and a
/// requester who is in none of them but is listed by name.
#[must_use]
pub fn subjects(requester: &Requester, rules: &AccessConfig) -> Vec<Subject> {
    match rules.bind {
        Bind::Requester => vec![subject(requester)],
        Bind::Groups => {
            let groups = rules.allowed_groups.iter().map(|group| Subject {
                api_group: Some(RBAC.to_owned()),
                kind: "Group".to_owned(),
                name: group.clone(),
                namespace: None,
            });
            let by_name = (!is_member(requester, rules)).then(|| subject(requester));
            groups.chain(by_name).collect()
        }
    }
}

fn is_member(requester: &Requester, rules: &AccessConfig) -> bool {
    let mut groups = requester.groups.iter();
    groups.any(|group| rules.allowed_groups.contains(group))
}

pub(super) fn subject(requester: &Requester) -> Subject {
    match requester.service_account() {
        Some((namespace, name)) => Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        },
        None => Subject {
            api_group: Some(RBAC.to_owned()),
            kind: "User".to_owned(),
            name: requester.user.clone(),
            namespace: None,
        },
    }
}

/// Returns the operations of a template: exec, unless the template lists others.
#[must_use]
pub fn operations(rules: &AccessConfig) -> Vec<Operation> {
    let mut operations = rules.operations.clone();
    operations.sort_unstable();
    operations.dedup();
    if operations.is_empty() {
        operations.push(Operation::Exec);
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(user: &str, groups: &[&str]) -> Requester {
        Requester {
            user: user.into(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    fn rules() -> AccessConfig {
        AccessConfig {
            allowed_groups: vec!["admins".into(), "devs".into()],
            allowed_users: vec!["carol".into()],
            ..AccessConfig::default()
        }
    }

    fn refusal(requester: &Requester, rules: &AccessConfig) -> Option<&'static str> {
        may(requester, "shell", rules, Ask::default())
            .err()
            .map(|denial| denial.reason)
    }

    #[test]
    fn listed_group_or_user_is_permitted_and_others_are_refused() {
        for (user, groups, refused) in [
            ("alice", &["devs"][..], None),
            ("alice", &["system:authenticated", "admins"], None),
            ("carol", &[], None),
            ("mallory", &["interns"], Some("NotAllowed")),
            ("mallory", &[], Some("NotAllowed")),
            ("devs", &[], Some("NotAllowed")),
            ("mallory", &["dev", "devs ", "DEVS"], Some("NotAllowed")),
            ("", &[], Some("NotAllowed")),
        ] {
            assert_eq!(
                refusal(&requester(user, groups), &rules()),
                refused,
                "{user} {groups:?}"
            );
        }
    }

    #[test]
    fn a_service_account_needs_the_template_to_say_so_and_a_group_as_well() {
        let robot = requester("system:serviceaccount:ci:bot", &["devs"]);
        assert_eq!(refusal(&robot, &rules()), Some("ServiceAccountsNotAllowed"));
        let open = AccessConfig {
            allow_service_accounts: true,
            ..rules()
        };
        assert_eq!(refusal(&robot, &open), None);
        let stranger = requester("system:serviceaccount:ci:bot", &["system:serviceaccounts"]);
        assert_eq!(refusal(&stranger, &open), Some("NotAllowed"));
    }

    #[test]
    fn a_required_reason_must_say_something() {
        let strict = AccessConfig {
            require_reason: true,
            ..rules()
        };
        for (reason, allowed) in [(None, false), (Some(" \n"), false), (Some("INC-1"), true)] {
            let ask = Ask {
                reason,
                ..Ask::default()
            };
            assert_eq!(
                may(&requester("carol", &[]), "shell", &strict, ask).is_ok(),
                allowed
            );
        }
    }

    #[test]
    fn a_container_must_be_among_those_listed_if_any_are() {
        let narrow = AccessConfig {
            containers: vec!["app".into()],
            ..rules()
        };
        for (rules, container, allowed) in [
            (&narrow, Some("app"), true),
            (&narrow, Some("sidecar"), false),
            (&narrow, None, true),
            (&rules(), Some("sidecar"), true),
        ] {
            let ask = Ask {
                container,
                ..Ask::default()
            };
            let result = may(&requester("carol", &[]), "shell", rules, ask);
            assert_eq!(result.is_ok(), allowed, "{container:?}");
        }
    }

    #[test]
    fn the_requester_alone_is_bound() {
        let bound = subjects(&requester("alice", &["devs"]), &rules());
        assert_eq!(bound.len(), 1);
        assert_eq!(
            (bound[0].kind.as_str(), bound[0].name.as_str()),
            ("User", "alice")
        );
        let robot = &subjects(&requester("system:serviceaccount:ci:bot", &[]), &rules())[0];
        assert_eq!(robot.kind, "ServiceAccount");
        assert_eq!(
            (robot.namespace.as_deref(), robot.name.as_str()),
            (Some("ci"), "bot")
        );
    }

    #[test]
    fn the_groups_are_bound_only_where_the_template_says_so() {
        let compatible = AccessConfig {
            bind: Bind::Groups,
            ..rules()
        };
        let bound = subjects(&requester("alice", &["devs"]), &compatible);
        let names: Vec<_> = bound
            .iter()
            .map(|one| (one.kind.as_str(), one.name.as_str()))
            .collect();
        assert_eq!(names, [("Group", "admins"), ("Group", "devs")]);
    }

    #[test]
    fn exec_is_what_a_template_hands_out_unless_it_lists_operations() {
        assert_eq!(operations(&rules()), [Operation::Exec]);
        let logs = AccessConfig {
            operations: vec![Operation::Log, Operation::Log],
            ..rules()
        };
        assert_eq!(operations(&logs), [Operation::Log]);
    }
}
