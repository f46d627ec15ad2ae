//! Chat's overflow guard: a model that refuses a context as too long gets a shorter one, and what it says is remembered.

#![expect(non_snake_case, reason = "rows are named as docs/rows.md names them")]

use anneal_core::tokens::Encoding;
use anneal_tests::{
    Asked, Counted, House, MODEL, Say, Script, ScriptedModel, assert_refused, assistant, pb, prose, refusal,
};
use pb::{AttemptReason, Pressure, chat_response::Event};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;

const TRUNCATED: (i32, Pressure, AttemptReason) = (1, Pressure::TruncateToolResults, AttemptReason::Overflow);
const COMPACTED: (i32, Pressure, AttemptReason) = (2, Pressure::Compact, AttemptReason::Overflow);

/// OpenAI's refusal, saying this.
fn overflow(message: &str) -> Script {
    let error = json!({"error": {
        "message": message, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
    }});
    Script::status(400, &[], &error.to_string())
}

fn too_long(window: u64, sent: u64) -> Script {
    overflow(&format!(
        "This model's maximum context length is {window} tokens. However, your messages resulted in {sent} tokens. \
         Please reduce the length of the messages."
    ))
}

fn answered(asked: &Asked) -> Script {
    Script::says(asked, [Say::text("Found it.")])
}

#[tokio::test]
async fn row_C3_a_refused_context_goes_again_with_truncated_results_then_compacted() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 | 1 => overflow("Your input exceeds the context window of this model."),
        _ => answered(asked),
    })
    .await;
    let house = House::chatting(&model).await;
    let talk = house.conversation_with_tools().await;
    let told = talk.chat("And the thirteenth?").await;
    assert_eq!((told.text().as_str(), told.done().attempts), ("Found it.", 3));
    assert_eq!(told.attempts(), [TRUNCATED, COMPACTED]);
    let [whole, truncated, compacted] = model.asked().try_into().expect("three calls");
    let messages = |asked: &Asked| asked.body["messages"].as_array().map_or(0, Vec::len);
    assert_eq!(messages(&whole), messages(&truncated));
    assert!(truncated.raw.len() * 2 < whole.raw.len() && messages(&compacted) < messages(&truncated));
    assert!(compacted.texts()[0].starts_with("[Summary of the conversation up to message"));
    assert!(compacted.texts().last().is_some_and(|last| last.ends_with("And the thirteenth?")));
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1, "the compaction lasts");
    assert_eq!(talk.messages().await.len(), 50);
    talk.verify().await;
}

#[tokio::test]
async fn a_model_that_refuses_every_context_is_asked_three_times_and_the_question_stays() {
    let model = ScriptedModel::start(|_| overflow("Your input exceeds the context window of this model.")).await;
    let house = House::chatting(&model).await;
    let talk = house.conversation_with_tools().await;
    let told = talk.chat("Anything?").request_id("r").await;
    assert_eq!(told.attempts(), [TRUNCATED, COMPACTED]);
    let status = told.end.expect_err("it never fits");
    assert_refused(Err::<(), _>(status.clone()), Code::FailedPrecondition, "CONTEXT_OVERFLOW", "");
    assert!(!refusal(&status).retry);
    let facts = status.get_error_details().error_info().expect("facts").metadata.clone();
    let fact = |name: &str| facts[name].parse::<u64>().expect("a number");
    assert_eq!((fact("window_tokens"), fact("output_tokens"), fact("attempts")), (8_192, 2_048, 3));
    assert!((1..=5_836).contains(&fact("context_tokens")));
    assert_eq!((model.asked().len(), talk.messages().await.len()), (3, 49));
}

#[tokio::test]
async fn a_window_that_a_refusal_names_is_kept_to_at_once_and_in_later_turns() {
    let model =
        ScriptedModel::start(|asked| if asked.nth == 0 { too_long(4_096, 15_000) } else { answered(asked) }).await;
    let house = House::chatting(&model).await;
    let talk = house.conversation_with_tools().await;
    let skipped = (2, Pressure::Compact, AttemptReason::OverLearntWindow);
    let first = talk.chat("And the thirteenth?").await;
    assert_eq!(first.attempts(), [TRUNCATED, skipped]);
    assert_eq!((first.done().attempts, model.asked().len()), (2, 2), "a context that is known not to fit is not sent");
    let fitting = |asked: &Asked| asked.raw.len() / 4 < 4_096;
    assert!(fitting(&model.asked()[1]));
    let second = talk.chat("And the fourteenth?").await;
    assert_eq!(second.attempts(), [(1, Pressure::TruncateToolResults, AttemptReason::OverLearntWindow), skipped]);
    assert_eq!((second.done().attempts, model.asked().len()), (1, 3));
    assert!(fitting(&model.asked()[2]));
}

