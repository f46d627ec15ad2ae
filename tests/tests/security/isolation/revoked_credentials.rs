//! Watches, large HTTP answers and turns end when their credential expires or is revoked. A
//! TLS session is never resumed, so every connection verifies the client's certificate.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anneal_core::caller::Verb;
use anneal_llm::provider::Api;
use anneal_server::{AuthSettings, ClientSettings, ServerSettings};
use anneal_store::{OwnerConnection, StoreSettings};
use anneal_testkit::{
    AuthorizedChannel, Folder, Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, SseEvent,
    SseStream, TestApp, TurnOutcome, assert_refused, eventually, pb, read_until_text, text_of,
    user,
};
use pb::{
    chat_service_client::ChatServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Status, transport::Channel};

use crate::isolation::tls::{Authority, list, uri};

/// The name in anna's certificate.
const NAME: &str = "spiffe://example/anna";

/// Starts an app that authenticates anna by her certificate.
async fn start_with_certificates(authority: &Authority, folder: &Folder) -> TestApp {
    let anna = ClientSettings {
        tenant: "anna".into(),
        verbs: vec!["read".into(), "append".into()],
    };
    let auth = AuthSettings {
        clients: [(NAME.to_owned(), anna)].into(),
        ..Default::default()
    };
    let app = TestApp::with_auth(authority.write_server_certificate(folder), auth).await;
    app.tenant("anna").await;
    app
}

/// A certificate of anna that expires in this number of seconds, and its key, in PEM.
fn short_lived_certificate(authority: &Authority, seconds: u64) -> (String, String) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.subject_alt_names = vec![uri(NAME)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_secs() + seconds);
    let key = KeyPair::generate().expect("a key");
    (
        params
            .signed_by(&key, authority.issuer())
            .expect("signs")
            .pem(),
        key.serialize_pem(),
    )
}

#[tokio::test]
async fn calls_are_refused_and_watches_end_when_the_certificate_of_their_connection_expires() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let app = start_with_certificates(&authority, &folder).await;
    let certificate = short_lived_certificate(&authority, 15);
    let channel = authority
        .channel(app.addresses.grpc, Some(certificate))
        .await
        .expect("completes the handshake");
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let ask = pb::WatchConversationRequest {
        conversation_id: made.into_inner().conversation_id,
        ..Default::default()
    };
    let mut watch = MessageServiceClient::<Channel>::new(channel.clone())
        .watch_conversation(ask)
        .await;
    let watch = watch.as_mut().expect("watches").get_mut();
    watch.message().await.expect("begins").expect("`started`");
    eventually("the certificate is refused", async || {
        match list(channel.clone()).await {
            Ok(()) => false,
            Err(status) => {
                assert!(status.message().contains("has expired"), "{status:?}");
                assert_refused::<()>(Err(status), Code::Unauthenticated, "UNAUTHENTICATED", "");
                true
            }
        }
    })
    .await;
    let ended: Result<_, Status> = tokio::time::timeout(Duration::from_mins(1), watch.message())
        .await
        .expect("ends");
    assert_refused(ended, Code::Unauthenticated, "UNAUTHENTICATED", "");
}

