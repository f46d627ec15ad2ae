//! Failed jobs that come back when the test says so.

use crate::House;

const WAIT: &str = "
    create function wait_for_the_test() returns trigger language plpgsql as
        $$ begin new.due_ts = now() + interval '1 hour'; return new; end $$;
    create trigger wait_for_the_test before update on ai_job for each row
        when (new.state = 0 and old.state = 1 and new.last_error is not null and new.due_ts > now())
        execute function wait_for_the_test()";

impl House {
    /// From now on a job that is put off for having failed waits for an hour: how soon it would be tried again otherwise is a matter of
    /// milliseconds, and how much a worker does meanwhile one of how busy the machine is.
    pub async fn failed_jobs_wait(&self) {
        sqlx::raw_sql(WAIT).execute(&mut self.db().await).await.expect("a trigger");
    }
}
