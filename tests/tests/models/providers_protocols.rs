//! Requests and answers in three protocols: the rendered context is sent unchanged, and the answer
//! is read unchanged.

use anneal_core::{message::Part, render::Format, tokens::Tokens};
use anneal_llm::provider::{
    Api, Call, CallCost, CallUsage, ChatOptions, End, Model, Piece, StopReason, Tool,
};
use anneal_testkit::{
    Gate, ModelAnswer, ReportedUsage, Say, Script, ScriptedModel, plain_call, read_answer,
    read_rest,
};
use serde_json::{Value, json};

use crate::{APIS, call};

/// The token usage that the scripted model reports.
const COUNTED: ReportedUsage = ReportedUsage {
    input: 100,
    cached: 40,
    written: 0,
    long_written: 0,
    output: 7,
    reasoning: 0,
};

/// A context that a second serialization would change: spaces, escapes, key order, long numbers.
fn exact_context(api: Api) -> &'static str {
    match api {
        Api::OpenAi => {
            r#"{"messages":[ {"role":"user","content":"h\u00e9\/ 1.0"}, {"z":1.50,"a":12345678901234567890} ]}"#
        }
        Api::Anthropic => {
            r#"{"system":[{"type":"text","text":"\u0041"}],"messages":[{"role":"user","content":"1e2 "}]}"#
        }
        Api::Gemini => {
            r#"{"systemInstruction":{"parts":[{"text":"b"}]},"contents":[{"role":"user","parts":[ ]}]}"#
        }
    }
}

fn model(server: &ScriptedModel, api: Api) -> std::sync::Arc<Model> {
    server
        .callable(api, &["small"])
        .find("small")
        .expect("it was configured")
        .clone()
}

