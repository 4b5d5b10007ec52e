//! Attestations: a list of entitlements with a decision about each line, as reviewers filled it in, is read, checked
//! against the digest of the list, and turned into an attestation. No I/O.

use std::collections::BTreeSet;

use oz_api::encode::hex;
use oz_api::{Attestation, MOST_REMOVALS, Removal};
use oz_core::validate::{MAX_REASON, rationale};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{COLUMNS, Entitlement, EntitlementKind, Entitlements};
use crate::csv::{self, CsvError};

/// Column and field of the decision: keep or remove.
pub const DECISION: &str = "decision";
/// Column and field of the reason.
pub const RATIONALE: &str = "rationale";
/// First cell of the line with the digest, in a list as CSV.
pub(super) const DIGEST: &str = "DIGEST";
/// First cell of a line about data that could not be read.
pub(super) const GAP: &str = "GAP";
/// The column with the value of such lines.
const SAID: usize = COLUMNS.len() - 1;

/// The decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(ascii_case_insensitive)]
pub enum Choice {
    /// The entitlement is as required.
    Keep,
    /// The entitlement must be removed.
    Remove,
}

/// A line with the decision about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The position in the file: the line of a CSV, the position in the list of a JSON, from 1.
    pub number: usize,
    /// The entitlement in the line.
    pub entitlement: Entitlement,
    /// The decision, as written in the file.
    pub decision: String,
    /// The reason for the decision.
    pub rationale: String,
}

/// A file with decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// The digest of the list, which its lines must match.
    pub digest: String,
    /// The lines.
    pub lines: Vec<Line>,
    /// The data that could not be read when the list was created.
    pub gaps: BTreeSet<String>,
}

/// A file in which all lines are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The attestation that is recorded.
    pub attestation: Attestation,
    /// All lines that are to be removed.
    pub removed: Vec<Line>,
}

/// The fault in a file with decisions, and the next step.
#[derive(Debug, thiserror::Error)]
pub enum SheetError {
    /// The file is no JSON of a list.
    #[error("it is not what `ozctl audit entitlements -o json` prints: {0}")]
    NotJson(serde_json::Error),
    /// The file is no CSV.
    #[error(transparent)]
    NotCsv(#[from] CsvError),
    /// A line is listed twice.
    #[error("line {line} exists twice")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The lines have another digest.
    #[error(
        "the lines are not those of the list with digest {digest}: a value other than {DECISION} \
         and {RATIONALE} was changed, added or removed; create the list again, as JSON if a \
         spreadsheet changed it"
    )]
    Changed {
        /// Digest of the list.
        digest: String,
    },
    /// A field of a line is not a string.
    #[error("line {line}: {field} must be a text")]
    NoText {
        /// Number of the line, from 1.
        line: usize,
        /// Name of the field.
        field: &'static str,
    },
    /// An element of a JSON is no entitlement.
    #[error("line {line} is not an entitlement: {error}")]
    NotAnElement {
        /// Number of the element, from 1.
        line: usize,
        /// Error of the parser.
        error: serde_json::Error,
    },
    /// A line of a CSV is no entitlement.
    #[error("line {line} is not an entitlement")]
    NotALine {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A column is missing.
    #[error(
        "the first line has no column {name}: `ozctl audit entitlements --to-attest -o csv` writes \
         a file with all required columns"
    )]
    NoColumn {
        /// Name of the column.
        name: &'static str,
    },
    /// The digest is missing.
    #[error("there is no line {DIGEST}, the last line of the list")]
    NoDigest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    digest: String,
    entitlements: Vec<Value>,
    gaps: BTreeSet<String>,
}

impl Sheet {
    /// Reads a file, JSON or CSV, and checks that its lines are those of the original list.
    ///
    /// # Errors
    /// The fault, and the next step.
    pub fn read(text: &str) -> Result<Self, SheetError> {
        let sheet = match text.trim_start_matches('\u{feff}').trim_start() {
            json if json.starts_with('{') => Self::of_json(json)?,
            _ => Self::of_csv(text)?,
        };
        let mut all = BTreeSet::new();
        for line in &sheet.lines {
            if !all.insert(line.entitlement.clone()) {
                return Err(SheetError::Twice { line: line.number });
            }
        }
        let list = Entitlements::new(all, sheet.gaps.clone());
        if list.digest != sheet.digest {
            let digest = sheet.digest;
            return Err(SheetError::Changed { digest });
        }
        Ok(sheet)
    }

