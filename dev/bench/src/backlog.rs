//! Measures whether the number of messages waiting for their counts grows: samples of how many
//! messages have been appended and how many counted.

use std::time::Duration;

use anyhow::Context as _;

use crate::database::Database;

/// How many samples `take_samples` takes.
const SAMPLES: u32 = 10;
/// Sums over all conversations, and the time at which PostgreSQL computed them.
const SUMS: &str = "select extract(epoch from statement_timestamp()), sum(last_message_id), sum(counted_message_id)
    from ai_conversation;";

/// Numbers of messages of all conversations at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The moment, in seconds since 1970 by PostgreSQL's clock.
    seconds: f64,
    appended: f64,
    counted: f64,
}

impl Sample {
    /// Takes one sample now.
    pub(crate) async fn take(database: &Database) -> anyhow::Result<Self> {
        Self::parse(&database.run(SUMS).await?)
    }

    /// Parses a row of [`SUMS`].
    fn parse(row: &str) -> anyhow::Result<Self> {
        let mut columns = row.split('|').map(str::parse);
        let mut next = || {
            columns
                .next()
                .with_context(|| format!("psql printed {row}"))
        };
        Ok(Self {
            seconds: next()??,
            appended: next()??,
            counted: next()??,
        })
    }

    /// Number of messages whose tokens are not counted yet.
    pub(crate) fn backlog(&self) -> f64 {
        self.appended - self.counted
    }
}

/// Takes a sample at the beginning of each tenth of the given time, the first one now.
pub(crate) async fn take_samples(
    database: &Database,
    time: Duration,
) -> anyhow::Result<Vec<Sample>> {
    // All samples use one psql session: starting a session would disturb the measurement.
    let pause = format!("\nselect pg_sleep({});\n", (time / SAMPLES).as_secs_f64());
    let output = database.run(&[SUMS; SAMPLES as usize].join(&pause)).await?;
    // A pause prints an empty line.
    output
        .lines()
        .filter(|line| !line.is_empty())
        .map(Sample::parse)
        .collect()
}

/// How fast messages are appended and counted, in messages per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trend {
    pub(crate) appended: f64,
    pub(crate) counted: f64,
}

impl Trend {
    /// Fits straight lines to the samples. Workers count in batches, so the difference of only two
    /// samples would mostly show where in a batch they were taken.
    pub(crate) fn of(samples: &[Sample]) -> Self {
        let slope = |value: fn(&Sample) -> f64| {
            let mean = |quantity: &dyn Fn(&Sample) -> f64| {
                samples.iter().map(quantity).sum::<f64>() / samples.len() as f64
            };
            let (mean_time, mean_value) = (
                mean(&|sample| sample.seconds),
                mean(&|sample| value(sample)),
            );
            let covariance =
                mean(&|sample| (sample.seconds - mean_time) * (value(sample) - mean_value));
            let variance = mean(&|sample| (sample.seconds - mean_time).powi(2));
            covariance / variance
        };
        Self {
            appended: slope(|sample| sample.appended),
            counted: slope(|sample| sample.counted),
        }
    }

    /// How many more messages are waiting after each second.
    pub(crate) fn growth(&self) -> f64 {
        self.appended - self.counted
    }
}

/// Whether the worker keeps up with the appends: whether the ratio of counted to appended messages,
/// rounded to two decimals, is at least 1.
pub(crate) fn keeps_up(ratio: f64) -> bool {
    (ratio * 100.0).round() >= 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trend of ten samples with a worker that counts this share of 1,000 messages a second, in
    /// batches of 300.
    fn counting(share: f64) -> Trend {
        let samples = (0..10).map(|number| {
            let elapsed_seconds = f64::from(number) * 0.4;
            let counted = (share * 1_000.0 * elapsed_seconds / 300.0).floor() * 300.0;
            Sample {
                seconds: 1_795_302_000.0 + elapsed_seconds,
                appended: 5_000.0 + 1_000.0 * elapsed_seconds,
                counted,
            }
        });
        Trend::of(&samples.collect::<Vec<_>>())
    }

    #[test]
    fn a_worker_that_counts_only_95_percent_of_the_appended_messages_does_not_keep_up() {
        // The backlog grows by about 50 messages a second. Batches blur the measured growth.
        let trend = counting(0.95);
        assert!(
            (trend.appended - 1_000.0).abs() < 1.0 && trend.growth() > 20.0,
            "{trend:?}"
        );
        assert!(
            !keeps_up(trend.counted / trend.appended) && !keeps_up(0.994) && !keeps_up(f64::NAN)
        );
    }

    #[test]
    fn a_worker_whose_backlog_does_not_grow_keeps_up() {
        assert!(keeps_up(1.0) && keeps_up(0.996) && keeps_up(1.3));
        let trend = counting(1.1);
        assert!(
            keeps_up(trend.counted / trend.appended) && trend.growth() < 0.0,
            "{trend:?}"
        );
    }

    #[test]
    fn a_sample_is_a_row_of_three_numbers() {
        let sample = Sample::parse("1795302000.250000|1200|1000").unwrap();
        assert!(
            (sample.seconds - 1_795_302_000.25).abs() < 1e-6
                && (sample.backlog() - 200.0).abs() < f64::EPSILON
        );
        assert!(
            Sample::parse("1795302000.250000|1200").is_err() && Sample::parse("a|b|c").is_err()
        );
    }
}
