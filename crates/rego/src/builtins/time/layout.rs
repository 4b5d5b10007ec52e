//! Layouts: the reference time of Go, 2 January 2006 at 15:04:05, in parts.
//! See <https://pkg.go.dev/time#pkg-constants>.

/// A part of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    LongYear,
    Month,
    LongMonth,
    NumMonth,
    ZeroMonth,
    WeekDay,
    LongWeekDay,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    Noon {
        upper: bool,
    },
    Zone,
    Offset {
        z: bool,
        form: Form,
    },
    /// A fraction of a second; with nines, zeros at its end are omitted.
    Fraction {
        digits: usize,
        nines: bool,
    },
}

/// The form of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Hours,
    Minutes,
    ColonMinutes,
    Seconds,
    ColonSeconds,
}

const OFFSETS: [(&str, Form); 5] = [
    ("070000", Form::Seconds),
    ("07:00:00", Form::ColonSeconds),
    ("0700", Form::Minutes),
    ("07:00", Form::ColonMinutes),
    ("07", Form::Hours),
];

const NUMBERS: [(&str, Part); 19] = [
    ("January", Part::LongMonth),
    ("Monday", Part::LongWeekDay),
    ("MST", Part::Zone),
    ("002", Part::ZeroYearDay),
    ("01", Part::ZeroMonth),
    ("02", Part::ZeroDay),
    ("03", Part::ZeroHour12),
    ("04", Part::ZeroMinute),
    ("05", Part::ZeroSecond),
    ("06", Part::Year),
    ("15", Part::Hour),
    ("1", Part::NumMonth),
    ("2006", Part::LongYear),
    ("2", Part::Day),
    ("__2", Part::UnderYearDay),
    ("3", Part::Hour12),
    ("4", Part::Minute),
    ("5", Part::Second),
    ("PM", Part::Noon { upper: true }),
];

/// Splits a layout at its first part: the text in front, the part, and the rest.
pub(super) fn next(layout: &str) -> (&str, Option<Part>, &str) {
    for (at, _) in layout.char_indices() {
        let rest = &layout[at..];
        // `_2006` is an underscore and a year.
        if let Some(after) = rest.strip_prefix("_2006") {
            return (&layout[..=at], Some(Part::LongYear), after);
        }
        if let Some((part, len)) = part(rest) {
            return (&layout[..at], Some(part), &rest[len..]);
        }
    }
    (layout, None, "")
}

fn part(rest: &str) -> Option<(Part, usize)> {
    let numbers = NUMBERS.iter().find(|(text, _)| rest.starts_with(text));
    if let Some((text, part)) = numbers {
        return Some((*part, text.len()));
    }
    let before_lower = || rest.as_bytes().get(3).is_some_and(u8::is_ascii_lowercase);
    match rest.as_bytes().first()? {
        b'J' if rest.starts_with("Jan") && !before_lower() => Some((Part::Month, 3)),
        b'M' if rest.starts_with("Mon") && !before_lower() => Some((Part::WeekDay, 3)),
        b'p' if rest.starts_with("pm") => Some((Part::Noon { upper: false }, 2)),
        b'_' if rest.starts_with("_2") => Some((Part::UnderDay, 2)),
        sign @ (b'-' | b'Z') => {
            let found = OFFSETS.iter().find(|(text, _)| rest[1..].starts_with(text));
            let z = *sign == b'Z';
            found.map(|(text, form)| (Part::Offset { z, form: *form }, text.len() + 1))
        }
        b'.' | b',' => {
            let digit = *rest.as_bytes().get(1)?;
            let digits = rest
                .bytes()
                .skip(1)
                .take_while(|byte| *byte == digit)
                .count();
            let ends = !rest
                .as_bytes()
                .get(1 + digits)
                .is_some_and(u8::is_ascii_digit);
            let fraction = Part::Fraction {
                digits,
                nines: digit == b'9',
            };
            (matches!(digit, b'0' | b'9') && ends).then_some((fraction, 1 + digits))
        }
        _ => None,
    }
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
