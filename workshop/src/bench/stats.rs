//! Durations and counts in order.

use std::time::Duration;

use anyhow::Result;

/// Converts a count for a division.
pub(crate) fn number<N>(count: N) -> Result<f64>
where
    N: TryInto<u32, Error: std::error::Error + Send + Sync + 'static>,
{
    Ok(f64::from(count.try_into()?))
}

/// Measured values, ordered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Vec<f64>);

impl FromIterator<f64> for Values {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }
}

impl FromIterator<Duration> for Values {
    /// Converts durations to milliseconds.
    fn from_iter<T: IntoIterator<Item = Duration>>(durations: T) -> Self {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
        durations.into_iter().map(milliseconds).collect()
    }
}

impl Values {
    /// Returns the smallest value that `percent` of all values do not exceed; 0 without any.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        let value = self.0.get(rank.saturating_sub(1));
        value.copied().unwrap_or_default()
    }

    pub(crate) fn min(&self) -> f64 {
        self.percentile(0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn max(&self) -> f64 {
        self.percentile(100)
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Values = (1..=50).rev().map(f64::from).collect();

        let [min, median, p99, max] = [0, 50, 99, 100].map(|percent| values.percentile(percent));

        assert_eq!([min, median, p99, max], [1.0, 25.0, 50.0, 50.0]);
        assert!(Values::default().max().abs() < f64::EPSILON);
    }
}
