//! The database's clock was ahead and is set back. Due times and leases that were written while it
//! was ahead are corrected: none stays further in the future than a correct clock would have set
//! it.

use std::time::Duration;

use anneal_testkit::{TestApp, eventually};
use tokio_util::sync::CancellationToken;

const HOUR: &str = "interval '1 hour'";

/// Runs SQL on the app's database. Returns the number of affected rows.
async fn execute(app: &TestApp, statement: &str) -> u64 {
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    sqlx::query(statement)
        .execute(&mut app.db().await)
        .await
        .expect("runs")
        .rows_affected()
}

#[tokio::test]
async fn a_starting_worker_runs_jobs_whose_due_times_were_set_by_a_clock_that_was_ahead() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("when does the ferry leave?").await;
    assert_eq!(
        execute(&app, &format!("update ai_job set due_ts = now() + {HOUR}")).await,
        1
    );
    assert_eq!(app.run_jobs_until_idle().await, 0, "the job is not due");
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (app.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("the message is counted", async || {
        conversation
            .conversation()
            .await
            .token_total
            .is_some_and(|total| total.estimated_messages == 0)
    })
    .await;
    stop.cancel();
    working.await.expect("stops");
}

#[tokio::test]
async fn leases_and_postponements_are_bounded_after_the_clock_is_set_back() {
    let app = TestApp::start().await;
    let (leased, postponed, unaffected) = (
        app.conversation().await,
        app.conversation().await,
        app.conversation().await,
    );
    for conversation in [&leased, &postponed, &unaffected] {
        conversation.append("when does the ferry leave?").await;
    }
    let leased = &leased.id;
    let set_lease = format!(
        "update ai_job set state = 1, lease = gen_random_uuid(), worker = 'dead', lease_until_ts = now() + {HOUR}
         where conversation_id = '{leased}'"
    );
    assert_eq!(execute(&app, &set_lease).await, 1);
    let set_due_time = |conversation: &str, wait: &str| {
        format!(
            "update ai_job set last_error = 'limited', attempts = 1, due_ts = now() + {wait} where conversation_id = '{conversation}'"
        )
    };
    assert_eq!(
        execute(&app, &set_due_time(&postponed.id, "interval '65 minutes'")).await,
        1
    );
    assert_eq!(
        execute(&app, &set_due_time(&unaffected.id, "interval '4 minutes'")).await,
        1
    );
    assert_eq!(
        app.store
            .mend_times(Duration::from_mins(5))
            .await
            .expect("mends"),
        2,
        "the lease and the due time 65 minutes ahead are corrected"
    );
    // A statement that updates one row if the time in `column` is from 1 to `seconds` seconds
    // ahead, and otherwise none. It changes no value.
    let touch_if_within = |conversation: &str, column: &str, seconds: u32| {
        format!(
            "update ai_job set priority = 0 where conversation_id = '{conversation}'
             and {column} between now() + interval '1 second' and now() + interval '{seconds} seconds'"
        )
    };
    // A lease lasts 15 seconds, and `mend_times` was told that no job waits more than 5 minutes.
    assert_eq!(
        execute(&app, &touch_if_within(leased, "lease_until_ts", 15)).await,
        1
    );
    assert_eq!(
        execute(&app, &touch_if_within(&postponed.id, "due_ts", 300)).await,
        1
    );
    assert_eq!(
        execute(&app, &touch_if_within(&unaffected.id, "due_ts", 240)).await,
        1,
        "a due time within the five minutes is unchanged"
    );
    assert_eq!(
        app.store
            .mend_times(Duration::from_mins(5))
            .await
            .expect("mends"),
        0,
        "no time is left to correct"
    );
}
