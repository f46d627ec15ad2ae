//! Whatever a provider does, one documented failure comes of it, within bounds of bytes and time.

use std::sync::Arc;

use anneal_core::{model::Models, tokens::Tokens};
use anneal_llm::provider::{Api, Call, CallFailure, CallableModels, Model, Providers, StopReason};
use anneal_tests::{Counted, Say, Script, ScriptedModel, hear, plain_call};

use crate::{APIS, CONTEXT};

const SECRET: &str = "what-a-user-wrote";

/// A model whose provider has been configured a little differently.
fn configured(
    settings: (Providers, Models),
    change: impl Fn(&mut anneal_llm::provider::ProviderSettings),
) -> Arc<Model> {
    let (mut providers, models) = settings;
    providers.values_mut().for_each(change);
    let callable = CallableModels::new(&providers, &models).expect("these settings can work");
    callable.find("small").expect("it was configured").clone()
}

/// The failure of a call that is answered with this script.
async fn failure_in(api: Api, script: impl Fn() -> Script + Send + Sync + 'static) -> CallFailure {
    failure_under(|settings| settings.response_bytes = 100_000, api, script).await
}

/// The same with other settings.
async fn failure_under(
    change: impl Fn(&mut anneal_llm::provider::ProviderSettings),
    api: Api,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> CallFailure {
    let server = ScriptedModel::start(move |_| script()).await;
    let model = configured(server.settings_of(api, &["small"]), change);
    let failure = hear(&model, &plain_call(CONTEXT)).await.expect_err("it fails");
    assert!(!format!("{failure:?} {failure}").contains(SECRET), "{failure}");
    failure
}

async fn failure(script: impl Fn() -> Script + Send + Sync + 'static) -> CallFailure {
    failure_in(Api::OpenAi, script).await
}

fn broken(failure: &CallFailure) -> &'static str {
    if let CallFailure::Broken(what) = failure { what } else { panic!("{failure:?}") }
}

fn unavailable(failure: &CallFailure) -> &str {
    if let CallFailure::Unavailable { what, .. } = failure { what } else { panic!("{failure:?}") }
}

fn error(message: &str, code: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": code, "code": code, "param": SECRET}}).to_string()
}

