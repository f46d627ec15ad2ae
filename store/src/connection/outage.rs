//! The log of database outages. During an outage every use of the database fails. So that these
//! failures do not fill the log, a process logs the outage instead of each of them: a line when it
//! begins, with host and cause, one line a minute while it lasts, and a line when it is over.
//!
//! A database that refuses only some work, for example because its disk is full, may answer a ping
//! meanwhile. Such failures are logged once a minute too, but they begin no outage: a ping could
//! not tell when it is over.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tracing::{info, warn};

use crate::{Store, error::StoreError};

/// Shortest time between two lines about failures, also if the database has answered meanwhile: one
/// that comes and goes must not fill the log either.
const LINE_INTERVAL: Duration = Duration::from_mins(1);

/// The outages of one database. All clones of a store share it.
#[derive(Clone)]
pub struct OutageLog {
    /// Host and port, or the path of the socket.
    host: Arc<str>,
    outage: Arc<Mutex<Outage>>,
}

/// The present outage, if there is one, and what was logged.
#[derive(Default)]
struct Outage {
    /// When it began. None: the database answers.
    began: Option<Instant>,
    /// Whether a line says that it has begun.
    is_logged: bool,
    /// When the last line about a failure was logged.
    last_line: Option<Instant>,
    /// Failures since that line.
    left_out: u64,
}

impl Outage {
    /// Counts a failure, which may begin an outage. If it is to be logged, returns how long the
    /// outage has lasted (zero: there is none), and how many failures were left out since the last
    /// line.
    fn record_failure(&mut self, now: Instant, begins_outage: bool) -> Option<(Duration, u64)> {
        if begins_outage {
            self.began.get_or_insert(now);
        }
        if self
            .last_line
            .is_some_and(|last_line| now.duration_since(last_line) < LINE_INTERVAL)
        {
            self.left_out += 1;
            return None;
        }
        self.last_line = Some(now);
        self.is_logged = self.began.is_some();
        Some((
            self.began
                .map_or(Duration::ZERO, |began| now.duration_since(began)),
            std::mem::take(&mut self.left_out),
        ))
    }

    /// Ends the outage, if there is one. If its beginning was logged, returns how long it has
    /// lasted, and how many failures were left out since the last line.
    fn end(&mut self, now: Instant) -> Option<(Duration, u64)> {
        let began = self.began.take()?;
        if !std::mem::take(&mut self.is_logged) {
            return None;
        }
        Some((
            now.duration_since(began),
            std::mem::take(&mut self.left_out),
        ))
    }
}

impl OutageLog {
    /// The log of the database at this host: host and port, or the path of the socket.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.into(),
            outage: Arc::default(),
        }
    }

    /// Counts a failed call, if it failed because the database is unavailable, and logs that if no
    /// line was logged for a minute. False: the failure has another cause.
    pub fn count(&self, error: &StoreError) -> bool {
        let is_part = self.contains(error);
        if is_part {
            // A database that refuses only some work answers pings.
            self.record_failure(error, !error.leaves_pings_possible());
        }
        is_part
    }

    /// Whether a failure is part of an outage. An error that may also come from one slow statement,
    /// or from too many calls, is part of one only if the database was already found unavailable.
    fn contains(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Unavailable(_) => true,
            StoreError::Unresponsive | StoreError::Busy | StoreError::ShareInUse => {
                self.lock().began.is_some()
            }
            _ => false,
        }
    }

    /// Counts the failure of a ping, which begins an outage, and logs it if no line was logged for
    /// a minute.
    pub(crate) fn record_ping_failure(&self, error: &StoreError) {
        self.record_failure(error, true);
    }

    fn record_failure(&self, error: &StoreError, begins_outage: bool) {
        let line = self.lock().record_failure(Instant::now(), begins_outage);
        let Some((lasted, left_out)) = line else {
            return;
        };
        let (host, cause) = (&*self.host, error.outage_cause());
        warn!(
            host,
            cause,
            outage_seconds = lasted.as_secs(),
            left_out,
            "database unavailable: {host}: {cause}"
        );
    }

    /// Records that the database answers. Logs the end of an outage.
    pub(crate) fn record_answer(&self) {
        let ended = self.lock().end(Instant::now());
        if let Some((lasted, left_out)) = ended {
            let (host, outage_seconds) = (&*self.host, lasted.as_secs());
            info!(
                host,
                outage_seconds,
                left_out,
                "database available again after {outage_seconds} s: {host}"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// The log of the outages of this store's database.
    pub const fn outage_log(&self) -> &OutageLog {
        &self.outage_log
    }

    /// Logs a failed call of this store. If it failed because the database is unavailable, the
    /// failure is only counted: the store logs the outage. Otherwise `log_line` logs it.
    pub fn log_failure(&self, error: &StoreError, log_line: impl FnOnce()) {
        if !self.outage_log.count(error) {
            log_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, error::Error, fmt};

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// An error that the database reports with this SQLSTATE.
    #[derive(Debug)]
    struct Refusal(&'static str);

    impl fmt::Display for Refusal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Refusal {}

    impl DatabaseError for Refusal {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    fn refusal(code: &'static str) -> StoreError {
        sqlx::Error::Database(Box::new(Refusal(code))).into()
    }

    /// Whether the next ping that is answered ends an outage that was logged.
    fn is_ended_by_ping(log: &OutageLog) -> bool {
        log.lock().end(Instant::now()).is_some()
    }

    #[test]
    fn a_failure_that_spares_pings_is_logged_and_a_ping_does_not_end_it() {
        for code in ["53100", "53200", "53300", "25006"] {
            let log = OutageLog::new("127.0.0.1:5432");
            assert!(log.count(&refusal(code)), "{code}");
            assert!(log.lock().last_line.is_some(), "{code}");
            assert!(!is_ended_by_ping(&log), "{code}");
        }
        let log = OutageLog::new("127.0.0.1:5432");
        assert!(log.count(&refusal("57P03")));
        assert!(is_ended_by_ping(&log), "the database was starting");
        let log = OutageLog::new("127.0.0.1:5432");
        log.record_ping_failure(&refusal("53300"));
        assert!(is_ended_by_ping(&log), "the ping had no connection");
    }

    #[test]
    fn an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_is_over() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        assert_eq!(outage.end(start), None, "there is no outage");
        let mut lines = Vec::new();
        for second in 0..150 {
            lines.extend(outage.record_failure(start + SECOND * second, true));
        }
        assert_eq!(
            lines,
            [(Duration::ZERO, 0), (SECOND * 60, 59), (SECOND * 120, 59)]
        );
        assert_eq!(outage.end(start + SECOND * 150), Some((SECOND * 150, 29)));
        assert_eq!(outage.end(start + SECOND * 151), None);
    }

    #[test]
    fn a_database_that_comes_and_goes_is_logged_once_a_minute() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let mut lines = 0;
        for second in 0..120 {
            let now = start + SECOND * second;
            lines += usize::from(outage.record_failure(now, true).is_some());
            lines += usize::from(outage.end(now).is_some());
        }
        assert_eq!(lines, 4, "two outages of many, each with its end");
    }
}
