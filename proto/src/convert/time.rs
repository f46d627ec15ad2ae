//! Converts points in time. In the domain they are microseconds since 1970.

use prost_types::Timestamp;

/// The timestamp of these microseconds.
pub const fn timestamp(micros: i64) -> Timestamp {
    Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: (micros.rem_euclid(1_000_000) * 1_000) as i32,
    }
}

/// The microseconds of a timestamp.
pub fn micros(time: Timestamp) -> i64 {
    time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000
}

/// The whole milliseconds of a timestamp.
pub fn millis(time: Timestamp) -> i64 {
    time.seconds * 1_000 + i64::from(time.nanos) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_the_same_after_conversion_to_a_timestamp_and_back() {
        // The last one is the end of the year 9999.
        for time in [0, 1, 1_999_999, -1, -1_000_001, 253_402_300_799_999_999] {
            assert_eq!(micros(timestamp(time)), time);
            assert_eq!(millis(timestamp(time)), time.div_euclid(1_000));
        }
    }
}
