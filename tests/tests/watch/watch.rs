//! WatchConversation: what happens is told as it happens, once, in order, wherever a watch goes on.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use anneal_tests::{House, Talk, Watch, appended, assert_refused, pb, prose, user};
use pb::conversation_event::Event;
use tonic::Code;

/// Large is more than 200 tokens; a checkpoint at 20 messages.
fn lively() -> pb::Policy {
    pb::Policy { large_message_threshold: Some(200), max_message_count: Some(20), ..Default::default() }
}

/// What a stream of events says beside messages, in words.
fn beside_messages(events: &[Event]) -> Vec<String> {
    let said = events.iter().filter_map(|event| match event {
        Event::Started(_) | Event::MessageAppended(_) => None,
        Event::TokensCounted(counted) => Some(format!("counted {}", counted.through_message_id)),
        Event::SummaryReady(ready) => Some(format!("summary of {}", ready.message_id)),
        Event::CheckpointCreated(made) => Some(format!("checkpoint at {}", made.last_message_id)),
        Event::JobDead(dead) => Some(format!("{:?} is dead", dead.kind())),
    });
    said.collect()
}

#[tokio::test]
async fn everything_is_told_as_it_happens() {
    let house = House::start().await;
    let talk = house.conversation_under(lively()).await;
    talk.append("before").await;
    let mut watch = talk.watch().await;

    talk.append(&prose(0, 40)).await;
    let Event::MessageAppended(message) = watch.next().await else { panic!("a message") };
    assert_eq!(message, talk.message(2).await, "whole, as GetMessage has it");

    house.run_jobs_until_idle().await;
    let Event::TokensCounted(counted) = watch.next().await else { panic!("counted") };
    assert_eq!((counted.through_message_id, counted.token_total), (2, talk.conversation().await.token_total));
    let Event::SummaryReady(ready) = watch.next().await else { panic!("a summary") };
    let stored = talk.message(2).await;
    let (summary, tokens) = (stored.summary.expect("has one"), stored.tokens.expect("has some").tokens);
    assert_eq!((ready.message_id, ready.summary_tokens, ready.tokens), (2, summary.tokens, tokens));
    assert_eq!(ready.kind(), pb::SummaryKind::Extractive);

    talk.turns(10).await;
    house.run_jobs_until_idle().await;
    let events = watch.until(|event| matches!(event, Event::CheckpointCreated(_))).await;
    assert_eq!(appended(&events), (3..=22).collect::<Vec<_>>());
    let Some(Event::CheckpointCreated(made)) = events.last() else { panic!("a checkpoint") };
    let listed = talk.checkpoints().await.remove(0);
    assert_eq!((made.last_message_id, made.token_usage), (listed.last_message_id, listed.token_usage));
    assert_eq!((made.kind, made.trigger), (listed.kind, listed.trigger));

    talk.append("one more").await;
    talk.kill_job(JobKind::CountTokens).await;
    let events = watch.until(|event| matches!(event, Event::JobDead(_))).await;
    let Some(Event::JobDead(dead)) = events.last() else { panic!("a dead job") };
    assert_eq!((dead.kind(), dead.attempts), (pb::JobKind::CountTokens, 1));
    assert_eq!(dead.last_error, "it cannot be done");

    talk.append("again").await;
    talk.kill_job(JobKind::CountTokens).await;
    let events = watch.until(|event| matches!(event, Event::JobDead(_))).await;
    assert_eq!((appended(&events), events.len()), (vec![24], 2), "it died a second time");
}

#[tokio::test]
async fn a_watch_after_a_message_tells_what_has_happened_since() {
    let house = House::start().await;
    let talk = house.conversation_under(lively()).await;
    talk.append(&prose(0, 40)).await;
    house.run_jobs_until_idle().await;
    talk.append(&prose(40, 40)).await;
    house.run_jobs_until_idle().await;
    talk.turns(9).await;
    house.run_jobs_until_idle().await;
    talk.append("the end").await;
    talk.kill_job(JobKind::CountTokens).await;
    let checkpoint = talk.checkpoints().await.remove(0).last_message_id;

    let to_the_end = |event: &Event| matches!(event, Event::JobDead(_));
    let all = talk.watch_after(0).await.until(to_the_end).await;
    assert_eq!(appended(&all), (1..=21).collect::<Vec<_>>());
    let made = format!("checkpoint at {checkpoint}");
    let dead = "CountTokens is dead".to_owned();
    let told = ["counted 20".into(), "summary of 1".into(), "summary of 2".into(), made.clone(), dead.clone()];
    assert_eq!(beside_messages(&all), told);
    let since = talk.watch_after(1).await.until(to_the_end).await;
    assert_eq!(appended(&since), (2..=21).collect::<Vec<_>>());
    assert_eq!(beside_messages(&since), ["counted 20", "summary of 2", &made, &dead]);
    let since = talk.watch_after(20).await.until(to_the_end).await;
    assert_eq!((appended(&since), beside_messages(&since)), (vec![21], vec![dead]));

    let beyond = pb::WatchConversationRequest { after_message_id: Some(22), ..Default::default() };
    let refused = talk.open_watch(beyond).await.expect("is let in").try_next().await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "after_message_id");
}