/// Connects to the HTTP port and reads an answer. Returns the kind of the TLS handshake.
fn handshake_kind(config: &Arc<ClientConfig>, address: SocketAddr) -> Option<HandshakeKind> {
    use std::io::{Read as _, Write as _};

    let name = "localhost".try_into().expect("a name");
    let mut session = rustls::ClientConnection::new(Arc::clone(config), name).expect("a session");
    let mut socket = std::net::TcpStream::connect(address).expect("connects");
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("is sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("is answered");
    assert_eq!(&answer, b"HTTP/1.1 200");
    session.handshake_kind()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_verifies_the_client_certificate_in_a_full_handshake() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let app = start_with_certificates(&authority, &folder).await;
    let (certificate, key) = short_lived_certificate(&authority, 300);
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM"))
        .expect("a certificate");
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    for version in rustls::ALL_VERSIONS {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder
            .with_protocol_versions(&[version])
            .expect("a supported version")
            .with_root_certificates(roots.clone());
        let config = builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .expect("the key fits the certificate");
        let (config, address) = (Arc::new(config), app.addresses.http);
        let kinds =
            tokio::task::spawn_blocking(move || [(); 2].map(|()| handshake_kind(&config, address)));
        assert_eq!(
            kinds.await.expect("answers"),
            [Some(HandshakeKind::Full); 2],
            "{version:?}"
        );
    }
}

#[tokio::test]
async fn a_large_http_answer_is_cut_off_when_its_key_is_revoked() {
    const BYTES: usize = 24 * 1024 * 1024;
    let app = TestApp::with_auth(
        ServerSettings::default(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    let verbs = [Verb::Read, Verb::Append];
    let (key, other) = (app.key("anna", &verbs).await, app.key("anna", &verbs).await);
    let channel: AuthorizedChannel = app.authorized_channel(&format!("Bearer {}", other.text));
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        ..Default::default()
    };
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    for _ in 0..8 {
        let messages = vec![user(&"x".repeat(BYTES / 8))];
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            messages,
            ..Default::default()
        };
        MessageServiceClient::new(channel.clone())
            .append_messages(ask)
            .await
            .expect("appends");
    }
    let begin_to_read = async |key: &str| {
        let mut stream = TcpStream::connect(app.addresses.http)
            .await
            .expect("connects");
        let request = format!(
            "GET /api/agents/a/sessions/{conversation_id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {key}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("is sent");
        let mut begun = [0; 4_096];
        stream.read_exact(&mut begun).await.expect("begins");
        stream
    };
    // A complete chunked body ends with an empty chunk.
    let rest = async |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        (rest.len(), rest.ends_with(b"\r\n0\r\n\r\n"))
    };
    let slow = begin_to_read(&key.text).await;
    assert!(
        OwnerConnection::connect(&StoreSettings::at(&app.url))
            .await
            .expect("connects")
            .revoke_key(key.id)
            .await
            .expect("revokes")
    );
    let revoked = app.authorized_channel(&format!("Bearer {}", key.text));
    eventually("the key is refused", async || {
        let ask = pb::ListConversationsRequest::default();
        ConversationServiceClient::new(revoked.clone())
            .list_conversations(ask)
            .await
            .is_err()
    })
    .await;
    let (bytes, is_complete) = rest(slow).await;
    assert!(!is_complete, "{bytes} bytes came");
    let (bytes, is_complete) = rest(begin_to_read(&other.text).await).await;
    assert!(
        is_complete && bytes > BYTES - 4_096,
        "the reader with the other key gets everything: {bytes} bytes"
    );
}

/// Starts an app with API keys and this model, without model timeouts.
async fn start_with_model(model: &ScriptedModel) -> TestApp {
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (3_600_000, 3_600_000);
    }
    TestApp::with_models_and_keys((providers, models), MODEL).await
}

