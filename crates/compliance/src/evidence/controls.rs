//! `controls.md`: the controls of each framework that the bundle answers, the files that answer them, and the parts
//! that are not answered. It describes the bundle, not whether a control is met: the auditor decides that.

use oz_trail::verify::{Report, Verdict};
use oz_trail::{Action, Decision};

use super::accounts::Accounts;
use super::{Manifest, ObjectDigest};
use crate::entitlements::{Entitlements, Way};

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
        asks: "logical access is restricted to whom it is meant for",
        answered: "`entitlements.csv`: who could get into which pods and by what; `objects.json`: the templates by \
                   digest; `SessionRefused` and `RequestDenied` in `records.jsonl`",
        not_answered: "who is in a group: the identity provider knows; other ways into hosts and networks",
    },
    Control {
        id: "SOC 2 CC6.2",
        asks: "users are registered and authorised before they get access",
        answered: "`summary.csv`: each grant with who asked, as the API server authenticated them, and `approvedBy`; \
                   `approvals.csv`",
        not_answered: "how users are registered: the identity provider's",
    },
    Control {
        id: "SOC 2 CC6.3",
        asks: "access is given by role, with separation of duties, and is changed and removed",
        answered: "`summary.csv`: `until`, `endedAt`, `endedBy`; `approvals.csv`: nobody counts for their own request; \
                   `TemplateChanged` in `records.jsonl`",
        not_answered: "whether a role suits a job: the reviewer's judgement",
    },
    Control {
        id: "ISO 27001 A.5.18",
        asks: "access rights are provisioned, reviewed, changed and removed by rule",
        answered: "`summary.csv`, `approvals.csv`; `entitlements.csv` is what there is to review, and \
                   `attestations.csv` who reviewed it when, how many lines they kept and removed, and by which file",
        not_answered: "what was decided about each line: the file with the digest that the attestation names; that \
                       what was to be removed is gone",
    },
    Control {
        id: "ISO 27001 A.8.2",
        asks: "privileged access rights are restricted and managed",
        answered: "`entitlements.csv`: rows `Standing` and `BreakGlass` are privileged rights without an end; \
                   `summary.csv`: those with one",
        not_answered: "privileged rights that are not ways into pods, and those that lead there in two steps",
    },
    Control {
        id: "ISO 27001 A.8.15",
        asks: "logs of activities are produced, kept, protected and analysed",
        answered: "`records.jsonl`, chained and signed; `verify.json`: that none is missing or changed; `seal.json`",
        not_answered: "Kubernetes' own audit log; that somebody analyses any of it",
    },
    Control {
        id: "PCI DSS 7.2.4",
        asks: "user accounts and access privileges are reviewed every six months",
        answered: "`attestations.csv`: who reviewed which list, by its digest, when; `entitlements.csv` is the list as \
                   it is now",
        not_answered: "reviews of other times than the bundle's; their approval by management",
    },
    Control {
        id: "PCI DSS 10.2.1",
        asks: "audit logs record access, actions of administrators, invalid attempts and changes of the log itself",
        answered: "`records.jsonl`: `SessionOpened`, `SessionRefused`, `RequestDenied`, `KeyRotated`, \
                   `TrailShortened`, `WriterStarted`, each with who, when, what and where",
        not_answered: "what was typed in a session; what applications log",
    },
    Control {
        id: "NIST AC-2(2)",
        asks: "temporary and emergency accounts are removed automatically",
        answered: "`summary.csv`: every grant has `until`; `AccessExpired` is its automatic end; `reviews.csv`: who \
                   looked at an emergency afterwards, and found what",
        not_answered: "accounts: oz gives rights to accounts that exist",
    },
    Control {
        id: "NIST AC-5",
        asks: "duties are separated",
        answered: "`approvals.csv`: who approved under which rule; `ApprovalRefused` is what was tried and refused",
        not_answered: "requests by templates without rules of approval: `approvedBy` is empty",
    },
    Control {
        id: "NIST AC-6(9)",
        asks: "the use of privileged functions is logged",
        answered: "`records.jsonl` and `summary.csv`: `SessionOpened` and `BreakGlassOpened`, with the digest of the \
                   command",
        not_answered: "sessions of those whom the connect hook leaves alone (nodes, the system's controllers), and \
                       those of break-glass groups and in observing namespaces that opened while no webhook ran",
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
        "" => "None: whoever made this could read all that belongs in it.\n",
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
        Verdict::Whole => "none is missing or changed, by the keys that the cluster published",
        Verdict::NotWhole => "NOT WHOLE: see `verify.json`",
        Verdict::Unchecked => {
            "NOT CHECKED: signed by keys that are not published, see `verify.json`"
        }
        Verdict::Nothing => "there is none, which proves nothing",
    };
    vec![
        ("Records", accounts.records().to_string()),
        ("Whether the records are whole", verdict.to_owned()),
        ("Requests and bindings told of", requests.to_string()),
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
            "Attestations of who could get in",
            total(Action::EntitlementsAttested, Decision::Allow),
        ),
        (
            "Sessions refused",
            total(Action::SessionRefused, Decision::Deny),
        ),
        ("Templates and policies", objects.len().to_string()),
        ("Rights that stand without oz", ways(Way::Standing)),
        ("Break-glass groups", ways(Way::BreakGlass)),
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
