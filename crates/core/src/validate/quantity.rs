//! Kubernetes quantities as comparable numbers: `500m`, `2Gi`, `1e3`.
//! See <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::str::FromStr;

/// An amount of CPU, memory or storage, exact to a billionth and to 20 digits, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

const BILLION: i128 = 1_000_000_000;
/// The maximum number of digits: 20 digits times 2^60 fit into 128 bits.
const DIGITS: usize = 20;
/// The largest quantity, at which Kubernetes caps larger ones.
const LARGEST: i128 = i64::MAX as i128 * BILLION;

impl Amount {
    /// The amount zero.
    pub const ZERO: Self = Self(0);

    /// Returns the amount in billionths of one core or byte.
    #[must_use]
    pub const fn as_nanos(self) -> i128 {
        self.0
    }
}

/// The error for a text that is not a quantity, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct QuantityError;

impl FromStr for Amount {
    type Err = QuantityError;

    /// Reads a signed decimal number and a suffix: binary (`Ki` to `Ei`), decimal (`n` to `E`) or an
    /// exponent. A fraction smaller than a billionth is rounded up, away from zero.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned
            .find(|next: char| next != '.' && !next.is_ascii_digit())
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError);
        }
        let scale = Scale::parse(suffix)?;
        let magnitude = scale.apply(
            whole.trim_start_matches('0'),
            fraction.trim_end_matches('0'),
        );
        Ok(Self(if negative { -magnitude } else { magnitude }))
    }
}

/// The multiplier of a suffix: a power of two and a power of ten.
struct Scale {
    two: u32,
    ten: i32,
}

impl Scale {
    fn parse(suffix: &str) -> Result<Self, QuantityError> {
        let binary = |two| Ok(Self { two, ten: 0 });
        let decimal = |ten| Ok(Self { two: 0, ten });
        match suffix {
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            exponent => exponent
                .strip_prefix(['e', 'E'])
                .and_then(|digits| digits.parse().ok())
                .map(|ten| Self { two: 0, ten })
                .ok_or(QuantityError),
        }
    }

    /// Returns the number in billionths, rounded up and capped.
    fn apply(&self, whole: &str, fraction: &str) -> i128 {
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return 0;
        }
        let (kept, dropped) = digits.split_at(digits.len().min(DIGITS));
        let mut value = kept.bytes().fold(0, |value: i128, digit| {
            value * 10 + i128::from(digit - b'0')
        });
        value *= 1 << self.two;
        // Billionths: the decimal point moves nine places, back by the length of the fraction, and forward
        // again by the number of dropped digits.
        let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
        let places = i64::from(self.ten) + 9 - length(fraction) + length(dropped);
        for _ in 0..places.clamp(0, 40) {
            value = value.saturating_mul(10);
        }
        let mut lost = !dropped.is_empty();
        for _ in 0..places.saturating_neg().clamp(0, 40) {
            lost |= value % 10 != 0;
            value /= 10;
        }
        value.saturating_add(i128::from(lost)).min(LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_kubernetes_reads() {
        let one = BILLION;
        for (text, nanos) in [
            ("0", 0),
            ("0.0", 0),
            ("1", one),
            ("+1", one),
            ("-1", -one),
            ("1.", one),
            (".5", one / 2),
            ("0.5", one / 2),
            ("500m", one / 2),
            ("0.1m", one / 10_000),
            ("1n", 1),
            ("0.1n", 1),
            ("-0.1n", -1),
            ("3u", 3_000),
            ("2k", 2_000 * one),
            ("2M", 2_000_000 * one),
            ("1Ki", 1024 * one),
            ("1.5Ki", 1536 * one),
            ("64Mi", 64 * 1024 * 1024 * one),
            ("2Gi", 2 * 1024 * 1024 * 1024 * one),
            ("1e3", 1000 * one),
            ("1E3", 1000 * one),
            ("1e-3", one / 1000),
            ("1e+2", 100 * one),
            ("0001", one),
            ("1.000000000000", one),
            ("9E", LARGEST.min(9_000_000_000_000_000_000 * one)),
            ("10E", LARGEST),
            ("8Ei", LARGEST),
            ("1e99", LARGEST),
            ("1e2147483647", LARGEST),
            ("1e-2147483648", 1),
            ("0e99", 0),
            (
                "1.00000000000000000000000000000000000000000000000001",
                one + 1,
            ),
            ("1.00000000000000000000000000000000000000000000000000", one),
            (
                "0.00000000000000000000000000000000000000000000000001e50",
                one,
            ),
            (
                "1.000000000000000000000000000001Ei",
                1_152_921_504_606_846_976 * one + 1,
            ),
            (
                "99999999999999999999999999999999999999999999999999",
                LARGEST,
            ),
        ] {
            assert_eq!(text.parse(), Ok(Amount(nanos)), "{text}");
        }
    }

    #[test]
    fn invalid_quantity_is_rejected() {
        for text in [
            "", "+", ".", "-.", "1..2", "1.2.3", "x", "1x", "1K", "1KiB", "Mi", "1 Gi", " 1", "1e",
            "1e1.5", "1mm", "--1", "1,5", "\u{661}",
        ] {
            assert_eq!(text.parse::<Amount>(), Err(QuantityError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn order_is_that_of_the_numbers(left in 0..1_000_000_000_i64, right in 0..1_000_000_000_i64) {
            let read = |milli: i64| format!("{milli}m").parse::<Amount>().unwrap();
            prop_assert_eq!(read(left).cmp(&read(right)), left.cmp(&right));
            let gibi = |count: i64| format!("{count}Gi").parse::<Amount>();
            prop_assert!(gibi(left).unwrap() <= gibi(left + right).unwrap());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eEinumkKMGTP]{0,60}|.*") {
            let _ = text.parse::<Amount>();
        }
    }
}
