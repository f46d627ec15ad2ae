//! A real model server accepts rendered contexts, and its overflow errors are classified.

use std::collections::BTreeMap;

use anneal_testkit::{
    Chat, HttpAnswer, Llm, Rendered, TestApp, TranscriptFolder, assistant, call, message, pb,
    post_json, prose, result, start_llm, text, user,
};
use pb::{Format, OverflowKind, Role, part::Part};
use serde_json::{Value, json};

const FORMATS: [Format; 2] = [Format::OpenaiChat, Format::AnthropicMessages];

/// A request for a short answer to the context.
fn request(rendered: &Rendered, streamed: bool) -> String {
    let mut body = rendered.body.clone();
    body["model"] = json!("any");
    body["max_tokens"] = json!(8);
    body["stream"] = json!(streamed);
    body.to_string()
}

async fn ask_model(llm: &Llm, rendered: &Rendered, streamed: bool) -> HttpAnswer {
    let path = if rendered.format == Format::OpenaiChat {
        "chat/completions"
    } else {
        "messages"
    };
    let (url, body) = (format!("{}/{path}", llm.url), request(rendered, streamed));
    let asked = tokio::task::spawn_blocking(move || post_json(&url, &body)).await;
    asked
        .expect("the client does not panic")
        .expect("the server answers")
}

fn answer_text(answer: &HttpAnswer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Real conversations, each with a budget in tokens that a small model on a busy processor reads in
/// seconds.
fn real_conversations(data: &TranscriptFolder) -> Vec<(Chat, u64)> {
    let mut some = Vec::new();
    some.extend(
        data.tau_bench()
            .into_iter()
            .skip(1)
            .take(1)
            .map(|chat| (chat, 1_500)),
    );
    some.extend(data.pi_sessions().into_iter().map(|chat| (chat, 700)));
    some.extend(
        data.swe_agent()
            .into_iter()
            .skip(1)
            .take(1)
            .map(|chat| (chat, 1_500)),
    );
    some.extend(data.crosswoz(2).into_iter().map(|chat| (chat, 500)));
    some.extend(data.locomo().into_iter().take(1).map(|chat| (chat, 600)));
    some
}

/// Short conversations, most of which would break the rules of a provider if they were sent
/// unchanged.
fn made_up_conversations() -> Vec<Chat> {
    let tool = |id: &str, name: &str| {
        Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: name.into(),
            input: "{\"at\": \"the sea\"}".into(),
        })
    };
    let words = |text: &str| Part::Text(pb::TextPart { text: text.into() });
    let thought = Part::Reasoning(pb::ReasoningPart {
        text: "hm".into(),
        ..Default::default()
    });
    let parallel = message(
        Role::Assistant,
        vec![words("Both."), tool("a", "look"), tool("b", "listen")],
    );
    let broken = message(
        Role::Assistant,
        vec![thought, tool("call_X|fc_Y", "an odd name!")],
    );
    let chats = [
        (
            "parallel calls",
            vec![
                user("Look."),
                parallel,
                result("b", "Waves."),
                result("a", "Gulls."),
                user("And?"),
            ],
        ),
        (
            "a call that nobody answered",
            vec![
                user("Look."),
                call("a", "{}"),
                user("Never mind. Who are you?"),
            ],
        ),
        (
            "a result that nobody asked for",
            vec![
                user("Hello."),
                result("z", "42"),
                assistant("Hi."),
                user("Bye."),
            ],
        ),
        (
            "a result that comes late",
            vec![
                user("Look."),
                call("a", "{}"),
                user("Well?"),
                result("a", "Gulls."),
            ],
        ),
        (
            "an instruction in the middle",
            vec![
                user("Hello."),
                text(Role::System, "Be brief."),
                user("Who are you?"),
            ],
        ),
        (
            "an instruction after an answer",
            vec![
                user("Hello."),
                assistant("Hi."),
                text(Role::System, "Say more."),
            ],
        ),
        (
            "nothing but an instruction",
            vec![text(Role::System, "Greet the user.")],
        ),
        (
            "the model first",
            vec![assistant("Welcome!"), user("Thanks.")],
        ),
        (
            "the model last",
            vec![user("Hello."), assistant("Hi."), assistant("How are you?")],
        ),
        (
            "empty answers",
            vec![
                user("Hello."),
                assistant(""),
                user("Hello."),
                assistant(" "),
                user("Anyone?"),
            ],
        ),
        (
            "odd names, broken input",
            vec![
                user("Look."),
                broken,
                result("call_X|fc_Y", ""),
                call("b", "{oops"),
            ],
        ),
    ];
    chats
        .into_iter()
        .map(|(name, messages)| {
            Chat {
                messages,
                ..Chat::default()
            }
            .named(name)
        })
        .collect()
}

