//! The time format of pi and ZeroClaw.

/// Milliseconds from 1970 until the year 10000. From then on a year has five digits.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

/// The time, in microseconds since 1970, as ISO 8601 in UTC, with milliseconds.
pub fn iso(time_us: i64) -> String {
    let ms = time_us.div_euclid(1_000);
    let (days, ms_of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = date_of_day(days);
    let (hour, minute) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60);
    let (second, ms) = (ms_of_day / 1_000 % 60, ms_of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The time in pi's format: a number of milliseconds since 1970 becomes ISO 8601, anything else
/// stays.
pub(crate) fn in_pi_format(time: &str) -> String {
    let ms = time
        .parse::<i64>()
        .ok()
        .filter(|ms| ms.unsigned_abs() < YEAR_10000_MS);
    ms.map_or_else(|| time.to_owned(), |ms| iso(ms * 1_000))
}

/// Year, month and day of a day, given as the number of days since 1970-01-01. The computation
/// counts in eras of 400 years (146,097 days) that begin on 1 March: `civil_from_days` in Howard
/// Hinnant's "chrono-Compatible Low-Level Date Algorithms".
const fn date_of_day(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // since 1 March of the year 0
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + (month <= 2) as i64, month, day)
}

#[cfg(test)]
mod tests {
    use super::{in_pi_format, iso};

    #[test]
    fn milliseconds_become_dates_and_other_times_stay() {
        assert_eq!(in_pi_format("1708300001000"), "2024-02-18T23:46:41.000Z");
        for time in [
            "2026-11-21T07:20:47.355Z",
            "t",
            "",
            "99999999999999999999",
            "253402300800000", // the year 10000
        ] {
            assert_eq!(in_pi_format(time), time);
        }
    }

    #[test]
    fn times_are_written_in_the_format_of_pi() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_795_245_647_355_999), "2026-11-21T07:20:47.355Z");
        assert_eq!(iso(951_782_400_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(-1), "1969-12-31T23:59:59.999Z");
    }
}
