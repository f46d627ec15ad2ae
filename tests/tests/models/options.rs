//! Options of calls: each is sent as its provider's protocol has it, or refused by its name.

use std::{collections::BTreeMap, sync::Arc};

use anneal_core::{
    cache::{CacheKind, CacheTtl},
    chat_options::{ChatOption, ChatOptions, ReasoningEffort, ResponseFormat, Tool, ToolChoice},
    model::Models,
};
use anneal_llm::provider::{Api, Call, CallableModels, Model, Providers, models_without_cache};
use anneal_testkit::{
    Folder, ModelRequest, ScriptedModel, TestApp, assert_refused, pb, plain_call, read_answer,
};
use serde_json::{Value, json};
use tonic::Code;

/// A schema that a second serialization would change: blanks, the order of keys, a number.
const SCHEMA: &str = r#"{ "type":"object", "properties":{"z":{"minimum":1.50},"a":{}} }"#;

/// The model with this name, at a provider with these settings.
fn model(provider: &Value, name: &str) -> Arc<Model> {
    let providers = serde_json::from_value(json!({"p": provider})).expect("settings of a provider");
    let settings = json!({"provider": "p", "window_tokens": 8_192});
    let models = serde_json::from_value(json!({name: settings})).expect("settings of a model");
    let models = CallableModels::new(&providers, &models).expect("the settings are valid");
    Arc::clone(models.find(name).expect("it was configured"))
}

/// Calls the model with this name. Returns the request that its provider has received.
async fn send(api: Api, name: &str, options: &ChatOptions) -> ModelRequest {
    send_call(
        &json!({"api": api}),
        name,
        Call {
            options,
            ..plain_call("{}")
        },
    )
    .await
}

/// Makes a call at a provider with these settings. Returns the request.
async fn send_call(provider: &Value, name: &str, call: Call<'_>) -> ModelRequest {
    let server = ScriptedModel::saying("Hi.").await;
    let mut provider = provider.clone();
    provider["url"] = json!(server.url());
    let model = model(&provider, name);
    let accepted = model.check_options(call.options);
    accepted.expect("the model accepts the options");
    read_answer(&model, &call).await.expect("it answers");
    server.requests().remove(0)
}

fn tool(name: &str) -> Tool {
    Tool::new(name.into(), "Looks around.".into(), "{}".into()).expect("a tool")
}

fn schema() -> ResponseFormat {
    ResponseFormat::JsonSchema {
        name: "place".into(),
        schema: SCHEMA.into(),
        strict: true,
    }
}

fn labels(key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), "blue".to_owned())])
}

/// Two tools and this choice of one of them.
fn choosing(choice: ToolChoice) -> ChatOptions {
    ChatOptions {
        tools: Some(vec![tool("look"), tool("listen")]),
        tool_choice: Some(choice),
        ..ChatOptions::default()
    }
}

/// The choices of a tool.
fn choices() -> [ToolChoice; 4] {
    [
        ToolChoice::Auto,
        ToolChoice::None,
        ToolChoice::Required,
        ToolChoice::Named("listen".into()),
    ]
}

#[tokio::test]
async fn openais_protocol_gets_every_option_under_its_name() {
    let options = ChatOptions {
        parallel_tool_calls: Some(false),
        response_format: Some(schema()),
        top_p: Some(0.5),
        stop: Some(vec!["END".into(), "STOP".into()]),
        reasoning_effort: Some(ReasoningEffort::XHigh),
        metadata: Some(labels("team")),
        ..choosing(ToolChoice::Auto)
    };
    let request = send(Api::OpenAi, "small", &options).await;
    let body = &request.body;
    assert_eq!(body["parallel_tool_calls"], false);
    assert_eq!(body["top_p"], 0.5);
    assert_eq!(body["stop"], json!(["END", "STOP"]));
    assert_eq!(body["reasoning_effort"], "xhigh");
    assert_eq!(body["metadata"], json!({"team": "blue"}));
    let format = &body["response_format"];
    assert_eq!(format["type"], "json_schema");
    let shape = &format["json_schema"];
    assert_eq!(
        (&shape["name"], &shape["strict"]),
        (&json!("place"), &json!(true))
    );
    assert!(
        request.raw.contains(&format!("\"schema\":{SCHEMA}")),
        "the schema is sent unchanged: {}",
        request.raw
    );
    let object = ChatOptions {
        response_format: Some(ResponseFormat::JsonObject),
        ..ChatOptions::default()
    };
    let request = send(Api::OpenAi, "small", &object).await;
    assert_eq!(
        request.body["response_format"],
        json!({"type": "json_object"})
    );
}

