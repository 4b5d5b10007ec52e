//! The comparison of a command's output with its guide. `…` stands for text that differs from run to run: within a line
//! for any text, on a separate line for any lines. Columns may be wider or narrower.

const ANYTHING: char = '…';

/// Checks whether the printed text is the text that the guide shows.
pub(crate) fn is_shown<S: AsRef<str>>(shown: &[S], printed: &str) -> bool {
    let shown: Vec<String> = shown
        .iter()
        .map(|line| single_spaces(line.as_ref()))
        .collect();
    let printed: Vec<String> = printed.trim_end().lines().map(single_spaces).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    lines(&shown, &printed)
}

fn lines(shown: &[&str], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if is_anything(first) => {
            (0..=printed.len()).any(|passed| lines(rest, printed.get(passed..).unwrap_or_default()))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| matches(first, line) && lines(rest, others)),
    }
}

fn is_anything(line: &str) -> bool {
    line.chars().eq([ANYTHING])
}

fn matches(shown: &str, printed: &str) -> bool {
    let Some((before, after)) = shown.split_once(ANYTHING) else {
        return shown == printed;
    };
    let Some(rest) = printed.strip_prefix(before) else {
        return false;
    };
    let mut places = rest.char_indices().map(|(place, _)| place);
    places.any(|place| matches(after, rest.get(place..).unwrap_or_default())) || matches(after, "")
}

fn single_spaces(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::is_shown;

    #[test]
    fn printed_output_is_compared_word_by_word() {
        assert!(is_shown(
            &["NAME   AGE", "web  1s"],
            "NAME  AGE\nweb   1s\n"
        ));
        assert!(!is_shown(&["web"], "web\nmore\n"));
        assert!(!is_shown(&["web", "more"], "web\n"));
        assert!(!is_shown(&["web"], "Web\n"));
        assert!(is_shown::<&str>(&[], "\n"));
        assert!(!is_shown::<&str>(&[], "something\n"));
    }

    #[test]
    fn dots_stand_for_anything() {
        assert!(is_shown(&["web-… 1/1 …"], "web-7d4-x2 1/1 Running 3s"));
        assert!(is_shown(&["until…"], "until "));
        assert!(!is_shown(&["web-… 1/1"], "db-0 1/1"));
        assert!(!is_shown(&["a … b … c"], "a b c d"));
        assert!(is_shown(&["first", "…", "last"], "first\nlast"));
        assert!(is_shown(&["first", "…", "last"], "first\na\nb\nlast"));
        assert!(!is_shown(&["first", "…", "last"], "first\na\nb"));
        assert!(is_shown(&["…"], ""));
    }
}
