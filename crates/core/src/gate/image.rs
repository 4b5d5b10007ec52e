//! Names of images, and the patterns of images that a template lists for `kubectl debug`.

/// The maximum number of images that a template can list.
pub(crate) const MAX_IMAGES: usize = 32;
/// The maximum length of the name of an image.
pub(crate) const MAX_IMAGE: usize = 512;

/// A pattern of permitted images: one image, or all with a prefix that ends in `/`, `:` or `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    start: &'a str,
    /// Whether `start` is the whole name.
    whole: bool,
}

impl<'a> Pattern<'a> {
    /// Parses the pattern of a template; `None` if it is not valid.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let (start, whole) = match text.strip_suffix('*') {
            Some(start) => (start, false),
            None => (text, true),
        };
        let ends = start.ends_with(['/', ':', '@']);
        (is_image(start) && ends != whole && text.len() <= MAX_IMAGE && start.len() > 1)
            .then_some(Self { start, whole })
    }

    /// Checks whether this image matches. `:*` and `@*` cover tags and digests, and no further path.
    #[must_use]
    pub fn matches(self, image: &str) -> bool {
        if self.whole {
            return image == self.start;
        }
        let Some(rest) = image.strip_prefix(self.start).filter(|_| is_image(image)) else {
            return false;
        };
        let below = self.start.ends_with('/');
        !rest.is_empty() && !rest.contains("..") && (below || !rest.contains('/'))
    }
}

/// Checks whether the text consists of the letters of image names.
fn is_image(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    (1..=MAX_IMAGE).contains(&text.len()) && text.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_pattern_matches_exact_name_or_prefix() {
        for (pattern, image, good) in [
            ("busybox", "busybox", true),
            ("busybox", "busybox:1", false),
            ("busybox", "docker.io/library/busybox", false),
            ("r.test/tools/*", "r.test/tools/a:1", true),
            ("r.test/tools/*", "r.test/tools/a/b@sha256:0", true),
            ("r.test/tools/*", "r.test/tools/", false),
            ("r.test/tools/*", "r.test/toolset", false),
            ("r.test/tools/*", "r.test/tools/../evil", false),
            ("r.test/tools/*", "evil/r.test/tools/a", false),
            ("r.test/shell:*", "r.test/shell:2", true),
            ("r.test/shell:*", "r.test/shell:2@sha256:0", true),
            ("r.test/shell:*", "r.test/shell", false),
            ("r.test/shell:*", "r.test/shell:2/evil", false),
            ("r.test:*", "r.test:5000/evil", false),
            ("r.test/shell@*", "r.test/shell@sha256:0", true),
            ("r.test/shell@*", "r.test/shell:2", false),
            ("r.test/*", "r.test/a b", false),
        ] {
            let read = Pattern::read(pattern).unwrap();
            assert_eq!(read.matches(image), good, "{pattern} {image}");
        }
        let long = "a".repeat(MAX_IMAGE + 1);
        for pattern in [
            "",
            "*",
            "/*",
            ":*",
            "busybox*",
            "r.test/*/x",
            "r.test/**",
            "a b",
            "a/",
            "a:",
            "a@",
            &long,
        ] {
            assert_eq!(Pattern::read(pattern), None, "{pattern:?}");
        }
    }
}
