//! Models are called in three protocols: what is sent is what was rendered, what is heard is what was said.

use anneal_core::{message::Part, render::Format, tokens::Tokens};
use anneal_llm::provider::{Api, Call, CallCost, CallUsage, End, Model, Piece, StopReason, Tool};
use anneal_tests::{Counted, Gate, Heard, Say, Script, ScriptedModel, hear, hear_rest, plain_call};
use serde_json::{Value, json};

use crate::{APIS, call};

const COUNTED: Counted = Counted { input: 100, cached: 40, written: 0, output: 7 };

/// A context with everything that a second serialisation would change: spaces, escapes, order of keys, long numbers.
fn context(api: Api) -> &'static str {
    match api {
        Api::OpenAi => {
            r#"{"messages":[ {"role":"user","content":"h\u00e9\/ 1.0"}, {"z":1.50,"a":12345678901234567890} ]}"#
        }
        Api::Anthropic => {
            r#"{"system":[{"type":"text","text":"\u0041"}],"messages":[{"role":"user","content":"1e2 "}]}"#
        }
        Api::Gemini => r#"{"systemInstruction":{"parts":[{"text":"b"}]},"contents":[{"role":"user","parts":[ ]}]}"#,
    }
}

fn model(server: &ScriptedModel, api: Api) -> std::sync::Arc<Model> {
    server.callable(api, &["small"]).find("small").expect("it was configured").clone()
}

/// What one scripted answer comes to in one protocol.
async fn heard(api: Api, script: impl Fn() -> Script + Send + Sync + 'static) -> Heard {
    let server = ScriptedModel::start(move |_| script()).await;
    let model = model(&server, api);
    hear(&model, &plain_call(context(api))).await.expect("it is an answer")
}

#[tokio::test]
async fn an_answer_is_heard_with_its_usage_in_every_protocol() {
    for api in APIS {
        let said = Say::texts(&["Hel", "lo, ", "wörld 🌊"]);
        let heard = heard(api, move || Script::says_counted(api, &said, COUNTED)).await;
        assert_eq!(heard.text, "Hello, wörld 🌊", "{api:?}");
        let usage = CallUsage {
            input: Tokens::new(100),
            cached: Tokens::new(40),
            written: Tokens::ZERO,
            output: Tokens::new(7),
        };
        assert_eq!(heard.end, End { stop: StopReason::Done, usage }, "{api:?}");
    }
}

#[tokio::test]
async fn what_anthropic_writes_to_its_cache_is_input_too() {
    let counted = Counted { written: 30, ..COUNTED };
    let usage = heard(Api::Anthropic, move || Script::anthropic(&["Hi."], counted)).await.end.usage;
    assert_eq!((usage.input.get(), usage.cached.get(), usage.written.get()), (100, 40, 30));
}

#[tokio::test]
async fn characters_may_be_split_between_chunks() {
    for api in APIS {
        for bytes in [1, 2, 3, 7] {
            let says = [Say::text("日本語 👩‍👩‍👧 é"), Say::text("ö")];
            let script = move || Script::says_counted(api, &says, COUNTED).in_chunks_of(bytes);
            assert_eq!(heard(api, script).await.text, "日本語 👩‍👩‍👧 éö", "{api:?}, {bytes}");
        }
    }
}

#[tokio::test]
async fn the_rendered_context_is_sent_byte_for_byte() {
    for api in APIS {
        let server = ScriptedModel::saying("Hi.").await;
        let model = model(&server, api);
        hear(&model, &plain_call(context(api))).await.expect("it is an answer");
        let asked = &server.asked()[0];
        assert!(asked.raw.ends_with(&context(api)[1..]), "{}", asked.raw);
        assert!(asked.body.is_object(), "{}", asked.raw);
        assert_eq!(asked.api(), api);
    }
}

fn tools() -> Vec<Tool> {
    let schema = r#"{ "type":"object", "properties":{"z":{},"a":{}} }"#;
    vec![Tool::new("look".into(), "Looks \"around\".".into(), schema.into()).expect("a tool")]
}

/// What is sent besides the context.
async fn besides(api: Api) -> (Value, String, String) {
    let server = ScriptedModel::saying("Hi.").await;
    let model = model(&server, api);
    let tools = tools();
    let call = Call { tools: &tools, temperature: Some(0.7), ..plain_call(context(api)) };
    hear(&model, &call).await.expect("it is an answer");
    let asked = server.asked().remove(0);
    let mut body = asked.body;
    for key in ["messages", "contents", "system", "systemInstruction"] {
        body.as_object_mut().expect("an object").remove(key);
    }
    (body, asked.path, asked.raw)
}

