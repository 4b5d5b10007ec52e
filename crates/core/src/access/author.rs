//! Who wrote a template. The webhook notes it on what it checks the author's rights for, whenever the
//! spec changes; the operator can have a pod admitted as they would be. It is not sealed, since
//! templates outlive keys: it is good as long as oz's webhook is in the path of templates, as is the check
//! of the author's rights.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Requester, labels};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    #[serde(flatten)]
    author: Requester,
    /// Digest of what they wrote.
    spec_digest: String,
}

/// Notes that `author` wrote what has this digest.
pub fn write(metadata: &mut ObjectMeta, author: &Requester, spec_digest: &str) {
    let note = Note {
        author: author.clone(),
        spec_digest: spec_digest.to_owned(),
    };
    // Text and texts: it always serialises.
    let text = serde_json::to_string(&note).unwrap_or_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::AUTHOR.to_owned(), text);
}

/// Leaves the note as it was.
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

/// The note, as it stands.
#[must_use]
pub fn noted(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(labels::AUTHOR).map(String::as_str)
}

/// Who wrote what has this digest; `None` if nobody is noted, or for something else.
#[must_use]
pub fn of(metadata: &ObjectMeta, spec_digest: &str) -> Option<Requester> {
    let note: Note = serde_json::from_str(noted(metadata)?).ok()?;
    let known = note.spec_digest == spec_digest && !note.author.user.is_empty();
    known.then_some(note.author)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_known_of_what_they_wrote_and_of_nothing_else() {
        let bob = Requester {
            user: "bob".into(),
            uid: "u-2".into(),
            groups: vec!["editors".into()],
        };
        let mut metadata = ObjectMeta::default();
        assert_eq!(of(&metadata, "one"), None);
        write(&mut metadata, &bob, "one");
        assert_eq!(of(&metadata, "one"), Some(bob.clone()));
        assert_eq!(of(&metadata, "two"), None);
        // Whatever somebody writes there, the old note stays.
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
        assert_eq!(of(&changed, "one"), Some(bob.clone()));
        keep(&mut changed, &ObjectMeta::default());
        assert_eq!(noted(&changed), None);
        for text in ["", "{}", "[]", r#"{"user":"","specDigest":"one"}"#] {
            let annotations = changed.annotations.get_or_insert_default();
            annotations.insert(labels::AUTHOR.to_owned(), text.to_owned());
            assert_eq!(of(&changed, "one"), None, "{text}");
        }
    }
}
