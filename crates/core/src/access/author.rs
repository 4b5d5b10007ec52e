//! The author of a template. The webhook records the author on each object for which it checks the author's rights,
//! whenever the spec changes; the operator can then have a pod admitted as the author's. The note is not sealed, since
//! templates outlive keys: it is valid as long as oz's webhook is in the path of templates, as is the check of the
//! author's rights.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Requester, labels};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    #[serde(flatten)]
    author: Requester,
    /// Digest of the content that the author wrote.
    spec_digest: String,
}

/// Records that `author` wrote the content with this digest.
pub fn write(metadata: &mut ObjectMeta, author: &Requester, spec_digest: &str) {
    let note = Note {
        author: author.clone(),
        spec_digest: spec_digest.to_owned(),
    };
    // A digest and the strings of the author always serialise.
    let text = serde_json::to_string(&note).unwrap_or_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::AUTHOR.to_owned(), text);
}

/// Keeps the note of the old object.
pub fn keep(metadata: &mut ObjectMeta, old: &ObjectMeta) {
    match noted(old) {
        Some(text) => {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(labels::AUTHOR.to_owned(), text.to_owned());
        }
        None => {
            if let Some(annotations) = &mut metadata.annotations {
                annotations.remove(labels::AUTHOR);
            }
        }
    }
}

/// Returns the note as it is stored.
#[must_use]
pub fn noted(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(labels::AUTHOR).map(String::as_str)
}

/// Returns the author of the content with this digest; `None` if the object has no note, or a note for other content.
#[must_use]
pub fn read(metadata: &ObjectMeta, spec_digest: &str) -> Option<Requester> {
    let note: Note = serde_json::from_str(noted(metadata)?).ok()?;
    let known = note.spec_digest == spec_digest && !note.author.user.is_empty();
    known.then_some(note.author)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_note_proves_author_of_same_content_only() {
        let bob = Requester {
            user: "bob".into(),
            uid: "u-2".into(),
            groups: vec!["editors".into()],
        };
        let mut metadata = ObjectMeta::default();
        assert_eq!(read(&metadata, "one"), None);
        write(&mut metadata, &bob, "one");
        assert_eq!(read(&metadata, "one"), Some(bob.clone()));
        assert_eq!(read(&metadata, "two"), None);
        // A user can write the annotation: the old note replaces it.
        let mut changed = ObjectMeta::default();
        write(
            &mut changed,
            &Requester {
                user: "eve".into(),
                ..bob.clone()
            },
            "one",
        );
        keep(&mut changed, &metadata);
        assert_eq!(read(&changed, "one"), Some(bob.clone()));
        keep(&mut changed, &ObjectMeta::default());
        assert_eq!(noted(&changed), None);
        for text in ["", "{}", "[]", r#"{"user":"","specDigest":"one"}"#] {
            let annotations = changed.annotations.get_or_insert_default();
            annotations.insert(labels::AUTHOR.to_owned(), text.to_owned());
            assert_eq!(read(&changed, "one"), None, "{text}");
        }
    }
}