/// Lets a model answer with this script in this protocol, and reads the answer.
async fn read_scripted_answer(
    api: Api,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> ModelAnswer {
    let server = ScriptedModel::start(move |_| script()).await;
    let model = model(&server, api);
    read_answer(&model, &plain_call(exact_context(api)))
        .await
        .expect("it is an answer")
}

#[tokio::test]
async fn every_protocol_yields_the_answer_and_its_usage() {
    for api in APIS {
        let says = Say::texts(&["Hel", "lo, ", "wörld 🌊"]);
        let answer =
            read_scripted_answer(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(answer.text, "Hello, wörld 🌊", "{api:?}");
        let usage = CallUsage {
            input: Tokens::new(100),
            cached: Tokens::new(40),
            written: Tokens::ZERO,
            output: Tokens::new(7),
            long_written: Tokens::ZERO,
            reasoning: Tokens::ZERO,
        };
        assert_eq!(
            answer.end,
            End {
                stop: StopReason::Done,
                usage
            },
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn anthropic_cache_writes_count_as_input() {
    let counted = ReportedUsage {
        written: 30,
        ..COUNTED
    };
    let usage = read_scripted_answer(Api::Anthropic, move || Script::anthropic(&["Hi."], counted))
        .await
        .end
        .usage;
    assert_eq!(
        (usage.input.get(), usage.cached.get(), usage.written.get()),
        (100, 40, 30)
    );
}

#[tokio::test]
async fn thoughts_are_counted_apart_where_the_provider_does() {
    let counted = ReportedUsage {
        reasoning: 5,
        ..COUNTED
    };
    let usage = read_scripted_answer(Api::OpenAi, move || Script::openai(&["Hi."], counted))
        .await
        .end
        .usage;
    assert_eq!((usage.output.get(), usage.reasoning.get()), (7, 5));
    let impossible = ReportedUsage {
        reasoning: 8,
        ..COUNTED
    };
    let usage = read_scripted_answer(Api::OpenAi, move || Script::openai(&["Hi."], impossible))
        .await
        .end
        .usage;
    assert_eq!(usage.reasoning, usage.output);
    let said = json!({
        "candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 100, "candidatesTokenCount": 7, "thoughtsTokenCount": 5,
        },
    });
    let event = format!("data: {said}\n\n");
    let usage = read_scripted_answer(Api::Gemini, move || Script::events(vec![event.clone()]))
        .await
        .end
        .usage;
    assert_eq!((usage.output.get(), usage.reasoning.get()), (12, 5));
}

#[tokio::test]
async fn tokens_written_to_a_cache_are_read_from_the_usage_of_openai_and_of_anthropic() {
    let usage = json!({
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 30},
    });
    let said =
        json!({"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]});
    let openai = [
        format!("data: {said}\n\n"),
        format!("data: {}\n\n", json!({"choices": [], "usage": usage})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let usage = json!({
        "input_tokens": 30,
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens": 1,
    });
    let block = json!({"type": "text", "text": ""});
    let delta = json!({"type": "text_delta", "text": "Hi."});
    let anthropic = [
        json!({"type": "message_start", "message": {"usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]
    .map(|event| format!("data: {event}\n\n"));
    for (api, events, long_written) in [
        (Api::OpenAi, openai.to_vec(), 0),
        (Api::Anthropic, anthropic.to_vec(), 20),
    ] {
        let server = ScriptedModel::start(move |_| Script::events(events.clone())).await;
        let model = model(&server, api);
        let answer = read_answer(&model, &plain_call("{}"))
            .await
            .expect("it answers");
        let usage = answer.end.usage;
        let counts = [
            usage.input,
            usage.cached,
            usage.written,
            usage.long_written,
            usage.output,
        ];
        assert_eq!(
            counts.map(Tokens::get),
            [100, 40, 30, long_written, 7],
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn characters_split_between_chunks_are_joined() {
    for api in APIS {
        for bytes in [1, 2, 3, 7] {
            let says = [Say::text("日本語 👩‍👩‍👧 é"), Say::text("ö")];
            let script = move || Script::says_counted(api, &says, COUNTED).in_chunks_of(bytes);
            assert_eq!(
                read_scripted_answer(api, script).await.text,
                "日本語 👩‍👩‍👧 éö",
                "{api:?}, {bytes}"
            );
        }
    }
}

#[tokio::test]
async fn the_rendered_context_is_sent_byte_for_byte() {
    for api in APIS {
        let server = ScriptedModel::saying("Hi.").await;
        let model = model(&server, api);
        read_answer(&model, &plain_call(exact_context(api)))
            .await
            .expect("it is an answer");
        let request = &server.requests()[0];
        assert!(
            request.raw.ends_with(&exact_context(api)[1..]),
            "{}",
            request.raw
        );
        assert!(request.body.is_object(), "{}", request.raw);
        assert_eq!(request.api(), api);
    }
}

fn tools() -> Vec<Tool> {
    let schema = r#"{ "type":"object", "properties":{"z":{},"a":{}} }"#;
    vec![Tool::new("look".into(), "Looks \"around\".".into(), schema.into()).expect("a tool")]
}

/// Calls a model. Returns the request's body without the context, its path, and its raw text.
async fn send_request(api: Api) -> (Value, String, String) {
    let server = ScriptedModel::saying("Hi.").await;
    let model = model(&server, api);
    let options = ChatOptions {
        tools: Some(tools()),
        temperature: Some(0.7),
        ..ChatOptions::default()
    };
    let call = Call {
        options: &options,
        ..plain_call(exact_context(api))
    };
    read_answer(&model, &call).await.expect("it is an answer");
    let request = server.requests().remove(0);
    let mut body = request.body;
    for key in ["messages", "contents", "system", "systemInstruction"] {
        body.as_object_mut().expect("an object").remove(key);
    }
    (body, request.path, request.raw)
}

#[tokio::test]
async fn every_protocol_requests_a_stream_in_its_own_format() {
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let described =
        |key: &str| json!({"name": "look", "description": "Looks \"around\".", key: schema});
    // The temperature 0.7, as the body has it.
    let temperature = json!(0.7_f32.to_string().parse::<f64>().expect("a number"));

    let (body, path, raw) = send_request(Api::OpenAi).await;
    let tools = json!([{"type": "function", "function": described("parameters")}]);
    let expected = json!({"model": "small", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 64,
        "temperature": temperature, "tools": tools});
    assert_eq!((body, path.as_str()), (expected, "/v1/chat/completions"));
    assert!(
        raw.contains(r#"{ "type":"object", "properties":{"z":{},"a":{}} }"#),
        "the schema is sent unchanged: {raw}"
    );

    let (body, path, _) = send_request(Api::Anthropic).await;
    let tools = json!([described("input_schema")]);
    let expected = json!({"model": "small", "stream": true, "max_tokens": 64, "temperature": temperature, "tools": tools});
    assert_eq!((body, path.as_str()), (expected, "/v1/messages"));

    let (body, path, _) = send_request(Api::Gemini).await;
    let tools = json!([{"functionDeclarations": [described("parametersJsonSchema")]}]);
    let config = json!({"maxOutputTokens": 64, "temperature": temperature});
    assert_eq!(body, json!({"generationConfig": config, "tools": tools}));
    assert_eq!(path, "/v1/models/small:streamGenerateContent?alt=sse");
}

#[tokio::test]
async fn the_output_limit_is_capped_by_the_models_limit() {
    let server = ScriptedModel::saying("Hi.").await;
    let model = model(&server, Api::OpenAi);
    assert_eq!(
        (model.window(), model.output()),
        (Tokens::new(8_192), Tokens::new(2_048))
    );
    let call = Call {
        output: Tokens::new(1_000_000),
        ..plain_call(exact_context(Api::OpenAi))
    };
    read_answer(&model, &call).await.expect("it is an answer");
    assert_eq!(server.requests()[0].body["max_tokens"], json!(2_048));
}

#[tokio::test]
async fn tool_calls_arrive_whole_and_unchanged() {
    let (first, second) = (
        r#"{"b": 1.0,  "a":"\u00e9 🌊"}"#,
        r#"{"n":12345678901234567890}"#,
    );
    for api in APIS {
        let says = [
            Say::text("Well."),
            Say::tool("id-1", "look", first),
            Say::tool("id-2", "listen", second),
        ];
        let answer =
            read_scripted_answer(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(
            answer.parts,
            [call("id-1", "look", first), call("id-2", "listen", second)],
            "{api:?}"
        );
        assert_eq!(
            (answer.text.as_str(), answer.end.stop),
            ("Well.", StopReason::ToolUse),
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn a_call_without_input_has_an_empty_object_as_input() {
    for api in [Api::OpenAi, Api::Anthropic] {
        let says = [Say::tool("id-1", "look", "")];
        let answer =
            read_scripted_answer(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(answer.parts, [call("id-1", "look", "{}")], "{api:?}");
    }
}

#[tokio::test]
async fn missing_or_duplicate_tool_call_ids_are_replaced() {
    for api in APIS {
        for id in ["", "twice"] {
            let says = [
                Say::tool(id, "look", "{}"),
                Say::tool(id, "listen", "{\"a\":1}"),
            ];
            // In OpenAI's protocol fragments with the same index and id form one call, so the
            // second call has another index there.
            let answer =
                read_scripted_answer(api, move || Script::says_counted(api, &says, COUNTED)).await;
            let ids: std::collections::HashSet<&str> = answer
                .parts
                .iter()
                .map(|part| {
                    if let Part::ToolUse { id, .. } = part {
                        id.as_str()
                    } else {
                        ""
                    }
                })
                .collect();
            assert_eq!(ids.len(), 2, "{api:?}, {id:?}: {ids:?}");
            assert!(!ids.contains(""), "{api:?}, {id:?}");
        }
    }
}

#[tokio::test]
async fn reasoning_is_streamed_and_becomes_a_part_of_the_message_if_it_is_signed() {
    let says = || {
        [
            Say::thought("Hm, "),
            Say::thought("well."),
            Say::Signature("c2ln".into()),
            Say::text("Hi."),
        ]
    };
    for (api, provider) in [(Api::Anthropic, "anthropic"), (Api::Gemini, "gemini")] {
        let answer =
            read_scripted_answer(api, move || Script::says_counted(api, &says(), COUNTED)).await;
        assert_eq!(
            (answer.thoughts.as_str(), answer.text.as_str()),
            ("Hm, well.", "Hi.")
        );
        let (text, signature, provider) = ("Hm, well.".into(), "c2ln".into(), provider.into());
        assert_eq!(
            answer.parts,
            [Part::Reasoning {
                text,
                signature,
                provider,
                redacted: false
            }],
            "{api:?}"
        );
    }
    let answer = read_scripted_answer(Api::OpenAi, move || {
        Script::says_counted(Api::OpenAi, &says(), COUNTED)
    })
    .await;
    assert_eq!(
        (
            answer.thoughts.as_str(),
            answer.text.as_str(),
            answer.parts.len()
        ),
        ("Hm, well.", "Hi.", 0)
    );
}

#[tokio::test]
async fn redacted_reasoning_is_kept_as_its_ciphertext() {
    let says = [Say::Redacted("Y2lwaGVy".into()), Say::text("Hi.")];
    let answer = read_scripted_answer(Api::Anthropic, move || {
        Script::says_counted(Api::Anthropic, &says, COUNTED)
    })
    .await;
    let (signature, provider) = ("Y2lwaGVy".into(), "anthropic".into());
    assert_eq!(
        answer.parts,
        [Part::Reasoning {
            text: String::new(),
            signature,
            provider,
            redacted: true
        }]
    );
}

#[tokio::test]
async fn a_gemini_signature_precedes_its_tool_call() {
    let event = r#"data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"look"},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}

"#;
    let answer = read_scripted_answer(Api::Gemini, move || Script::events([event])).await;
    let are_reasoning: Vec<bool> = answer
        .parts
        .iter()
        .map(|part| matches!(part, Part::Reasoning { .. }))
        .collect();
    assert_eq!(are_reasoning, [true, false], "{:?}", answer.parts);
}

#[tokio::test]
async fn an_answer_at_its_output_limit_is_marked_and_lacks_an_incomplete_tool_call() {
    for api in APIS {
        let says = [Say::text("Once upon"), Say::OutputLimit];
        let answer =
            read_scripted_answer(api, move || Script::says_counted(api, &says, COUNTED)).await;
        assert_eq!(
            (answer.text.as_str(), answer.end.stop),
            ("Once upon", StopReason::OutputLimit),
            "{api:?}"
        );
    }
    let cut = || {
        let call =
            r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"at\": \"the s"}}"#;
        Script::events([
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}},\"finish_reason\":\"length\"}}]}}\n\n"
            ),
            "data: [DONE]\n\n".to_owned(),
        ])
    };
    let answer = read_scripted_answer(Api::OpenAi, cut).await;
    assert_eq!(
        (answer.parts, answer.end.stop),
        (vec![], StopReason::OutputLimit)
    );
}

#[tokio::test]
async fn each_chunk_is_delivered_as_soon_as_it_arrives() {
    for api in APIS {
        let gate = Gate::default();
        let held = gate.clone();
        let server = ScriptedModel::start(move |request| {
            Script::says(request, [Say::text("One. "), Say::text("Two.")]).gated(&held)
        });
        let server = server.await;
        let model = model(&server, api);
        let mut pieces = model
            .stream(&plain_call(exact_context(api)))
            .await
            .expect("the response headers are received");
        // The events up to the first text. Anthropic's protocol has three before it: the start of
        // the message, the start of the block and a ping. OpenAI's has one. Gemini's has none, so
        // its second text may pass too.
        gate.open(if api == Api::Anthropic { 4 } else { 2 });
        let first = pieces.next().await.expect("a piece").expect("no failure");
        assert_eq!(first, Piece::Text("One. ".into()), "{api:?}");
        assert_eq!(server.open_calls(), 1);
        gate.open_for_ever();
        assert_eq!(read_rest(pieces).await.expect("the rest").text, "Two.");
        server.wait_until_idle().await;
    }
}

#[tokio::test]
async fn dropping_an_answer_ends_the_call() {
    for api in APIS {
        let server = ScriptedModel::start(|request| {
            Script::says(request, [Say::text("One.")]).hanging_after(4)
        })
        .await;
        let model = model(&server, api);
        let pieces = model
            .stream(&plain_call(exact_context(api)))
            .await
            .expect("the response headers are received");
        assert_eq!(server.open_calls(), 1);
        drop(pieces);
        server.wait_for_closed_calls(1).await;
        assert_eq!(server.open_calls(), 0, "{api:?}");
    }
}

#[tokio::test]
async fn dropping_a_call_before_its_answer_begins_ends_it() {
    let server = ScriptedModel::start(|_| Script::hang()).await;
    let model = model(&server, Api::OpenAi);
    let waiting = tokio::spawn(async move {
        model
            .stream(&plain_call(exact_context(Api::OpenAi)))
            .await
            .is_ok()
    });
    server.wait_for_calls(1).await;
    waiting.abort();
    server.wait_for_closed_calls(1).await;
}

#[tokio::test]
async fn a_model_is_requested_by_its_providers_name_for_it() {
    for api in APIS {
        let server = ScriptedModel::saying("Hi.").await;
        let (providers, _) = server.settings_of(api, &[]);
        let settings = json!({"ours": {"provider": "scripted", "window_tokens": 100, "served_as": "org/their model"}});
        let models = serde_json::from_value(settings).expect("settings");
        let models = anneal_llm::provider::CallableModels::new(&providers, &models)
            .expect("the settings are valid");
        let model = models.find("ours").expect("it was configured");
        assert_eq!((model.name(), model.concurrent_calls()), ("ours", None));
        let format = match api {
            Api::OpenAi => Format::OpenAiChat,
            Api::Anthropic => Format::AnthropicMessages,
            Api::Gemini => Format::GeminiContents,
        };
        assert_eq!(model.format(), format);
        let answer = model
            .stream_and_record_cost(&plain_call(exact_context(api)), &mut CallCost::default())
            .await
            .expect("it begins")
            .read_whole()
            .await
            .expect("it is an answer");
        assert_eq!(answer.text, "Hi.");
        let request = &server.requests()[0];
        if api == Api::Gemini {
            assert_eq!(
                request.path,
                "/v1/models/org%2Ftheir%20model:streamGenerateContent?alt=sse"
            );
        } else {
            assert_eq!(request.body["model"], json!("org/their model"));
        }
    }
}
