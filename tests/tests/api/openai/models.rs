//! The configured models.

use anneal_core::caller::Verb;
use anneal_testkit::{HttpResponse, ScriptedModel, TestApp};
use serde_json::{Value, json};

use super::assert_error;

const MODELS: &str = "/v1/models";

fn shown(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "anneal"})
}

#[tokio::test]
async fn the_models_that_can_be_called_are_listed_by_name() {
    let model = ScriptedModel::saying("Hello.").await;
    let names = ["plain", "a/b-70B"];
    let app = TestApp::with_models(model.settings(&names), "plain").await;
    let web = app.http_client();
    let listed = web.get(MODELS).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert_eq!(
        listed.json(),
        json!({"object": "list", "data": [shown("a/b-70B"), shown("plain")]})
    );
    for (path, name) in [
        ("plain", "plain"),
        ("a/b-70B", "a/b-70B"),
        ("a%2Fb-70B", "a/b-70B"),
    ] {
        let found = web.get(&format!("{MODELS}/{path}")).await;
        assert_eq!(found.json(), shown(name));
    }
    let missing = web.get(&format!("{MODELS}/gpt-unknown")).await;
    assert_error(&missing, 404, "model", "model_not_found");
    let unknown = web.get(&format!("{MODELS}?limit=1")).await;
    assert_eq!(unknown.status, 400, "{unknown:?}");
}

#[tokio::test]
async fn models_are_shown_to_every_key_and_to_no_one_else() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_models_and_keys(model.settings(&["m"]), "m").await;
    let web = app.http_client();
    let get = async |key: &str| {
        let request = web.request("GET", MODELS);
        HttpResponse::send(request.header("authorization", format!("Bearer {key}"))).await
    };
    let reader = app.key("anna", &[Verb::Read]).await.text;
    assert_eq!(get(&reader).await.json()["data"], json!([shown("m")]));
    assert_error(&get("x").await, 401, "", "invalid_api_key");
}
