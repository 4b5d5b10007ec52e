//! Checking a bundle, without a cluster: that the archive is one that was written here, that the records are whole,
//! that every other file is what the records make it, and that the sums are those that the audit key signed.

use std::collections::BTreeMap;
use std::io::Read;

use oz_compliance::entitlements::Entitlements;
use oz_compliance::evidence::{
    self as files, Accounts, FORMAT, Manifest, ObjectDigest, Seal, Sums, controls, sealed,
};
use oz_trail::verify::{Evidence, Report, Verdict};
use oz_trail::{Published, Trust};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::archive::Reader;
use super::{judged, published_trust, text};

/// The longest file that is read as a whole, if the records do not make it longer.
const LONGEST: u64 = 64 << 20;
/// How many records are read of one file, and how many lines that are none.
const MOST_RECORDS: usize = 5_000_000;
const MOST_BAD_LINES: usize = 100;

/// What checking came to.
#[derive(Debug, Default)]
pub struct Checked {
    /// What the bundle is about, if that could be read.
    pub manifest: Option<Manifest>,
    /// What is wrong with the bundle.
    pub problems: Vec<String>,
    /// What verifying the records came to.
    pub report: Report,
    /// What the audit key signed, if that is what the bundle is.
    pub seal: Option<Seal>,
    /// What the records come to.
    pub accounts: Accounts,
}

impl Checked {
    /// What it comes to: whole only if it is sealed as well.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.report.verdict(false) {
            _ if !self.problems.is_empty() => Verdict::NotWhole,
            Verdict::Whole if self.seal.is_none() => Verdict::Unchecked,
            verdict => verdict,
        }
    }
}

/// Checks a bundle. `pinned` are the keys that were kept outside the cluster; without any, those in the bundle are
/// believed, which proves nothing against whoever made it.
pub fn check(from: impl Read, pinned: &[String]) -> Checked {
    let mut check = Check {
        reader: Reader::new(from),
        sums: Sums::default(),
        checked: Checked::default(),
        evidence: Evidence::default(),
    };
    if let Err(problem) = check.run(pinned) {
        check.checked.problems.push(problem);
    }
    check.checked
}

struct Check<R: Read> {
    reader: Reader<R>,
    sums: Sums,
    checked: Checked,
    evidence: Evidence,
}

impl<R: Read> Check<R> {
    /// From the first file to the last. An error is what prevents going on.
    fn run(&mut self, pinned: &[String]) -> Result<(), String> {
        let manifest: Manifest = self.json(files::MANIFEST)?;
        if manifest.format != FORMAT {
            return Err(format!(
                "the bundle is of the form {:?}, and this program knows {FORMAT}",
                manifest.format
            ));
        }
        self.checked.manifest = Some(manifest.clone());
        let keys: Vec<Published> = self.json(files::KEYS)?;
        let published =
            published_trust(&keys).map_err(|error| format!("{}: {error}", files::KEYS))?;
        let trust = match pinned {
            [] => published.clone(),
            pinned => {
                let mut trust = Trust::pinned(pinned.iter().map(String::as_str))
                    .map_err(|error| format!("a key that was pinned: {error}"))?;
                trust.extend(&keys);
                trust
            }
        };
        let checkpoints: BTreeMap<String, String> = self.json(files::CHECKPOINTS)?;
        self.evidence.objects();
        for (slot, text) in &checkpoints {
            self.evidence.checkpoint(slot, text);
        }
        self.records(files::RECORDS, &manifest)?;
        self.records(files::BOUNDARY, &manifest)?;
        let evidence = std::mem::take(&mut self.evidence);
        let by_pinned = (!pinned.is_empty()).then(|| evidence.clone());
        let (report, told) = judged(&manifest, evidence, published);
        self.checked.report = match by_pinned {
            Some(evidence) => judged(&manifest, evidence, trust.clone()).0,
            None => report.clone(),
        };
        self.made(files::APPROVALS, &self.checked.accounts.approvals())?;
        self.made(files::REVIEWS, &self.checked.accounts.reviews())?;
        self.made(files::ATTESTATIONS, &self.checked.accounts.attestations())?;
        self.made(files::SUMMARY, &self.checked.accounts.summary())?;
        if let Some(sample) = &manifest.sample {
            self.made(files::SAMPLE, &self.checked.accounts.sample(sample))?;
        }
        let objects: Vec<ObjectDigest> = self.json(files::OBJECTS)?;
        let entitlements: Entitlements = self.json(files::ENTITLEMENTS)?;
        if entitlements.digest != entitlements.computed() {
            let message = format!(
                "{} does not have the digest that it states",
                files::ENTITLEMENTS
            );
            self.checked.problems.push(message);
        }
        self.made(files::ENTITLEMENTS_CSV, &entitlements.csv())?;
        self.made(files::VERIFY, &text(&told))?;
        let accounts = &self.checked.accounts;
        let page = controls(&manifest, accounts, &entitlements, &objects, &report);
        self.made(files::CONTROLS, &page)?;
        self.sealed(&trust)
    }