#[tokio::test]
async fn a_choice_of_a_tool_is_sent_as_each_protocol_has_it() {
    let named = json!({"type": "function", "function": {"name": "listen"}});
    let expected = [json!("auto"), json!("none"), json!("required"), named];
    for (choice, expected) in choices().into_iter().zip(expected) {
        let request = send(Api::OpenAi, "small", &choosing(choice)).await;
        assert_eq!(request.body["tool_choice"], expected);
        assert!(request.body.get("parallel_tool_calls").is_none());
    }
    let named = json!({"type": "tool", "name": "listen"});
    let expected = [
        json!({"type": "auto"}),
        json!({"type": "none"}),
        json!({"type": "any"}),
        named,
    ];
    for (choice, expected) in choices().into_iter().zip(expected) {
        let request = send(Api::Anthropic, "small", &choosing(choice)).await;
        assert_eq!(request.body["tool_choice"], expected);
    }
    let expected = [
        json!({"mode": "AUTO"}),
        json!({"mode": "NONE"}),
        json!({"mode": "ANY"}),
        json!({"mode": "ANY", "allowedFunctionNames": ["listen"]}),
    ];
    for (choice, expected) in choices().into_iter().zip(expected) {
        let request = send(Api::Gemini, "small", &choosing(choice)).await;
        let config = &request.body["toolConfig"]["functionCallingConfig"];
        assert_eq!(*config, expected);
    }
}

#[tokio::test]
async fn options_of_tools_are_not_sent_without_tools() {
    let options = ChatOptions {
        tool_choice: Some(ToolChoice::None),
        parallel_tool_calls: Some(true),
        ..ChatOptions::default()
    };
    for api in crate::APIS {
        let body = send(api, "small", &options).await.body;
        for field in ["tool_choice", "parallel_tool_calls", "toolConfig"] {
            assert!(body.get(field).is_none(), "{api:?}, {field}");
        }
    }
}

#[tokio::test]
async fn anthropic_gets_shape_effort_and_labels_in_its_own_fields() {
    let options = ChatOptions {
        parallel_tool_calls: Some(false),
        response_format: Some(schema()),
        stop: Some(vec!["END".into()]),
        reasoning_effort: Some(ReasoningEffort::Max),
        metadata: Some(labels("user_id")),
        ..choosing(ToolChoice::Auto)
    };
    let request = send(Api::Anthropic, "claude-opus-4-6", &options).await;
    let body = &request.body;
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(body["tool_choice"], choice);
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"]["effort"], "max");
    assert_eq!(body["output_config"]["format"]["type"], "json_schema");
    assert!(
        request.raw.contains(&format!("\"schema\":{SCHEMA}")),
        "{}",
        request.raw
    );
    assert_eq!(body["metadata"], json!({"user_id": "blue"}));

    let without_choice = ChatOptions {
        tool_choice: None,
        ..options
    };
    let request = send(Api::Anthropic, "claude-opus-4-6", &without_choice).await;
    assert_eq!(request.body["tool_choice"], choice);

    let effort = |effort| ChatOptions {
        reasoning_effort: Some(effort),
        ..ChatOptions::default()
    };
    let off = send(
        Api::Anthropic,
        "claude-opus-4-8",
        &effort(ReasoningEffort::None),
    )
    .await;
    assert_eq!(off.body["thinking"], json!({"type": "disabled"}));
    assert!(off.body.get("output_config").is_none(), "{}", off.raw);
    // This model has efforts, and thinking that is asked for otherwise.
    let low = send(
        Api::Anthropic,
        "claude-opus-4-5",
        &effort(ReasoningEffort::Low),
    )
    .await;
    assert_eq!(low.body["output_config"], json!({"effort": "low"}));
    assert!(low.body.get("thinking").is_none(), "{}", low.raw);
}

