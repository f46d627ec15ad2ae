//! Media URLs given by tenants are not sent to a provider that would fetch them from the operator's
//! network.

use anneal_llm::provider::{Api, ProviderSettings};
use anneal_testkit::{
    MODEL, ModelRequest, ModelWorkerSettings, Say, Script, ScriptedModel, TestApp, assert_refused,
    media, message, pb, user,
};
use pb::part::Part;
use serde_json::Value;
use tonic::Code;

/// The metadata address of many clouds. It answers with credentials of the machine that asks.
const METADATA: &str = "http://169.254.169.254/latest/meta-data/iam/security-credentials/";
/// An image as a `data:` URI.
const INLINE: &str = "data:image/png;base64,QUJD";

/// An app that calls this model in this protocol, with this setting `media` of the provider.
async fn app_with_media_setting(
    model: &ScriptedModel,
    api: Api,
    setting: Option<Value>,
) -> TestApp {
    let (mut providers, models) = model.settings_of(api, &[MODEL]);
    if let Some(setting) = setting {
        for provider in providers.values_mut() {
            let mut settings = serde_json::to_value(&*provider).expect("settings");
            settings["media"] = setting.clone();
            *provider = serde_json::from_value::<ProviderSettings>(settings)
                .expect("settings of a provider");
        }
    }
    TestApp::with_models((providers, models), MODEL).await
}

