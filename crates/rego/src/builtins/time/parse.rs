//! `time.parse_ns`: the instant that a text names in a layout.

use super::super::operand::{Failure, failed};
use super::civil::{Civil, SECOND, days_in};
use super::layout::{DAYS, Form, MONTHS, Part, next};

/// Parses a text. Returns nanoseconds since 1970.
pub(super) fn parse(layout: &str, value: &str) -> Result<i128, Failure> {
    let mut parser = Parser {
        value,
        civil: Civil {
            month: 0,
            day: 0,
            ..Civil::default()
        },
        year_day: None,
        clock: [0; 3],
        noon: None,
        offset: 0,
    };
    let mut rest = layout;
    loop {
        let (before, part, after) = next(rest);
        parser.skip(before)?;
        let Some(part) = part else {
            break;
        };
        parser.part(part, after)?;
        rest = after;
    }
    if !parser.value.is_empty() {
        return failed(format!(
            "parsing time {value:?}: extra text: {:?}",
            parser.value
        ));
    }
    parser.finish()
}

struct Parser<'a> {
    value: &'a str,
    civil: Civil,
    year_day: Option<i64>,
    clock: [i64; 3],
    /// True for the afternoon.
    noon: Option<bool>,
    /// Seconds east of UTC.
    offset: i64,
}

type Parsed = Result<(), Failure>;

impl<'a> Parser<'a> {
    fn error<T>(&self, what: &str) -> Result<T, Failure> {
        failed(format!(
            "parsing time: cannot parse {:?} as {what}",
            self.value
        ))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.value.as_bytes().get(at).copied()
    }

    fn is_digit(&self, at: usize) -> bool {
        self.byte(at).is_some_and(|byte| byte.is_ascii_digit())
    }

