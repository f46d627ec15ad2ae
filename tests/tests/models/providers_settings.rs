//! Invalid settings of providers and models are refused with a sentence that names the remedy. Keys
//! are sent to their provider and never shown.

use anneal_core::model::Models;
use anneal_llm::provider::{Api, CallableModels, OutputField, Providers};
use anneal_testkit::{Folder, Script, ScriptedModel, plain_call, read_answer};
use serde_json::{Value, json};

/// A provider's key, which may appear in no error.
const KEY: &str = "sk-planted-1234567890";
/// An address of this machine, at which no server listens.
const LOCAL: &str = "http://127.0.0.1:9/v1";

fn callable(providers: &Value, models: &Value) -> Result<CallableModels, String> {
    let providers: Providers =
        serde_json::from_value(providers.clone()).expect("settings of providers");
    let models: Models = serde_json::from_value(models.clone()).expect("settings of models");
    CallableModels::new(&providers, &models).map_err(|e| e.to_string())
}

/// The refusal of a provider `p` with these settings and a local address.
fn refused_provider(settings: &Value) -> String {
    let mut all = json!({"api": "openai", "url": LOCAL});
    for (key, value) in settings.as_object().expect("an object") {
        all[key] = value.clone();
    }
    callable(&json!({"p": all}), &json!({})).expect_err("the settings are invalid")
}

/// The refusal of a model `m` with these settings.
fn refused_model(settings: &Value) -> String {
    callable(
        &json!({"p": {"api": "openai", "url": LOCAL}}),
        &json!({"m": settings}),
    )
    .expect_err("the settings are invalid")
}

#[test]
fn an_invalid_provider_is_refused_even_if_no_model_uses_it() {
    let folder = Folder::new();
    let empty = folder.file("empty", " \n");
    let lines = folder.file("lines", "one\ntwo");
    let missing = folder.path().join("missing");
    let text = |path: &std::path::Path| path.display().to_string();
    for (settings, sentence) in [
        (
            json!({"key_env": "ANNEAL_NO_SUCH_KEY"}),
            "the variable ANNEAL_NO_SUCH_KEY that key_env names is not set",
        ),
        (
            json!({"key_file": text(&missing)}),
            "cannot be read: entity not found",
        ),
        (
            json!({"key_file": text(&empty)}),
            "is empty: put the key into it",
        ),
        (json!({"key_file": text(&lines)}), "holds more than a key"),
        (
            json!({"key_env": "A", "key_file": "b"}),
            "set key_env or key_file, not both",
        ),
        (
            json!({"url": null}),
            "api.openai.com answers only with a key: set key_env or key_file",
        ),
        (
            json!({"url": "https://api.openai.com/v1/"}),
            "api.openai.com answers only with a key",
        ),
        (
            json!({"api": "anthropic", "url": null}),
            "api.anthropic.com answers only with a key",
        ),
        (
            json!({"api": "gemini", "url": null}),
            "generativelanguage.googleapis.com answers only with a key",
        ),
        (
            json!({"url": "http://10.0.0.7/v1"}),
            "use https, or set allow_http = true",
        ),
        (
            json!({"url": "http://localhost.example/v1"}),
            "use https, or set allow_http = true",
        ),
        (
            json!({"url": "api.openai.com"}),
            "url must be an address such as https://host/v1",
        ),
        (
            json!({"url": "ftp://127.0.0.1/"}),
            "url must be an address such as https://host/v1",
        ),
        (
            json!({"url": "https://u:p@host/v1"}),
            "url must hold no user and no password",
        ),
        (
            json!({"url": "https://host/v1?key=x"}),
            "url must end with its path",
        ),
        (
            json!({"proxy": "http://u:p@proxy:3128"}),
            "proxy must hold no user and no password",
        ),
        (json!({"proxy": "proxy"}), "proxy must be an address"),
        (
            json!({"api": "gemini", "output_field": "max_tokens"}),
            "output_field is for api = \"openai\"",
        ),
        (
            json!({"connect_timeout_ms": 0}),
            "connect_timeout_ms must be at least 1",
        ),
        (
            json!({"first_byte_timeout_ms": 0}),
            "first_byte_timeout_ms must be at least 1",
        ),
        (
            json!({"total_timeout_ms": 0}),
            "total_timeout_ms must be at least 1",
        ),
        (
            json!({"response_bytes": 0}),
            "response_bytes must be at least 1",
        ),
    ] {
        let refused = refused_provider(&settings);
        assert!(
            refused.starts_with("providers.p: ") && refused.contains(sentence),
            "{settings}: {refused}"
        );
    }
}