#[tokio::test]
async fn a_replay_goes_on_by_position_wherever_it_was_left() {
    let house = House::start().await;
    let talk = house.conversation_under(lively()).await;
    for n in 0..4 {
        talk.append(&prose(n * 40, 40)).await;
        talk.turns(9).await;
        house.run_jobs_until_idle().await;
    }
    let last = |event: &Event| matches!(event, Event::CheckpointCreated(made) if made.last_message_id > 57);
    let whole = talk.watch_after(20).await.until(last).await;
    let mut pieces = Vec::new();
    let mut watch = talk.watch_after(20).await;
    while pieces.len() < whole.len() {
        pieces.push(watch.next().await);
        watch = talk.watch_from(&watch.position).await;
    }
    assert_eq!(pieces, whole, "a new watch for each event tells the same");
    talk.append("now").await;
    assert_eq!(appended(&[watch.next().await]), [77], "nothing is left over");
}

#[tokio::test]
async fn parts_are_left_out_where_they_are_not_wanted() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let ask = pb::WatchConversationRequest { without_content: true, ..Default::default() };
    let mut watch = talk.watch_as(ask).await;
    talk.append("a secret").await;
    let Event::MessageAppended(message) = watch.next().await else { panic!("a message") };
    assert_eq!((message.message_id, message.parts, message.text_bytes), (1, vec![], 8));
}

#[tokio::test]
async fn a_deleted_conversation_ends_its_watches_and_one_made_anew_is_another() {
    let house = House::start().await;
    let ask = pb::CreateConversationRequest { request_id: "the same".into(), ..Default::default() };
    let talk = house.conversation_with(ask.clone()).await;
    talk.append("hello").await;
    let mut watch = talk.watch_after(0).await;
    watch.next().await;
    let position = watch.position.clone();
    let gone = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(gone).await.expect("deletes");
    assert_refused(watch.try_next().await, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    let again = talk.open_watch(pb::WatchConversationRequest::default()).await.expect("is let in").try_next().await;
    assert_refused(again, Code::NotFound, "CONVERSATION_NOT_FOUND", "");

    let anew = house.conversation_with(ask).await;
    assert_eq!(anew.id, talk.id);
    anew.append("hello again").await;
    let old = pb::WatchConversationRequest { position, ..Default::default() };
    let refused = anew.open_watch(old).await.expect("is let in").try_next().await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
}

#[tokio::test]
async fn another_tenants_conversation_is_watched_like_one_that_is_not_there() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("hello").await;
    let position = talk.watch().await.position;
    let mut db = house.db().await;
    let theirs = uuid::Uuid::now_v7();
    sqlx::query("insert into tenant (tenant_id, name) values ($1, 'them')")
        .bind(theirs)
        .execute(&mut db)
        .await
        .expect("makes");
    let move_all = ["update ai_conversation set tenant_id = $1", "update ai_message set tenant_id = $1"];
    for sql in move_all {
        sqlx::query(sql).bind(theirs).execute(&mut db).await.expect("moves");
    }
    for (position, after_message_id) in [(String::new(), None), (String::new(), Some(0)), (position, None)] {
        let mut said = Vec::new();
        for conversation_id in [talk.id.clone(), "00000000-0000-7000-8000-00000000dead".into()] {
            let position = position.clone();
            let ask =
                pb::WatchConversationRequest { conversation_id, position, after_message_id, ..Default::default() };
            let refused = Watch::open(&house, ask).await.expect("is let in").try_next().await.expect_err("is refused");
            said.push((refused.code(), refused.message().to_owned(), refused.details().to_vec()));
        }
        assert_eq!(said[0], said[1]);
        assert_eq!(said[0].0, Code::NotFound);
    }
    let key = (TenantId(theirs), ConversationId(talk.id.parse().expect("a UUID")));
    let ours = (Caller::of(TenantId::DEFAULT).tenant(), key.1);
    let heads = house.store.heads(&[key, ours]).await.expect("reads");
    assert_eq!(heads.keys().collect::<Vec<_>>(), [&key], "the poll as well");
}

#[tokio::test]
async fn positions_are_good_only_where_they_come_from() {
    let house = House::start().await;
    let (talk, other) = (house.conversation().await, house.conversation().await);
    talk.append("hello").await;
    other.append("hello").await;
    let position = talk.watch().await.position;
    let swapped = format!("{}{}", &position[1..], &position[..1]);
    for forged in ["x", "AAAA", &position[4..], &swapped, &format!("{position}AAAA"), &"A".repeat(100_000)] {
        let ask = pb::WatchConversationRequest { position: forged.to_owned(), ..Default::default() };
        let refused = talk.open_watch(ask).await.expect("is let in").try_next().await;
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
    }
    let ask = pb::WatchConversationRequest { position: position.clone(), ..Default::default() };
    let refused = other.open_watch(ask).await.expect("is let in").try_next().await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "position");
    talk.watch_from(&position).await;
    let ask = pb::WatchConversationRequest { conversation_id: "nothing".into(), ..Default::default() };
    assert_refused(Watch::open(&house, ask).await.map(drop), Code::InvalidArgument, "INVALID_FIELD", "conversation_id");
    let ask = pb::WatchConversationRequest { after_message_id: Some(-1), ..Default::default() };
    assert_refused(talk.open_watch(ask).await.map(drop), Code::InvalidArgument, "INVALID_FIELD", "after_message_id");
}

#[tokio::test]
async fn what_another_process_stores_is_told_here() {
    let house = House::start().await;
    let beside = house.beside().await;
    let talk = house.conversation().await;
    let mut watch = talk.watch().await;
    let there = Talk { house: &beside, id: talk.id.clone() };
    there.append_all(vec![user("one"), user("two")]).await;
    assert_eq!(appended(&[watch.next().await, watch.next().await]), [1, 2]);
    beside.run_jobs_until_idle().await;
    assert_eq!(beside_messages(&[watch.next().await]), ["counted 2"]);
}