#[tokio::test]
async fn a_context_that_does_not_fit_is_an_overflow_with_its_numbers() {
    let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    for status in [400, 413, 500] {
        let failure = failure(move || Script::status(status, &[], &error(message, "context_length_exceeded"))).await;
        let (window, prompt) = (Some(Tokens::new(8_192)), Some(Tokens::new(9_000)));
        assert_eq!(failure, CallFailure::Overflow { window, prompt, rule: "context_length_exceeded" }, "{status}");
        assert!(!failure.is_retryable());
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_in_bytes_or_for_the_quota_is_an_overflow_without_a_window() {
    let bytes = || Script::status(413, &[], "");
    let quota = || Script::status(413, &[], &error("too large", "tokens_limit_reached"));
    let long = || Script::status(400, &[], &error("no", "string_above_max_length"));
    for (rule, failure) in [
        ("status-without-body", failure(bytes).await),
        ("tokens_limit_reached", failure(quota).await),
        ("string_above_max_length", failure(long).await),
    ] {
        assert_eq!(failure, CallFailure::Overflow { window: None, prompt: None, rule });
    }
}

#[tokio::test]
async fn too_many_calls_are_a_limit_with_the_time_to_come_back() {
    for status in [429, 503, 529] {
        let body = error(SECRET, "rate_limit_exceeded");
        let failure = failure(move || Script::status(status, &[("retry-after", "7")], &body)).await;
        let retry_after = Some(std::time::Duration::from_secs(7));
        assert_eq!(failure, CallFailure::Limited { status, retry_after });
        assert!(failure.is_retryable());
    }
}

#[tokio::test]
async fn a_status_decides_between_later_and_never() {
    for status in [408, 500, 502, 504, 599] {
        let failure = failure(move || Script::status(status, &[], SECRET)).await;
        assert_eq!(unavailable(&failure), format!("status {status}"));
    }
    for status in [301, 307, 401, 403, 404, 422] {
        let location = [("location", "http://127.0.0.1:1/elsewhere")];
        let failure = failure(move || Script::status(status, &location, &error(SECRET, "invalid_request_error"))).await;
        assert_eq!(failure, CallFailure::Refused { status });
        assert!(!failure.is_retryable());
    }
}

#[tokio::test]
async fn an_error_within_an_answer_is_what_it_would_have_been_before_it() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"Well, error\"}}]}\n\n";
    let openai = |message: &'static str, code: &'static str| {
        failure(move || Script::events([text.to_owned(), format!("data: {}\n\n", error(message, code))]))
    };
    let overflow = openai("no", "context_length_exceeded").await;
    assert!(matches!(overflow, CallFailure::Overflow { rule: "context_length_exceeded", .. }), "{overflow:?}");
    assert_eq!(openai(SECRET, "rate_limit_exceeded").await, CallFailure::Limited { status: 429, retry_after: None });
    assert_eq!(openai(SECRET, "invalid_request_error").await, CallFailure::Refused { status: 400 });
    assert_eq!(unavailable(&openai(SECRET, "server_error").await), "an error within the answer");

    let event = |code: &str| {
        let error = serde_json::json!({"type": "error", "error": {"type": code, "message": SECRET}});
        format!("event: error\ndata: {error}\n\n")
    };
    let overloaded = failure_in(Api::Anthropic, move || Script::events([event("overloaded_error")])).await;
    assert_eq!(overloaded, CallFailure::Limited { status: 529, retry_after: None });
    let words = failure_in(Api::Anthropic, || Script::events(["event: error\ndata: oh no\n\n"])).await;
    assert_eq!(unavailable(&words), "an error within the answer");
    let gemini = r#"data: {"error":{"code":503,"message":"what-a-user-wrote","status":"UNAVAILABLE"}}"#;
    let gemini = failure_in(Api::Gemini, move || Script::events([format!("{gemini}\n\n")])).await;
    assert_eq!(gemini, CallFailure::Limited { status: 503, retry_after: None });
    let whole = failure(|| Script::status(200, &[], &error("no", "context_length_exceeded"))).await;
    assert!(matches!(whole, CallFailure::Overflow { .. }), "{whole:?}");
}

#[tokio::test]
async fn talk_of_errors_is_no_error() {
    let server = ScriptedModel::start(|asked| Script::says(asked, [Say::text("{\"error\":{\"code\":400}}")])).await;
    for api in APIS {
        let model = configured(server.settings_of(api, &["small"]), |_| ());
        let heard = hear(&model, &plain_call(CONTEXT)).await.expect("it is an answer");
        assert_eq!(heard.text, "{\"error\":{\"code\":400}}", "{api:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_broken_wherever_it_was_cut() {
    for api in APIS {
        for pieces in 0..4 {
            let says = [Say::text("One."), Say::text("Two."), Say::text("Three."), Say::text("Four.")];
            let script = move || Script::says_counted(api, &says, Counted::default()).cut_after(pieces);
            assert_eq!(broken(&failure_in(api, script).await), "it was cut off", "{api:?}, {pieces}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_its_end_is_broken() {
    for (api, event) in [
        (Api::OpenAi, r#"{"choices":[{"delta":{"content":"One."}}]}"#),
        (Api::Anthropic, r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"One."}}"#),
        (Api::Gemini, r#"{"candidates":[{"content":{"parts":[{"text":"One."}]}}]}"#),
    ] {
        let failure = failure_in(api, move || Script::events([format!("data: {event}\n\n")])).await;
        assert_eq!(broken(&failure), "it ended without its end", "{api:?}");
    }
}

#[tokio::test]
async fn what_is_not_the_protocol_is_broken() {
    let stream = |body: &'static str| move || Script::status(200, &[("content-type", "text/event-stream")], body);
    for (body, what) in [
        ("", "it is empty"),
        ("\n\n \u{feff}", "it is empty"),
        ("<!DOCTYPE html>", "it is a page"),
        ("Service will be back soon", "it is not the protocol"),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"On", "an event of it is not the protocol"),
        ("data: [1]\n\n", "an event of it is not the protocol"),
        ("data: {\"choices\":7}\n\n", "an event of it is not the protocol"),
        ("data: soon\n\n", "an event of it is not the protocol"),
        (": nothing but a comment\n\n", "it ended without its end"),
        ("{\"choices\":[{\"message\":{\"content\":\"On", "an event of it is not the protocol"),
        ("{\"id\":\"7\"}", "it ended without its end"),
        ("\u{feff}\u{feff}data: [DONE]\n\n", "it ended without its end"),
    ] {
        assert_eq!(broken(&failure(stream(body)).await), what, "{body}");
    }
    let page = || Script::status(200, &[("content-type", "text/html; charset=utf-8")], "Sorry");
    assert_eq!(broken(&failure(page).await), "it is a page");
    let latin = || {
        Script::raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {\"a\":\"\xe9\"}\n\n")
    };
    assert_eq!(broken(&failure(latin).await), "it is no UTF-8");
    let deep = format!("data: {{\"choices\":{}\n\n", "[".repeat(50_000));
    let deep = failure(move || Script::events([deep.as_str()])).await;
    assert_eq!(broken(&deep), "an event of it is not the protocol");
    let many = format!("data: {{\"choices\":[{}{{}}]}}\n\n", "{},".repeat(20_000));
    let many = failure(move || Script::events([many.as_str()])).await;
    assert_eq!(broken(&many), "an event of it is not the protocol");
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_broken() {
    for api in APIS {
        for says in [vec![], Say::texts(&[" \n", "\t"]), vec![Say::thought("Hm.")], vec![Say::OutOfRoom]] {
            let script = move || Script::says_counted(api, &says, Counted::default());
            assert_eq!(broken(&failure_in(api, script).await), "nothing is said in it", "{api:?}");
        }
    }
    let no_name = || Script::says_counted(Api::OpenAi, &[Say::tool("a", "", "{}")], Counted::default());
    assert_eq!(broken(&failure(no_name).await), "a call of a tool has no name");
}

#[tokio::test]
async fn an_answer_that_was_filtered_may_be_empty() {
    let server =
        ScriptedModel::start(|_| Script::events(["data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\r\n\r\n"]));
    let server = server.await;
    let model = configured(server.settings_of(Api::Gemini, &["small"]), |_| ());
    let heard = hear(&model, &plain_call(CONTEXT)).await.expect("it is an answer");
    assert_eq!((heard.text.as_str(), heard.end.stop), ("", StopReason::Filtered));
}

#[tokio::test]
async fn a_prompt_that_the_provider_cut_short_in_silence_is_an_overflow() {
    for api in APIS {
        let server = ScriptedModel::start(move |_| {
            let counted = Counted { input: 2_000, ..Counted::default() };
            Script::says_counted(api, &[Say::text("Sure!")], counted)
        });
        let server = server.await;
        let model = configured(server.settings_of(api, &["small"]), |_| ());
        let sent = |tokens| Call { sent_tokens: Some(Tokens::new(tokens)), ..plain_call(CONTEXT) };
        let failure = hear(&model, &sent(6_000)).await.expect_err("two thirds are missing");
        let rule = "prompt-shortened";
        assert_eq!(failure, CallFailure::Overflow { window: None, prompt: None, rule }, "{api:?}");
        assert!(hear(&model, &sent(2_500)).await.is_ok(), "{api:?}: tokenizers differ");
    }
}

#[tokio::test]
async fn an_answer_larger_than_allowed_is_broken_and_not_read_to_its_end() {
    for api in APIS {
        for event in [": still there\n\n", "data:", "\n"] {
            let server = ScriptedModel::start(move |_| Script::endless(event)).await;
            let model = configured(server.settings_of(api, &["small"]), |settings| settings.response_bytes = 100_000);
            let failure = hear(&model, &plain_call(CONTEXT)).await.expect_err("it never ends");
            assert_eq!(broken(&failure), "it is larger than response_bytes", "{api:?}, {event:?}");
            server.closed_by_client(1).await;
        }
    }
    let announced = failure(|| Script::bytes(200, 100_001)).await;
    assert_eq!(broken(&announced), "it is larger than response_bytes");
}

#[tokio::test]
async fn of_an_error_only_the_beginning_is_read() {
    let server = ScriptedModel::start(|_| {
        Script::raw(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n").then_endless(&"x".repeat(1_000))
    });
    let server = server.await;
    let model = configured(server.settings(&["small"]), |_| ());
    let failure = hear(&model, &plain_call(CONTEXT)).await.expect_err("it fails");
    assert_eq!(failure, CallFailure::Refused { status: 400 });
    server.closed_by_client(1).await;
}

/// The failure of a model that says nothing for a second.
async fn failure_in_silence(script: impl Fn() -> Script + Send + Sync + 'static) -> CallFailure {
    failure_under(|settings| settings.first_byte_timeout_ms = 1_000, Api::OpenAi, script).await
}

#[tokio::test]
async fn silence_is_unavailable_and_names_its_phase() {
    assert_eq!(unavailable(&failure_in_silence(Script::hang).await), "the answer did not begin in time");
    let text = || Script::openai(&["One.", "Two."], Counted::default());
    let (at_once, later) = (move || text().hanging_after(0), move || text().hanging_after(2));
    assert_eq!(unavailable(&failure_in_silence(at_once).await), "the answer did not begin in time");
    assert_eq!(unavailable(&failure_in_silence(later).await), "the answer paused for too long");
}

#[tokio::test]
async fn a_call_has_a_whole_time_whatever_trickles_in() {
    let server = ScriptedModel::start(|_| Script::endless(": still there\n\n")).await;
    let model = configured(server.settings(&["small"]), |settings| {
        settings.total_timeout_ms = 3_000;
        settings.response_bytes = u32::MAX;
    });
    let failure = hear(&model, &plain_call(CONTEXT)).await.expect_err("it never ends");
    assert_eq!(unavailable(&failure), "the whole call took too long");
    server.closed_by_client(1).await;
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_unavailable() {
    let gone = ScriptedModel::saying("Hi.").await;
    let settings = gone.settings(&["small"]);
    drop(gone);
    let model = configured(settings, |_| ());
    let failed = hear(&model, &plain_call(CONTEXT)).await.expect_err("nobody listens");
    assert_eq!(unavailable(&failed), "no connection");

    for nonsense in [&b""[..], b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nbroken"] {
        let failed = failure(move || Script::raw(nonsense)).await;
        assert_eq!(unavailable(&failed), "the connection ended before an answer began");
    }
}

#[tokio::test]
async fn a_provider_that_speaks_no_tls_is_unavailable() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
    let address = listener.local_addr().expect("it has an address");
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("somebody connects");
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad\r\n\r\n").await
    });
    let any = ScriptedModel::saying("Hi.").await;
    let model = configured(any.settings(&["small"]), |settings| settings.url = Some(format!("https://{address}/v1")));
    let failed = hear(&model, &plain_call(CONTEXT)).await.expect_err("it speaks no TLS");
    assert_eq!(unavailable(&failed), "no connection");
    server.await.expect("it does not panic").expect("it writes");
}

#[tokio::test]
async fn a_connection_that_is_never_accepted_is_given_up() {
    // Who listens without accepting has a queue; once it is full, the system leaves the next one waiting.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("some port is free");
    let listener = socket.listen(1).expect("it listens");
    let address = listener.local_addr().expect("it has an address");
    let mut queue = Vec::new();
    for _ in 0..2 {
        queue.push(tokio::net::TcpStream::connect(address).await.expect("there is room"));
    }
    let server = ScriptedModel::saying("Hi.").await;
    let model = configured(server.settings(&["small"]), |settings| {
        settings.url = Some(format!("http://{address}/v1"));
        settings.connect_timeout_ms = 200;
    });
    let failure = hear(&model, &plain_call(CONTEXT)).await.expect_err("nobody accepts");
    assert_eq!(unavailable(&failure), "the connection took too long");
}

#[tokio::test]
async fn too_many_calls_of_tools_end_the_answer_where_they_are_too_many() {
    let call = |n: usize| {
        let part =
            format!("{{\"index\":{n},\"id\":\"c{n}\",\"function\":{{\"name\":\"look\",\"arguments\":\"{{}}\"}}}}");
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{part}]}}}}]}}\n\n")
    };
    // The stream does not end: without a limit the failure would be another.
    let of = |calls: usize| failure(move || Script::events([(0..calls).map(call).collect::<String>()]));
    assert_eq!(broken(&of(256).await), "it ended without its end");
    assert_eq!(broken(&of(257).await), "it calls too many tools");
}