/// The media in a request: the URIs that the provider would fetch or decode, and inline data.
fn media_urls(request: &ModelRequest) -> Vec<String> {
    fn collect_urls(value: &Value, urls: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| collect_urls(item, urls)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(uri)
                            if ["url", "fileUri", "data", "file_data"].contains(&name.as_str()) =>
                        {
                            urls.push(uri.clone());
                        }
                        _ => collect_urls(field, urls),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect_urls(&request.body, &mut found);
    found
}

fn image_result(uri: &str) -> pb::NewMessage {
    let media = pb::MediaPart {
        uri: uri.into(),
        media_type: "image/png".into(),
        size_bytes: 0,
        tokens: 0,
    };
    let part = pb::ToolResultPart {
        tool_use_id: "1".into(),
        text: "seen".into(),
        media: vec![media],
        ..Default::default()
    };
    message(pb::Role::Tool, vec![Part::ToolResult(part)])
}

#[tokio::test]
async fn a_turn_with_a_media_url_is_refused_and_not_stored_for_self_hosted_providers() {
    // The scripted model has a local address. Without a media setting, a provider at another host
    // than the vendor's receives no addresses.
    let model = ScriptedModel::saying("never").await;
    let all: [(Api, &[&str]); 3] = [
        (Api::OpenAi, &[METADATA, "https://example.com/a.png"]),
        (
            Api::Anthropic,
            &["https://example.com/a.png", "https://169.254.169.254/a.png"],
        ),
        (
            Api::Gemini,
            &["gs://of-the-operator/a.png", "https://example.com/a.png"],
        ),
    ];
    for (api, uris) in all {
        let app = app_with_media_setting(&model, api, None).await;
        for uri in uris {
            let conversation = app.conversation().await;
            let outcome = conversation
                .chat_all(vec![user("Look at this."), media(uri)])
                .await;
            let field = "messages[1].parts[0].media.uri";
            assert_refused(
                outcome.end,
                Code::InvalidArgument,
                "MEDIA_NOT_ALLOWED",
                field,
            );
            assert!(conversation.messages().await.is_empty(), "{api:?}, {uri}");
        }
    }
    assert!(
        model.requests().is_empty(),
        "{:?}",
        model.requests().iter().map(media_urls).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_tool_result_with_an_image_url_is_refused_where_the_provider_would_fetch_it() {
    let model =
        ScriptedModel::start(|request| Script::says(request, [Say::tool("1", "look", "{}")])).await;
    let app = app_with_media_setting(&model, Api::Anthropic, None).await;
    let conversation = app.conversation().await;
    conversation.chat("Look.").with_tool("look").await.done();
    let outcome = conversation
        .chat_all(vec![image_result("https://example.com/a.png")])
        .with_tool("look")
        .await;
    assert_refused(
        outcome.end,
        Code::InvalidArgument,
        "MEDIA_NOT_ALLOWED",
        "messages[0].parts[0].tool_result.media[0].uri",
    );
    conversation
        .chat_all(vec![image_result(INLINE)])
        .with_tool("look")
        .await
        .done();
    assert_eq!(media_urls(&model.requests()[1]), ["QUJD"]);
}

#[tokio::test]
async fn a_stored_image_with_a_forbidden_url_is_sent_as_text() {
    for (api, uri) in [
        (Api::OpenAi, METADATA),
        (Api::Anthropic, "https://10.0.0.1/a.png"),
        (Api::Gemini, "gs://of-the-operator/a.png"),
    ] {
        let model = ScriptedModel::saying("I see.").await;
        let app = app_with_media_setting(&model, api, None).await;
        let conversation = app.conversation().await;
        conversation
            .append_all(vec![media(uri), media(INLINE)])
            .await;
        conversation.chat("What is it?").await.done();
        let request = &model.requests()[0];
        let [only] = &media_urls(request)[..] else {
            panic!("{api:?}: {:?}", media_urls(request))
        };
        assert!(only.ends_with("QUJD"), "{api:?}: {only}");
        assert!(
            request
                .texts()
                .iter()
                .any(|text| text.contains("[media image/png at ")),
            "{api:?}: {}",
            request.raw
        );
    }
}

#[tokio::test]
async fn a_provider_that_fetches_media_gets_only_public_host_names_or_the_listed_ones() {
    let allowed = |setting: Value, uri: &'static str| async move {
        let model = ScriptedModel::saying("I see.").await;
        let app = app_with_media_setting(&model, Api::OpenAi, Some(setting)).await;
        let conversation = app.conversation().await;
        let outcome = conversation.chat_all(vec![media(uri)]).await;
        let sent: Vec<String> = model.requests().iter().flat_map(media_urls).collect();
        assert_eq!(
            outcome.end.is_ok(),
            sent == [uri],
            "{uri}: {:?}",
            outcome.end
        );
        outcome.end.is_ok()
    };
    // A URI, whether `media = "https"` allows it, and whether the list of host names below does.
    for (uri, with_https, with_hosts) in [
        ("https://img.example.com/a.png", true, true),
        ("https://example.com/a.png", true, false),
        ("https://other.example.net/a.png", true, true),
        ("http://img.example.com/a.png", false, false),
        (METADATA, false, false),
        ("https://169.254.169.254/a.png", false, false),
        // 169.254.169.254 as one number.
        ("https://2852039166/a.png", false, false),
        ("https://[::1]/a.png", false, false),
        ("https://localhost/a.png", false, false),
        ("https://metadata.google.internal/a.png", false, false),
        ("https://example.com:8443/a.png", false, false),
        ("https://example.com@10.0.0.1/a.png", false, false),
        (INLINE, true, true),
    ] {
        assert_eq!(
            allowed("https".into(), uri).await,
            with_https,
            "https: {uri}"
        );
        let hosts = serde_json::json!(["*.example.com", "other.example.net"]);
        assert_eq!(allowed(hosts, uri).await, with_hosts, "hosts: {uri}");
    }
}

#[tokio::test]
async fn the_summarizer_gets_media_urls_only_as_text() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for _ in 0..8 {
        conversation
            .append_all(vec![
                media(METADATA),
                anneal_testkit::assistant("It is a picture of a capital."),
            ])
            .await;
    }
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    assert!(!model.requests().is_empty());
    for request in model.requests() {
        assert!(
            media_urls(&request).is_empty(),
            "{:?}",
            media_urls(&request)
        );
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ScriptedModel::saying("never").await;
    let to = elsewhere.url();
    let model =
        ScriptedModel::start(move |_| Script::status(307, &[("location", &to)], "{}")).await;
    let app = TestApp::with_scripted_model(&model).await;
    assert_refused(
        app.conversation().await.chat("Go.").await.end,
        Code::FailedPrecondition,
        "MODEL_REFUSED",
        "",
    );
    assert!(elsewhere.requests().is_empty());
}
