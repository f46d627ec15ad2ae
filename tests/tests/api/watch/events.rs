//! WatchConversation streams each event once and in order, also when a watch resumes at a position.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use anneal_testkit::{
    TestApp, TestConversation, Watch, appended_ids, assert_refused, pb, prose, user,
};
use pb::conversation_event::Event;
use tonic::Code;

/// Messages above 200 tokens are large. A checkpoint is written at 20 messages.
fn policy_with_low_thresholds() -> pb::Policy {
    pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(20),
        ..Default::default()
    }
}

/// The events other than `Started` and appended messages, as text.
fn describe_other_events(events: &[Event]) -> Vec<String> {
    let descriptions = events.iter().filter_map(|event| match event {
        Event::Started(_) | Event::MessageAppended(_) => None,
        Event::TokensCounted(counted) => Some(format!("counted {}", counted.through_message_id)),
        Event::SummaryReady(ready) => Some(format!("summary of {}", ready.message_id)),
        Event::CheckpointCreated(created) => {
            Some(format!("checkpoint at {}", created.last_message_id))
        }
        Event::JobDead(dead) => Some(format!("{:?} is dead", dead.kind())),
        Event::MessagesWithdrawn(_)
        | Event::MessagesRestored(_)
        | Event::MessageChanged(_)
        | Event::MessagesErased(_) => Some(format!("{event:?}")),
    });
    descriptions.collect()
}

#[tokio::test]
async fn every_kind_of_event_is_streamed_as_it_happens() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app
        .conversation_with_policy(policy_with_low_thresholds())
        .await;
    conversation.append("before").await;
    let mut watch = conversation.watch().await;

    conversation.append(&prose(0, 40)).await;
    let Event::MessageAppended(message) = watch.next().await else {
        panic!("a message")
    };
    assert_eq!(
        message,
        conversation.message(2).await,
        "the whole message, as in GetMessage"
    );

    app.run_jobs_until_idle().await;
    let Event::TokensCounted(counted) = watch.next().await else {
        panic!("counted")
    };
    assert_eq!(
        (counted.through_message_id, counted.token_total),
        (2, conversation.conversation().await.token_total)
    );
    let Event::SummaryReady(ready) = watch.next().await else {
        panic!("a summary")
    };
    let stored = conversation.message(2).await;
    let (summary, tokens) = (
        stored.summary.expect("a summary"),
        stored.tokens.expect("a count").tokens,
    );
    assert_eq!(
        (ready.message_id, ready.summary_tokens, ready.tokens),
        (2, summary.tokens, tokens)
    );
    assert_eq!(ready.kind(), pb::SummaryKind::Extractive);

    conversation.turns(10).await;
    app.run_jobs_until_idle().await;
    let events = watch
        .until(|event| matches!(event, Event::CheckpointCreated(_)))
        .await;
    assert_eq!(appended_ids(&events), (3..=22).collect::<Vec<_>>());
    let Some(Event::CheckpointCreated(created)) = events.last() else {
        panic!("a checkpoint")
    };
    let listed = conversation.checkpoints().await.remove(0);
    assert_eq!(
        (created.last_message_id, created.token_usage),
        (listed.last_message_id, listed.token_usage)
    );
    assert_eq!(
        (created.kind, created.trigger),
        (listed.kind, listed.trigger)
    );

    conversation.append("one more").await;
    conversation.give_up_job(JobKind::CountTokens).await;
    let events = watch
        .until(|event| matches!(event, Event::JobDead(_)))
        .await;
    let Some(Event::JobDead(dead)) = events.last() else {
        panic!("a dead job")
    };
    assert_eq!((dead.kind(), dead.attempts), (pb::JobKind::CountTokens, 1));
    assert_eq!(dead.last_error, "it cannot be done");

    conversation.append("again").await;
    conversation.give_up_job(JobKind::CountTokens).await;
    let events = watch
        .until(|event| matches!(event, Event::JobDead(_)))
        .await;
    assert_eq!(
        (appended_ids(&events), events.len()),
        (vec![24], 2),
        "a job that dies again is reported again"
    );
}