    fn of_json(text: &str) -> Result<Self, SheetError> {
        let listed: Listed = serde_json::from_str(text).map_err(SheetError::NotJson)?;
        let mut lines = Vec::new();
        for (at, mut value) in listed.entitlements.into_iter().enumerate() {
            let number = at + 1;
            let mut taken = |field| match value.as_object_mut().and_then(|one| one.remove(field)) {
                None | Some(Value::Null) => Ok(String::new()),
                Some(Value::String(text)) => Ok(text),
                Some(_) => Err(SheetError::NoText {
                    line: number,
                    field,
                }),
            };
            let (decision, rationale) = (taken(DECISION)?, taken(RATIONALE)?);
            let entitlement =
                serde_json::from_value(value).map_err(|error| SheetError::NotAnElement {
                    line: number,
                    error,
                })?;
            lines.push(Line {
                number,
                entitlement,
                decision,
                rationale,
            });
        }
        Ok(Self {
            digest: listed.digest,
            lines,
            gaps: listed.gaps,
        })
    }

    fn of_csv(text: &str) -> Result<Self, SheetError> {
        let rows = csv::rows(text)?;
        let mut rows = rows.iter().enumerate();
        let head = rows.next().map(|(_, row)| row);
        let place = |name: &'static str| {
            let mut cells = head.into_iter().flatten();
            let found = cells.position(|cell| cell.eq_ignore_ascii_case(name));
            found.ok_or(SheetError::NoColumn { name })
        };
        let mut columns = [0; COLUMNS.len()];
        for (column, name) in columns.iter_mut().zip(COLUMNS) {
            *column = place(name)?;
        }
        let (decision, rationale) = (place(DECISION)?, place(RATIONALE)?);
        let mut sheet = Self {
            digest: String::new(),
            lines: Vec::new(),
            gaps: BTreeSet::new(),
        };
        for (at, row) in rows {
            let cell = |place: usize| row.get(place).map_or("", String::as_str);
            let cells = columns.map(cell);
            let said = cells[SAID];
            match cells[0] {
                "" if row.iter().all(String::is_empty) => {}
                DIGEST => said.clone_into(&mut sheet.digest),
                GAP => {
                    sheet.gaps.insert(said.to_owned());
                }
                _ => sheet.lines.push(Line {
                    number: at + 1,
                    entitlement: Entitlement::of_cells(&cells)
                        .ok_or(SheetError::NotALine { line: at + 1 })?,
                    decision: cell(decision).to_owned(),
                    rationale: cell(rationale).to_owned(),
                }),
            }
        }
        if sheet.digest.is_empty() {
            return Err(SheetError::NoDigest);
        }
        Ok(sheet)
    }

    /// Returns the number of decided lines: those with a decision and a reason.
    #[must_use]
    pub fn decided(&self) -> usize {
        let done = self.lines.iter().filter(|line| line.problems().is_empty());
        done.count()
    }

    /// Returns the missing or invalid values, line by line.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.lines.iter().flat_map(Line::problems).collect()
    }

    /// Returns the attestation of a decided file with the content `text`.
    ///
    /// # Errors
    /// The missing or invalid values, line by line.
    pub fn attested(&self, text: &str) -> Result<Decided, Vec<String>> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        if self.lines.is_empty() {
            return Err(vec![
                "the list has no line that requires a decision".to_owned(),
            ]);
        }
        let is_removed = |line: &&Line| line.choice() == Some(Choice::Remove);
        let removed: Vec<Line> = self.lines.iter().filter(is_removed).cloned().collect();
        let named = removed.iter().take(MOST_REMOVALS);
        let removals = named.map(|line| Removal {
            entitlement: line.entitlement.sentence(),
            rationale: line.rationale.clone(),
        });
        let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        Ok(Decided {
            attestation: Attestation {
                entitlements: self.digest.clone(),
                file: format!("sha256:{}", hex(&Sha256::digest(text))),
                kept: count(self.lines.len() - removed.len()),
                removed: count(removed.len()),
                gaps: count(self.gaps.len()),
                removals: removals.collect(),
            },
            removed,
        })
    }
}

impl Line {
    /// Returns the decision; `None` if it is missing or unknown.
    #[must_use]
    pub fn choice(&self) -> Option<Choice> {
        self.decision.trim().parse().ok()
    }

    fn problems(&self) -> Vec<String> {
        let number = self.number;
        if self.decision.trim().is_empty() {
            return vec![format!("line {number} has no decision: keep or remove")];
        }
        let mut problems = Vec::new();
        if self.choice().is_none() {
            problems.push(format!("line {number}: {DECISION} must be keep or remove"));
        }
        if self.rationale.trim().is_empty() {
            problems.push(format!("line {number} has no {RATIONALE}"));
            return problems;
        }
        let wrong = rationale(RATIONALE, &self.rationale);
        problems.extend(wrong.into_iter().map(|one| format!("line {number}: {one}")));
        problems
    }
}