    fn take(&mut self, len: usize) -> Result<&'a str, Failure> {
        match self.value.split_at_checked(len) {
            Some((taken, rest)) => {
                self.value = rest;
                Ok(taken)
            }
            None => self.error("time"),
        }
    }

    /// Skips the text between parts; blanks stand for any number of blanks.
    fn skip(&mut self, text: &str) -> Parsed {
        let mut text = text;
        while let Some(c) = text.chars().next() {
            if c == ' ' {
                if self.byte(0).is_some_and(|byte| byte != b' ') {
                    return self.error(text);
                }
                text = text.trim_start_matches(' ');
                self.value = self.value.trim_start_matches(' ');
                continue;
            }
            match self.value.strip_prefix(c) {
                Some(rest) => self.value = rest,
                None => return self.error(text),
            }
            text = &text[c.len_utf8()..];
        }
        Ok(())
    }

    /// Reads a number of one or two digits.
    fn number(&mut self, two: bool) -> Result<i64, Failure> {
        let len = match (self.is_digit(0), self.is_digit(1)) {
            (true, true) => 2,
            (true, false) if !two => 1,
            _ => return self.error("number"),
        };
        self.take(len)?
            .parse()
            .map_err(|_| Failure::Failed("number".to_owned()))
    }

    fn in_range(
        &self,
        number: i64,
        range: std::ops::RangeInclusive<i64>,
        what: &str,
    ) -> Result<i64, Failure> {
        if range.contains(&number) {
            return Ok(number);
        }
        failed(format!("parsing time: {what} out of range"))
    }

    fn name(&mut self, names: &[&str], short: bool) -> Result<i64, Failure> {
        for (at, name) in names.iter().enumerate() {
            let name = if short { &name[..3] } else { name };
            let found = self.value.get(..name.len());
            if found.is_some_and(|found| found.eq_ignore_ascii_case(name)) {
                self.value = &self.value[name.len()..];
                return Ok(i64::try_from(at).unwrap_or(0));
            }
        }
        self.error("name")
    }

    fn part(&mut self, part: Part, after: &str) -> Parsed {
        match part {
            Part::Year => {
                let year = self.number(true)?;
                self.civil.year = if year >= 69 { 1900 + year } else { 2000 + year };
            }
            Part::LongYear => {
                if !(0..4).all(|at| self.is_digit(at)) {
                    return self.error("2006");
                }
                self.civil.year = self
                    .take(4)?
                    .parse()
                    .map_err(|_| Failure::Failed("2006".to_owned()))?;
            }
            Part::Month => self.civil.month = self.name(&MONTHS, true)? + 1,
            Part::LongMonth => self.civil.month = self.name(&MONTHS, false)? + 1,
            Part::NumMonth | Part::ZeroMonth => {
                let month = self.number(part == Part::ZeroMonth)?;
                self.civil.month = self.in_range(month, 1..=12, "month")?;
            }
            Part::WeekDay => drop(self.name(&DAYS, true)?),
            Part::LongWeekDay => drop(self.name(&DAYS, false)?),
            Part::Day | Part::UnderDay | Part::ZeroDay => {
                if part == Part::UnderDay {
                    self.value = self.value.strip_prefix(' ').unwrap_or(self.value);
                }
                self.civil.day = self.number(part == Part::ZeroDay)?;
                // A day of 0 would be one that the layout does not have.
                self.in_range(self.civil.day, 1..=31, "day")?;
            }
            Part::UnderYearDay | Part::ZeroYearDay => self.year_day(part == Part::ZeroYearDay)?,
            Part::Noon { upper } => {
                self.noon = Some(match (self.take(2)?, upper) {
                    ("PM", true) | ("pm", false) => true,
                    ("AM", true) | ("am", false) => false,
                    _ => return self.error("PM"),
                });
            }
            Part::Zone => self.zone()?,
            Part::Offset { z, form } => self.offset(z, form)?,
            Part::Fraction { digits, nines } => {
                if !nines {
                    return self.fraction(digits);
                }
                self.any_fraction()?;
            }
            part => self.clock(part, after)?,
        }
        Ok(())
    }

    fn clock(&mut self, part: Part, after: &str) -> Parsed {
        match part {
            Part::Hour => {
                let hour = self.number(false)?;
                self.clock[0] = self.in_range(hour, 0..=23, "hour")?;
            }
            Part::Hour12 | Part::ZeroHour12 => {
                let hour = self.number(part == Part::ZeroHour12)?;
                self.clock[0] = self.in_range(hour, 0..=12, "hour")?;
            }
            Part::Minute | Part::ZeroMinute => {
                let minute = self.number(part == Part::ZeroMinute)?;
                self.clock[1] = self.in_range(minute, 0..=59, "minute")?;
            }
            _ => {
                let second = self.number(part == Part::ZeroSecond)?;
                self.clock[2] = self.in_range(second, 0..=59, "second")?;
                // A fraction may follow, also if the layout has none.
                if !matches!(next(after), ("", Some(Part::Fraction { .. }), _)) {
                    self.any_fraction()?;
                }
            }
        }
        Ok(())
    }

    fn year_day(&mut self, zeros: bool) -> Parsed {
        if !zeros {
            self.value = self.value.trim_start_matches(' ');
        }
        let len = (0..3).take_while(|at| self.is_digit(*at)).count();
        if len == 0 || (zeros && len < 3) {
            return self.error("day of year");
        }
        self.year_day = self.take(len)?.parse().ok();
        Ok(())
    }

    /// Reads a fraction, if there is one.
    fn any_fraction(&mut self) -> Parsed {
        if !matches!(self.byte(0), Some(b'.' | b',')) || !self.is_digit(1) {
            return Ok(());
        }
        let digits = self
            .value
            .bytes()
            .skip(1)
            .take_while(u8::is_ascii_digit)
            .count();
        self.fraction(digits)
    }

    fn fraction(&mut self, digits: usize) -> Parsed {
        if !matches!(self.byte(0), Some(b'.' | b',')) {
            return self.error("fractional second");
        }
        let text = &self.take(1 + digits)?[1..];
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.error("fractional second");
        }
        let nanoseconds = format!("{:0<9}", text.get(..digits.min(9)).unwrap_or(text));
        self.civil.nanosecond = nanoseconds
            .parse()
            .map_err(|_| Failure::Failed("fraction".to_owned()))?;
        Ok(())
    }

    fn offset(&mut self, z: bool, form: Form) -> Parsed {
        if z && let Some(rest) = self.value.strip_prefix('Z') {
            self.value = rest;
            return Ok(());
        }
        let sign = match self.byte(0) {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return self.error("offset"),
        };
        self.take(1)?;
        let mut parts = [0; 3];
        let (count, colon) = match form {
            Form::Hours => (1, false),
            Form::Minutes => (2, false),
            Form::ColonMinutes => (2, true),
            Form::Seconds => (3, false),
            Form::ColonSeconds => (3, true),
        };
        for (at, number) in parts.iter_mut().take(count).enumerate() {
            if at > 0 && colon {
                self.skip(":")?;
            }
            *number = self.number(true)?;
        }
        self.in_range(parts[0], 0..=24, "time zone offset hour")?;
        self.in_range(parts[1], 0..=60, "time zone offset minute")?;
        self.in_range(parts[2], 0..=60, "time zone offset second")?;
        self.offset = sign * (parts[0] * 3600 + parts[1] * 60 + parts[2]);
        Ok(())
    }

    /// Reads the abbreviation of a time zone, which does not move the instant.
    fn zone(&mut self) -> Parsed {
        let letters = self
            .value
            .bytes()
            .take_while(u8::is_ascii_uppercase)
            .count();
        let len = match (letters, self.value) {
            (_, value) if value.starts_with("UTC") => 3,
            (_, value) if value.starts_with("ChST") || value.starts_with("MeST") => 4,
            (_, value) if value.starts_with("GMT") => 3 + signed_hours(&value[3..]),
            (_, value) if value.starts_with(['+', '-']) => match signed_hours(value) {
                0 => return self.error("MST"),
                len => len,
            },
            (3, _) => 3,
            (4, value) if value.as_bytes().get(3) == Some(&b'T') || value.starts_with("WITA") => 4,
            (5, value) if value.as_bytes().get(4) == Some(&b'T') => 5,
            _ => return self.error("MST"),
        };
        self.take(len).map(drop)
    }

    fn finish(mut self) -> Result<i128, Failure> {
        let [mut hour, minute, second] = self.clock;
        match self.noon {
            Some(true) if hour < 12 => hour += 12,
            Some(false) if hour == 12 => hour = 0,
            _ => {}
        }
        self.civil.second = hour * 3600 + minute * 60 + second;
        if let Some(day) = self.year_day {
            self.by_year_day(day)?;
        }
        let civil = Civil {
            month: self.civil.month.max(1),
            day: self.civil.day.max(1),
            ..self.civil
        };
        if civil.day > days_in(civil.year, civil.month)? {
            return failed("parsing time: day out of range");
        }
        Ok(civil.nanoseconds()? - i128::from(self.offset) * SECOND)
    }

    fn by_year_day(&mut self, day: i64) -> Parsed {
        let year = self.civil.year;
        let days = 337 + days_in(year, 2)?;
        self.in_range(day, 1..=days, "day-of-year")?;
        let start = Civil {
            year,
            month: 1,
            day,
            ..Civil::default()
        };
        let date = start.date()?;
        let (month, day) = (i64::from(date.month()), i64::from(date.day()));
        let matches = |said: i64, is: i64| said == 0 || said == is;
        if !matches(self.civil.month, month) || !matches(self.civil.day, day) {
            return failed("parsing time: day-of-year does not match");
        }
        (self.civil.month, self.civil.day) = (month, day);
        Ok(())
    }
}

/// Returns the length of `+3` or `-11`; 0 if a text begins otherwise.
fn signed_hours(text: &str) -> usize {
    if !text.starts_with(['+', '-']) {
        return 0;
    }
    let digits = text.bytes().skip(1).take_while(u8::is_ascii_digit).count();
    match text.get(1..=digits).map(str::parse::<u32>) {
        Some(Ok(hours)) if hours <= 23 => 1 + digits,
        _ => 0,
    }
}
