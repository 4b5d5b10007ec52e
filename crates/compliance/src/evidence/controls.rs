//! `controls.md`: the controls of each framework that the bundle answers, the files that answer them, and the parts
//! that are not answered. It describes the bundle, not whether a control is met: the auditor decides that.

use oz_trail::verify::{Report, Verdict};
use oz_trail::{Action, Decision};

use super::accounts::Accounts;
use super::{Manifest, ObjectDigest};
use crate::entitlements::{EntitlementKind, Entitlements};

/// A control of a framework.
struct Control {
    id: &'static str,
    asks: &'static str,
    answered: &'static str,
    not_answered: &'static str,
}

const CONTROLS: [Control; 11] = [
    Control {
        id: "SOC 2 CC6.1",
        asks: "logical access is restricted to authorized users",
        answered: "`entitlements.csv`: which users could connect to which pods, and by which rule; \
                   `objects.json`: the templates by digest; `SessionRefused` and `RequestDenied` \
                   in `records.jsonl`",
        not_answered: "the members of a group: the identity provider; other access to hosts and \
            networks",
    },
    Control {
        id: "SOC 2 CC6.2",
        asks: "users are registered and authorized before they get access",
        answered: "`summary.csv`: each grant with its requester, as the API server authenticated \
                   them, and `approvedBy`; `approvals.csv`",
        not_answered: "the registration of users: the identity provider",
    },
    Control {
        id: "SOC 2 CC6.3",
        asks: "access is granted by role, with separation of duties, and is changed and removed",
        answered: "`summary.csv`: `until`, `endedAt`, `endedBy`; `approvals.csv`: requesters \
                   cannot approve their own requests; `TemplateChanged` in `records.jsonl`",
        not_answered: "whether a role suits a job: the reviewer's judgement",
    },
    Control {
        id: "ISO 27001 A.5.18",
        asks: "access rights are provisioned, reviewed, changed and removed by rule",
        answered: "`summary.csv`, `approvals.csv`; `entitlements.csv` is the list to review, and \
                   `attestations.csv` has its reviewers, the time, the number of kept and removed \
                   lines, and the file",
        not_answered: "the decision about each line: the file with the digest that the attestation \
                       names; the removal of the rights",
    },
    Control {
        id: "ISO 27001 A.8.2",
        asks: "privileged access rights are restricted and managed",
        answered: "`entitlements.csv`: rows `Standing` and `BreakGlass` are privileged rights \
                   without an expiry; `summary.csv`: those with an expiry",
        not_answered: "privileged rights that do not give access to pods, and those that give it \
            in two steps",
    },
    Control {
        id: "ISO 27001 A.8.15",
        asks: "logs of activities are produced, kept, protected and analysed",
        answered: "`records.jsonl`, chained and signed; `verify.json`: proof that none is missing \
            or changed; `seal.json`",
        not_answered: "Kubernetes' audit log; the analysis of the logs",
    },
    Control {
        id: "PCI DSS 7.2.4",
        asks: "user accounts and access privileges are reviewed every six months",
        answered: "`attestations.csv`: the reviewers of each list, by its digest, and the time; \
                   `entitlements.csv` is the list at the time of the bundle",
        not_answered: "reviews at other times than the bundle's; their approval by management",
    },
    Control {
        id: "PCI DSS 10.2.1",
        asks: "audit logs record access, actions of administrators, invalid attempts and changes of the log itself",
        answered: "`records.jsonl`: `SessionOpened`, `SessionRefused`, `RequestDenied`, \
                   `KeyRotated`, `TrailShortened`, `WriterStarted`, each with user, time, action \
                   and place",
        not_answered: "the input of sessions; the logs of applications",
    },
    Control {
        id: "NIST AC-2(2)",
        asks: "temporary and emergency accounts are removed automatically",
        answered: "`summary.csv`: every grant has `until`; `AccessExpired` is its automatic \
                   removal; `reviews.csv`: the reviewers of emergencies and their findings",
        not_answered: "accounts: oz grants rights to existing accounts",
    },
    Control {
        id: "NIST AC-5",
        asks: "duties are separated",
        answered: "`approvals.csv`: the approvers and the rule of each approval; `ApprovalRefused` \
            is each denied approval",
        not_answered: "requests by templates without approval rules: `approvedBy` is empty",
    },
    Control {
        id: "NIST AC-6(9)",
        asks: "the use of privileged functions is logged",
        answered: "`records.jsonl` and `summary.csv`: `SessionOpened` and `BreakGlassOpened`, with the digest of the \
                   command",
        not_answered: "sessions of users that the connect hook exempts (nodes, the system's \
                       controllers), and sessions of break-glass groups and in observing \
                       namespaces that opened while no webhook ran",
    },
];