#[test]
fn an_error_about_a_misplaced_key_does_not_repeat_the_key() {
    for (settings, sentence) in [
        (
            json!({"key_env": KEY}),
            "key_env must be the name of a variable",
        ),
        (
            json!({"key_env": ""}),
            "key_env must be the name of a variable",
        ),
        (
            json!({"key_env": "AIzaSyplanted9k0l1z2x3c4v5b6n"}),
            "it looks like a key) that key_env names is not set",
        ),
        (
            json!({"key_file": KEY}),
            "it looks like a key) cannot be read",
        ),
    ] {
        let refused = refused_provider(&settings);
        assert!(
            refused.contains(sentence) && !refused.contains("planted"),
            "{settings}: {refused}"
        );
    }
}

#[test]
fn an_invalid_model_is_refused() {
    for (settings, sentence) in [
        (
            json!({"provider": "q"}),
            "there is no provider \"q\": add a section [providers.q]",
        ),
        (
            json!({"provider": "p"}),
            "its context window is not known: set models.\"m\".window_tokens",
        ),
        (
            json!({"provider": "p", "window_tokens": 100, "output_tokens": 100}),
            "less than the window of 100 tokens",
        ),
        (
            json!({"provider": "p", "window_tokens": 100, "output_tokens": 0}),
            "output_tokens must be at least 1",
        ),
        (
            json!({"provider": "p", "window_tokens": 100, "concurrent_calls": 0}),
            "concurrent_calls must be at least 1",
        ),
        (
            json!({"provider": "p", "window_tokens": 100, "served_as": " "}),
            "served_as is empty",
        ),
        (
            json!({"served_as": "x"}),
            "served_as is for models that are called: name its provider as well",
        ),
        (
            json!({"output_tokens": 5}),
            "output_tokens is for models that are called",
        ),
        (
            json!({"concurrent_calls": 5}),
            "concurrent_calls is for models that are called",
        ),
    ] {
        let refused = refused_model(&settings);
        assert!(
            refused.starts_with("models.\"m\": ") && refused.contains(sentence),
            "{settings}: {refused}"
        );
    }
}

#[test]
fn valid_models_are_found_and_others_are_not() {
    let models = json!({
        "gpt-4o": {"provider": "p"},
        "own": {"provider": "p", "window_tokens": 8_000, "concurrent_calls": 3},
        "known": {"window_tokens": 100}
    });
    for url in [
        LOCAL,
        "http://localhost:1/v1",
        "http://[::1]:1/v1",
        "https://host/v1",
    ] {
        let models = callable(&json!({"p": {"api": "openai", "url": url}}), &models)
            .expect("the settings are valid");
        let own = models.find("own").expect("it names a provider");
        // Without the setting, an answer may have a quarter of the window, at most 4,096 tokens.
        assert_eq!(
            (
                own.window().get(),
                own.output().get(),
                own.concurrent_calls()
            ),
            (8_000, 2_000, Some(3))
        );
        assert_eq!(
            models.find("gpt-4o").map(|model| model.output().get()),
            Some(4_096),
            "{url}"
        );
        assert!(models.find("known").is_none());
    }
    let allowed = json!({"p": {"api": "openai", "url": "http://10.0.0.7/v1", "allow_http": true}});
    callable(&allowed, &models).expect("it is allowed");
}

/// The models of a server whose provider has a key in a file.
fn models_with_key(server: &ScriptedModel, api: Api, folder: &Folder) -> CallableModels {
    let file = folder.file("key", &format!("  {KEY}\n"));
    let (mut providers, models) = server.settings_of(api, &["small"]);
    for settings in providers.values_mut() {
        settings.key_file = Some(file.display().to_string());
    }
    CallableModels::new(&providers, &models).expect("the settings are valid")
}

