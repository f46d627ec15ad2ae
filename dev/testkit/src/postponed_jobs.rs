//! Postpones the retries of failed jobs, so that they run only when the test wants it.

use crate::TestApp;

/// Creates a trigger: a failed job that is to be retried later becomes due in an hour.
const POSTPONE_FAILED_JOBS: &str = "
    create function wait_for_the_test() returns trigger language plpgsql as
        $$ begin new.due_ts = now() + interval '1 hour'; return new; end $$;
    create trigger wait_for_the_test before update on ai_job for each row
        when (new.state = 0 and old.state = 1 and new.last_error is not null and new.due_ts > now())
        execute function wait_for_the_test()";

impl TestApp {
    /// Makes every retry of a failed job due in an hour, with a trigger. Otherwise a retry would be
    /// due within a second, and whether the test sees the failed job or its retry would depend on
    /// the machine's load.
    pub async fn postpone_failed_jobs(&self) {
        sqlx::raw_sql(POSTPONE_FAILED_JOBS)
            .execute(&mut self.db().await)
            .await
            .expect("the trigger is created");
    }
}
