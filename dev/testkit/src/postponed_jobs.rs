//! Retries of failed jobs that the test controls.

use crate::TestApp;

const WAIT: &str = "
    create function wait_for_the_test() returns trigger language plpgsql as
        $$ begin new.due_ts = now() + interval '1 hour'; return new; end $$;
    create trigger wait_for_the_test before update on ai_job for each row
        when (new.state = 0 and old.state = 1 and new.last_error is not null and new.due_ts > now())
        execute function wait_for_the_test()";

impl TestApp {
    /// Postpones every retry of a failed job by an hour, with a trigger. Without it the retry delay
    /// of some milliseconds would race with the worker, whose speed depends on the machine's load.
    pub async fn postpone_failed_jobs(&self) {
        sqlx::raw_sql(WAIT)
            .execute(&mut self.db().await)
            .await
            .expect("the trigger is created");
    }
}
