//! Counting looks at a tail only where a trigger may have been reached, and misses none.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    policy::{PolicyOverrides, Session},
    trigger,
};
use anneal_store::Store;
use anneal_tests::{House, Talk, assistant, pb, prose, sentence, user};
use sqlx::Row as _;

/// Until which total of tokens a conversation is noted as quiet.
async fn quiet_until(talk: &Talk<'_>) -> Option<i64> {
    let mut db = talk.house.db().await;
    let row = sqlx::query(
        "select case when quiet_message_id is not null then quiet_token_total end from ai_conversation
         where conversation_id = $1::text::uuid",
    );
    row.bind(&talk.id).fetch_one(&mut db).await.expect("reads").get(0)
}

/// Notes that the conversation is quiet forever, but for large messages, which it is not.
async fn forge(talk: &Talk<'_>) {
    let forge = "update ai_conversation
        set quiet_message_id = $2, quiet_token_total = $2, quiet_large_tokens = 1000
        where conversation_id = $1::text::uuid and quiet_message_id is not null";
    let forged = sqlx::query(forge).bind(&talk.id).bind(i64::MAX).execute(&mut talk.house.db().await).await;
    assert_eq!(forged.expect("writes").rows_affected(), 1, "it was noted as quiet");
}

/// A conversation with three messages, counted, and noted as quiet forever.
async fn quiet(house: &House, policy: pb::Policy) -> Talk<'_> {
    let talk = house.conversation_under(policy).await;
    talk.append_all(vec![user("one"), assistant("two"), user("three")]).await;
    house.run_jobs_until_idle().await;
    forge(&talk).await;
    talk
}

/// Whether counting another message looks at the tail.
async fn is_looked_at(talk: &Talk<'_>) -> bool {
    talk.append("another").await;
    talk.house.run_jobs_until_idle().await;
    quiet_until(talk).await != Some(i64::MAX)
}

async fn update(talk: &Talk<'_>, path: &str, to: pb::Conversation) {
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation { conversation_id: talk.id.clone(), ..to }),
        update_mask: Some(prost_types::FieldMask { paths: vec![path.into()] }),
        ..Default::default()
    };
    talk.house.conversations().update_conversation(ask).await.expect("updates");
}

async fn compact(talk: &Talk<'_>) {
    let ask = pb::CompactRequest { conversation_id: talk.id.clone(), ..Default::default() };
    talk.house.contexts().compact(ask).await.expect("queues");
    talk.house.run_jobs_until_idle().await;
}

async fn import_checkpoint(talk: &Talk<'_>, last_message_id: i64) {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: talk.id.clone(),
        last_message_id,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    talk.house.contexts().import_checkpoint(ask).await.expect("imports");
}

