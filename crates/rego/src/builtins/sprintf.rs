//! `sprintf`, with the verbs, flags, widths and errors of Go's package `fmt`.
//! See <https://pkg.go.dev/fmt>.

use std::fmt::Write as _;
use std::sync::Arc;

use regorus::Value;

use super::bounds::{Excess, MAX_TEXT};
use super::float;
use super::operand::{Answer, Failure, array, bounded, text};
use super::rego_text;

/// The maximum width and precision.
const MAX_WIDTH: usize = 999;

/// An argument, as OPA passes it to Go.
enum Argument {
    Whole { negative: bool, number: Value },
    Float(f64),
    Text(Arc<str>),
}

impl Argument {
    fn from_value(value: &Value) -> Self {
        match value {
            Value::Number(number) if number.is_integer() => Self::Whole {
                negative: !number.is_positive() && *number != 0_u64.into(),
                number: value.clone(),
            },
            Value::Number(number) => match number.as_f64() {
                Some(float) => Self::Float(float),
                None => Self::Text(number.format_decimal().into()),
            },
            Value::String(text) => Self::Text(text.clone()),
            other => Self::Text(rego_text::written(other).into()),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Whole { number, .. } if fits(number) => "int",
            Self::Whole { .. } => "*big.Int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
        }
    }
}

fn fits(number: &Value) -> bool {
    number.as_i64().is_ok()
}

/// The flags of a verb.
#[derive(Clone, Copy, Default)]
struct Flags {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Implements `sprintf`.
pub(super) fn sprintf(values: &[Value]) -> Answer {
    let format = text(values, 0)?;
    let arguments: Vec<Argument> = array(values, 1)?.iter().map(Argument::from_value).collect();
    let mut writer = Writer {
        rest: format,
        arguments: &arguments,
        next: 0,
        reordered: false,
        out: String::new(),
    };
    writer.run()?;
    bounded(writer.out)
}

struct Writer<'a> {
    rest: &'a str,
    arguments: &'a [Argument],
    next: usize,
    reordered: bool,
    out: String,
}

impl<'a> Writer<'a> {
    fn run(&mut self) -> Result<(), Failure> {
        while let Some((before, after)) = self.rest.split_once('%') {
            self.out.push_str(before);
            self.rest = after;
            self.directive()?;
            if self.out.len() > MAX_TEXT {
                return Err(Excess::Text.into());
            }
        }
        self.out.push_str(self.rest);
        self.extra();
        Ok(())
    }

    fn directive(&mut self) -> Result<(), Failure> {
        let mut flags = Flags::default();
        self.flags(&mut flags);
        let mut after_index = self.index();
        if self.eat('*') {
            match self.star()? {
                Some(width) => {
                    flags.minus |= width < 0;
                    flags.zero &= width >= 0;
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => self.out.push_str("%!(BADWIDTH)"),
            }
            after_index = false;
        } else if let Some(width) = self.digits()? {
            flags.width = Some(width);
            if after_index {
                self.out.push_str("%!");
                return Ok(());
            }
        }
        if self.eat('.') {
            after_index = self.index();
            if self.eat('*') {
                match self.star()? {
                    Some(precision) if precision >= 0 => {
                        flags.precision = usize::try_from(precision).ok()
                    }
                    Some(_) => flags.precision = None,
                    None => self.out.push_str("%!(BADPREC)"),
                }
                after_index = false;
            } else {
                flags.precision = Some(self.digits()?.unwrap_or(0));
            }
        }
        if !after_index {
            self.index();
        }
        self.verb(flags);
        Ok(())
    }

    fn flags(&mut self, flags: &mut Flags) {
        while let Some(flag) = self.rest.chars().next() {
            match flag {
                '#' => flags.sharp = true,
                '0' => flags.zero = true,
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                ' ' => flags.space = true,
                _ => return,
            }
            self.rest = &self.rest[1..];
        }
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn digits(&mut self) -> Result<Option<usize>, Failure> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(width) if width <= MAX_WIDTH => Ok(Some(width)),
            _ => Err(Excess::Width.into()),
        }
    }

