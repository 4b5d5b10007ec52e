//! Truncation of texts.

/// Returns the longest prefix of `text` that has at most `most` bytes and ends between characters.
pub(crate) fn prefix(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Returns `text` in at most `most` bytes, with `…` at its end if it was longer.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mark = "…";
    format!("{}{mark}", prefix(text, most.saturating_sub(mark.len())))
}

/// Returns the words of `text` in one line of at most `most` bytes.
pub(crate) fn line(text: &str, most: usize) -> String {
    // The rest is not read: texts may be long.
    let start = prefix(text, most.saturating_mul(4));
    let words: Vec<&str> = start.split_whitespace().collect();
    cut(&words.join(" "), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("ääää", 8), "ääää");
        assert_eq!(cut("ääää", 7), "ää…");
        assert_eq!(cut("ab", 0), "…");
        assert_eq!(prefix("ää", 3), "ä");
        assert_eq!(line(" a\n\tb  c ", 99), "a b c");
    }
}
