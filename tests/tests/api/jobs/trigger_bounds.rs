//! A counting job reads a conversation's tail only if a trigger may have been reached, and never
//! misses a trigger. It decides by a bound: a token total below which no trigger is reached, stored
//! in the columns `quiet_*`.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    policy::{PolicyOverrides, SessionSettings},
    trigger,
};
use anneal_store::Store;
use anneal_testkit::{
    SeededRandom, TestApp, TestConversation, assistant, pb, prose, sentence, user,
};
use sqlx::Row as _;

/// The stored bound: the token total below which no trigger is reached. `None` if none is stored.
async fn stored_bound(conversation: &TestConversation<'_>) -> Option<i64> {
    let mut db = conversation.app.db().await;
    let row = sqlx::query(
        "select case when quiet_message_id is not null then quiet_token_total end from ai_conversation
         where conversation_id = $1::text::uuid",
    );
    row.bind(&conversation.id)
        .fetch_one(&mut db)
        .await
        .expect("reads")
        .get(0)
}

/// Stores a bound that is never reached, except for messages above 1,000 tokens.
async fn store_infinite_bound(conversation: &TestConversation<'_>) {
    let forge = "update ai_conversation
        set quiet_message_id = $2, quiet_token_total = $2, quiet_large_tokens = 1000
        where conversation_id = $1::text::uuid and quiet_message_id is not null";
    let forged = sqlx::query(forge)
        .bind(&conversation.id)
        .bind(i64::MAX)
        .execute(&mut conversation.app.db().await)
        .await;
    assert_eq!(
        forged.expect("writes").rows_affected(),
        1,
        "a bound was stored"
    );
}

/// Creates a conversation with three counted messages and a bound that is never reached.
async fn conversation_with_infinite_bound(
    app: &TestApp,
    policy: pb::Policy,
) -> TestConversation<'_> {
    let conversation = app.conversation_with_policy(policy).await;
    conversation
        .append_all(vec![user("one"), assistant("two"), user("three")])
        .await;
    app.run_jobs_until_idle().await;
    store_infinite_bound(&conversation).await;
    conversation
}

/// Appends a message and counts it. Returns whether the count read the tail, which
/// replaces the bound.
async fn append_reads_tail(conversation: &TestConversation<'_>) -> bool {
    conversation.append("another").await;
    conversation.app.run_jobs_until_idle().await;
    stored_bound(conversation).await != Some(i64::MAX)
}

/// Updates the one field of the conversation that `path` names.
async fn update(conversation: &TestConversation<'_>, path: &str, to: pb::Conversation) {
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.id.clone(),
            ..to
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec![path.into()],
        }),
        ..Default::default()
    };
    conversation
        .app
        .conversations()
        .update_conversation(ask)
        .await
        .expect("updates");
}

async fn compact(conversation: &TestConversation<'_>) {
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    conversation
        .app
        .contexts()
        .compact(ask)
        .await
        .expect("queues");
    conversation.app.run_jobs_until_idle().await;
}

async fn import_checkpoint(conversation: &TestConversation<'_>, last_message_id: i64) {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        last_message_id,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    conversation
        .app
        .contexts()
        .import_checkpoint(ask)
        .await
        .expect("imports");
}

