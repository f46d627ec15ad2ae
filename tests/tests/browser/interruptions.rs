//! The server is killed in the middle of an answer.

use anneal_testkit::{
    AnnealBinary, Browser, Folder, Gate, Look, Process, Say, Script, ScriptedModel, TcpProxy,
    TestApp,
};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// Starts a server with a page. Returns it with its HTTP port.
async fn start_server(binary: &AnnealBinary) -> (Process, u16) {
    let started = binary.try_server(&["web.enabled=true"]).await;
    let (server, _) = started.unwrap_or_else(|ended| panic!("it ended: {:#?}", ended.lines()));
    let port = server.http_client().await.address().port();
    (server, port)
}

#[tokio::test]
async fn a_question_whose_server_is_killed_is_answered_anew_by_the_next_server() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| {
            let answer = Script::says(request, Say::texts(&["One ", "two ", "three."]));
            match request.nth {
                0 => answer.gated(&gate),
                _ => answer,
            }
        }
    })
    .await;
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let folder = Folder::new();
    folder.file("anneal.toml", &model.server_settings());
    let binary = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, port) = start_server(&binary).await;
    let proxy = TcpProxy::to_port(port).await;
    let origin = format!("http://127.0.0.1:{}", proxy.port());
    let path = format!("/conversations/{}", conversation.id);
    let page = browser.open_at(&origin, &path, Look::WIDE).await;
    page.write("#composer textarea", "Tell me.").await;
    page.click("#composer button").await;
    page.wait_for("#live").await;
    gate.open(2);
    page.wait_for_text("#live", "One").await;
    server.kill().await;
    let (_server, port) = start_server(&binary).await;
    proxy.set_target(port);
    // Not before the lease of the turn has ended. Then the page has the question, and asks.
    page.click("[data-message='1'] [action$='/regenerate'] button")
        .await;
    page.wait_for_text("[data-message='2']", "One two three.")
        .await;
    assert_eq!(page.count("[data-message]").await, 2);
    assert_eq!(model.requests().len(), 2);
}