/// Longer than a revoked key stays accepted.
const REVOKED_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_and_their_readers_end_when_the_key_that_began_them_is_revoked() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, Say::texts(&["one ", "two"])).gated(&gate)
    })
    .await;
    let app = start_with_model(&model).await;
    let verbs = [Verb::Read, Verb::Append];
    let (revoked, valid) = (app.key("anna", &verbs).await, app.key("anna", &verbs).await);
    let [revoked_authorization, valid_authorization] =
        [&revoked, &valid].map(|key| format!("Bearer {}", key.text));
    let channel = app.authorized_channel(&revoked_authorization);
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let ask = pb::ChatRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![user("Tell me.")],
        ..Default::default()
    };
    let mut turn = ChatServiceClient::new(channel)
        .chat(ask)
        .await
        .expect("begins")
        .into_inner();
    turn.message().await.expect("goes on").expect("`started`");

    let web = app.http_client();
    let path = "/api/agents/a/chat";
    let begin = async |authorization: &str| {
        let turn = web
            .json("POST", path, &json!({"message": "Tell me."}))
            .header("authorization", authorization);
        let mut events = SseStream::open(turn).await;
        let id = events.take(1).await.remove(0).id;
        (events, id)
    };
    let join = async |authorization: &str, id: &str| {
        SseStream::open(
            web.request("POST", path)
                .header("authorization", authorization)
                .header("last-event-id", id),
        )
        .await
    };
    // The key that is about to be revoked and the valid one begin a turn each. Each also reads the
    // turn of the other.
    let (revoked_turn, revoked_turn_id) = begin(&revoked_authorization).await;
    let (valid_turn, valid_turn_id) = begin(&valid_authorization).await;
    let revoked_turn_read_by_valid = join(&valid_authorization, &revoked_turn_id).await;
    let valid_turn_read_by_revoked = join(&revoked_authorization, &valid_turn_id).await;
    // The calls of the turn over gRPC and of the two turns over HTTP. The revoked key began two of
    // these turns.
    model.wait_for_calls(3).await;
    assert!(
        OwnerConnection::connect(&StoreSettings::at(&app.url))
            .await
            .expect("connects")
            .revoke_key(revoked.id)
            .await
            .expect("revokes")
    );

    let ended = tokio::time::timeout(REVOKED_WITHIN, turn.message())
        .await
        .expect("ends");
    assert_refused(ended, Code::Unauthenticated, "UNAUTHENTICATED", "");
    for (what, reader) in [
        ("the revoked key's turn", revoked_turn),
        (
            "the revoked key's turn, read with the valid key",
            revoked_turn_read_by_valid,
        ),
        (
            "the valid key's turn, read with the revoked key",
            valid_turn_read_by_revoked,
        ),
    ] {
        let events = tokio::time::timeout(REVOKED_WITHIN, reader.rest())
            .await
            .expect("ends");
        let last = events.last().unwrap_or_else(|| panic!("{what}: no event"));
        assert_eq!(
            (last.kind(), &last.data["problem"]["reason"]),
            ("error", &json!("UNAUTHENTICATED")),
            "{what}"
        );
    }
    model.wait_for_closed_calls(2).await;
    let ask = pb::ListMessagesRequest {
        conversation_id,
        ..Default::default()
    };
    let stored = MessageServiceClient::new(app.authorized_channel(&valid_authorization))
        .list_messages(ask)
        .await
        .expect("lists");
    assert_eq!(
        stored.into_inner().messages.len(),
        1,
        "the prompt stays and there is no answer"
    );
    gate.open_for_ever();
    let events = valid_turn.rest().await;
    assert_eq!(
        (text_of(&events).as_str(), events.last().map(SseEvent::kind)),
        ("one two", Some("done"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_finishes_without_its_caller_ends_when_the_key_is_revoked() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        // The first model fails, and the second one says nothing more after its text.
        0 => Script::status(503, &[], "{}"),
        _ => Script::says(asked, [Say::text("Half")]).hanging_after(2),
    })
    .await;
    let (mut providers, models) = model.settings(&[MODEL, "other"]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (3_600_000, 3_600_000);
    }
    let app = TestApp::with_models_and_keys((providers, models), MODEL).await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let ask = pb::ChatRequest {
        conversation_id: made.into_inner().conversation_id,
        messages: vec![user("Tell me.")],
        model: MODEL.into(),
        fallback_models: vec!["other".into()],
        on_disconnect: pb::OnDisconnect::Finish.into(),
        ..Default::default()
    };
    let mut turn = ChatServiceClient::new(channel)
        .chat(ask)
        .await
        .expect("begins")
        .into_inner();
    read_until_text(&mut turn, "Half").await;
    drop(turn);
    let owner = OwnerConnection::connect(&StoreSettings::at(&app.url)).await;
    let mut owner = owner.expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    tokio::time::timeout(REVOKED_WITHIN, model.wait_for_closed_calls(1))
        .await
        .expect("the call ends");
    eventually("the turn has ended", async || {
        let leases: i64 = sqlx::query_scalar("select count(*) from ai_model_lease")
            .fetch_one(&mut app.db().await)
            .await
            .expect("counts");
        leases == 0
    })
    .await;
    let stored: i64 = sqlx::query_scalar("select count(*) from ai_message")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts");
    assert_eq!(stored, 1, "nothing of the answer is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_is_not_kept_warm_for_a_revoked_key() {
    const CLAUDE: &str = "claude-opus-5";
    let model = ScriptedModel::saying("Yes.").await;
    let settings = model.settings_of(Api::Anthropic, &[CLAUDE]);
    let app = TestApp::with_models_and_keys(settings, CLAUDE).await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    // The call is due after the 10 s for which a server remembers that a key is valid.
    let policy = pb::Policy {
        cache_ttl_seconds: Some(15),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        policy: Some(policy),
        ..Default::default()
    };
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let ask = pb::ChatRequest {
        conversation_id: made.into_inner().conversation_id,
        messages: vec![user("Is it cached?")],
        cache_ping: true,
        ..Default::default()
    };
    let turn = ChatServiceClient::new(channel).chat(ask).await;
    let turn = turn.expect("begins").into_inner();
    TurnOutcome::read(turn).await.done();
    let owner = OwnerConnection::connect(&StoreSettings::at(&app.url)).await;
    let mut owner = owner.expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    let operator = app.key("ops", &[Verb::Operator]).await;
    let web = app.http_client();
    let refused = "anneal_chat_cache_pings_total{outcome=\"refused\"} 1";
    eventually("the ping is refused", async || {
        let asked = web
            .request("GET", "/metrics")
            .header("authorization", format!("Bearer {}", operator.text));
        let metrics = HttpResponse::send(asked).await.text;
        metrics.lines().any(|line| line == refused)
    })
    .await;
    assert_eq!(model.requests().len(), 1);
}