#[tokio::test]
async fn a_tail_is_not_read_while_its_trigger_bound_holds() {
    let app = TestApp::start().await;
    let conversation = conversation_with_infinite_bound(&app, pb::Policy::default()).await;
    for n in 0..60 {
        conversation.append(&sentence(n)).await;
    }
    assert!(!append_reads_tail(&conversation).await);
    assert!(
        conversation.checkpoints().await.is_empty(),
        "the stored bound is trusted"
    );
    update(
        &conversation,
        "title",
        pb::Conversation {
            title: "Renamed".into(),
            ..Default::default()
        },
    )
    .await;
    assert!(
        !append_reads_tail(&conversation).await,
        "a title changes no trigger"
    );
    update(
        &conversation,
        "system_prompt",
        pb::Conversation {
            system_prompt: "Be brief.".into(),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(app.run_jobs_until_idle().await, 1);
    assert_eq!(conversation.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn every_change_to_a_trigger_clears_the_bound() {
    let app = TestApp::start().await;
    let conversation = conversation_with_infinite_bound(&app, pb::Policy::default()).await;
    conversation.append(&prose(0, 300)).await;
    assert!(append_reads_tail(&conversation).await, "a large message");
    store_infinite_bound(&conversation).await;
    let position = conversation.insert_separator().await.after_message_id;
    assert!(append_reads_tail(&conversation).await, "a separator");
    store_infinite_bound(&conversation).await;
    conversation.delete_separator(position).await;
    assert!(
        append_reads_tail(&conversation).await,
        "a deleted separator"
    );
    store_infinite_bound(&conversation).await;
    let policy = pb::Policy {
        max_message_count: Some(70),
        ..Default::default()
    };
    update(
        &conversation,
        "policy",
        pb::Conversation {
            policy: Some(policy),
            ..Default::default()
        },
    )
    .await;
    assert!(append_reads_tail(&conversation).await, "a policy");
    for n in 0..8 {
        conversation.turn(&sentence(n), &sentence(n + 1)).await;
    }
    app.run_jobs_until_idle().await;
    store_infinite_bound(&conversation).await;
    compact(&conversation).await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
    assert!(append_reads_tail(&conversation).await, "a checkpoint");
    store_infinite_bound(&conversation).await;
    import_checkpoint(
        &conversation,
        conversation.conversation().await.message_count - 2,
    )
    .await;
    assert!(
        append_reads_tail(&conversation).await,
        "an imported checkpoint"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_window_learned_from_an_error_clears_the_bounds_that_depend_on_it() {
    let app = TestApp::start().await;
    let by_window = |model: &str| pb::Policy {
        profile: "openclaw".into(),
        model: model.into(),
        ..Default::default()
    };
    let by_fixed_threshold = pb::Policy {
        model: "small".into(),
        ..Default::default()
    };
    let small_model = conversation_with_infinite_bound(&app, by_window("small")).await;
    let (large_model, fixed_threshold) = (
        conversation_with_infinite_bound(&app, by_window("large")).await,
        conversation_with_infinite_bound(&app, by_fixed_threshold).await,
    );
    assert!(!append_reads_tail(&small_model).await);
    let too_long =
        r#"{"error":{"code":"context_length_exceeded","message":"too long","n_ctx":20000}}"#;
    let ask = pb::ClassifyErrorRequest {
        status: 400,
        body: too_long.into(),
        model: "small".into(),
        ..Default::default()
    };
    app.contexts()
        .classify_error(ask)
        .await
        .expect("classifies");
    assert!(append_reads_tail(&small_model).await);
    assert!(
        !append_reads_tail(&large_model).await,
        "the error concerned another model"
    );
    assert!(
        !append_reads_tail(&fixed_threshold).await,
        "a fixed token threshold does not depend on the window"
    );
    store_infinite_bound(&small_model).await;
    assert!(
        !append_reads_tail(&small_model).await,
        "the window is known now"
    );
}

#[tokio::test]
async fn a_server_and_a_worker_with_other_settings_ignore_the_stored_bound() {
    let without_message_trigger = PolicyOverrides {
        max_message_count: Some(0),
        ..PolicyOverrides::default()
    };
    let app = TestApp::with_session(SessionSettings::new(
        without_message_trigger,
        anneal_core::model::Models::default(),
    ))
    .await;
    let conversation = conversation_with_infinite_bound(&app, pb::Policy::default()).await;
    for n in 0..60 {
        conversation.append(&sentence(n)).await;
    }
    assert!(
        !append_reads_tail(&conversation).await,
        "this worker ignores the number of messages"
    );
    let other = TestApp::on_database(&app.url).await;
    other
        .conversation_by_id(&conversation.id)
        .append("another")
        .await;
    other.run_jobs_until_idle().await;
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "the threshold of the other server and worker is fifty messages"
    );
}

#[tokio::test]
async fn counts_of_messages_before_the_tail_do_not_raise_the_bound() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(900),
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    // These are more messages than one run of the job counts. Their estimates are above their
    // counts.
    for n in 0..11 {
        conversation
            .append_all((0..100).map(|m| user(&sentence(100 * n + m))).collect())
            .await;
    }
    conversation.insert_separator().await;
    for n in 0..60 {
        conversation.append(&sentence(n)).await;
        app.run_jobs_until_idle().await;
        assert_no_trigger_is_due(&app.store, &conversation).await;
    }
    assert!(!conversation.checkpoints().await.is_empty());
}

/// Asserts that the conversation has reached no trigger. Only valid while no job waits.
async fn assert_no_trigger_is_due(store: &Store, conversation: &TestConversation<'_>) {
    let id = ConversationId(conversation.id.parse().expect("an id"));
    let usage = store
        .read_context_usage(
            Caller::of(TenantId::DEFAULT),
            id,
            &PolicyOverrides::default(),
        )
        .await;
    let state = usage.expect("reads").state;
    assert_eq!(trigger::due_jobs(&state), [], "{state:?}");
}

/// Low thresholds: a number of messages, a number of tokens, a number of tokens below the window,
/// and the threshold that the profile `agents` computes.
fn policies() -> [pb::Policy; 4] {
    let below_window = pb::Policy {
        profile: "openclaw".into(),
        window_tokens: Some(17_500),
        keep_recent_tokens: Some(300),
        large_message_threshold: Some(150),
        hot_zone_calls: Some(2),
        hot_zone_radius: Some(1),
        ..Default::default()
    };
    let auto = pb::Policy {
        profile: "agents".into(),
        keep_recent_tokens: Some(300),
        ..Default::default()
    };
    [
        pb::Policy {
            max_message_count: Some(12),
            large_message_threshold: Some(150),
            ..Default::default()
        },
        pb::Policy {
            token_threshold: Some(900),
            max_message_count: Some(0),
            ..Default::default()
        },
        below_window,
        auto,
    ]
}

/// Applies one random change to a conversation.
async fn apply_random_change(conversation: &TestConversation<'_>, random: &mut SeededRandom) {
    match random.below(30) {
        0 => drop(conversation.insert_separator().await),
        1 => {
            if let Some(after) = newest_separator(conversation).await {
                conversation.delete_separator(after).await;
            }
        }
        2 => {
            let system_prompt = prose(0, random.index(9) + 1);
            update(
                conversation,
                "system_prompt",
                pb::Conversation {
                    system_prompt,
                    ..Default::default()
                },
            )
            .await;
        }
        3 => compact(conversation).await,
        4 => drop(
            conversation
                .append(&prose(random.index(50), 20 + random.index(200)))
                .await,
        ),
        _ => drop(
            conversation
                .turn(&sentence(random.index(90)), "noted")
                .await,
        ),
    }
}

async fn newest_separator(conversation: &TestConversation<'_>) -> Option<i64> {
    let newest =
        "select max(after_message_id) from ai_separator where conversation_id = $1::text::uuid";
    sqlx::query(newest)
        .bind(&conversation.id)
        .fetch_one(&mut conversation.app.db().await)
        .await
        .expect("reads")
        .get(0)
}

#[tokio::test]
async fn after_random_changes_no_trigger_is_reached_unless_a_job_waits() {
    let app = TestApp::start().await;
    for (number, policy) in policies().into_iter().enumerate() {
        let (mut bounds, mut checkpoints) = (0, 0);
        for seed in 0..3 {
            let mut random = SeededRandom(10 * number as u64 + seed);
            let conversation = app.conversation_with_policy(policy.clone()).await;
            for step in 0..60 {
                apply_random_change(&conversation, &mut random).await;
                if step % 3 != 0 {
                    app.run_jobs_until_idle().await;
                    assert_no_trigger_is_due(&app.store, &conversation).await;
                    bounds += i32::from(stored_bound(&conversation).await.is_some());
                }
            }
            checkpoints += conversation.checkpoints().await.len();
            conversation.verify().await;
        }
        println!(
            "policy {number}: a bound is stored after {bounds} of 120 steps, {checkpoints} checkpoints"
        );
        assert!(
            bounds >= 20 && checkpoints >= 6,
            "policy {number}: {bounds} bounds, {checkpoints} checkpoints"
        );
    }
}
