//! Summaries that a language model writes: what is stored of them, who calls how often, and when they begin anew.

use anneal_core::tokens::Tokens;
use anneal_tests::{Counted, Gate, House, Script, ScriptedModel, Talk, WRITER, Writing, eventually, pb, prose, user};
use tokio_util::sync::CancellationToken;

/// A conversation with room for ten messages, and twelve in it.
async fn ripe(house: &House) -> Talk<'_> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    more(&talk, 0).await;
    talk
}

/// Six turns more.
async fn more(talk: &Talk<'_>, from: usize) {
    for number in from..from + 6 {
        let asked = format!("What is the capital of country number {number}, and how many people live there today?");
        talk.turn(&asked, &format!("It is City-{number}, and {number} million people live in it and around it.")).await;
    }
}

async fn newest(talk: &Talk<'_>) -> pb::Checkpoint {
    talk.checkpoints().await.into_iter().next().expect("there is a checkpoint")
}

#[tokio::test]
async fn a_models_summary_is_stored_with_who_wrote_it_and_what_it_cost() {
    let counted = Counted { input: 700, output: 40, ..Counted::default() };
    let model = ScriptedModel::start(move |asked| Script::summarizes_counted(asked, counted)).await;
    let house = House::start().await;
    let talk = ripe(&house).await;
    house.worker_writing(&Writing::by(&model)).run_until_idle().await;
    let checkpoint = newest(&talk).await;
    assert_eq!(checkpoint.kind(), pb::SummaryKind::Llm);
    assert_eq!((checkpoint.model.as_str(), checkpoint.prompt_version, checkpoint.generation), (WRITER, 1, 1));
    assert_eq!((checkpoint.model_calls, checkpoint.input_tokens, checkpoint.output_tokens), (1, 700, 40));
    assert!(checkpoint.summary.contains("each of them was answered"), "{}", checkpoint.summary);
    assert!(checkpoint.tokens_after < checkpoint.tokens_before);
    assert_eq!(model.asked().len(), 1);
    let stats = house.operators().get_model_stats(pb::GetModelStatsRequest {}).await.expect("answers").into_inner();
    let [figures] = &stats.models[..] else { panic!("one model") };
    assert_eq!((figures.model.as_str(), figures.calls_today, figures.failed_calls_today), (WRITER, 1, 0));
    assert_eq!((figures.input_tokens_today, figures.output_tokens_today, figures.calls_under_way), (700, 40, 0));
    talk.verify().await;
}

#[tokio::test]
async fn a_large_message_is_summarised_by_the_model_and_says_so() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    let policy = pb::Policy { large_message_threshold: Some(500), hot_zone_radius: Some(0), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    talk.append_all(vec![user(&prose(3, 90))]).send().await.expect("appends");
    talk.turns(2).await;
    house.worker_writing(&Writing::by(&model)).run_until_idle().await;
    let row = "select summary_kind, summary_model, summary_input_tokens, summary_output_tokens, summary_duration_ms is not null
               from ai_message where message_id = 1";
    let row: (i16, String, i64, i64, bool) =
        sqlx::query_as(row).fetch_one(&mut house.db().await).await.expect("is there");
    assert_eq!((row.0, row.1.as_str(), row.4), (1, WRITER, true));
    assert!(row.2 > 500 && row.3 > 0, "{row:?}");
    let built = talk.context().await;
    assert_eq!(built.fate(1).0, pb::Representation::Summary);
    assert!(built.text().contains("each of them was answered"), "{}", built.text());
}

#[tokio::test]
async fn after_five_generations_a_summary_is_made_from_the_messages_again() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    let talk = ripe(&house).await;
    let worker = house.worker_writing(&Writing::by(&model));
    let mut generations = Vec::new();
    for round in 1..=7 {
        worker.run_until_idle().await;
        let checkpoint = newest(&talk).await;
        generations.push((checkpoint.generation, checkpoint.source_first_message_id == 1));
        more(&talk, 6 * round).await;
    }
    let read_again: Vec<_> = generations.iter().map(|(generation, _)| *generation).collect();
    assert_eq!(read_again, [1, 2, 3, 4, 5, 1, 2]);
    assert!(generations[5].1 && !generations[4].1 && !generations[6].1, "{generations:?}");
    let rebuilt = model.asked().into_iter().nth(5).expect("six calls").texts().concat();
    assert!(rebuilt.contains("country number 0,") && !rebuilt.contains("\"earlier_summary\","), "{rebuilt}");
    talk.verify().await;
}

