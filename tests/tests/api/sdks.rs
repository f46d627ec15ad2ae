//! The model that the programs of the SDKs' tests and the examples of the SDKs expect.

use anneal_testkit::{Gate, ModelRequest, Say, Script, ScriptedModel};
use serde_json::{Value, json};

/// A model that answers these programs. An answer to "Count slowly" comes in pieces that wait at
/// the gate: the first one is the role alone.
pub(crate) async fn start_model(slow: &Gate) -> ScriptedModel {
    let slow = slow.clone();
    ScriptedModel::start(move |request| answer(request, &slow)).await
}

fn answer(request: &ModelRequest, slow: &Gate) -> Script {
    let body = &request.body;
    let no_messages = Vec::new();
    let messages = body["messages"].as_array().unwrap_or(&no_messages);
    let last = messages.last().unwrap_or(&Value::Null);
    let text = text_of(last);
    let says = |says: &[&str]| Script::says(request, Say::texts(says));
    if last["role"] == "tool" {
        return says(&[&format!("The tool returned: {text}")]);
    }
    if body["response_format"]["type"] == "json_schema" {
        return says(&[&json!({"name": "Ada", "age": 36}).to_string()]);
    }
    if body["tools"].is_array() && text.contains("weather") {
        return Script::says(
            request,
            [Say::tool("call_1", "get_weather", r#"{"city":"Paris"}"#)],
        );
    }
    if text.contains("Say hello") {
        return says(&["Hello ", "there, ", "friend!"]);
    }
    if text.contains("Count slowly") {
        return says(&["one ", "two ", "three"]).gated(slow);
    }
    if text.contains("for ever") {
        return says(&["One ", "two "]).hanging_after(2);
    }
    if text.contains("What is my name?") {
        let told = messages.iter().map(text_of).find_map(|text| {
            let (_, rest) = text.split_once("My name is ")?;
            Some(rest.split('.').next()?.to_owned())
        });
        return says(&[&format!("Your name is {}.", told.unwrap_or_default())]);
    }
    says(&[&format!("You said: {text}")])
}

/// The text of a message: of its content, or of the parts of it.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}