#[tokio::test]
async fn a_watch_after_a_message_streams_all_later_events() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app
        .conversation_with_policy(policy_with_low_thresholds())
        .await;
    conversation.append(&prose(0, 40)).await;
    app.run_jobs_until_idle().await;
    conversation.append(&prose(40, 40)).await;
    app.run_jobs_until_idle().await;
    conversation.turns(9).await;
    app.run_jobs_until_idle().await;
    conversation.append("the end").await;
    conversation.give_up_job(JobKind::CountTokens).await;
    let checkpoint = conversation.checkpoints().await.remove(0).last_message_id;

    let to_the_end = |event: &Event| matches!(event, Event::JobDead(_));
    let all = conversation.watch_after(0).await.until(to_the_end).await;
    assert_eq!(appended_ids(&all), (1..=21).collect::<Vec<_>>());
    let created = format!("checkpoint at {checkpoint}");
    let dead = "CountTokens is dead".to_owned();
    let expected = [
        "counted 20".into(),
        "summary of 1".into(),
        "summary of 2".into(),
        created.clone(),
        dead.clone(),
    ];
    assert_eq!(describe_other_events(&all), expected);
    let since = conversation.watch_after(1).await.until(to_the_end).await;
    assert_eq!(appended_ids(&since), (2..=21).collect::<Vec<_>>());
    assert_eq!(
        describe_other_events(&since),
        ["counted 20", "summary of 2", &created, &dead]
    );
    let since = conversation.watch_after(20).await.until(to_the_end).await;
    assert_eq!(
        (appended_ids(&since), describe_other_events(&since)),
        (vec![21], vec![dead])
    );

    let beyond = pb::WatchConversationRequest {
        after_message_id: Some(22),
        ..Default::default()
    };
    let refused = conversation
        .open_watch(beyond)
        .await
        .expect("is accepted")
        .try_next()
        .await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "after_message_id",
    );
}

#[tokio::test]
async fn a_watch_resumes_after_any_of_its_events() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app
        .conversation_with_policy(policy_with_low_thresholds())
        .await;
    for n in 0..4 {
        conversation.append(&prose(n * 40, 40)).await;
        conversation.turns(9).await;
        app.run_jobs_until_idle().await;
    }
    // The last checkpoint ends in the fourth round, which begins with message 58.
    let last = |event: &Event| matches!(event, Event::CheckpointCreated(created) if created.last_message_id > 57);
    let whole = conversation.watch_after(20).await.until(last).await;
    let mut pieces = Vec::new();
    let mut watch = conversation.watch_after(20).await;
    while pieces.len() < whole.len() {
        pieces.push(watch.next().await);
        watch = conversation.watch_from(&watch.position).await;
    }
    assert_eq!(
        pieces, whole,
        "a new watch for each event gets the same events"
    );
    conversation.append("now").await;
    assert_eq!(
        appended_ids(&[watch.next().await]),
        [77],
        "no earlier event is left"
    );
}

#[tokio::test]
async fn parts_are_omitted_on_request() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    let ask = pb::WatchConversationRequest {
        without_content: true,
        ..Default::default()
    };
    let mut watch = conversation.watch_as(ask).await;
    conversation.append("a secret").await;
    let Event::MessageAppended(message) = watch.next().await else {
        panic!("a message")
    };
    assert_eq!(
        (message.message_id, message.parts, message.text_bytes),
        (1, vec![], 8)
    );
}

