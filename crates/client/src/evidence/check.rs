//! The check of a bundle, without a cluster: the archive was written by this program, the audit records are whole,
//! every other file follows from the audit records, and the sums are those that the audit key signed.

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
use super::problem::Problem;
use super::{judged, published_trust, text};

/// The size limit of a file that is read as a whole, unless the audit records make it longer.
const LONGEST: u64 = 64 << 20;
/// The maximum number of audit records that are read from one file, and of lines that are not audit records.
const MOST_RECORDS: usize = 5_000_000;
const MOST_BAD_LINES: usize = 100;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// The scope of the bundle, if it could be read.
    pub manifest: Option<Manifest>,
    /// The problems of the bundle.
    pub problems: Vec<Problem>,
    /// The result of verifying the audit records.
    pub report: Report,
    /// The seal of the audit key, if it signs this bundle.
    pub seal: Option<Seal>,
    /// The accounts of the audit records.
    pub accounts: Accounts,
}

impl Checked {
    /// Returns the verdict: a bundle is whole only if it is also sealed.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.report.verdict(false) {
            _ if !self.problems.is_empty() => Verdict::Invalid,
            Verdict::Valid if self.seal.is_none() => Verdict::Unchecked,
            verdict => verdict,
        }
    }
}

/// Checks a bundle. `pinned` are the keys that were kept outside the cluster; without any, those in the bundle are
/// trusted, which proves nothing against the author of the bundle.
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
    /// Checks all files, from the first to the last. An error is a problem after which the check cannot continue.
    fn run(&mut self, pinned: &[String]) -> Result<(), Problem> {
        let manifest: Manifest = self.json(files::MANIFEST)?;
        if manifest.format != FORMAT {
            return Err(Problem::OtherForm {
                form: manifest.format,
            });
        }
        self.checked.manifest = Some(manifest.clone());
        let keys: Vec<Published> = self.json(files::KEYS)?;
        let published = published_trust(&keys).map_err(Problem::Keys)?;
        let trust = match pinned {
            [] => published.clone(),
            pinned => {
                let mut trust =
                    Trust::pinned(pinned.iter().map(String::as_str)).map_err(Problem::Pinned)?;
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
            self.checked.problems.push(Problem::Digest);
        }
        self.made(files::ENTITLEMENTS_CSV, &entitlements.csv())?;
        self.made(files::VERIFY, &text(&told))?;
        let accounts = &self.checked.accounts;
        let page = controls(&manifest, accounts, &entitlements, &objects, &report);
        self.made(files::CONTROLS, &page)?;
        self.sealed(&trust)
    }

    /// Checks the sums, and the signature over them.
    fn sealed(&mut self, trust: &Trust) -> Result<(), Problem> {
        let sums = std::mem::take(&mut self.sums);
        let (stated, _) = self.file(files::SUMS, LONGEST)?;
        if let Some(difference) = sums.difference(&String::from_utf8_lossy(&stated)) {
            self.checked.problems.push(Problem::Sums { difference });
        }
        let Some((name, _)) = self.reader.next()? else {
            return Ok(());
        };
        if name != files::SEAL {
            return Err(Problem::Unsummed { name });
        }
        let (content, _) = self.reader.whole(LONGEST)?;
        if self.reader.next()?.is_some() {
            return Err(Problem::AfterSeal);
        }
        let value: Value = parsed(files::SEAL, &content)?;
        if text(&value).as_bytes() != content {
            return Err(Problem::Reformatted);
        }
        match sealed(&value, trust) {
            Ok(seal) if seal.sums == sums.digest() => self.checked.seal = Some(seal),
            Ok(seal) => self.checked.problems.push(Problem::OtherSums {
                signed: seal.sums,
                sums: sums.digest(),
            }),
            Err(error) => self.checked.problems.push(Problem::Seal(error)),
        }
        Ok(())
    }

    /// Returns the content and the digest of the next file, which must have this name.
    fn file(&mut self, name: &str, longest: u64) -> Result<(Vec<u8>, String), Problem> {
        self.expect(name)?;
        self.reader.whole(longest)
    }

    fn expect(&mut self, name: &str) -> Result<u64, Problem> {
        match self.reader.next()? {
            Some((found, size)) if found == name => Ok(size),
            Some((found, _)) => {
                let name = name.to_owned();
                Err(Problem::Misplaced { found, name })
            }
            None => Err(Problem::Missing {
                name: name.to_owned(),
            }),
        }
    }

    /// Parses the next file, which must have this name.
    fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Problem> {
        let (content, digest) = self.file(name, LONGEST)?;
        self.sums.add(name, digest);
        parsed(name, &content)
    }

    /// Compares the file of this name with the content that follows from the audit records.
    fn made(&mut self, name: &str, expected: &str) -> Result<(), Problem> {
        let longest = LONGEST.max(expected.len() as u64);
        let (content, digest) = self.file(name, longest)?;
        self.sums.add(name, digest);
        if content != expected.as_bytes() {
            let content = String::from_utf8_lossy(&content);
            let lines = content.split('\n').zip(expected.split('\n'));
            let same = lines.take_while(|(one, other)| one == other).count();
            self.checked.problems.push(Problem::NotFollowing {
                name: name.to_owned(),
                line: same + 1,
            });
        }
        Ok(())
    }

    /// Reads the audit records of one of the two files that have some.
    fn records(&mut self, name: &str, manifest: &Manifest) -> Result<(), Problem> {
        self.expect(name)?;
        let Self {
            reader,
            evidence,
            checked,
            ..
        } = self;
        let is_of_time = name == files::RECORDS;
        let mut bad = 0;
        let digest = reader.lines(|line, content| {
            let value = serde_json::from_slice::<Value>(content);
            let entry = value.map(|value| evidence.exported(name, line, value));
            let named = || name.to_owned();
            let problem = match entry {
                Err(_) => Some(Problem::NoJson {
                    name: named(),
                    line,
                }),
                // The verification of the audit records reports its errors.
                Ok(None) => None,
                Ok(Some(entry)) if manifest.covers(entry.record.time) == is_of_time => {
                    if is_of_time {
                        checked.accounts.take(&entry);
                    }
                    return match line {
                        ..=MOST_RECORDS => Ok(()),
                        _ => Err(Problem::TooManyRecords {
                            name: named(),
                            most: MOST_RECORDS,
                        }),
                    };
                }
                Ok(Some(entry)) => Some(Problem::OtherPeriod {
                    name: named(),
                    line,
                    time: entry.record.time,
                }),
            };
            checked.problems.extend(problem);
            bad += 1;
            match bad {
                ..=MOST_BAD_LINES => Ok(()),
                _ => Err(Problem::TooManyBadLines {
                    name: named(),
                    most: MOST_BAD_LINES,
                }),
            }
        })?;
        self.sums.add(name, digest);
        Ok(())
    }
}

fn parsed<T: DeserializeOwned>(name: &str, content: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(content).map_err(|error| Problem::Malformed {
        name: name.to_owned(),
        error,
    })
}