#[tokio::test]
async fn a_models_limit_holds_for_all_workers_together() {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ScriptedModel::start(move |asked| Script::summarizes(asked).after(&held)).await;
    let house = House::start().await;
    let other = house.beside().await;
    let (one, two) = (ripe(&house).await, ripe(&house).await);
    let mut writing = Writing::by(&model);
    writing.models = serde_json::from_value(serde_json::json!({
        WRITER: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 1}
    }))
    .expect("settings of a model");
    let workers = [house.worker_writing(&writing), other.worker_writing(&writing)];
    let stop = CancellationToken::new();
    let running = workers.map(|worker| {
        let stop = stop.clone();
        tokio::spawn(async move { worker.run(stop).await })
    });
    model.arrived(1).await;
    eventually("both jobs run", async || {
        let queues =
            house.operators().get_queue_stats(pb::GetQueueStatsRequest {}).await.expect("answers").into_inner();
        queues.queues.iter().map(|queue| queue.running).sum::<i64>() == 2
    })
    .await;
    gate.open_for_ever();
    eventually("both have their summaries", async || {
        !one.checkpoints().await.is_empty() && !two.checkpoints().await.is_empty()
    })
    .await;
    assert_eq!((model.asked().len(), model.most_open_calls()), (2, 1), "the second waited for its place");
    stop.cancel();
    for running in running {
        running.await.expect("stops");
    }
    for talk in [one, two] {
        assert_eq!(newest(&talk).await.kind(), pb::SummaryKind::Llm);
    }
}

#[tokio::test]
async fn a_tenant_whose_tokens_of_the_day_are_spent_gets_extracts() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    let (first, second) = (ripe(&house).await, ripe(&house).await);
    let mut writing = Writing::by(&model);
    writing.access.tokens_per_day = Some(Tokens::new(9_000));
    let worker = house.worker_writing(&writing);
    worker.run_until_idle().await;
    let spend = "update ai_model_spend set input_tokens = 9000";
    let kinds = [newest(&first).await.kind(), newest(&second).await.kind()];
    assert_eq!(kinds, [pb::SummaryKind::Llm; 2]);
    sqlx::query(spend).execute(&mut house.db().await).await.expect("spends");
    let third = ripe(&house).await;
    worker.run_until_idle().await;
    assert_eq!(newest(&third).await.kind(), pb::SummaryKind::Extractive);
    assert_eq!(model.asked().len(), 2);
}

#[tokio::test]
async fn compact_waits_for_the_model_and_reports_what_it_wrote() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    let talk = house.conversation().await;
    more(&talk, 0).await;
    more(&talk, 6).await;
    let ask = pb::CompactRequest {
        conversation_id: talk.id.clone(),
        request_id: "c".into(),
        focus: "the sea".into(),
        ..Default::default()
    };
    let at_once = house.contexts().compact(ask.clone()).await.expect("answers").into_inner();
    assert_eq!(at_once.outcome(), pb::CompactOutcome::Pending);
    let worker = house.worker_writing(&Writing::by(&model));
    let wait = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let (waited, _) = tokio::join!(
        async { house.contexts().compact(pb::CompactRequest { wait, ..ask.clone() }).await },
        worker.run_until_idle()
    );
    let done = waited.expect("answers").into_inner();
    assert_eq!(done.outcome(), pb::CompactOutcome::Created);
    let checkpoint = done.checkpoint.expect("with the checkpoint");
    assert_eq!((checkpoint.kind(), checkpoint.model.as_str()), (pb::SummaryKind::Llm, WRITER));
    assert!(checkpoint.tokens_after < checkpoint.tokens_before && checkpoint.last_message_id > 0);
    assert!(model.asked()[0].texts().concat().contains("the sea"), "the focus reaches the model");
    let again = house.contexts().compact(ask).await.expect("answers").into_inner();
    assert_eq!(again.checkpoint, Some(checkpoint), "a repeated request finds its checkpoint");
}

#[tokio::test]
async fn while_a_model_hangs_nothing_else_waits() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let house = House::start().await;
    let talks = futures::future::join_all((0..4).map(|_| ripe(&house))).await;
    let mut writing = Writing::by(&model);
    writing.worker.stop_seconds = 0;
    let worker = house.worker_writing(&writing);
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (worker.clone(), stop.clone());
        async move { worker.run(stop).await }
    });
    model.arrived(2).await;
    // A connection that is held stays held: PostgreSQL would end its transaction, and not give it back.
    eventually("no connection is held while a model thinks", async || {
        house.store.pools().iter().all(|(_, pool)| pool.idle == pool.open && pool.waiting == 0)
    })
    .await;
    for talk in &talks {
        talk.turn("And what now?", "Nothing waits.").await;
        assert_eq!(talk.context().await.0.messages.len(), 14);
    }
    eventually("new messages are counted", async || {
        let uncounted = "select count(*) from ai_message where token_count is null";
        let left: i64 = sqlx::query_scalar(uncounted).fetch_one(&mut house.db().await).await.expect("asks");
        left == 0
    })
    .await;
    assert_eq!(model.open_calls(), 2, "as many as the worker may have at once");
    stop.cancel();
    model.closed_by_client(2).await;
    working.await.expect("stops");
}
