//! Addresses of media that tenants name do not reach a provider that would fetch them from the operator's own network.

use anneal_llm::provider::{Api, ProviderSettings};
use anneal_tests::{
    Asked, House, MODEL, Say, Script, ScriptedModel, Writing, assert_refused, media, message, pb, user,
};
use pb::part::Part;
use serde_json::Value;
use tonic::Code;

/// What answers with credentials of the machine that asks, in many clouds.
const METADATA: &str = "http://169.254.169.254/latest/meta-data/iam/security-credentials/";
/// A picture in itself.
const INLINE: &str = "data:image/png;base64,QUJD";

/// A house whose server calls this model in this protocol, with this `media` of its provider.
async fn calling(model: &ScriptedModel, api: Api, said: Option<Value>) -> House {
    let (mut providers, models) = model.settings_of(api, &[MODEL]);
    if let Some(said) = said {
        for provider in providers.values_mut() {
            let mut settings = serde_json::to_value(&*provider).expect("settings");
            settings["media"] = said.clone();
            *provider = serde_json::from_value::<ProviderSettings>(settings).expect("settings of a provider");
        }
    }
    House::calling((providers, models), MODEL).await
}

/// What the request names for the provider to fetch or to decode.
fn named(asked: &Asked) -> Vec<String> {
    fn walk(value: &Value, named: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(item, named)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(uri) if ["url", "fileUri", "data", "file_data"].contains(&name.as_str()) => {
                            named.push(uri.clone());
                        }
                        _ => walk(field, named),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&asked.body, &mut found);
    found
}

fn result(uri: &str) -> pb::NewMessage {
    let media = pb::MediaPart { uri: uri.into(), media_type: "image/png".into(), size_bytes: 0, tokens: 0 };
    let part =
        pb::ToolResultPart { tool_use_id: "1".into(), text: "seen".into(), media: vec![media], ..Default::default() };
    message(pb::Role::Tool, vec![Part::ToolResult(part)])
}

#[tokio::test]
async fn a_self_hosted_provider_is_told_no_address_of_a_turn_and_nothing_of_the_turn_is_stored() {
    let model = ScriptedModel::saying("never").await;
    let all: [(Api, &[&str]); 3] = [
        (Api::OpenAi, &[METADATA, "https://example.com/a.png"]),
        (Api::Anthropic, &["https://example.com/a.png", "https://169.254.169.254/a.png"]),
        (Api::Gemini, &["gs://of-the-operator/a.png", "https://example.com/a.png"]),
    ];
    for (api, uris) in all {
        let house = calling(&model, api, None).await;
        for uri in uris {
            let talk = house.conversation().await;
            let told = talk.chat_all(vec![user("Look at this."), media(uri)]).await;
            let field = "messages[1].parts[0].media.uri";
            assert_refused(told.end, Code::InvalidArgument, "MEDIA_NOT_ALLOWED", field);
            assert!(talk.messages().await.is_empty(), "{api:?}, {uri}");
        }
    }
    assert!(model.asked().is_empty(), "{:?}", model.asked().iter().map(named).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_tools_picture_is_refused_where_it_would_be_fetched() {
    let model = ScriptedModel::start(|asked| Script::says(asked, [Say::tool("1", "look", "{}")])).await;
    let house = calling(&model, Api::Anthropic, None).await;
    let talk = house.conversation().await;
    talk.chat("Look.").with_tool("look").await.done();
    let told = talk.chat_all(vec![result("https://example.com/a.png")]).with_tool("look").await;
    assert_refused(
        told.end,
        Code::InvalidArgument,
        "MEDIA_NOT_ALLOWED",
        "messages[0].parts[0].tool_result.media[0].uri",
    );
    talk.chat_all(vec![result(INLINE)]).with_tool("look").await.done();
    assert_eq!(named(&model.asked()[1]), ["QUJD"]);
}

#[tokio::test]
async fn a_stored_picture_is_described_where_its_address_may_not_go_and_the_conversation_goes_on() {
    for (api, uri) in [
        (Api::OpenAi, METADATA),
        (Api::Anthropic, "https://10.0.0.1/a.png"),
        (Api::Gemini, "gs://of-the-operator/a.png"),
    ] {
        let model = ScriptedModel::saying("I see.").await;
        let house = calling(&model, api, None).await;
        let talk = house.conversation().await;
        talk.append_all(vec![media(uri), media(INLINE)]).await;
        talk.chat("What is it?").await.done();
        let asked = &model.asked()[0];
        let [only] = &named(asked)[..] else { panic!("{api:?}: {:?}", named(asked)) };
        assert!(only.ends_with("QUJD"), "{api:?}: {only}");
        assert!(asked.texts().iter().any(|text| text.contains("[media image/png at ")), "{api:?}: {}", asked.raw);
    }
}

#[tokio::test]
async fn a_provider_that_may_fetch_is_told_names_alone_or_those_that_are_listed() {
    let allowed = |said: Value, uri: &'static str| async move {
        let model = ScriptedModel::saying("I see.").await;
        let house = calling(&model, Api::OpenAi, Some(said)).await;
        let talk = house.conversation().await;
        let told = talk.chat_all(vec![media(uri)]).await;
        let sent: Vec<String> = model.asked().iter().flat_map(named).collect();
        assert_eq!(told.end.is_ok(), sent == [uri], "{uri}: {:?}", told.end);
        told.end.is_ok()
    };
    for (uri, by_name, listed) in [
        ("https://img.example.com/a.png", true, true),
        ("https://example.com/a.png", true, false),
        ("https://other.example.net/a.png", true, true),
        ("http://img.example.com/a.png", false, false),
        (METADATA, false, false),
        ("https://169.254.169.254/a.png", false, false),
        ("https://2852039166/a.png", false, false),
        ("https://[::1]/a.png", false, false),
        ("https://localhost/a.png", false, false),
        ("https://metadata.google.internal/a.png", false, false),
        ("https://example.com:8443/a.png", false, false),
        ("https://example.com@10.0.0.1/a.png", false, false),
        (INLINE, true, true),
    ] {
        assert_eq!(allowed("https".into(), uri).await, by_name, "https: {uri}");
        let hosts = serde_json::json!(["*.example.com", "other.example.net"]);
        assert_eq!(allowed(hosts, uri).await, listed, "hosts: {uri}");
    }
}

#[tokio::test]
async fn the_model_that_writes_summaries_is_told_addresses_as_words_alone() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    for _ in 0..8 {
        talk.append_all(vec![media(METADATA), anneal_tests::assistant("It is a picture of a capital.")]).await;
    }
    house.worker_writing(&Writing::by(&model)).run_until_idle().await;
    assert!(!model.asked().is_empty());
    for asked in model.asked() {
        assert!(named(&asked).is_empty(), "{:?}", named(&asked));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ScriptedModel::saying("never").await;
    let to = elsewhere.url();
    let model = ScriptedModel::start(move |_| Script::status(307, &[("location", &to)], "{}")).await;
    let house = House::chatting(&model).await;
    assert_refused(house.conversation().await.chat("Go.").await.end, Code::FailedPrecondition, "MODEL_REFUSED", "");
    assert!(elsewhere.asked().is_empty());
}