impl Entitlement {
    /// Returns the line in words, truncated to the maximum length in an attestation.
    #[must_use]
    pub fn sentence(&self) -> String {
        let place = match self.namespace.as_str() {
            "" => "everywhere".to_owned(),
            namespace => format!("in {namespace}"),
        };
        let objects = match self.objects.as_slice() {
            [] => String::new(),
            objects => format!(" of {}", objects.join(", ")),
        };
        let text = format!(
            "{}: {} {} {place}: {}{objects} by {}",
            self.way,
            self.kind,
            self.subject,
            self.permits.join(" + "),
            self.source
        );
        // Names in RBAC may contain any character.
        let mut text: String = text
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .collect();
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text
    }

    fn of_cells(cells: &[&str; COLUMNS.len()]) -> Option<Self> {
        let parts = |cell: &str, by: &str| match cell {
            "" => Vec::new(),
            _ => cell.split(by).map(ToOwned::to_owned).collect(),
        };
        let [
            way,
            namespace,
            kind,
            subject,
            permits,
            objects,
            source,
            limits,
        ] = cells;
        Some(Self {
            way: way.parse().ok()?,
            namespace: (*namespace).to_owned(),
            kind: kind.parse().ok()?,
            subject: (*subject).to_owned(),
            permits: parts(permits, " + "),
            objects: parts(objects, " "),
            source: (*source).to_owned(),
            limits: (*limits).to_owned(),
        })
    }
}