/// Returns the page.
#[must_use]
pub fn controls(
    manifest: &Manifest,
    accounts: &Accounts,
    entitlements: &Entitlements,
    objects: &[ObjectDigest],
    report: &Report,
) -> String {
    let mut text = format!(
        "# What this bundle answers\n\nRecords from {} until before {}. Written by `ozctl audit evidence`; \
         `ozctl audit evidence --check` makes this page again from the records.\n\n## In numbers\n\n",
        manifest.from, manifest.to
    );
    for (what, number) in numbers(accounts, entitlements, objects, report) {
        text.push_str(&format!("- {what}: {number}\n"));
    }
    text.push_str("\n## Controls\n\n| control | asks that | answered by | not answered here |\n|---|---|---|---|\n");
    for control in &CONTROLS {
        let Control {
            id,
            asks,
            answered,
            not_answered,
        } = control;
        text.push_str(&format!(
            "| {id} | {asks} | {answered} | {not_answered} |\n"
        ));
    }
    text.push_str("\n## Gaps\n\n");
    let gaps = manifest.gaps.iter().chain(&entitlements.gaps);
    let gaps: String = gaps.map(|gap| format!("- {}\n", plain(gap))).collect();
    text.push_str(match gaps.as_str() {
        "" => "None: the author of the bundle could read all of its sources.\n",
        gaps => gaps,
    });
    text
}

fn numbers(
    accounts: &Accounts,
    entitlements: &Entitlements,
    objects: &[ObjectDigest],
    report: &Report,
) -> Vec<(&'static str, String)> {
    let total = |action, decision| accounts.total(action, decision).to_string();
    let (requests, granted) = accounts.requests();
    let ways = |way| {
        let found = entitlements
            .entitlements
            .iter()
            .filter(|one| one.way == way);
        found.count().to_string()
    };
    let verdict = match report.verdict(false) {
        Verdict::Valid => "none is missing or changed, by the keys that the cluster published",
        Verdict::Invalid => "NOT WHOLE: see `verify.json`",
        Verdict::Unchecked => {
            "NOT CHECKED: signed by keys that are not published, see `verify.json`"
        }
        Verdict::Empty => "there are no audit records, which proves nothing",
    };
    vec![
        ("Records", accounts.records().to_string()),
        ("Whether the records are whole", verdict.to_owned()),
        ("Requests and bindings in the records", requests.to_string()),
        ("Granted", granted.to_string()),
        (
            "Granted by approval of others",
            accounts.approved().to_string(),
        ),
        (
            "Approvals given",
            total(Action::ApprovalGiven, Decision::Allow),
        ),
        (
            "Denials by approvers",
            total(Action::ApprovalDenied, Decision::Deny),
        ),
        (
            "Answers refused",
            total(Action::ApprovalRefused, Decision::Deny),
        ),
        (
            "Requests refused",
            total(Action::RequestDenied, Decision::Deny),
        ),
        (
            "Access that ended on time",
            total(Action::AccessExpired, Decision::End),
        ),
        (
            "Access that ended early",
            total(Action::AccessRevoked, Decision::End),
        ),
        (
            "Sessions opened",
            total(Action::SessionOpened, Decision::Allow),
        ),
        (
            "Opened as break-glass",
            total(Action::BreakGlassOpened, Decision::Allow),
        ),
        (
            "Attestations of entitlements",
            total(Action::EntitlementsAttested, Decision::Allow),
        ),
        (
            "Sessions refused",
            total(Action::SessionRefused, Decision::Deny),
        ),
        ("Templates and policies", objects.len().to_string()),
        (
            "Permanent rights that do not depend on oz",
            ways(EntitlementKind::Standing),
        ),
        ("Break-glass groups", ways(EntitlementKind::BreakGlass)),
        (
            "Digest of the entitlements",
            format!("`{}`", entitlements.digest),
        ),
    ]
}

/// Returns a text of other users as one line of plain text.
fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            letter if letter.is_control() => ' ',
            '<' | '>' | '|' | '`' | '[' | ']' => '\'',
            letter => letter,
        })
        .collect()
}
