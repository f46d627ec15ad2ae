//! Whole workers that summarise with a model: killed in the middle of many calls, and fed with more than any window holds.

use std::{sync::Arc, time::Duration};

use anneal_tests::{
    Anneal, Asked, Folder, Gate, House, Process, Script, ScriptedModel, Talk, eventually, eventually_within, pb, user,
};

use crate::BINARY;

/// A settings file for a worker whose summaries this model writes.
fn settings(model: &ScriptedModel) -> String {
    format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.writer]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
         [summarizer]\nmodel = \"writer\"\n[worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\n",
        model.url()
    )
}

/// A folder with a worker's settings under which its summaries are of this kind.
fn folder_for(kind: pb::SummaryKind, model: &ScriptedModel) -> Folder {
    let folder = Folder::new();
    let text = match kind {
        pb::SummaryKind::Llm => settings(model),
        _ => "[worker]\nhttp_address = \"127.0.0.1:0\"\n".to_owned(),
    };
    folder.file("models.toml", &text);
    folder
}

async fn worker(anneal: &Anneal) -> Process {
    let worker = anneal.start(&["worker", "--config", "models.toml"]);
    worker.said("working as").await;
    worker
}

/// What the second line of each prompt's data says: the same for the same part, whatever its random marks.
fn parts(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|asked| asked.texts()[1].lines().filter(|line| line.starts_with('{')).collect()).collect()
}

/// A conversation of `tokens` tokens, about, in messages of some four thousand each, that is due for a checkpoint.
async fn long(house: &House, tokens: usize) -> Talk<'_> {
    let policy = pb::Policy {
        max_message_count: Some(0),
        token_threshold: Some(tokens as u64 / 2),
        large_message_threshold: Some(1_000_000),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let talk = house.conversation_under(policy).await;
    let mut said = 0;
    while said * 4_000 < tokens {
        let batch = (said..said + 50).map(|number| {
            let sentence = format!(
                "In the year {} the river rose by {number} feet and the old mill stood still. ",
                1_000 + number
            );
            let mut message = user(&sentence.repeat(200));
            message.role = if number % 2 == 0 { pb::Role::User } else { pb::Role::Assistant }.into();
            message
        });
        talk.append_all(batch.collect()).send().await.expect("appends");
        said += 50;
    }
    talk
}

/// What summaries of millions of tokens may take.
const LONG: Duration = Duration::from_mins(4);

async fn checkpoint(talk: &Talk<'_>) -> pb::Checkpoint {
    eventually_within(LONG, "there is a checkpoint", async || !talk.checkpoints().await.is_empty()).await;
    talk.checkpoints().await.remove(0)
}

#[tokio::test]
async fn a_worker_that_is_killed_between_parts_leaves_them_to_the_next_one() {
    const DONE: usize = 7;
    let gate = Gate::default();
    gate.open(DONE);
    let held = gate.clone();
    let model = Arc::new(ScriptedModel::start(move |asked| Script::summarizes(asked).after(&held)).await);
    let house = House::start().await;
    let folder = Folder::new();
    folder.file("models.toml", &settings(&model));
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let talk = long(&house, 120_000).await;

    let first = worker(&anneal).await;
    model.arrived(DONE + 1).await;
    first.kill().await;
    let kept = "select count(*) from ai_summary_part";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(&mut house.db().await).await.expect("counts");
    assert_eq!(kept, DONE as i64, "each finished part is kept");
    let dead = "update ai_job set lease_until_ts = now() where state = 1";
    sqlx::query(dead).execute(&mut house.db().await).await.expect("its lease ends");
    gate.open_for_ever();

    let second = worker(&anneal).await;
    let checkpoint = checkpoint(&talk).await;
    assert_eq!(checkpoint.kind(), pb::SummaryKind::Llm);
    let asked = parts(&model.asked());
    let (before, after) = asked.split_at(DONE + 1);
    assert!(after.len() > DONE, "{} calls are still to be made", after.len());
    let again = after.iter().filter(|part| before[..DONE].contains(part)).count();
    assert_eq!(again, 0, "no finished part is asked for again");
    assert!(after.contains(&before[DONE]), "the call that died is made again");
    assert_eq!(checkpoint.model_calls as usize, DONE + after.len(), "its cost holds what the first run has paid");
    println!("{} calls before the kill, {} after it", before.len(), after.len());
    eventually("parts of a finished summary are forgotten", async || {
        let left = "select count(*) from ai_summary_part";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&mut house.db().await).await.expect("counts");
        left == 0
    })
    .await;
    talk.verify().await;
    second.terminate().await;
    assert_eq!(second.ended().await, Some(0));
}

#[tokio::test]
async fn two_million_tokens_are_summarised_by_a_model_that_sees_eight_thousand() {
    let model = ScriptedModel::start(Script::summarizes).await;
    for kind in [pb::SummaryKind::Llm, pb::SummaryKind::Extractive] {
        let house = House::start().await;
        let folder = folder_for(kind, &model);
        let talk = long(&house, 2_000_000).await;
        let worker = worker(&Anneal::new(BINARY, &folder, &house.url)).await;
        let checkpoint = checkpoint(&talk).await;
        assert_eq!(checkpoint.kind(), kind);
        assert!(checkpoint.tokens_before >= 2_000_000, "{} tokens", checkpoint.tokens_before);
        assert!(checkpoint.token_usage <= 2_000);
        let memory = worker.most_memory();
        println!(
            "{} tokens became {}: {} calls, {} s, {memory} MiB at most",
            checkpoint.tokens_before,
            checkpoint.tokens_after,
            checkpoint.model_calls,
            Duration::from_millis(checkpoint.duration_ms.unsigned_abs()).as_secs()
        );
        assert!(memory <= 512, "{memory} MiB");
        talk.verify().await;
    }
}

#[tokio::test]
async fn a_message_of_four_megabytes_is_summarised_by_a_model_that_sees_eight_thousand_tokens() {
    let model = ScriptedModel::start(Script::summarizes).await;
    for kind in [pb::SummaryKind::Llm, pb::SummaryKind::Extractive] {
        let house = House::start().await;
        let folder = folder_for(kind, &model);
        let policy =
            pb::Policy { large_message_threshold: Some(10_000), max_message_count: Some(0), ..Default::default() };
        let talk = house.conversation_under(policy).await;
        let lines = (0..).map(|number| format!("{number}: the gauge at the weir shows {} inches.\n", number * 7 % 113));
        let mut text = String::new();
        text.extend(lines.take(95_000));
        text.truncate(4 * 1024 * 1024 - 4_096);
        talk.append_all(vec![user(&text)]).send().await.expect("appends");
        let worker = worker(&Anneal::new(BINARY, &folder, &house.url)).await;
        let summarized = "select count(*) from ai_message where summary_cache is not null";
        eventually_within(LONG, "the message has its summary", async || {
            let done: i64 = sqlx::query_scalar(summarized).fetch_one(&mut house.db().await).await.expect("counts");
            done == 1
        })
        .await;
        let row = "select summary_kind, summary_tokens, token_count, summary_duration_ms from ai_message where message_id = 1";
        let row: (i16, i64, i64, i64) = sqlx::query_as(row).fetch_one(&mut house.db().await).await.expect("is there");
        assert_eq!(i32::from(row.0), i32::from(kind));
        assert!(row.1 <= 500, "{row:?}");
        let memory = worker.most_memory();
        println!("{} tokens became {}: {} ms, {memory} MiB at most", row.2, row.1, row.3);
        assert!(memory <= 512, "{memory} MiB");
    }
    println!("{} calls of the model", model.asked().len());
}