impl EntitlementKind {
    /// Returns the steps to remove an entitlement of this kind.
    #[must_use]
    pub fn removal(self) -> &'static str {
        match self {
            Self::Request => {
                "remove the subject from allowedGroups and allowedUsers of the template, or delete \
                    the template; for harness runs, change or delete the binding: kubectl edit or \
                    delete"
            }
            Self::Approve => {
                "remove the subject from the approval rules of the template or AccessPolicy"
            }
            Self::Emergency => {
                "remove the subject from the emergency of the template or AccessPolicy"
            }
            Self::TransientBinding => {
                "remove the role from transient.bindableRoles, or the subject's right to create \
                    transient bindings"
            }
            Self::Waiting => "delete the transient binding, whose window has not begun",
            Self::BreakGlass => "remove the group from webhook.breakGlassGroups",
            Self::Granted => "revoke the access: `ozctl revoke NAME`, or `ozctl lock`",
            Self::Standing => "change or delete the binding: kubectl edit or delete",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entitlements::SubjectKind;

    fn one(way: EntitlementKind, subject: &str) -> Entitlement {
        Entitlement {
            way,
            namespace: "shop".into(),
            kind: SubjectKind::Group,
            subject: subject.into(),
            permits: vec!["create pods/exec".into(), "get pods".into()],
            objects: vec!["web-0".into(), "web-1".into()],
            source: "RoleBinding shop/x, \"y\"".into(),
            limits: String::new(),
        }
    }

    fn list() -> Entitlements {
        let lines = [
            one(EntitlementKind::Request, "devs"),
            one(EntitlementKind::Standing, "=ops"),
            Entitlement {
                permits: Vec::new(),
                objects: Vec::new(),
                ..one(EntitlementKind::BreakGlass, "-")
            },
        ];
        Entitlements::new(lines.into(), BTreeSet::from(["Role: not read".to_owned()]))
    }

    /// Returns the list with these decisions, line by line.
    fn json(decisions: &[(&str, &str)]) -> String {
        let mut value = serde_json::to_value(list()).unwrap();
        for (line, (decision, why)) in decisions.iter().enumerate() {
            value["entitlements"][line]["decision"] = (*decision).into();
            value["entitlements"][line]["rationale"] = (*why).into();
        }
        value.to_string()
    }

    fn csv(decisions: &[(&str, &str)]) -> String {
        let text = list().csv_to_attest();
        let mut text: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        for (line, (decision, why)) in decisions.iter().enumerate() {
            let bare = text[line + 1].strip_suffix(",,").unwrap().to_owned();
            text[line + 1] = format!("{bare},{}", csv::row([decision, why]).trim_end());
        }
        text.join("\n")
    }

    const ALL: [(&str, &str); 3] = [
        ("keep", "they ship it"),
        ("Remove", "left"),
        (" KEEP ", "=on call"),
    ];

    #[test]
    fn json_and_csv_sheets_have_same_digest_and_totals() {
        let mut of_both = Vec::new();
        for text in [json(&ALL), csv(&ALL), csv(&ALL).replace('\n', "\r\n")] {
            let sheet = Sheet::read(&text).unwrap();
            assert_eq!(sheet.digest, list().digest);
            assert_eq!(sheet.decided(), 3, "{:?}", sheet.problems());
            let decided = sheet.attested(&text).unwrap();
            let Attestation {
                kept,
                removed,
                gaps,
                ref removals,
                ..
            } = decided.attestation;
            assert_eq!((kept, removed, gaps), (2, 1, 1));
            assert_eq!(removals.len(), 1);
            assert_eq!(removals[0].rationale, "left");
            of_both.push((decided.attestation.entitlements.clone(), removals.clone()));
            let other = sheet.attested(&(text + " ")).unwrap();
            assert_ne!(other.attestation.file, decided.attestation.file);
        }
        of_both.dedup();
        assert_eq!(of_both.len(), 1);
    }

    #[test]
    fn undecided_or_unexplained_line_is_named_by_number() {
        let bidi = "\u{202e}tfel";
        let long = "x".repeat(1025);
        for (decisions, decided, why) in [
            (vec![], 0, "line 1 has no decision"),
            (
                vec![("keep", "yes"), ("", "so"), ("keep", "yes")],
                2,
                "line 2 has no decision",
            ),
            (
                vec![("keep", "yes"), ("maybe", "so"), ("keep", "yes")],
                2,
                "must be keep or remove",
            ),
            (
                vec![("keep", "yes"), ("keep", "  "), ("keep", "yes")],
                2,
                "line 2 has no rationale",
            ),
            (
                vec![("keep", "yes"), ("keep", bidi), ("keep", "yes")],
                2,
                "direction of text",
            ),
            (
                vec![("keep", "yes"), ("keep", &long), ("keep", "yes")],
                2,
                "at most 1024 bytes",
            ),
        ] {
            let text = json(&decisions);
            let sheet = Sheet::read(&text).unwrap();
            assert_eq!(sheet.decided(), decided, "{decisions:?}");
            let problems = sheet.attested(&text).unwrap_err();
            assert!(problems[0].contains(why), "{problems:?}");
        }
    }

    #[test]
    fn a_list_of_which_anything_else_was_changed_is_refused() {
        let good = csv(&ALL);
        let rows: Vec<&str> = good.lines().collect();
        let (without, twice) = (rows[..2].join("\n") + "\n" + &rows[3..].join("\n"), rows[1]);
        let no_digest = rows[..rows.len() - 1].join("\n");
        for (text, why) in [
            (good.replace("devs", "ops"), "are not those of the list"),
            (
                good.replace("not read", "read"),
                "are not those of the list",
            ),
            (without, "are not those of the list"),
            (
                good.replacen(twice, &format!("{twice}\n{twice}"), 1),
                "exists twice",
            ),
            (good.replace("Standing", "Sitting"), "is not an entitlement"),
            (no_digest, "there is no line DIGEST"),
            (list().csv(), "has no column decision"),
            (
                good.replacen("permits", "permit", 1),
                "has no column permits",
            ),
            (String::new(), "has no column way"),
            (
                json(&ALL).replace("\"devs\"", "\"ops\""),
                "are not those of the list",
            ),
            (
                json(&ALL).replace("\"left\"", "7"),
                "rationale must be a text",
            ),
            (
                json(&ALL).replace("\"limits\"", "\"limit\""),
                "is not an entitlement",
            ),
            (
                "{}".to_owned(),
                "is not what `ozctl audit entitlements -o json` prints",
            ),
            (
                "{".to_owned(),
                "is not what `ozctl audit entitlements -o json` prints",
            ),
        ] {
            let found = Sheet::read(&text).unwrap_err().to_string();
            assert!(found.contains(why), "{why}: {found}");
        }
    }

    #[test]
    fn more_lines_are_removed_than_an_attestation_names() {
        let lines =
            (0..100).map(|number| one(EntitlementKind::Standing, &format!("group-{number:03}")));
        let list = Entitlements::new(lines.collect(), BTreeSet::new());
        let mut value = serde_json::to_value(&list).unwrap();
        for line in value["entitlements"].as_array_mut().unwrap() {
            line["decision"] = "remove".into();
            line["rationale"] = "nobody asked for it".into();
        }
        let text = value.to_string();
        let decided = Sheet::read(&text).unwrap().attested(&text).unwrap();
        assert_eq!(decided.attestation.removed, 100);
        assert_eq!(decided.attestation.removals.len(), MOST_REMOVALS);
        assert_eq!(decided.removed.len(), 100);
        let nothing = serde_json::to_string(&Entitlements::new(BTreeSet::new(), BTreeSet::new()));
        let nothing = nothing.unwrap();
        let refused = Sheet::read(&nothing)
            .unwrap()
            .attested(&nothing)
            .unwrap_err();
        assert_eq!(refused, ["the list has no line that requires a decision"]);
    }

    #[test]
    fn sentence_of_entitlement_is_bounded_without_control_characters() {
        let mut long = one(EntitlementKind::Standing, &"ü".repeat(4000));
        assert!(long.sentence().len() <= MAX_REASON);
        long.subject = "a\u{1b}[2J\nb".into();
        assert!(!long.sentence().chars().any(char::is_control));
    }
}