#[tokio::test]
async fn gemini_gets_shape_and_effort_in_its_generation_config() {
    let options = ChatOptions {
        response_format: Some(schema()),
        top_p: Some(0.5),
        stop: Some(vec!["END".into()]),
        reasoning_effort: Some(ReasoningEffort::Minimal),
        ..choosing(ToolChoice::Auto)
    };
    let request = send(Api::Gemini, "gemini-3.5-flash", &options).await;
    let config = &request.body["generationConfig"];
    assert_eq!(config["topP"], 0.5);
    assert_eq!(config["stopSequences"], json!(["END"]));
    assert_eq!(
        config["thinkingConfig"],
        json!({"thinkingLevel": "MINIMAL"})
    );
    assert_eq!(config["responseMimeType"], "application/json");
    let field = format!("\"responseJsonSchema\":{SCHEMA}");
    assert!(request.raw.contains(&field), "{}", request.raw);
    let object = ChatOptions {
        response_format: Some(ResponseFormat::JsonObject),
        ..ChatOptions::default()
    };
    let body = send(Api::Gemini, "gemini-2.5-pro", &object).await.body;
    let config = &body["generationConfig"];
    assert_eq!(config["responseMimeType"], "application/json");
    assert!(config.get("responseJsonSchema").is_none());
}

#[tokio::test]
async fn tools_that_are_not_to_be_called_are_declared_where_a_shape_does_not_exclude_them() {
    let options = ChatOptions {
        response_format: Some(schema()),
        ..choosing(ToolChoice::None)
    };
    for (name, declares) in [("gemini-3.5-flash", true), ("gemini-2.5-flash", false)] {
        let body = send(Api::Gemini, name, &options).await.body;
        assert_eq!(body.get("tools").is_some(), declares, "{name}");
        assert_eq!(body.get("toolConfig").is_some(), declares, "{name}");
    }
}

#[tokio::test]
async fn marked_tools_have_the_mark_on_the_last_of_them() {
    let options = choosing(ToolChoice::Auto);
    for (ttl, control) in [
        (CacheTtl::FiveMinutes, json!({"type": "ephemeral"})),
        (CacheTtl::OneHour, json!({"type": "ephemeral", "ttl": "1h"})),
    ] {
        let call = Call {
            options: &options,
            mark_tools: Some(ttl),
            ..plain_call("{}")
        };
        let body = send_call(&json!({"api": "anthropic"}), "small", call)
            .await
            .body;
        assert!(body["tools"][0].get("cache_control").is_none());
        assert_eq!(body["tools"][1]["cache_control"], control);
    }
    let body = send(Api::Anthropic, "small", &options).await.body;
    assert!(body["tools"][1].get("cache_control").is_none());
}

#[tokio::test]
async fn openais_cache_is_asked_for_only_where_it_is() {
    let call = Call {
        cache_key: Some("k-1"),
        long_retention: true,
        ..plain_call("{}")
    };
    let on = json!({"api": "openai", "prompt_cache": "on"});
    for (name, retention) in [
        ("gpt-5.5", json!("24h")),
        ("gpt-5.6", Value::Null),
        ("gpt-4o", Value::Null),
    ] {
        let body = send_call(&on, name, call).await.body;
        assert_eq!(body["prompt_cache_key"], "k-1", "{name}");
        assert_eq!(body["prompt_cache_retention"], retention, "{name}");
    }
    let short = Call {
        long_retention: false,
        ..call
    };
    let body = send_call(&on, "gpt-5.5", short).await.body;
    assert!(body.get("prompt_cache_retention").is_none());
    // Servers that implement the protocol may refuse the fields.
    for provider in [
        json!({"api": "openai"}),
        json!({"api": "openai", "prompt_cache": "auto"}),
        json!({"api": "openai", "prompt_cache": "none"}),
        json!({"api": "gemini", "prompt_cache": "on"}),
        json!({"api": "anthropic"}),
    ] {
        let body = send_call(&provider, "gpt-5.5", call).await.body;
        for field in ["prompt_cache_key", "prompt_cache_retention"] {
            assert!(body.get(field).is_none(), "{provider}, {field}");
        }
    }
}

#[test]
fn without_the_protocols_own_cache_an_ideal_one_is_assumed() {
    let kind = |provider: &Value, name| model(provider, name).cache_rules().kind;
    let at = |api: &str, setting: &str| json!({"api": api, "url": "http://127.0.0.1:9/v1", "prompt_cache": setting});
    for (api, setting) in [("openai", "auto"), ("openai", "none"), ("gemini", "auto")] {
        let found = kind(&at(api, setting), "claude-opus-4-8");
        assert_eq!(found, CacheKind::None, "{api}, {setting}");
    }
}

#[test]
fn anthropics_protocol_caches_nothing_where_it_is_not_asked_to() {
    let url = "http://127.0.0.1:9/v1";
    for (setting, asks) in [("auto", true), ("on", true), ("none", false)] {
        let provider = json!({"api": "anthropic", "url": url, "prompt_cache": setting});
        let model = model(&provider, "claude-opus-4-8");
        assert_eq!(model.cache_rules().kind, CacheKind::Marked, "{setting}");
        assert_eq!(model.asks_for_cache(), asks, "{setting}");
    }
}

