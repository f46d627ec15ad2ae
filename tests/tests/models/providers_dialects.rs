//! Deviations from OpenAI's protocol by servers that claim to implement it.

use std::sync::Arc;

use anneal_llm::provider::{Api, CallUsage, Model, StopReason};
use anneal_testkit::{ModelAnswer, Script, ScriptedModel, plain_call, read_answer};

use crate::{CONTEXT, call};

/// Lets a model answer with this script, and reads the answer.
async fn read_scripted_answer(
    api: Api,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> ModelAnswer {
    let server = ScriptedModel::start(move |_| script()).await;
    let model: Arc<Model> = server
        .callable(api, &["small"])
        .find("small")
        .expect("it was configured")
        .clone();
    read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect("it is an answer")
}

/// Lets a model answer with this stream in OpenAI's protocol, and reads the answer.
async fn read_openai_stream(stream: &'static str) -> ModelAnswer {
    read_scripted_answer(Api::OpenAi, move || {
        Script::status(200, &[("content-type", "text/event-stream")], stream)
    })
    .await
}

#[tokio::test]
async fn comments_odd_line_ends_and_a_missing_last_blank_line_are_accepted() {
    let expected = "Hello.";
    for stream in [
        ": OPENROUTER PROCESSING\n\ndata:{\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\ndata:[DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
        "\u{feff}\n\nid: 1\nretry: 5\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"}}]}\n\nevent: done\ndata: [DONE]",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null},\"finish_reason\":\"\"}],\"usage\":null,\"error\":null}\n\n\
         data:\n\ndata: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello.\"}]},\"finish_reason\":\"eos\"}]}\n\n",
        "event: message\ndata: {\"choices\":\ndata: [{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\n",
    ] {
        let answer = read_openai_stream(stream).await;
        assert_eq!(
            (answer.text.as_str(), answer.end.stop),
            (expected, StopReason::Done),
            "{stream}"
        );
        assert_eq!(
            answer.end.usage,
            CallUsage::default(),
            "no usage was reported"
        );
    }
}

#[tokio::test]
async fn usage_is_read_from_any_event_and_absurd_values_are_capped_or_ignored() {
    let reported = read_openai_stream(
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}],\
         \"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_cache_hit_tokens\":4}}\n\ndata: [DONE]\n\n",
    );
    let usage = reported.await.end.usage;
    assert_eq!(
        (usage.input.get(), usage.cached.get(), usage.output.get()),
        (10, 4, 2)
    );
    let absurd = read_openai_stream(
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}]}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":18446744073709551615,\"prompt_tokens_details\":{\"cached_tokens\":9007199254740993}}}\n\n",
    );
    let usage = absurd.await.end.usage;
    assert_eq!(
        (usage.input.get(), usage.cached.get()),
        (u64::from(u32::MAX), u64::from(u32::MAX))
    );
    for odd in [
        "\"many\"",
        "{\"prompt_tokens\":-1}",
        "{\"prompt_tokens\":1.5}",
        "[]",
    ] {
        let json = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"Hi.\"}},\"finish_reason\":\"stop\"}}],\"usage\":{odd}}}\n\n"
        );
        let answer =
            read_scripted_answer(Api::OpenAi, move || Script::events([json.as_str()])).await;
        assert_eq!(
            (answer.text.as_str(), answer.end.usage),
            ("Hi.", CallUsage::default()),
            "{odd}"
        );
    }
}

#[tokio::test]
async fn a_whole_answer_instead_of_the_requested_stream_is_accepted() {
    let whole = r#"
        {"choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","reasoning":"Hm.","tool_calls":[
            {"id":"a","type":"function","function":{"name":"look","arguments":"{\"b\": 1.0}"}},
            {"id":"b","type":"function","function":{"name":"listen","arguments":{"a": 1.0}}}
        ]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let answer = read_scripted_answer(Api::OpenAi, move || Script::status(200, &[], whole)).await;
    assert_eq!(
        (answer.text.as_str(), answer.thoughts.as_str()),
        ("Hello.", "Hm.")
    );
    assert_eq!(
        answer.parts,
        [
            call("a", "look", "{\"b\": 1.0}"),
            call("b", "listen", "{\"a\": 1.0}")
        ]
    );
    assert_eq!(
        (answer.end.stop, answer.end.usage.input.get()),
        (StopReason::ToolUse, 3)
    );
}

#[tokio::test]
async fn tool_calls_are_distinguished_by_id_where_the_index_is_ambiguous() {
    let both = [call("a", "look", "{\"x\":1}"), call("b", "listen", "{}")];
    for stream in [
        // All calls have the same index.
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{\"x\""}},{"index":0,"function":{"arguments":":1}"}},{"index":0,"id":"b","function":{"name":"listen","arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
        // The calls have no index.
        r#"data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"look","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"listen","arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
        // Fragments of two calls alternate. The last one has an empty id. Only its index says that
        // it belongs to the second call.
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"x\\\"\"}},{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"listen\"}}]}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"arguments\":\":1}\"}},{\"index\":1,\"id\":\"\",\"function\":{\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}",
    ] {
        let answer = read_openai_stream(stream).await;
        assert_eq!(
            (answer.parts, answer.end.stop),
            (both.to_vec(), StopReason::ToolUse),
            "{stream}"
        );
    }
}

#[tokio::test]
async fn reasoning_repeated_in_two_fields_is_read_once() {
    let answer = read_openai_stream(
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm.\",\"reasoning\":\"Hm.\"}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"reasoning\":\" Well.\",\"reasoning_content\":\"\"}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}]}\n\n",
    );
    assert_eq!(answer.await.thoughts, "Hm. Well.");
}

#[tokio::test]
async fn a_complete_answer_survives_the_loss_of_its_final_events() {
    for api in [Api::OpenAi, Api::Anthropic] {
        let server = ScriptedModel::start(move |request| {
            // The stream ends after this number of events, before its last ones: in OpenAI's
            // protocol the usage and [DONE], in Anthropic's message_stop.
            Script::says(request, [anneal_testkit::Say::text("Hi.")])
                .cut_after(if api == Api::OpenAi { 3 } else { 6 })
        });
        let server = server.await;
        let model: Arc<Model> = server
            .callable(api, &["small"])
            .find("small")
            .expect("it was configured")
            .clone();
        let answer = read_answer(&model, &plain_call(CONTEXT))
            .await
            .expect("it is an answer");
        assert_eq!(
            (answer.text.as_str(), answer.end.stop),
            ("Hi.", StopReason::Done),
            "{api:?}"
        );
    }
}