    /// The sums, and who signed them.
    fn sealed(&mut self, trust: &Trust) -> Result<(), String> {
        let sums = std::mem::take(&mut self.sums);
        let (stated, _) = self.file(files::SUMS, LONGEST)?;
        if let Some(difference) = sums.difference(&String::from_utf8_lossy(&stated)) {
            self.checked
                .problems
                .push(format!("{}: {difference}", files::SUMS));
        }
        let Some((name, _)) = self.reader.next()? else {
            return Ok(());
        };
        if name != files::SEAL {
            return Err(format!(
                "the bundle has {name} in it, which is not among its sums"
            ));
        }
        let (content, _) = self.reader.whole(LONGEST)?;
        if self.reader.next()?.is_some() {
            return Err(format!("the bundle goes on after {}", files::SEAL));
        }
        let value: Value = parsed(files::SEAL, &content)?;
        if text(&value).as_bytes() != content {
            return Err(format!("{} is not written as it was", files::SEAL));
        }
        match sealed(&value, trust) {
            Ok(seal) if seal.sums == sums.digest() => self.checked.seal = Some(seal),
            Ok(seal) => self.checked.problems.push(format!(
                "{}: the audit key signed the sums {}, and the bundle has {}",
                files::SEAL,
                seal.sums,
                sums.digest()
            )),
            Err(error) => {
                let problem = format!("{}: the seal proves nothing: {error}", files::SEAL);
                self.checked.problems.push(problem);
            }
        }
        Ok(())
    }

    /// The content of the file that comes next, which is to be this one.
    fn file(&mut self, name: &str, longest: u64) -> Result<(Vec<u8>, String), String> {
        self.expect(name)?;
        self.reader.whole(longest)
    }

    fn expect(&mut self, name: &str) -> Result<u64, String> {
        match self.reader.next()? {
            Some((found, size)) if found == name => Ok(size),
            Some((found, _)) => Err(format!("the bundle has {found} where {name} is to be")),
            None => Err(format!("the bundle has no {name}")),
        }
    }

    /// The value that the file of this name is.
    fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, String> {
        let (content, digest) = self.file(name, LONGEST)?;
        self.sums.add(name, digest);
        parsed(name, &content)
    }

    /// Compares the file of this name with what the records make it.
    fn made(&mut self, name: &str, expected: &str) -> Result<(), String> {
        let longest = LONGEST.max(expected.len() as u64);
        let (content, digest) = self.file(name, longest)?;
        self.sums.add(name, digest);
        if content != expected.as_bytes() {
            let content = String::from_utf8_lossy(&content);
            let lines = content.split('\n').zip(expected.split('\n'));
            let same = lines.take_while(|(one, other)| one == other).count();
            self.checked.problems.push(format!(
                "line {} of {name} is not what follows from the rest of the bundle",
                same + 1
            ));
        }
        Ok(())
    }

    /// The records of one of the two files that have some.
    fn records(&mut self, name: &str, manifest: &Manifest) -> Result<(), String> {
        self.expect(name)?;
        let Self {
            reader,
            evidence,
            checked,
            ..
        } = self;
        let is_of_time = name == files::RECORDS;
        let mut bad = 0;
        let digest = reader.lines(|number, line| {
            let value = serde_json::from_slice::<Value>(line);
            let entry = value.map(|value| evidence.exported(name, number, value));
            let problem = match entry {
                Err(_) => Some(format!("line {number} of {name} is no JSON")),
                // What is wrong with it is said where records are judged.
                Ok(None) => None,
                Ok(Some(entry)) if manifest.covers(entry.record.time) == is_of_time => {
                    if is_of_time {
                        checked.accounts.take(&entry);
                    }
                    return match number {
                        ..=MOST_RECORDS => Ok(()),
                        _ => Err(format!("{name} has more than {MOST_RECORDS} records")),
                    };
                }
                Ok(Some(entry)) => Some(format!(
                    "line {number} of {name} is of {}, which does not belong there",
                    entry.record.time
                )),
            };
            checked.problems.extend(problem);
            bad += 1;
            match bad {
                ..=MOST_BAD_LINES => Ok(()),
                _ => Err(format!(
                    "{name} has more than {MOST_BAD_LINES} lines that do not belong in it"
                )),
            }
        })?;
        self.sums.add(name, digest);
        Ok(())
    }
}

fn parsed<T: DeserializeOwned>(name: &str, content: &[u8]) -> Result<T, String> {
    serde_json::from_slice(content).map_err(|error| format!("failed to read {name}: {error}"))
}
