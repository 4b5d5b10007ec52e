//! The documents of a file, and the lines of their fields.

/// A document, and its first line.
pub(super) struct Document<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// Splits a file into its documents, at lines of three dashes.
pub(super) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut all = Vec::new();
    let (mut begin, mut begin_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            all.push(Document {
                line: begin_line,
                text: &text[begin..at],
            });
            begin = at + line.len();
            begin_line = number + 2;
        }
        at += line.len();
    }
    all.push(Document {
        line: begin_line,
        text: &text[begin..],
    });
    all.retain(|document| {
        let mut lines = document.text.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with('#'))
    });
    all
}

/// Returns the line of a field, relative to the document: searches for each name of its path below
/// the preceding one. If the field does not exist, returns the line of its parent.
pub(super) fn line_of(text: &str, path: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let (mut at, mut from, mut end) = (0, 0, lines.len());
    for part in path.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
            None => (part, None),
        };
        let mut below = lines.iter().enumerate().take(end).skip(from);
        let found = below.find(|(_, line)| {
            let key = line
                .trim_start()
                .trim_start_matches("- ")
                .trim_start_matches('"');
            key.strip_prefix(name)
                .is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
        });
        let Some((line, _)) = found else { break };
        at = line;
        from = line + 1;
        end = end_of(&lines, line);
        if let Some(index) = index {
            let items = lines.iter().enumerate().take(end).skip(from);
            let mut items = items.filter(|(_, line)| line.trim_start().starts_with('-'));
            if let Some((line, _)) = items.nth(index) {
                at = line;
                from = line;
                end = end_of(&lines, line);
            }
        }
    }
    at
}

/// Returns the line after the block of a line: the lines with more indentation, and the items of a
/// list, which need none.
fn end_of(lines: &[&str], at: usize) -> usize {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let is_item = |line: &str| line.trim_start().starts_with('-');
    let Some(head) = lines.get(at).copied() else {
        return lines.len();
    };
    let is_over = |line: &str| {
        let is_text = !matches!(line.trim_start().chars().next(), None | Some('#'));
        let is_below = depth(line) > depth(head)
            || depth(line) == depth(head) && is_item(line) && !is_item(head);
        is_text && !is_below
    };
    let after = lines.iter().enumerate().skip(at + 1);
    let mut after = after.filter(|(_, line)| is_over(line));
    after.next().map_or(lines.len(), |(line, _)| line)
}