    /// Reads an explicit index, as in `%[2]d`.
    fn index(&mut self) -> bool {
        let Some(rest) = self.rest.strip_prefix('[') else {
            return false;
        };
        self.reordered = true;
        let Some((index, after)) = rest.split_once(']') else {
            self.next = usize::MAX;
            self.rest = rest;
            return false;
        };
        self.rest = after;
        self.next = match index.parse::<usize>() {
            Ok(index) if (1..=self.arguments.len()).contains(&index) => index - 1,
            _ => usize::MAX,
        };
        true
    }

    fn star(&mut self) -> Result<Option<i64>, Failure> {
        let argument = self.arguments.get(self.next);
        self.next = self.next.saturating_add(1);
        match argument {
            Some(Argument::Whole { number, .. }) => match number.as_i64() {
                Ok(width) if width.unsigned_abs() <= MAX_WIDTH as u64 => Ok(Some(width)),
                _ => Err(Excess::Width.into()),
            },
            _ => Ok(None),
        }
    }

    fn verb(&mut self, flags: Flags) {
        let Some(verb) = self.rest.chars().next() else {
            self.out.push_str("%!(NOVERB)");
            return;
        };
        self.rest = &self.rest[verb.len_utf8()..];
        if verb == '%' {
            self.out.push('%');
            return;
        }
        if self.next == usize::MAX {
            let _ = write!(self.out, "%!{verb}(BADINDEX)");
            return;
        }
        let Some(argument) = self.arguments.get(self.next) else {
            let _ = write!(self.out, "%!{verb}(MISSING)");
            return;
        };
        self.next += 1;
        let text = formatted(argument, verb, flags);
        self.out.push_str(&text);
    }

    fn extra(&mut self) {
        if self.reordered || self.next >= self.arguments.len() {
            return;
        }
        self.out.push_str("%!(EXTRA ");
        for (at, argument) in self.arguments[self.next..].iter().enumerate() {
            if at > 0 {
                self.out.push_str(", ");
            }
            let value = formatted(argument, 'v', Flags::default());
            let _ = write!(self.out, "{}={value}", argument.kind());
        }
        self.out.push(')');
    }
}

fn formatted(argument: &Argument, verb: char, flags: Flags) -> String {
    match (argument, verb) {
        (_, 'T') => pad(
            argument.kind().to_owned(),
            Flags {
                zero: false,
                ..flags
            },
        ),
        // The interpreter does not tell 1.0 from 1, so that all numbers can be written as fractions.
        (Argument::Whole { number, .. }, 'e' | 'E' | 'f' | 'F' | 'g' | 'G') => {
            let digits = formatted_plain_number(number);
            digits
                .parse()
                .ok()
                .and_then(|float| real(float, verb, flags))
        }
        (Argument::Whole { negative, number }, _) => whole(*negative, number, verb, flags),
        (Argument::Float(float), _) => real(*float, verb, flags),
        (Argument::Text(text), _) => string(text, verb, flags),
    }
    .unwrap_or_else(|| bad(argument, verb))
}

fn bad(argument: &Argument, verb: char) -> String {
    let value = formatted_plain(argument);
    format!(
        "%!{verb}({}={value})",
        argument.kind().trim_start_matches('*')
    )
}

fn formatted_plain(argument: &Argument) -> String {
    let value = match argument {
        Argument::Whole { negative, number } => whole(*negative, number, 'd', Flags::default()),
        Argument::Float(float) => real(*float, 'v', Flags::default()),
        Argument::Text(text) => Some(text.to_string()),
    };
    value.unwrap_or_default()
}

fn formatted_plain_number(number: &Value) -> String {
    match number {
        Value::Number(number) => number.format_decimal(),
        _ => String::new(),
    }
}

