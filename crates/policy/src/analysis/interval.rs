//! Ranges of values, for reasoning about comparisons.

use crate::{Comparator, Statistic};

/// The values between two ends, each included or not. Measured values are never negative, and percentages never exceed
/// 100, which bounds every interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    low: f64,
    low_in: bool,
    high: f64,
    high_in: bool,
}

impl Interval {
    /// All possible values of a statistic.
    pub(super) fn whole(statistic: Statistic) -> Self {
        let (high, high_in) = match statistic {
            Statistic::Perc => (100.0, true),
            Statistic::Count | Statistic::Size => (f64::INFINITY, false),
        };
        Self {
            low: 0.0,
            low_in: true,
            high,
            high_in,
        }
    }

    /// The values of this interval for which a comparison holds.
    pub(super) fn where_holds(self, comparator: Comparator, value: f64) -> Self {
        let mut result = self;
        if comparator.wants_more() {
            let value_in = comparator == Comparator::GreaterOrEqual;
            if value > self.low || (value == self.low && !value_in) {
                (result.low, result.low_in) = (value, value_in);
            }
        } else {
            let value_in = comparator == Comparator::LessOrEqual;
            if value < self.high || (value == self.high && !value_in) {
                (result.high, result.high_in) = (value, value_in);
            }
        }
        result
    }

    /// The values of this interval for which a comparison fails.
    pub(super) fn where_fails(self, comparator: Comparator, value: f64) -> Self {
        let opposite = match comparator {
            Comparator::Less => Comparator::GreaterOrEqual,
            Comparator::LessOrEqual => Comparator::Greater,
            Comparator::Greater => Comparator::LessOrEqual,
            Comparator::GreaterOrEqual => Comparator::Less,
        };
        self.where_holds(opposite, value)
    }

    pub(super) fn is_empty(self) -> bool {
        self.low > self.high || (self.low == self.high && !(self.low_in && self.high_in))
    }

    /// A value in the interval, a whole number if possible.
    pub(super) fn example(self) -> f64 {
        debug_assert!(!self.is_empty(), "an empty interval has no value");
        if self.low_in {
            return self.low;
        }
        let next_whole = self.low.floor() + 1.0;
        if next_whole < self.high || (next_whole == self.high && self.high_in) {
            return next_whole;
        }
        if self.high.is_infinite() {
            return self.low * 2.0;
        }
        (self.low + self.high) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_narrow_intervals() {
        let share = Interval::whole(Statistic::Perc);
        let high = share.where_holds(Comparator::Greater, 80.0);
        assert_eq!(high.example(), 81.0);
        assert!(high.where_holds(Comparator::LessOrEqual, 80.0).is_empty());
        assert!(!high.where_holds(Comparator::Less, 80.5).is_empty());
        assert_eq!(high.where_holds(Comparator::Less, 80.5).example(), 80.25);
        assert!(share.where_holds(Comparator::Greater, 100.0).is_empty());
        assert!(share.where_fails(Comparator::GreaterOrEqual, 0.0).is_empty());
        assert_eq!(share.where_fails(Comparator::Less, 7.0).example(), 7.0);
    }
}