#[tokio::test]
async fn a_key_is_sent_in_the_header_of_its_protocol_and_never_shown() {
    let folder = Folder::new();
    for (api, header, value) in [
        (Api::OpenAi, "authorization", format!("Bearer {KEY}")),
        (Api::Anthropic, "x-api-key", KEY.to_owned()),
        (Api::Gemini, "x-goog-api-key", KEY.to_owned()),
    ] {
        // The provider repeats the key in its error, as some providers do.
        let server = ScriptedModel::start(|_| Script::status(401, &[("x-key", KEY)], KEY)).await;
        let models = models_with_key(&server, api, &folder);
        let model = models.find("small").expect("it was configured");
        let failure = read_answer(model, &plain_call("{}"))
            .await
            .expect_err("it is refused");
        let request = &server.requests()[0];
        assert_eq!(request.headers.get(header), Some(&value), "{api:?}");
        assert_eq!(
            request.headers.get("anthropic-version").map(String::as_str),
            (api == Api::Anthropic).then_some("2023-06-01")
        );
        assert!(!request.path.contains(KEY));
        let shown = format!("{models:?} {model:?} {failure:?} {failure} {models:#?}");
        assert!(
            !shown.contains(KEY) && !shown.contains("planted"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn no_key_is_sent_to_a_provider_without_one() {
    for api in [Api::OpenAi, Api::Anthropic, Api::Gemini] {
        let server = ScriptedModel::saying("Hi.").await;
        let models = server.callable(api, &["small"]);
        read_answer(
            models.find("small").expect("it was configured"),
            &plain_call("{}"),
        )
        .await
        .expect("it answers");
        for header in [
            "authorization",
            "x-api-key",
            "x-goog-api-key",
            "cookie",
            "referer",
        ] {
            assert_eq!(server.requests()[0].headers.get(header), None, "{api:?}");
        }
    }
}

#[tokio::test]
async fn a_key_can_come_from_an_environment_variable() {
    let server = ScriptedModel::saying("Hi.").await;
    let (mut providers, models) = server.settings(&["small"]);
    for settings in providers.values_mut() {
        // The test runner sets this variable.
        settings.key_env = Some("CARGO_MANIFEST_DIR".into());
    }
    let models = CallableModels::new(&providers, &models).expect("the settings are valid");
    read_answer(
        models.find("small").expect("it was configured"),
        &plain_call("{}"),
    )
    .await
    .expect("it answers");
    let expected = format!("Bearer {}", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        server.requests()[0].headers.get("authorization"),
        Some(&expected)
    );
}

#[tokio::test]
async fn calls_go_through_the_proxy_that_the_settings_name() {
    let proxy = ScriptedModel::saying("By proxy.").await;
    let server = ScriptedModel::saying("Straight.").await;
    let (mut providers, models) = server.settings(&["small"]);
    for settings in providers.values_mut() {
        settings.url = Some("http://model.example/v1".into());
        settings.allow_http = true;
        settings.proxy = Some(proxy.url().trim_end_matches("/v1").to_owned());
    }
    let models = CallableModels::new(&providers, &models).expect("the settings are valid");
    let answer = read_answer(
        models.find("small").expect("it was configured"),
        &plain_call("{}"),
    )
    .await
    .expect("it answers");
    assert_eq!(answer.text, "By proxy.");
    assert_eq!(
        proxy.requests()[0].path,
        "http://model.example/v1/chat/completions"
    );
}

#[tokio::test]
async fn the_name_of_the_output_limit_field_is_configurable() {
    for (named, field) in [
        (None, "max_tokens"),
        (Some(OutputField::MaxTokens), "max_tokens"),
        (
            Some(OutputField::MaxCompletionTokens),
            "max_completion_tokens",
        ),
    ] {
        let server = ScriptedModel::saying("Hi.").await;
        let (mut providers, models) = server.settings(&["small"]);
        for settings in providers.values_mut() {
            settings.output_field = named;
        }
        let models = CallableModels::new(&providers, &models).expect("the settings are valid");
        read_answer(
            models.find("small").expect("it was configured"),
            &plain_call("{}"),
        )
        .await
        .expect("it answers");
        let body = &server.requests()[0].body;
        let are_sent = ["max_tokens", "max_completion_tokens"].map(|name| body.get(name).is_some());
        assert_eq!(
            are_sent,
            [field == "max_tokens", field == "max_completion_tokens"],
            "{named:?}"
        );
    }
    let read: OutputField =
        serde_json::from_value(json!("max_completion_tokens")).expect("its name");
    assert_eq!(read, OutputField::MaxCompletionTokens);
}