#[test]
fn the_models_without_a_cache_are_those_whose_requests_do_not_ask_for_one() {
    let providers = json!({
        "silent": {"api": "anthropic", "url": "http://127.0.0.1:9/v1", "prompt_cache": "none"},
        "marked": {"api": "anthropic", "url": "http://127.0.0.1:9/v1"},
        "own": {"api": "openai", "url": "http://127.0.0.1:9/v1"},
        "proxy": {"api": "openai", "url": "http://127.0.0.1:9/v1", "prompt_cache": "on"},
    });
    let models = json!({
        "a": {"provider": "silent", "served_as": "claude-opus-5"},
        "b": {"provider": "marked", "served_as": "claude-opus-5"},
        "c": {"provider": "own", "served_as": "gpt-5.5"},
        "d": {"provider": "proxy", "served_as": "gpt-5.5"},
        "e": {"provider": "own", "served_as": "claude-opus-5"},
        "claude-opus-5": {"window_tokens": 100_000},
    });
    let providers: Providers = serde_json::from_value(providers).expect("valid settings");
    let models: Models = serde_json::from_value(models).expect("valid settings");
    assert_eq!(models_without_cache(&providers, &models), ["a", "c"]);
}

/// A protocol, the name of a model, the option that it refuses, and a change that sets it.
type Refused = (Api, &'static str, &'static str, fn(&mut ChatOptions));

const REFUSED: [Refused; 28] = {
    use Api::{Anthropic, Gemini, OpenAi};
    const OPUS: &str = "claude-opus-4-6";
    [
        (OpenAi, "gpt-5.5", "stop", |options| {
            options.stop = Some(vec!["END".into(); 5]);
        }),
        (OpenAi, "gpt-5.5", "tool_choice", |options| {
            options.tool_choice = Some(ToolChoice::Required);
        }),
        (OpenAi, "gpt-5.5", "tool_choice", |options| {
            options.tools = Some(vec![tool("look")]);
            options.tool_choice = Some(ToolChoice::Named("listen".into()));
        }),
        (Anthropic, OPUS, "response_format", |options| {
            options.response_format = Some(ResponseFormat::JsonObject);
        }),
        (Anthropic, "claude-opus-4-0", "response_format", |options| {
            options.response_format = Some(schema());
        }),
        (Anthropic, OPUS, "temperature", |options| {
            options.temperature = Some(1.5);
        }),
        (Anthropic, OPUS, "top_p", |options| {
            options.temperature = Some(0.5);
            options.top_p = Some(0.5);
        }),
        (Anthropic, OPUS, "temperature", |options| {
            options.reasoning_effort = Some(ReasoningEffort::Low);
            options.temperature = Some(0.5);
        }),
        (Anthropic, OPUS, "top_p", |options| {
            options.reasoning_effort = Some(ReasoningEffort::Low);
            options.top_p = Some(0.5);
        }),
        (Anthropic, OPUS, "reasoning_effort", |options| {
            options.reasoning_effort = Some(ReasoningEffort::Minimal);
        }),
        (Anthropic, OPUS, "reasoning_effort", |options| {
            options.reasoning_effort = Some(ReasoningEffort::XHigh);
        }),
        (
            Anthropic,
            "claude-sonnet-4-5",
            "reasoning_effort",
            |options| {
                options.reasoning_effort = Some(ReasoningEffort::Low);
            },
        ),
        (Anthropic, "claude-fable-5", "reasoning_effort", |options| {
            options.reasoning_effort = Some(ReasoningEffort::None);
        }),
        (Anthropic, "small", "reasoning_effort", |options| {
            options.reasoning_effort = Some(ReasoningEffort::Low);
        }),
        (Anthropic, OPUS, "tool_choice", |options| {
            options.tools = Some(vec![tool("look")]);
            options.tool_choice = Some(ToolChoice::Required);
            options.reasoning_effort = Some(ReasoningEffort::Low);
        }),
        (Anthropic, "claude-opus-4-7", "temperature", |options| {
            options.temperature = Some(0.5);
        }),
        (Anthropic, "claude-sonnet-5", "top_p", |options| {
            options.top_p = Some(0.5);
        }),
        (Anthropic, OPUS, "stop", |options| {
            options.stop = Some(vec![" \n".into()]);
        }),
        (Anthropic, OPUS, "stop", |options| {
            options.stop = Some(vec!["END".into(); 17]);
        }),
        (Anthropic, OPUS, "metadata", |options| {
            options.metadata = Some(labels("team"));
        }),
        (
            Gemini,
            "gemini-3.5-flash",
            "parallel_tool_calls",
            |options| {
                options.tools = Some(vec![tool("look")]);
                options.parallel_tool_calls = Some(false);
            },
        ),
        (Gemini, "gemini-2.5-flash", "response_format", |options| {
            options.tools = Some(vec![tool("look")]);
            options.response_format = Some(schema());
        }),
        (Gemini, "gemini-2.5-flash", "reasoning_effort", |options| {
            options.reasoning_effort = Some(ReasoningEffort::Low);
        }),
        (
            Gemini,
            "gemini-3.1-pro-preview",
            "reasoning_effort",
            |options| {
                options.reasoning_effort = Some(ReasoningEffort::Minimal);
            },
        ),
        (Gemini, "gemini-3.5-flash", "stop", |options| {
            options.stop = Some(vec!["END".into(); 6]);
        }),
        (Gemini, "gemini-3.5-flash", "metadata", |options| {
            options.metadata = Some(labels("team"));
        }),
        (Gemini, "gemini-4-argon", "temperature", |options| {
            options.temperature = Some(0.5);
        }),
        (Gemini, "gemini-4-argon", "top_p", |options| {
            options.top_p = Some(0.5);
        }),
    ]
};

