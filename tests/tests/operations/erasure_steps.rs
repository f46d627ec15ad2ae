//! The steps of erasures: an erasure that fails or has to wait holds up no other, and a step is
//! bounded by the bytes that it deletes.

use anneal_store::ErasureStep;
use anneal_testkit::{LOCK_CONVERSATION, TestApp, TestConversation, pb};
use sqlx::AssertSqlSafe;

/// A conversation of this user, with a turn.
async fn conversation_of<'a>(app: &'a TestApp, user_id: &str) -> TestConversation<'a> {
    let ask = pb::CreateConversationRequest {
        user_id: user_id.to_owned(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(1).await;
    conversation
}

/// Begins the erasure of a user, or finds it.
async fn erase_user(app: &TestApp, user_id: &str) -> pb::Erasure {
    let ask = pb::EraseUserRequest {
        request_id: "e".into(),
        user_id: user_id.to_owned(),
        dry_run: false,
    };
    let begun = app.erasures().erase_user(ask).await.expect("begins");
    begun.into_inner()
}

async fn execute(app: &TestApp, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut app.db().await)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test]
async fn erasures_whose_steps_fail_stop_none_of_another_tenant() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "anna").await;
    // As many as a round looks at. They do not say whose conversations are erased.
    let unreadable = "insert into tenant (tenant_id, name)
            values ('00000000-0000-7000-8000-000000000002', 'other');
        insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, stepped_ts, ids_digest)
        select '00000000-0000-7000-8000-000000000002', gen_random_uuid(), 3, 0, '', 'anyone',
            now() - interval '1 hour', decode(repeat('00', 32), 'hex')
        from generate_series(1, 16)";
    execute(&app, unreadable).await;
    let begun = erase_user(&app, "anna").await;
    let round = app.store.run_erasure_step().await.expect("is answered");
    assert_eq!(
        (round.step, round.failures.len()),
        (ErasureStep::Busy, 16),
        "{round:?}"
    );
    // Once for the step that deletes, once for the one that ends: between them a round looks at the
    // others only.
    for _ in 0..2 {
        app.run_erasures().await;
    }
    let erasure = erase_user(&app, "anna").await;
    assert_eq!(erasure.erasure_id, begun.erasure_id);
    assert_eq!(erasure.state(), pb::ErasureState::Done);
    assert_eq!(
        app.list_tables_with_rows(conversation.uuid()).await,
        [""; 0]
    );
    let round = app.store.run_erasure_step().await.expect("is answered");
    assert_eq!(round.failures.len(), 16, "they are tried again");
}

#[tokio::test]
async fn an_erasure_that_cannot_be_put_behind_the_others_hides_no_failure() {
    let app = TestApp::start().await;
    // It does not say whose conversations are erased, and no statement can change it.
    let unreadable = "insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, ids_digest)
            values ('00000000-0000-7000-8000-000000000001', gen_random_uuid(), 3, 0, '', 'anyone',
                decode(repeat('00', 32), 'hex'));
        create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end';
        create trigger refuse before update on ai_erasure for each row execute function refuse()";
    execute(&app, unreadable).await;
    let round = app.store.run_erasure_step().await.expect("is answered");
    assert_eq!(
        (round.step, round.failures.len()),
        (ErasureStep::Busy, 2),
        "the step has failed, and so has the update: {round:?}"
    );
}

#[tokio::test]
async fn a_step_finds_all_conversations_that_were_active_at_the_same_time() {
    let app = TestApp::start().await;
    for user_id in ["anna", "anna", "anna", "berta", "berta"] {
        conversation_of(&app, user_id).await;
    }
    execute(
        &app,
        "update ai_conversation set listed_ts = '2026-01-01 00:00:00.123456Z'",
    )
    .await;
    erase_user(&app, "anna").await;
    let ask = pb::EraseTenantRequest {
        confirm_tenant: "default".into(),
        ..Default::default()
    };
    app.erasures().erase_tenant(ask).await.expect("begins");
    // Each erasure that has made a step comes after the other one.
    for deleted in [3, 2] {
        let round = app.store.run_erasure_step().await.expect("is answered");
        assert_eq!(round.step, ErasureStep::Deleted(deleted), "{round:?}");
    }
}

#[tokio::test]
async fn a_large_conversation_in_use_hides_none_that_is_free() {
    let app = TestApp::start().await;
    let free = conversation_of(&app, "anna").await;
    let used = conversation_of(&app, "anna").await;
    let id = &used.id;
    execute(
        &app,
        &format!(
            "update ai_conversation set last_message_id = 6000 where conversation_id = '{id}'"
        ),
    )
    .await;
    erase_user(&app, "anna").await;
    let held = app.hold_lock(LOCK_CONVERSATION, used.uuid()).await;
    app.run_erasures().await;
    assert_eq!(app.list_tables_with_rows(free.uuid()).await, [""; 0]);
    let erasure = erase_user(&app, "anna").await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Running, 1)
    );
    held.rollback().await;
    app.run_erasures().await;
    let erasure = erase_user(&app, "anna").await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Done, 2)
    );
}

#[tokio::test]
async fn a_step_deletes_no_further_conversation_after_256_mib() {
    let app = TestApp::start().await;
    for _ in 0..5 {
        conversation_of(&app, "anna").await;
    }
    // Two messages of a conversation have 150 MiB, two conversations more than 256 MiB.
    execute(
        &app,
        "update ai_message set content_bytes = 75 * 1024 * 1024",
    )
    .await;
    erase_user(&app, "anna").await;
    let mut steps = Vec::new();
    loop {
        let round = app.store.run_erasure_step().await.expect("is answered");
        assert!(round.failures.is_empty(), "{round:?}");
        match round.step {
            ErasureStep::Deleted(conversations) => steps.push(conversations),
            ErasureStep::Ended(_) => break,
            ErasureStep::Idle | ErasureStep::Busy => panic!("{round:?}"),
        }
    }
    assert_eq!(steps, [2, 2, 1]);
}

#[tokio::test]
async fn a_call_that_is_repeated_during_a_step_does_not_wait_for_its_end() {
    let app = TestApp::start().await;
    conversation_of(&app, "anna").await;
    let begun = erase_user(&app, "anna").await;
    let id = begun.erasure_id.parse().expect("an id");
    let update = "update ai_erasure set messages = messages + 1 where erasure_id = $1";
    let step = app.hold_lock(update, id).await;
    assert_eq!(erase_user(&app, "anna").await, begun);
    step.rollback().await;
}
