//! Removes managed fields from responses of the API server while they arrive and before the decoder
//! reads them. No component of oz reads these fields, they are the larger part of most objects, and
//! a user who may write an object determines how deeply they nest: with 200 levels in one Pod, no
//! client can decode a list that contains it.

use super::scan::{Key, Mark, Scan};

/// The depth of managed fields is below this one; those of an item of a list are at the depth one
/// less than this one.
const NOTHING_FROM: usize = 5;

/// The filter that replaces each `metadata.managedFields` of an object, of the items of a list, and
/// of the object of a watch event with `null`.
#[derive(Debug, Default)]
pub struct Strip {
    scan: Scan,
    /// The depth at which the removed part began.
    leaving_out: Option<usize>,
}

impl Strip {
    /// Returns the remainder of the next piece of the text.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(piece.len());
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            let (run, later) = rest.split_at(self.scan.pass(rest, NOTHING_FROM, |_, _| {}));
            if !run.is_empty() {
                if self.leaving_out.is_none() {
                    kept.extend_from_slice(run);
                }
                rest = later;
                continue;
            }
            rest = after;
            let before = self.scan.depth();
            let mark = self.scan.step(byte);
            if let Some(depth) = self.leaving_out {
                let over = match mark {
                    Mark::Comma => before == depth,
                    Mark::Closes => self.scan.depth() < depth,
                    _ => false,
                };
                if !over {
                    continue;
                }
                self.leaving_out = None;
            }
            kept.push(byte);
            if mark == Mark::Colon && self.at_managed_fields() {
                self.leaving_out = Some(self.scan.depth());
                kept.extend_from_slice(b"null");
            }
        }
        kept
    }

    fn at_managed_fields(&self) -> bool {
        let under = |level| self.scan.under(level);
        let of = |level: usize| {
            self.scan.depth() == level + 2
                && under(level) == Key::Metadata
                && under(level + 1) == Key::ManagedFields
        };
        of(0) || (of(1) && under(0) == Key::Object) || (of(2) && under(0) == Key::Items)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stripped(text: &str, size: usize) -> String {
        let mut strip = Strip::default();
        let pieces = text.as_bytes().chunks(size);
        String::from_utf8(pieces.flat_map(|piece| strip.push(piece)).collect()).unwrap()
    }

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"f:x":["#.repeat(levels), "]}".repeat(levels))
    }

    #[test]
    fn managed_fields_are_left_out_wherever_an_object_has_them_however_the_text_is_cut() {
        let pod = |fields: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","managedFields":{fields},"uid":"u"}},"spec":{{"managedFields":[1],"metadata":{{"managedFields":[2]}}}}}}"#
            )
        };
        for fields in [
            "[]",
            "null",
            "7",
            r#""a,}\"b""#,
            r#"[{"fieldsV1":{"f:a":{}}}]"#,
            &deep(300),
        ] {
            for text in [
                pod(fields),
                format!(
                    r#"{{"items":[{},{}],"metadata":{{"resourceVersion":"1"}}}}"#,
                    pod(fields),
                    pod(fields)
                ),
                format!(
                    "{{\"type\":\"ADDED\",\"object\":{}}}\n{{\"type\":\"ADDED\",\"object\":{}}}\n",
                    pod(fields),
                    pod(fields)
                ),
            ] {
                for size in [1, 2, 7, 100_000] {
                    assert_eq!(
                        stripped(&text, size),
                        text.replace(
                            &format!(r#""managedFields":{fields},"uid""#),
                            r#""managedFields":null,"uid""#
                        ),
                        "{text} by {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn managed_fields_at_end_of_metadata_are_stripped() {
        let text =
            json!({ "metadata": { "managedFields": [{ "a": { "b": 1 } }] }, "a": "managedFields" });
        let kept: Value = serde_json::from_str(&stripped(&text.to_string(), 3)).unwrap();
        assert_eq!(
            kept,
            json!({ "metadata": { "managedFields": null }, "a": "managedFields" })
        );
    }
}
