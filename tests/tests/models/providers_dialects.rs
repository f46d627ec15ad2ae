//! Servers that say that they speak OpenAI's protocol, as they really speak it.

use std::sync::Arc;

use anneal_llm::provider::{Api, CallUsage, Model, StopReason};
use anneal_tests::{Heard, Script, ScriptedModel, hear, plain_call};

use crate::{CONTEXT, call};

async fn heard_as(api: Api, script: impl Fn() -> Script + Send + Sync + 'static) -> Heard {
    let server = ScriptedModel::start(move |_| script()).await;
    let model: Arc<Model> = server.callable(api, &["small"]).find("small").expect("it was configured").clone();
    hear(&model, &plain_call(CONTEXT)).await.expect("it is an answer")
}

/// What a stream comes to that is written out in full.
async fn heard(stream: &'static str) -> Heard {
    heard_as(Api::OpenAi, move || Script::status(200, &[("content-type", "text/event-stream")], stream)).await
}

#[tokio::test]
async fn comments_odd_line_ends_and_a_missing_last_blank_line_do_no_harm() {
    let wanted = "Hello.";
    for stream in [
        ": OPENROUTER PROCESSING\n\ndata:{\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\ndata:[DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
        "\u{feff}\n\nid: 1\nretry: 5\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"}}]}\n\nevent: done\ndata: [DONE]",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null},\"finish_reason\":\"\"}],\"usage\":null,\"error\":null}\n\n\
         data:\n\ndata: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello.\"}]},\"finish_reason\":\"eos\"}]}\n\n",
        "event: message\ndata: {\"choices\":\ndata: [{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\n",
    ] {
        let heard = heard(stream).await;
        assert_eq!((heard.text.as_str(), heard.end.stop), (wanted, StopReason::Done), "{stream}");
        assert_eq!(heard.end.usage, CallUsage::default(), "nothing was said of usage");
    }
}

#[tokio::test]
async fn usage_is_read_wherever_it_stands_and_never_believed_beyond_reason() {
    let usage = heard(
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}],\
         \"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_cache_hit_tokens\":4}}\n\ndata: [DONE]\n\n",
    );
    let usage = usage.await.end.usage;
    assert_eq!((usage.input.get(), usage.cached.get(), usage.output.get()), (10, 4, 2));
    let boast = heard(
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}]}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":18446744073709551615,\"prompt_tokens_details\":{\"cached_tokens\":9007199254740993}}}\n\n",
    );
    let usage = boast.await.end.usage;
    assert_eq!((usage.input.get(), usage.cached.get()), (u64::from(u32::MAX), u64::from(u32::MAX)));
    for odd in ["\"many\"", "{\"prompt_tokens\":-1}", "{\"prompt_tokens\":1.5}", "[]"] {
        let json = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"Hi.\"}},\"finish_reason\":\"stop\"}}],\"usage\":{odd}}}\n\n"
        );
        let heard = heard_as(Api::OpenAi, move || Script::events([json.as_str()])).await;
        assert_eq!((heard.text.as_str(), heard.end.usage), ("Hi.", CallUsage::default()), "{odd}");
    }
}

#[tokio::test]
async fn an_answer_that_came_whole_although_a_stream_was_asked_for_is_an_answer() {
    let whole = r#"
        {"choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","reasoning":"Hm.","tool_calls":[
            {"id":"a","type":"function","function":{"name":"look","arguments":"{\"b\": 1.0}"}},
            {"id":"b","type":"function","function":{"name":"listen","arguments":{"a": 1.0}}}
        ]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let heard = heard_as(Api::OpenAi, move || Script::status(200, &[], whole)).await;
    assert_eq!((heard.text.as_str(), heard.thoughts.as_str()), ("Hello.", "Hm."));
    assert_eq!(heard.parts, [call("a", "look", "{\"b\": 1.0}"), call("b", "listen", "{\"a\": 1.0}")]);
    assert_eq!((heard.end.stop, heard.end.usage.input.get()), (StopReason::ToolUse, 3));
}

#[tokio::test]
async fn calls_are_told_apart_by_id_where_the_index_does_not() {
    let both = [call("a", "look", "{\"x\":1}"), call("b", "listen", "{}")];
    for stream in [
        // One index for all.
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{\"x\""}},{"index":0,"function":{"arguments":":1}"}},{"index":0,"id":"b","function":{"name":"listen","arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
        // No index at all.
        r#"data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"look","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"listen","arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
        // Fragments that take turns, the id repeated.
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"x\\\"\"}},{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"listen\"}}]}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"arguments\":\":1}\"}},{\"index\":1,\"id\":\"\",\"function\":{\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}",
    ] {
        let heard = heard(stream).await;
        assert_eq!((heard.parts, heard.end.stop), (both.to_vec(), StopReason::ToolUse), "{stream}");
    }
}

#[tokio::test]
async fn thoughts_are_heard_once_where_two_fields_say_them() {
    let heard = heard(
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm.\",\"reasoning\":\"Hm.\"}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"reasoning\":\" Well.\",\"reasoning_content\":\"\"}}]}\n\n\
         data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}]}\n\n",
    );
    assert_eq!(heard.await.thoughts, "Hm. Well.");
}

#[tokio::test]
async fn an_answer_that_is_complete_survives_the_loss_of_its_goodbye() {
    for api in [Api::OpenAi, Api::Anthropic] {
        let server = ScriptedModel::start(move |asked| {
            // All but the last events: usage and [DONE], message_stop.
            Script::says(asked, [anneal_tests::Say::text("Hi.")]).cut_after(if api == Api::OpenAi { 3 } else { 6 })
        });
        let server = server.await;
        let model: Arc<Model> = server.callable(api, &["small"]).find("small").expect("it was configured").clone();
        let heard = hear(&model, &plain_call(CONTEXT)).await.expect("it is an answer");
        assert_eq!((heard.text.as_str(), heard.end.stop), ("Hi.", StopReason::Done), "{api:?}");
    }
}
