//! Comma-separated values (RFC 4180, with line feeds) that no spreadsheet interprets as formulas: users choose the
//! names and reasons in them.
//! See <https://www.rfc-editor.org/rfc/rfc4180#section-2>.

/// The first characters of a cell that a spreadsheet interprets as a formula. Some spreadsheets interpret the wide
/// forms as the plain ones.
const FORMULA: [char; 10] = [
    '=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
];

/// Returns one field. A text that a spreadsheet would interpret as a formula is prefixed with an apostrophe, which
/// makes it text; `-` alone stands for an empty value and is not prefixed.
#[must_use]
pub fn field(text: &str) -> String {
    let text = match text.starts_with(FORMULA) && text != "-" {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// Returns one line, with its line feed.
#[must_use]
pub fn row<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let mut line = String::new();
    for (number, cell) in cells.into_iter().enumerate() {
        if number > 0 {
            line.push(',');
        }
        line.push_str(&field(cell.as_ref()));
    }
    line.push('\n');
    line
}

/// Returns the content of a cell. The cell of a missing value is empty.
pub(crate) fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The error in a text that is not CSV (RFC 4180).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// A quote is within a cell that does not begin with one, or is followed by other text.
    #[error("line {line}: unexpected quote")]
    Misplaced {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The end of a quoted cell is missing.
    #[error("line {line}: a quote is not closed")]
    Open {
        /// Number of the line, from 1.
        line: usize,
    },
}

/// Returns the cells of each line that [`row`] or a spreadsheet wrote. The apostrophe that makes a formula text is
/// removed.
///
/// # Errors
/// The fault and its line.
pub fn rows(text: &str) -> Result<Vec<Vec<String>>, CsvError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut cell = String::new();
    let (mut quoted, mut was_quoted) = (false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if quoted => quoted = false,
            _ if quoted => cell.push(letter),
            '"' if cell.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            ',' => {
                row.push(plain(std::mem::take(&mut cell)));
                was_quoted = false;
            }
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' => {
                row.push(plain(std::mem::take(&mut cell)));
                rows.push(std::mem::take(&mut row));
                was_quoted = false;
            }
            _ if was_quoted || letter == '"' => {
                let line = rows.len() + 1;
                return Err(CsvError::Misplaced { line });
            }
            _ => cell.push(letter),
        }
    }
    if quoted {
        let line = rows.len() + 1;
        return Err(CsvError::Open { line });
    }
    if was_quoted || !cell.is_empty() || !row.is_empty() {
        row.push(plain(cell));
        rows.push(row);
    }
    Ok(rows)
}

fn plain(cell: String) -> String {
    match cell.strip_prefix('\'') {
        Some(text) if text.starts_with(FORMULA) => text.to_owned(),
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_field_is_single_field_and_no_formula() {
        for (text, expected) in [
            ("alice", "alice"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            (
                "=HYPERLINK(\"x\",\"y\")",
                "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\"",
            ),
            ("-", "-"),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(field(text), expected, "{text:?}");
        }
        assert_eq!(row(["a", "=b", "c,d"]), "a,'=b,\"c,d\"\n");
    }

    #[test]
    fn csv_rows_are_read_as_written() {
        let cells = [
            "",
            "a,b",
            "say \"hi\"",
            "=1+1",
            "-",
            "a\nb",
            "'quoted'",
            "\u{ff1d}1",
            "\"",
        ];
        let text = row(cells) + &row(["b"]);
        assert_eq!(
            rows(&text).unwrap(),
            [cells.map(str::to_owned).to_vec(), vec!["b".to_owned()]]
        );
        // The format of spreadsheets.
        let other = "\u{feff}\"a\",b\r\n\"c\"\"\",";
        assert_eq!(rows(other).unwrap(), [["a", "b"], ["c\"", ""]]);
        assert_eq!(rows("").unwrap(), Vec::<Vec<String>>::new());
        for (text, why) in [
            ("a\n\"b", "line 2: a quote is not closed"),
            ("a\n\"b\"c,", "line 2: unexpected quote"),
            ("a\"b\"", "line 1: unexpected quote"),
        ] {
            assert_eq!(rows(text).unwrap_err().to_string(), why, "{text:?}");
        }
    }
}
