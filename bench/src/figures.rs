//! Percentiles of one run, and the spread over several.

use std::{fmt, time::Duration};

/// Durations, sorted.
#[derive(Debug, Clone, Default)]
pub struct Sample(Vec<Duration>);

impl Sample {
    pub fn new(mut of: Vec<Duration>) -> Self {
        of.sort_unstable();
        Self(of)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest value that this part of ten thousand does not exceed (nearest rank).
    pub fn percentile(&self, of_ten_thousand: usize) -> Duration {
        let rank = (self.0.len() * of_ten_thousand).div_ceil(10_000).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    pub fn p99(&self) -> Duration {
        self.percentile(9_900)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p95, p99, p999, max] =
            [5_000, 9_500, 9_900, 9_990, 10_000].map(|rank| format_millis(self.percentile(rank)));
        write!(f, "p50 {p50} p95 {p95} p99 {p99} p999 {p999} max {max} ms (n={})", self.len())
    }
}

/// Milliseconds with as many digits as mean something.
pub fn format_millis(of: Duration) -> String {
    let millis = of.as_secs_f64() * 1e3;
    if millis < 10.0 { format!("{millis:.3}") } else { format!("{millis:.1}") }
}

/// One figure of several runs.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<f64>);

impl Runs {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match (self.0.get(middle), self.0.len() % 2) {
            (None, _) => 0.0,
            (Some(upper), 0) => f64::midpoint(self.0[middle - 1], *upper),
            (Some(value), _) => *value,
        }
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (self.0.first().unwrap_or(&0.0), self.0.last().unwrap_or(&0.0));
        let digits = if *max < 1_000.0 { 2 } else { 0 };
        write!(f, "min {min:.digits$} median {:.digits$} max {max:.digits$} ({} runs)", self.median(), self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let sample = Sample::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!([5_000, 9_900, 9_990, 10_000].map(|rank| sample.percentile(rank).as_millis()), [50, 99, 100, 100]);
        assert_eq!(Sample::default().p99(), Duration::ZERO);
        assert_eq!(Sample::new(vec![Duration::from_millis(7)]).p99().as_millis(), 7);
    }

    #[test]
    fn the_median_of_an_even_number_of_runs_is_between_the_middle_two() {
        let mut runs = Runs::default();
        for value in [4.0, 1.0, 2.0, 9.0] {
            runs.push(value);
        }
        assert!((runs.median() - 3.0).abs() < f64::EPSILON);
        assert_eq!(runs.to_string(), "min 1.00 median 3.00 max 9.00 (4 runs)");
    }
}
