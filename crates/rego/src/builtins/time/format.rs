//! `time.format`: an instant, written in a layout.

use std::fmt::Write as _;

use super::super::operand::Failure;
use super::civil::Zoned;
use super::layout::{DAYS, Form, MONTHS, Part, next};

/// Writes a time.
pub(super) fn format(time: &Zoned, layout: &str) -> Result<String, Failure> {
    let mut out = String::new();
    let mut rest = layout;
    loop {
        let (before, part, after) = next(rest);
        out.push_str(before);
        let Some(part) = part else {
            return Ok(out);
        };
        let separator = rest[before.len()..].chars().next().unwrap_or('.');
        match part {
            Part::Zone => out.push_str(&time.abbreviation()?),
            Part::Offset { z, form } => offset(time.offset, z, form, &mut out),
            Part::Fraction { digits, nines } => {
                fraction(time.civil.nanosecond, digits, nines, separator, &mut out);
            }
            part => date(time, part, &mut out)?,
        }
        rest = after;
    }
}

fn date(time: &Zoned, part: Part, out: &mut String) -> Result<(), Failure> {
    let civil = &time.civil;
    let date = civil.date()?;
    let weekday = DAYS[usize::from(date.weekday().to_sunday_zero_offset().unsigned_abs())];
    let month = usize::try_from(civil.month - 1).unwrap_or(0).min(11);
    let (hour, minute, second) = (
        civil.second / 3600,
        civil.second / 60 % 60,
        civil.second % 60,
    );
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let _ = match part {
        Part::Year => write!(out, "{:02}", civil.year.rem_euclid(100)),
        Part::LongYear => write!(out, "{:04}", civil.year),
        Part::Month => write!(out, "{}", &MONTHS[month][..3]),
        Part::LongMonth => write!(out, "{}", MONTHS[month]),
        Part::NumMonth => write!(out, "{}", civil.month),
        Part::ZeroMonth => write!(out, "{:02}", civil.month),
        Part::WeekDay => write!(out, "{}", &weekday[..3]),
        Part::LongWeekDay => write!(out, "{}", weekday),
        Part::Day => write!(out, "{}", civil.day),
        Part::UnderDay => write!(out, "{:2}", civil.day),
        Part::ZeroDay => write!(out, "{:02}", civil.day),
        Part::UnderYearDay => write!(out, "{:3}", date.day_of_year()),
        Part::ZeroYearDay => write!(out, "{:03}", date.day_of_year()),
        Part::Hour => write!(out, "{hour:02}"),
        Part::Hour12 => write!(out, "{hour12}"),
        Part::ZeroHour12 => write!(out, "{hour12:02}"),
        Part::Minute => write!(out, "{minute}"),
        Part::ZeroMinute => write!(out, "{minute:02}"),
        Part::Second => write!(out, "{second}"),
        Part::ZeroSecond => write!(out, "{second:02}"),
        Part::Noon { upper } => out.write_str(match (upper, hour >= 12) {
            (true, true) => "PM",
            (true, false) => "AM",
            (false, true) => "pm",
            (false, false) => "am",
        }),
        Part::Zone | Part::Offset { .. } | Part::Fraction { .. } => Ok(()),
    };
    Ok(())
}

fn offset(seconds: i64, z: bool, form: Form, out: &mut String) {
    if z && seconds == 0 {
        out.push('Z');
        return;
    }
    out.push(if seconds < 0 { '-' } else { '+' });
    let seconds = seconds.abs();
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = match form {
        Form::Hours => write!(out, "{hour:02}"),
        Form::Minutes => write!(out, "{hour:02}{minute:02}"),
        Form::ColonMinutes => write!(out, "{hour:02}:{minute:02}"),
        Form::Seconds => write!(out, "{hour:02}{minute:02}{second:02}"),
        Form::ColonSeconds => write!(out, "{hour:02}:{minute:02}:{second:02}"),
    };
}

fn fraction(nanosecond: i64, digits: usize, nines: bool, separator: char, out: &mut String) {
    let text = format!("{nanosecond:09}");
    let mut text = text.get(..digits.min(9)).unwrap_or(&text);
    if nines {
        text = text.trim_end_matches('0');
        if text.is_empty() {
            return;
        }
    }
    out.push(separator);
    out.push_str(text);
}