#[tokio::test]
async fn deleting_a_conversation_ends_its_watches_and_makes_their_positions_invalid() {
    let app = TestApp::counted_by_workers().await;
    let ask = pb::CreateConversationRequest {
        request_id: "the same".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask.clone()).await;
    conversation.append("hello").await;
    let mut watch = conversation.watch_after(0).await;
    watch.next().await;
    let position = watch.position.clone();
    let deletion = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(deletion)
        .await
        .expect("deletes");
    assert_refused(
        watch.try_next().await,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
    let reopened = conversation
        .open_watch(pb::WatchConversationRequest::default())
        .await
        .expect("is accepted")
        .try_next()
        .await;
    assert_refused(reopened, Code::NotFound, "CONVERSATION_NOT_FOUND", "");

    let recreated = app.conversation_with(ask).await;
    assert_eq!(recreated.id, conversation.id);
    recreated.append("hello again").await;
    let old = pb::WatchConversationRequest {
        position,
        ..Default::default()
    };
    let refused = recreated
        .open_watch(old)
        .await
        .expect("is accepted")
        .try_next()
        .await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
}

#[tokio::test]
async fn watching_another_tenants_conversation_answers_like_a_missing_one() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    let position = conversation.watch().await.position;
    let mut db = app.db().await;
    let other_tenant = uuid::Uuid::now_v7();
    sqlx::query("insert into tenant (tenant_id, name) values ($1, 'them')")
        .bind(other_tenant)
        .execute(&mut db)
        .await
        .expect("makes");
    let move_all = [
        "update ai_conversation set tenant_id = $1",
        "update ai_message set tenant_id = $1",
    ];
    for sql in move_all {
        sqlx::query(sql)
            .bind(other_tenant)
            .execute(&mut db)
            .await
            .expect("moves");
    }
    for (position, after_message_id) in [
        (String::new(), None),
        (String::new(), Some(0)),
        (position, None),
    ] {
        let mut refusals = Vec::new();
        for conversation_id in [
            conversation.id.clone(),
            "00000000-0000-7000-8000-00000000dead".into(),
        ] {
            let position = position.clone();
            let ask = pb::WatchConversationRequest {
                conversation_id,
                position,
                after_message_id,
                ..Default::default()
            };
            let refused = Watch::open(&app, ask)
                .await
                .expect("is accepted")
                .try_next()
                .await
                .expect_err("is refused");
            refusals.push((
                refused.code(),
                refused.message().to_owned(),
                refused.details().to_vec(),
            ));
        }
        assert_eq!(refusals[0], refusals[1]);
        assert_eq!(refusals[0].0, Code::NotFound);
    }
    let theirs = (
        TenantId(other_tenant),
        ConversationId(conversation.id.parse().expect("a UUID")),
    );
    let ours = (Caller::of(TenantId::DEFAULT).tenant(), theirs.1);
    let heads = app.store.read_heads(&[theirs, ours]).await.expect("reads");
    assert_eq!(
        heads.keys().collect::<Vec<_>>(),
        [&theirs],
        "a poll finds the conversation only under the tenant that owns it"
    );
}

#[tokio::test]
async fn positions_are_valid_only_for_their_own_conversation() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, other) = (app.conversation().await, app.conversation().await);
    conversation.append("hello").await;
    other.append("hello").await;
    let position = conversation.watch().await.position;
    let rotated = format!("{}{}", &position[1..], &position[..1]);
    for forged in [
        "x",
        "AAAA",
        &position[4..],
        &rotated,
        &format!("{position}AAAA"),
        &"A".repeat(100_000),
    ] {
        let ask = pb::WatchConversationRequest {
            position: forged.to_owned(),
            ..Default::default()
        };
        let refused = conversation
            .open_watch(ask)
            .await
            .expect("is accepted")
            .try_next()
            .await;
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
    }
    let ask = pb::WatchConversationRequest {
        position: position.clone(),
        ..Default::default()
    };
    let refused = other
        .open_watch(ask)
        .await
        .expect("is accepted")
        .try_next()
        .await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
    conversation.watch_from(&position).await;
    let ask = pb::WatchConversationRequest {
        conversation_id: "nothing".into(),
        ..Default::default()
    };
    assert_refused(
        Watch::open(&app, ask).await.map(drop),
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation_id",
    );
    let ask = pb::WatchConversationRequest {
        after_message_id: Some(-1),
        ..Default::default()
    };
    assert_refused(
        conversation.open_watch(ask).await.map(drop),
        Code::InvalidArgument,
        "INVALID_FIELD",
        "after_message_id",
    );
}

#[tokio::test]
async fn events_stored_by_another_process_are_streamed() {
    let app = TestApp::counted_by_workers().await;
    let second_server = app.second_server().await;
    let conversation = app.conversation().await;
    let mut watch = conversation.watch().await;
    let at_second_server = TestConversation {
        app: &second_server,
        id: conversation.id.clone(),
    };
    at_second_server
        .append_all(vec![user("one"), user("two")])
        .await;
    assert_eq!(
        appended_ids(&[watch.next().await, watch.next().await]),
        [1, 2]
    );
    second_server.run_jobs_until_idle().await;
    assert_eq!(describe_other_events(&[watch.next().await]), ["counted 2"]);
}