#[tokio::test]
async fn a_real_model_accepts_every_context_in_both_apis() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    let Some(llm) = start_llm(8_192) else { return };
    let app = TestApp::start().await;
    let made_up = made_up_conversations()
        .into_iter()
        .map(|chat| (chat, 1_000));
    let mut accepted: BTreeMap<&str, usize> = BTreeMap::new();
    for (chat, budget) in real_conversations(&data).into_iter().chain(made_up) {
        let appended = app
            .append_chats(std::slice::from_ref(&chat), &pb::Policy::default())
            .await;
        for format in FORMATS {
            let ask = pb::BuildContextRequest {
                budget_tokens: Some(budget),
                format: format.into(),
                ..pb::BuildContextRequest::default()
            };
            let built = appended[0].conversation.build(ask).await.expect("fits");
            let rendered = Rendered::read(&built, format).expect("the rendered context is valid");
            assert_eq!(rendered.refusals(), Vec::<String>::new(), "{}", chat.name);
            let answer = ask_model(&llm, &rendered, false).await;
            assert_eq!(
                answer.status,
                200,
                "{} as {format:?}: {}\n{}",
                chat.name,
                answer_text(&answer),
                rendered.body
            );
            let body: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
            assert!(body["usage"].is_object(), "{}: {body}", chat.name);
            *accepted.entry(format.as_str_name()).or_default() += 1;
        }
    }
    println!("accepted contexts: {accepted:?}");
    // The eleven made-up conversations and at least five real ones.
    assert!(accepted.values().all(|count| *count >= 16), "{accepted:?}");
}

#[tokio::test]
async fn a_real_overflow_is_classified_and_the_next_context_fits() {
    const WINDOW: u64 = 512;
    let Some(llm) = start_llm(WINDOW as u32) else {
        return;
    };
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user(&prose(0, 60)), assistant(""), user("Say ok.")])
        .await;
    app.run_jobs_until_idle().await;
    for format in FORMATS {
        let built = conversation
            .build(pb::BuildContextRequest {
                format: format.into(),
                ..Default::default()
            })
            .await;
        let whole =
            Rendered::read(&built.expect("builds"), format).expect("the rendered context is valid");
        for streamed in [false, true] {
            let answer = ask_model(&llm, &whole, streamed).await;
            let ask = pb::ClassifyErrorRequest {
                status: answer.status.into(),
                headers: answer.headers.clone(),
                body: answer.body.clone(),
                streamed,
                ..Default::default()
            };
            let verdict = app
                .contexts()
                .classify_error(ask)
                .await
                .expect("classifies")
                .into_inner();
            assert_eq!(
                verdict.kind(),
                OverflowKind::Input,
                "{format:?}, {streamed}: {}",
                answer_text(&answer)
            );
            assert!(verdict.is_overflow);
            assert_eq!(
                verdict.limit_tokens,
                Some(WINDOW),
                "{}",
                answer_text(&answer)
            );
            assert!(
                verdict.prompt_tokens.is_some_and(|tokens| tokens > WINDOW),
                "{}",
                answer_text(&answer)
            );
            println!(
                "{format:?}, streamed {streamed}: {} by {}",
                answer.status, verdict.rule
            );
        }
        let ask = pb::BuildContextRequest {
            format: format.into(),
            budget_tokens: Some(300),
            ..Default::default()
        };
        let fitted = Rendered::read(&conversation.build(ask).await.expect("fits"), format)
            .expect("the rendered context is valid");
        let answer = ask_model(&llm, &fitted, false).await;
        assert_eq!(answer.status, 200, "{format:?}: {}", answer_text(&answer));
    }
}