#[tokio::test]
async fn every_protocol_is_asked_for_a_stream_in_its_own_words() {
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let described = |key: &str| json!({"name": "look", "description": "Looks \"around\".", key: schema});
    let heat = json!(0.7_f32.to_string().parse::<f64>().expect("a number"));

    let (body, path, raw) = besides(Api::OpenAi).await;
    let tools = json!([{"type": "function", "function": described("parameters")}]);
    let wanted = json!({"model": "small", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 64,
        "temperature": heat, "tools": tools});
    assert_eq!((body, path.as_str()), (wanted, "/v1/chat/completions"));
    assert!(raw.contains(r#"{ "type":"object", "properties":{"z":{},"a":{}} }"#), "the schema is as it was: {raw}");

    let (body, path, _) = besides(Api::Anthropic).await;
    let tools = json!([described("input_schema")]);
    let wanted = json!({"model": "small", "stream": true, "max_tokens": 64, "temperature": heat, "tools": tools});
    assert_eq!((body, path.as_str()), (wanted, "/v1/messages"));

    let (body, path, _) = besides(Api::Gemini).await;
    let tools = json!([{"functionDeclarations": [described("parametersJsonSchema")]}]);
    let config = json!({"maxOutputTokens": 64, "temperature": heat});
    assert_eq!(body, json!({"generationConfig": config, "tools": tools}));
    assert_eq!(path, "/v1/models/small:streamGenerateContent?alt=sse");
}

#[tokio::test]
async fn no_more_output_is_asked_for_than_the_model_may_write() {
    let server = ScriptedModel::saying("Hi.").await;
    let model = model(&server, Api::OpenAi);
    assert_eq!((model.window(), model.output()), (Tokens::new(8_192), Tokens::new(2_048)));
    let call = Call { output: Tokens::new(1_000_000), ..plain_call(context(Api::OpenAi)) };
    hear(&model, &call).await.expect("it is an answer");
    assert_eq!(server.asked()[0].body["max_tokens"], json!(2_048));
}

#[tokio::test]
async fn calls_of_tools_arrive_whole_and_as_the_model_wrote_them() {
    let (first, second) = (r#"{"b": 1.0,  "a":"\u00e9 🌊"}"#, r#"{"n":12345678901234567890}"#);
    for api in APIS {
        let says = [Say::text("Well."), Say::tool("id-1", "look", first), Say::tool("id-2", "listen", second)];
        let heard = heard(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(heard.parts, [call("id-1", "look", first), call("id-2", "listen", second)], "{api:?}");
        assert_eq!((heard.text.as_str(), heard.end.stop), ("Well.", StopReason::ToolUse), "{api:?}");
    }
}

#[tokio::test]
async fn a_call_without_input_has_an_empty_object_as_input() {
    for api in [Api::OpenAi, Api::Anthropic] {
        let says = [Say::tool("id-1", "look", "")];
        let heard = heard(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(heard.parts, [call("id-1", "look", "{}")], "{api:?}");
    }
}

#[tokio::test]
async fn ids_are_made_where_the_provider_gives_none_or_the_same_one_twice() {
    for api in APIS {
        for id in ["", "twice"] {
            let says = [Say::tool(id, "look", "{}"), Say::tool(id, "listen", "{\"a\":1}")];
            // OpenAI's fragments of one index and one id are one call: there the second call has another index.
            let heard = heard(api, move || Script::says_counted(api, &says, COUNTED)).await;
            let ids: std::collections::HashSet<&str> = heard
                .parts
                .iter()
                .map(|part| if let Part::ToolUse { id, .. } = part { id.as_str() } else { "" })
                .collect();
            assert_eq!(ids.len(), 2, "{api:?}, {id:?}: {ids:?}");
            assert!(!ids.contains(""), "{api:?}, {id:?}");
        }
    }
}

#[tokio::test]
async fn thoughts_are_heard_and_complete_where_they_are_signed() {
    let says = || [Say::thought("Hm, "), Say::thought("well."), Say::Signature("c2ln".into()), Say::text("Hi.")];
    for (api, provider) in [(Api::Anthropic, "anthropic"), (Api::Gemini, "gemini")] {
        let heard = heard(api, move || Script::says_counted(api, &says(), COUNTED)).await;
        assert_eq!((heard.thoughts.as_str(), heard.text.as_str()), ("Hm, well.", "Hi."));
        let (text, signature, provider) = ("Hm, well.".into(), "c2ln".into(), provider.into());
        assert_eq!(heard.parts, [Part::Reasoning { text, signature, provider, redacted: false }], "{api:?}");
    }
    let heard = heard(Api::OpenAi, move || Script::says_counted(Api::OpenAi, &says(), COUNTED)).await;
    assert_eq!((heard.thoughts.as_str(), heard.text.as_str(), heard.parts.len()), ("Hm, well.", "Hi.", 0));
}

#[tokio::test]
async fn thoughts_that_are_hidden_are_kept_as_their_ciphertext() {
    let says = [Say::Redacted("Y2lwaGVy".into()), Say::text("Hi.")];
    let heard = heard(Api::Anthropic, move || Script::says_counted(Api::Anthropic, &says, COUNTED)).await;
    let (signature, provider) = ("Y2lwaGVy".into(), "anthropic".into());
    assert_eq!(heard.parts, [Part::Reasoning { text: String::new(), signature, provider, redacted: true }]);
}

#[tokio::test]
async fn a_gemini_signature_stands_before_the_call_that_it_came_with() {
    let event = r#"data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"look"},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}

"#;
    let heard = heard(Api::Gemini, move || Script::events([event])).await;
    let kinds: Vec<bool> = heard.parts.iter().map(|part| matches!(part, Part::Reasoning { .. })).collect();
    assert_eq!(kinds, [true, false], "{:?}", heard.parts);
}

#[tokio::test]
async fn an_answer_at_its_output_limit_says_so_and_half_a_call_is_left_out() {
    for api in APIS {
        let says = [Say::text("Once upon"), Say::OutOfRoom];
        let heard = heard(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!((heard.text.as_str(), heard.end.stop), ("Once upon", StopReason::OutputLimit), "{api:?}");
    }
    let cut = || {
        let call = r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"at\": \"the s"}}"#;
        Script::events([
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}},\"finish_reason\":\"length\"}}]}}\n\n"
            ),
            "data: [DONE]\n\n".to_owned(),
        ])
    };
    let heard = heard(Api::OpenAi, cut).await;
    assert_eq!((heard.parts, heard.end.stop), (vec![], StopReason::OutputLimit));
}

#[tokio::test]
async fn each_piece_is_there_as_soon_as_it_is_said() {
    for api in APIS {
        let gate = Gate::default();
        let held = gate.clone();
        let server = ScriptedModel::start(move |asked| {
            Script::says(asked, [Say::text("One. "), Say::text("Two.")]).gated(&held)
        });
        let server = server.await;
        let model = model(&server, api);
        let mut pieces = model.stream(&plain_call(context(api))).await.expect("the head is here");
        // Up to the first piece of text: the head of the answer, the ping, the block's start.
        gate.open(if api == Api::Anthropic { 4 } else { 2 });
        let first = pieces.next().await.expect("a piece").expect("no failure");
        assert_eq!(first, Piece::Text("One. ".into()), "{api:?}");
        assert_eq!(server.open_calls(), 1);
        gate.open_for_ever();
        assert_eq!(hear_rest(pieces).await.expect("the rest").text, "Two.");
        server.idle().await;
    }
}

#[tokio::test]
async fn a_dropped_answer_ends_the_call() {
    for api in APIS {
        let server = ScriptedModel::start(|asked| Script::says(asked, [Say::text("One.")]).hanging_after(4)).await;
        let model = model(&server, api);
        let pieces = model.stream(&plain_call(context(api))).await.expect("the head is here");
        assert_eq!(server.open_calls(), 1);
        drop(pieces);
        server.closed_by_client(1).await;
        assert_eq!(server.open_calls(), 0, "{api:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_before_its_answer_begins_ends() {
    let server = ScriptedModel::start(|_| Script::hang()).await;
    let model = model(&server, Api::OpenAi);
    let waiting = tokio::spawn(async move { model.stream(&plain_call(context(Api::OpenAi))).await.is_ok() });
    server.arrived(1).await;
    waiting.abort();
    server.closed_by_client(1).await;
}

#[tokio::test]
async fn a_model_is_called_by_what_its_provider_calls_it() {
    for api in APIS {
        let server = ScriptedModel::saying("Hi.").await;
        let (providers, _) = server.settings_of(api, &[]);
        let said = json!({"ours": {"provider": "scripted", "window_tokens": 100, "served_as": "org/their model"}});
        let models = serde_json::from_value(said).expect("settings");
        let models = anneal_llm::provider::CallableModels::new(&providers, &models).expect("they can work");
        let model = models.find("ours").expect("it was configured");
        assert_eq!((model.name(), model.concurrent_calls()), ("ours", None));
        let format = match api {
            Api::OpenAi => Format::OpenAiChat,
            Api::Anthropic => Format::AnthropicMessages,
            Api::Gemini => Format::GeminiContents,
        };
        assert_eq!(model.format(), format);
        let answer = model.answer(&plain_call(context(api)), &mut CallCost::default()).await.expect("it is an answer");
        assert_eq!(answer.text, "Hi.");
        let asked = &server.asked()[0];
        if api == Api::Gemini {
            assert_eq!(asked.path, "/v1/models/org%2Ftheir%20model:streamGenerateContent?alt=sse");
        } else {
            assert_eq!(asked.body["model"], json!("org/their model"));
        }
    }
}
