//! Comma-separated values (RFC 4180, with line feeds) that no spreadsheet takes for formulas: names and reasons in
//! them are chosen by others.

/// What makes a spreadsheet compute what follows, if a cell begins with it. The wide forms are taken for the plain
/// ones by some.
const FORMULA: [char; 10] = [
    '=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
];

/// One field. What a spreadsheet would take for a formula begins with an apostrophe, which makes it text; `-` alone
/// stands for nothing and stays.
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

/// One line, with its end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_one_field_and_no_formula_whatever_somebody_is_called() {
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
}