#[tokio::test]
async fn a_tail_is_not_looked_at_while_its_conversation_is_quiet() {
    let house = House::start().await;
    let talk = quiet(&house, pb::Policy::default()).await;
    for n in 0..60 {
        talk.append(&sentence(n)).await;
    }
    assert!(!is_looked_at(&talk).await);
    assert!(talk.checkpoints().await.is_empty(), "what is noted is believed");
    update(&talk, "title", pb::Conversation { title: "Renamed".into(), ..Default::default() }).await;
    assert!(!is_looked_at(&talk).await, "a title changes no trigger");
    update(&talk, "system_prompt", pb::Conversation { system_prompt: "Be brief.".into(), ..Default::default() }).await;
    assert_eq!(house.run_jobs_until_idle().await, 1);
    assert_eq!(talk.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn whatever_moves_a_trigger_ends_the_quiet() {
    let house = House::start().await;
    let talk = quiet(&house, pb::Policy::default()).await;
    talk.append(&prose(0, 300)).await;
    assert!(is_looked_at(&talk).await, "a large message");
    forge(&talk).await;
    talk.separate().await;
    assert!(is_looked_at(&talk).await, "a separator");
    forge(&talk).await;
    talk.join(5).await;
    assert!(is_looked_at(&talk).await, "a separator less");
    forge(&talk).await;
    let policy = pb::Policy { max_message_count: Some(70), ..Default::default() };
    update(&talk, "policy", pb::Conversation { policy: Some(policy), ..Default::default() }).await;
    assert!(is_looked_at(&talk).await, "a policy");
    for n in 0..8 {
        talk.turn(&sentence(n), &sentence(n + 1)).await;
    }
    house.run_jobs_until_idle().await;
    forge(&talk).await;
    compact(&talk).await;
    assert_eq!(talk.checkpoints().await.len(), 1);
    assert!(is_looked_at(&talk).await, "a checkpoint");
    forge(&talk).await;
    import_checkpoint(&talk, talk.conversation().await.message_count - 2).await;
    assert!(is_looked_at(&talk).await, "a checkpoint from elsewhere");
    talk.verify().await;
}

#[tokio::test]
async fn a_window_that_the_models_provider_names_ends_the_quiet_of_what_goes_by_it() {
    let house = House::start().await;
    let by_window = |model: &str| pb::Policy { profile: "openclaw".into(), model: model.into(), ..Default::default() };
    let by_number = pb::Policy { model: "small".into(), ..Default::default() };
    let own = quiet(&house, by_window("small")).await;
    let (other, number) = (quiet(&house, by_window("large")).await, quiet(&house, by_number).await);
    assert!(!is_looked_at(&own).await);
    let too_long = r#"{"error":{"code":"context_length_exceeded","message":"too long","n_ctx":20000}}"#;
    let ask =
        pb::ClassifyErrorRequest { status: 400, body: too_long.into(), model: "small".into(), ..Default::default() };
    house.contexts().classify_error(ask).await.expect("classifies");
    assert!(is_looked_at(&own).await);
    assert!(!is_looked_at(&other).await, "that was another model");
    assert!(!is_looked_at(&number).await, "a number of tokens does not go by the window");
    forge(&own).await;
    assert!(!is_looked_at(&own).await, "the window is known now");
}

#[tokio::test]
async fn a_worker_with_other_settings_looks_for_itself() {
    let own = PolicyOverrides { max_message_count: Some(0), ..PolicyOverrides::default() };
    let house = House::with(Session::new(own, anneal_core::model::Models::default())).await;
    let talk = quiet(&house, pb::Policy::default()).await;
    for n in 0..60 {
        talk.append(&sentence(n)).await;
    }
    assert!(!is_looked_at(&talk).await, "here the number of messages does not matter");
    let other = House::at(&house.url).await;
    talk.append("another").await;
    other.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1, "there fifty are enough");
}

#[tokio::test]
async fn what_is_counted_before_the_tail_does_not_stretch_the_quiet() {
    let house = House::start().await;
    let policy = pb::Policy { token_threshold: Some(900), max_message_count: Some(0), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    // More than are counted at once; their estimates are above their counts.
    for n in 0..11 {
        talk.append_all((0..100).map(|m| user(&sentence(100 * n + m))).collect()).await;
    }
    talk.separate().await;
    for n in 0..60 {
        talk.append(&sentence(n)).await;
        house.run_jobs_until_idle().await;
        assert_nothing_is_due(&house.store, &talk).await;
    }
    assert!(!talk.checkpoints().await.is_empty());
}

/// When no job waits, no trigger is reached.
async fn assert_nothing_is_due(store: &Store, talk: &Talk<'_>) {
    let id = ConversationId(talk.id.parse().expect("an id"));
    let usage = store.usage(Caller::of(TenantId::DEFAULT), id, &PolicyOverrides::default()).await;
    let state = usage.expect("reads").state;
    assert_eq!(trigger::jobs(&state), [], "{state:?}");
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % sides) as usize
    }
}

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
    let auto = pb::Policy { profile: "agents".into(), keep_recent_tokens: Some(300), ..Default::default() };
    [
        pb::Policy { max_message_count: Some(12), large_message_threshold: Some(150), ..Default::default() },
        pb::Policy { token_threshold: Some(900), max_message_count: Some(0), ..Default::default() },
        below_window,
        auto,
    ]
}

/// One thing that happens to a conversation.
async fn happen(talk: &Talk<'_>, dice: &mut Dice) {
    match dice.below(30) {
        0 => drop(talk.separate().await),
        1 => {
            if let Some(after) = newest_separator(talk).await {
                talk.join(after).await;
            }
        }
        2 => {
            let system_prompt = prose(0, dice.below(9) + 1);
            update(talk, "system_prompt", pb::Conversation { system_prompt, ..Default::default() }).await;
        }
        3 => compact(talk).await,
        4 => drop(talk.append(&prose(dice.below(50), 20 + dice.below(200))).await),
        _ => drop(talk.turn(&sentence(dice.below(90)), "noted").await),
    }
}

async fn newest_separator(talk: &Talk<'_>) -> Option<i64> {
    let newest = "select max(after_message_id) from ai_separator where conversation_id = $1::text::uuid";
    sqlx::query(newest).bind(&talk.id).fetch_one(&mut talk.house.db().await).await.expect("reads").get(0)
}

#[tokio::test]
async fn when_no_job_waits_no_trigger_is_reached_whatever_happened() {
    let house = House::start().await;
    for (number, policy) in policies().into_iter().enumerate() {
        let (mut quiet, mut checkpoints) = (0, 0);
        for seed in 0..3 {
            let mut dice = Dice(10 * number as u64 + seed);
            let talk = house.conversation_under(policy.clone()).await;
            for step in 0..60 {
                happen(&talk, &mut dice).await;
                if step % 3 != 0 {
                    house.run_jobs_until_idle().await;
                    assert_nothing_is_due(&house.store, &talk).await;
                    quiet += i32::from(quiet_until(&talk).await.is_some());
                }
            }
            checkpoints += talk.checkpoints().await.len();
            talk.verify().await;
        }
        println!("policy {number}: {quiet} of 120 times quiet, {checkpoints} checkpoints");
        assert!(quiet >= 20 && checkpoints >= 6, "policy {number}: {quiet} times quiet, {checkpoints} checkpoints");
    }
}
