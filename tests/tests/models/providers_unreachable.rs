//! Providers that cannot be reached, do not speak TLS, or stay silent.

use anneal_llm::provider::{Api, CallFailure};
use anneal_testkit::{ReportedUsage, Script, ScriptedModel, plain_call, read_answer};

use crate::{
    CONTEXT,
    providers_failures::{
        configured_model, failure_with_settings, openai_failure, unavailable_reason,
    },
};

/// The failure of a call that this script answers, with a first-byte timeout of one second. This
/// timeout also limits each pause within an answer.
async fn failure_after_timeout(script: impl Fn() -> Script + Send + Sync + 'static) -> CallFailure {
    failure_with_settings(
        |settings| settings.first_byte_timeout_ms = 1_000,
        Api::OpenAi,
        script,
    )
    .await
}

#[tokio::test]
async fn a_silent_provider_is_unavailable_and_the_failure_names_the_phase() {
    assert_eq!(
        unavailable_reason(&failure_after_timeout(Script::hang).await),
        "the answer did not begin in time"
    );
    let text = || Script::openai(&["One.", "Two."], ReportedUsage::default());
    let (at_once, later) = (
        move || text().hanging_after(0),
        move || text().hanging_after(2),
    );
    assert_eq!(
        unavailable_reason(&failure_after_timeout(at_once).await),
        "the answer did not begin in time"
    );
    assert_eq!(
        unavailable_reason(&failure_after_timeout(later).await),
        "the answer paused for too long"
    );
}

#[tokio::test]
async fn a_call_has_a_total_timeout_however_slowly_bytes_arrive() {
    let server = ScriptedModel::start(|_| Script::endless(": still there\n\n")).await;
    let model = configured_model(server.settings(&["small"]), |settings| {
        settings.total_timeout_ms = 3_000;
        settings.response_bytes = u32::MAX;
    });
    let failure = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("the answer never ends");
    assert_eq!(unavailable_reason(&failure), "the whole call took too long");
    server.wait_for_closed_calls(1).await;
}

#[tokio::test]
async fn an_unreachable_provider_or_one_that_speaks_no_http_is_unavailable() {
    let stopped = ScriptedModel::saying("Hi.").await;
    let settings = stopped.settings(&["small"]);
    drop(stopped);
    let model = configured_model(settings, |_| ());
    let failed = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("no server listens");
    // Reset instead of refused, if the port is still being closed.
    let reason = unavailable_reason(&failed);
    assert!(
        reason.starts_with("no connection (connection re"),
        "{reason}"
    );

    for nonsense in [
        &b""[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nbroken",
    ] {
        let failed = openai_failure(move || Script::raw(nonsense)).await;
        assert_eq!(
            unavailable_reason(&failed),
            "the connection ended before an answer began"
        );
    }
}

#[tokio::test]
async fn a_provider_without_tls_is_unavailable() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("some port is free");
    let address = listener.local_addr().expect("it has an address");
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client connects");
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad\r\n\r\n").await
    });
    let any = ScriptedModel::saying("Hi.").await;
    let model = configured_model(any.settings(&["small"]), |settings| {
        settings.url = Some(format!("https://{address}/v1"));
    });
    let failed = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("it speaks no TLS");
    assert_eq!(unavailable_reason(&failed), "no connection");
    server.await.expect("it does not panic").expect("it writes");
}

#[tokio::test]
async fn a_connection_that_is_never_accepted_times_out() {
    // The listener accepts nothing. Once its backlog is full, the kernel leaves further connections
    // waiting. On Linux a backlog of 1 holds two connections.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind(([127, 0, 0, 1], 0).into())
        .expect("some port is free");
    let listener = socket.listen(1).expect("it listens");
    let address = listener.local_addr().expect("it has an address");
    let mut queue = Vec::new();
    for _ in 0..2 {
        queue.push(
            tokio::net::TcpStream::connect(address)
                .await
                .expect("the backlog has room"),
        );
    }
    let server = ScriptedModel::saying("Hi.").await;
    let model = configured_model(server.settings(&["small"]), |settings| {
        settings.url = Some(format!("http://{address}/v1"));
        settings.connect_timeout_ms = 200;
    });
    let failure = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("no connection is accepted");
    assert_eq!(unavailable_reason(&failure), "the connection took too long");
}
