//! The database's clock was ahead and was set back: what it set then does not wait for the clock to come there again.

use std::time::Duration;

use anneal_tests::{House, eventually};
use tokio_util::sync::CancellationToken;

const HOUR: &str = "interval '1 hour'";

async fn sql(house: &House, statement: &str) -> u64 {
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    sqlx::query(statement).execute(&mut house.db().await).await.expect("runs").rows_affected()
}

#[tokio::test]
async fn what_waits_for_a_time_that_a_clock_has_set_too_far_ahead_is_worked_on_when_a_worker_starts() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("when does the ferry leave?").await;
    assert_eq!(sql(&house, &format!("update ai_job set due_ts = now() + {HOUR}")).await, 1);
    assert_eq!(house.run_jobs_until_idle().await, 0, "it is not due");
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (house.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("it is counted", async || {
        talk.conversation().await.token_total.is_some_and(|total| total.estimated_messages == 0)
    })
    .await;
    stop.cancel();
    working.await.expect("stops");
}

#[tokio::test]
async fn leases_end_within_their_length_and_what_was_put_off_waits_no_longer_than_is_said() {
    let house = House::start().await;
    let (held, failed, sound) = (house.conversation().await, house.conversation().await, house.conversation().await);
    for talk in [&held, &failed, &sound] {
        talk.append("when does the ferry leave?").await;
    }
    let held = &held.id;
    let leased = format!(
        "update ai_job set state = 1, lease = gen_random_uuid(), worker = 'dead', lease_until_ts = now() + {HOUR}
         where conversation_id = '{held}'"
    );
    assert_eq!(sql(&house, &leased).await, 1);
    let put_off = |talk: &str, wait: &str| {
        format!(
            "update ai_job set last_error = 'limited', attempts = 1, due_ts = now() + {wait} where conversation_id = '{talk}'"
        )
    };
    assert_eq!(sql(&house, &put_off(&failed.id, "interval '65 minutes'")).await, 1);
    assert_eq!(sql(&house, &put_off(&sound.id, "interval '4 minutes'")).await, 1);
    assert_eq!(house.store.mend_times(Duration::from_mins(5)).await.expect("mends"), 2);
    let near = |talk: &str, column: &str, seconds: u32| {
        format!(
            "update ai_job set priority = 0 where conversation_id = '{talk}'
             and {column} between now() + interval '1 second' and now() + interval '{seconds} seconds'"
        )
    };
    assert_eq!(sql(&house, &near(held, "lease_until_ts", 15)).await, 1);
    assert_eq!(sql(&house, &near(&failed.id, "due_ts", 300)).await, 1);
    assert_eq!(sql(&house, &near(&sound.id, "due_ts", 240)).await, 1, "it waits as it did");
    assert_eq!(house.store.mend_times(Duration::from_mins(5)).await.expect("mends"), 0, "nothing is left to mend");
}