#[tokio::test]
async fn an_overflow_in_the_middle_of_an_answer_voids_what_was_said() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => {
            let delta = json!({"choices": [{"index": 0, "delta": {"content": "Half an"}, "finish_reason": null}]});
            let error =
                json!({"error": {"message": "context size has been exceeded", "code": "context_length_exceeded"}});
            Script::events([format!("data: {delta}\n\n"), format!("data: {error}\n\n")])
        }
        _ => answered(asked),
    })
    .await;
    let house = House::chatting(&model).await;
    let talk = house.conversation_with_tools().await;
    let told = talk.chat("And the thirteenth?").await;
    assert!(told.events.contains(&Event::TextDelta("Half an".into())));
    assert_eq!((told.attempts(), told.text().as_str()), (vec![TRUNCATED], "Found it."));
    let answer = talk.messages().await.pop().expect("the answer");
    assert_eq!(answer.parts, assistant("Found it.").parts);
}

#[tokio::test]
async fn a_refusal_that_counts_otherwise_than_we_do_gives_one_more_try() {
    // About twice what is counted here, whatever is sent.
    let model = ScriptedModel::start(|asked| match asked.raw.len() as u64 / 2 {
        counted @ 8_193.. => too_long(8_192, counted),
        counted => Script::openai(&["Found it."], Counted { input: counted, output: 3, ..Counted::default() }),
    })
    .await;
    let house = House::chatting(&model).await;
    let talk = house.conversation_with_tools().await;
    let ask = pb::ClassifyErrorRequest {
        status: 400,
        body: br#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.","code":"context_length_exceeded"}}"#.to_vec(),
        model: MODEL.into(),
        ..Default::default()
    };
    house.contexts().classify_error(ask).await.expect("learns the window");
    let big = prose(900, 220);
    let told = talk.chat(&big).await;
    let learnt = AttemptReason::OverLearntWindow;
    let attempts = [
        (1, Pressure::TruncateToolResults, learnt),
        (2, Pressure::Compact, learnt),
        (3, Pressure::Compact, AttemptReason::RetrySmaller),
    ];
    assert_eq!(told.attempts(), attempts);
    assert_eq!((told.done().attempts, told.text().as_str()), (2, "Found it."));
    let [refused, smaller] = model.asked().try_into().expect("two calls");
    assert!(smaller.raw.len() * 2 < refused.raw.len(), "{} and {} bytes", smaller.raw.len(), refused.raw.len());
}

#[tokio::test]
async fn a_system_prompt_above_the_window_is_an_overflow_and_not_a_bad_budget() {
    let model = ScriptedModel::start(|_| overflow("Your input exceeds the context window of this model.")).await;
    let house = House::chatting(&model).await;
    let talk = house.conversation().await;
    let mut asked = talk.chat("hello");
    asked.ask.system_prompt = Some(prose(0, 500));
    assert_refused(asked.await.end, Code::FailedPrecondition, "CONTEXT_OVERFLOW", "");
    assert_eq!(model.asked().len(), 2, "the third could not be built");
}

#[tokio::test]
async fn a_ratio_that_was_learnt_wrongly_does_not_make_answers_look_cut_short() {
    let model = ScriptedModel::start(|asked| {
        let count = |text: &String| Encoding::default().counter().count(text).get();
        let counted = Counted { input: asked.texts().iter().map(count).sum(), output: 3, ..Counted::default() };
        Script::openai(&["Found it."], counted)
    })
    .await;
    let house = House::chatting(&model).await;
    let talk = house.conversation().await;
    let report = pb::ReportUsageRequest {
        conversation_id: talk.id.clone(),
        model: MODEL.into(),
        input_tokens: 1_600,
        context_tokens: 1_000,
        ..Default::default()
    };
    let learnt = house.contexts().report_usage(report).await.expect("takes it").into_inner();
    assert!((learnt.tokens_ratio - 1.6).abs() < 0.01, "{learnt:?}");
    let told = talk.chat(&prose(0, 120)).await;
    assert_eq!((told.attempts(), told.done().attempts), (Vec::new(), 1));
    let usage = told.done().usage.expect("counted");
    assert!(usage.input_tokens > 2_048, "{usage:?}");
}