#[test]
fn an_option_that_a_model_cannot_do_is_refused_with_its_name_and_the_reason() {
    for (api, name, field, set) in REFUSED {
        let provider = json!({"api": api, "url": "http://127.0.0.1:9/v1"});
        let model = model(&provider, name);
        let mut options = ChatOptions::default();
        model
            .check_options(&options)
            .expect("no option is accepted by every model");
        set(&mut options);
        let refusal = model
            .check_options(&options)
            .expect_err("the model cannot do it");
        assert_eq!(
            refusal.option.name(),
            field,
            "{api:?}, {name}: {}",
            refusal.sentence
        );
        assert!(refusal.sentence.contains(name), "{}", refusal.sentence);
    }
}

#[test]
fn labels_are_refused_where_they_would_have_the_provider_store_the_answer() {
    let folder = Folder::new();
    let key = folder.file("key", "sk-planted-1234567890");
    let at_openai = json!({"api": "openai", "key_file": key.display().to_string()});
    let elsewhere = json!({"api": "openai", "url": "http://127.0.0.1:9/v1"});
    let options = ChatOptions {
        metadata: Some(labels("team")),
        ..ChatOptions::default()
    };
    let refusal = model(&at_openai, "gpt-5.5")
        .check_options(&options)
        .expect_err("it is api.openai.com");
    assert_eq!(refusal.option, ChatOption::Metadata);
    let accepted = model(&elsewhere, "gpt-5.5").check_options(&options);
    accepted.expect("another host gets them");
}

#[tokio::test]
async fn a_turn_has_its_options_sent_and_is_refused_before_anything_is_stored() {
    let server = ScriptedModel::saying("{}").await;
    let app = TestApp::with_scripted_model(&server).await;
    let conversation = app.conversation().await;
    let mut request = conversation.chat("Where is it?");
    request.ask.options = Some(pb::ChatOptions {
        stop: vec!["END".into(); 5],
        ..Default::default()
    });
    let ended = request.await.end;
    assert_refused(
        ended,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "options.stop",
    );
    assert!(conversation.messages().await.is_empty() && server.requests().is_empty());

    let mut request = conversation.chat("Where is it?");
    let schema = pb::response_format::JsonSchema {
        name: "place".into(),
        schema: SCHEMA.into(),
        strict: true,
    };
    let look = pb::Tool {
        name: "look".into(),
        ..Default::default()
    };
    request.ask.options = Some(pb::ChatOptions {
        tools: vec![look],
        tool_choice: Some(pb::ToolChoice {
            choice: Some(pb::tool_choice::Choice::Name("look".into())),
        }),
        response_format: Some(pb::ResponseFormat {
            format: Some(pb::response_format::Format::JsonSchema(schema)),
        }),
        ..Default::default()
    });
    request.await.end.expect("is answered");
    let request = &server.requests()[0];
    assert_eq!(request.body["tool_choice"]["function"]["name"], "look");
    assert!(
        request.raw.contains(&format!("\"schema\":{SCHEMA}")),
        "{}",
        request.raw
    );
}