fn whole(negative: bool, number: &Value, verb: char, flags: Flags) -> Option<String> {
    let Value::Number(number) = number else {
        return None;
    };
    let digits = match verb {
        'd' | 'v' => number.format_decimal().trim_start_matches('-').to_owned(),
        // Go writes numbers of more than 64 bits as texts too.
        's' if number.as_i64().is_none() => {
            number.format_decimal().trim_start_matches('-').to_owned()
        }
        'b' => in_base(number.abs().format_bin(), "0b"),
        'o' | 'O' => in_base(number.abs().format_octal(), "0o"),
        'x' => in_base(number.abs().format_hex(), "0x").to_lowercase(),
        'X' => in_base(number.abs().format_hex(), "0x").to_uppercase(),
        'c' => {
            let c = number.as_i64().and_then(|code| u32::try_from(code).ok());
            let c = c.and_then(char::from_u32).unwrap_or('\u{fffd}');
            return pad(c.to_string(), flags);
        }
        'q' => {
            let c = number.as_i64().and_then(|code| u32::try_from(code).ok());
            let c = c.and_then(char::from_u32).unwrap_or('\u{fffd}');
            return pad(format!("'{c}'"), flags);
        }
        'U' => {
            let code = number.as_i64().and_then(|code| u64::try_from(code).ok())?;
            return pad(format!("U+{code:04X}"), flags);
        }
        _ => return None,
    };
    let prefix = match verb {
        'O' => "0o",
        'o' if flags.sharp => "0",
        'x' if flags.sharp => "0x",
        'X' if flags.sharp => "0X",
        'b' if flags.sharp => "0b",
        _ => "",
    };
    if flags.precision == Some(0) && digits == "0" {
        return pad(
            String::new(),
            Flags {
                zero: false,
                ..flags
            },
        );
    }
    let least = flags.precision.unwrap_or(0).saturating_sub(digits.len());
    let digits = format!("{prefix}{}{digits}", "0".repeat(least));
    let zero = flags.zero && flags.precision.is_none();
    Some(signed(negative, digits, Flags { zero, ..flags }))
}

/// Removes the prefix that the interpreter may write.
fn in_base(digits: String, prefix: &str) -> String {
    digits
        .strip_prefix(prefix)
        .map(str::to_owned)
        .unwrap_or(digits)
}

fn real(float: f64, verb: char, flags: Flags) -> Option<String> {
    let size = float.abs();
    let mut digits = match verb {
        'v' | 'g' | 'G' => float::general(size, flags.precision, flags.sharp),
        'e' | 'E' => float::scientific(size, Some(flags.precision.unwrap_or(6))),
        'f' | 'F' => format!("{size:.*}", flags.precision.unwrap_or(6)),
        _ => return None,
    };
    if verb.is_ascii_uppercase() {
        digits = digits.to_uppercase();
    }
    Some(signed(float.is_sign_negative(), digits, flags))
}

fn signed(negative: bool, digits: String, flags: Flags) -> String {
    let sign = match (negative, flags.plus, flags.space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    let missing = flags
        .width
        .unwrap_or(0)
        .saturating_sub(sign.len() + digits.chars().count());
    if flags.zero && !flags.minus {
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    let text = format!("{sign}{digits}");
    pad_to(text, missing, flags.minus, ' ')
}

fn string(text: &str, verb: char, flags: Flags) -> Option<String> {
    let cut = |text: &str| match flags.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text.to_owned(),
    };
    match verb {
        's' | 'v' if verb == 's' || !flags.sharp => pad(cut(text), flags),
        'q' | 'v' => pad(rego_text::quoted(&cut(text)), flags),
        'x' | 'X' => {
            let bytes = text.as_bytes();
            let bytes = &bytes[..flags.precision.unwrap_or(bytes.len()).min(bytes.len())];
            let gap = if flags.space { " " } else { "" };
            let prefix = if flags.sharp { "0x" } else { "" };
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut digits = match (flags.space, digits.is_empty()) {
                (_, true) => String::new(),
                (true, false) => format!("{prefix}{}", digits.join(&format!("{gap}{prefix}"))),
                (false, false) => format!("{prefix}{}", digits.concat()),
            };
            if verb == 'X' {
                digits = digits.to_uppercase();
            }
            pad(digits, flags)
        }
        _ => None,
    }
}

/// Fills a text up to the width. Zeros fill texts as well, as in Go.
fn pad(text: String, flags: Flags) -> Option<String> {
    let missing = flags
        .width
        .unwrap_or(0)
        .saturating_sub(text.chars().count());
    let fill = if flags.zero && !flags.minus { '0' } else { ' ' };
    Some(pad_to(text, missing, flags.minus, fill))
}

fn pad_to(text: String, missing: usize, left: bool, fill: char) -> String {
    let fill = fill.to_string().repeat(missing);
    if left { text + &fill } else { fill + &text }
}
