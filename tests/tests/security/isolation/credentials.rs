//! API keys, tokens, and the verb that each call needs.

use std::time::{Duration, Instant};

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, GeneratedKey, ServerSettings};
use anneal_store::{OwnerConnection, StoreSettings};
use anneal_testkit::{
    AuthorizedChannel, Folder, TestApp, assert_refused, call_raw, eventually, every_rpc, pb,
    status_details,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// The audience that tokens must name.
pub(crate) const AUDIENCE: &str = "anneal.example";

async fn start_with_keys() -> TestApp {
    TestApp::with_auth(
        ServerSettings::default(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await
}

/// Lists conversations with the credential of this channel. Returns their number.
pub(crate) async fn list(channel: &AuthorizedChannel) -> Result<usize, Status> {
    let ask = pb::ListConversationsRequest::default();
    let page = ConversationServiceClient::new(channel.clone())
        .list_conversations(ask)
        .await;
    page.map(|page| page.into_inner().conversations.len())
}

#[tokio::test]
async fn only_valid_keys_are_accepted_and_the_refusal_names_the_problem() {
    let app = start_with_keys().await;
    let key = app.key("anna", &[Verb::Read]).await;
    let altered = format!("{}x", key.text);
    let unknown = GeneratedKey::make(None).expect("random bytes").text;
    for (authorization, problem) in [
        ("", "no credential"),
        ("Bearer", "not `Bearer`"),
        ("Basic YTpi", "not `Bearer`"),
        ("Bearer a b", "not `Bearer`"),
        (&format!("Bearer {altered}"), "not known here"),
        (&format!("Bearer {unknown}"), "not known here"),
        ("Bearer anneal_", "not known here"),
        ("Bearer eyJhbGciOiJub25lIn0.e30.", "not known here"),
    ] {
        let refused = list(&app.authorized_channel(authorization))
            .await
            .expect_err(authorization);
        assert!(
            refused.message().contains(problem),
            "{authorization}: {refused:?}"
        );
        assert_refused::<()>(Err(refused), Code::Unauthenticated, "UNAUTHENTICATED", "");
    }
    assert_eq!(
        list(&app.authorized_channel(&format!("Bearer {}", key.text)))
            .await
            .expect("is accepted"),
        0
    );
    assert_eq!(
        list(&app.authorized_channel(&format!("bearer  {}", key.text)))
            .await
            .expect("is accepted"),
        0
    );
    // The same over HTTP, with its header `WWW-Authenticate`.
    let web = app.http_client();
    let refused = web.get("/api/agents/a/sessions").await;
    refused.assert_problem(401, "UNAUTHENTICATED", "");
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    let accepted = web
        .request("GET", "/api/agents/a/sessions")
        .header("authorization", format!("Bearer {}", key.text));
    assert_eq!(
        anneal_testkit::HttpResponse::send(accepted).await.status,
        200
    );
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/openapi.json", 200),
        ("/metrics", 401),
    ] {
        let answered = status_when_ready(&web, path, status).await;
        assert_eq!(answered, status, "{path}");
    }
    let request = web
        .request("GET", "/metrics")
        .header("authorization", format!("Bearer {}", key.text));
    anneal_testkit::HttpResponse::send(request)
        .await
        .assert_problem(403, "VERB_MISSING", "");
}

/// Gets a path and returns the status. `/readyz` is 200 only after the server's first check of the
/// database, so it is requested until it has this status.
async fn status_when_ready(web: &anneal_testkit::HttpClient, path: &str, status: u16) -> u16 {
    if path == "/readyz" {
        eventually("is ready", async || web.get(path).await.status == status).await;
    }
    web.get(path).await.status
}

#[tokio::test]
async fn every_call_needs_a_credential_and_every_call_but_chat_exactly_one_verb() {
    let app = start_with_keys().await;
    let mut channels = Vec::new();
    for verb in Verb::ALL {
        channels.push((
            verb,
            app.authorized_channel(&format!("Bearer {}", app.key("anna", &[verb]).await.text)),
        ));
    }
    let mut rpc_counts = [0; 4];
    for rpc in every_rpc() {
        let refused = call_raw(app.authorized_channel(""), &rpc.path, Vec::new())
            .await
            .expect_err(&rpc.name);
        assert_eq!(refused.code(), Code::Unauthenticated, "{}", rpc.name);
        let mut allowed = Vec::new();
        for (verb, channel) in &channels {
            match call_raw(channel.clone(), &rpc.path, Vec::new()).await {
                Err(status) if status_details(&status).reason == "VERB_MISSING" => {
                    assert_eq!(status.code(), Code::PermissionDenied, "{}", rpc.name);
                }
                Ok(_) | Err(_) => allowed.push(*verb),
            }
        }
        if rpc.name == "Chat" {
            assert!(allowed.is_empty(), "a turn needs two verbs: {allowed:?}");
            continue;
        }
        assert_eq!(allowed.len(), 1, "{} needs one verb: {allowed:?}", rpc.name);
        rpc_counts[allowed[0] as usize] += 1;
        let only_reads = ["Get", "List", "Build", "Stream", "Watch", "Classify"]
            .iter()
            .any(|word| rpc.name.starts_with(word));
        assert!(
            allowed[0] != Verb::Read || only_reads,
            "{} changes something",
            rpc.name
        );
    }
    assert!(rpc_counts.iter().all(|n| *n > 0), "{rpc_counts:?}");
}

#[tokio::test]
async fn a_revoked_or_expired_key_is_refused_within_a_minute() {
    let app = start_with_keys().await;
    let (revoked, expired) = (
        app.key("anna", &[Verb::Read]).await,
        app.key("anna", &[Verb::Read]).await,
    );
    let mut owner = OwnerConnection::connect(&StoreSettings::at(&app.url))
        .await
        .expect("connects");
    for key in [&revoked, &expired] {
        list(&app.authorized_channel(&format!("Bearer {}", key.text)))
            .await
            .expect("is accepted");
    }
    assert!(owner.revoke_key(revoked.id).await.expect("revokes"));
    assert!(
        !owner
            .revoke_key(revoked.id)
            .await
            .expect("the query succeeds"),
        "it is revoked already"
    );
    let expire = "update api_key set expires_ts = now() - interval '1 second' where key_id = $1";
    sqlx::query(expire)
        .bind(expired.id)
        .execute(&mut app.db().await)
        .await
        .expect("expires");
    for key in [&revoked, &expired] {
        let channel = app.authorized_channel(&format!("Bearer {}", key.text));
        eventually("the key is refused", async || {
            list(&channel)
                .await
                .is_err_and(|status| status.code() == Code::Unauthenticated)
        })
        .await;
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_key_is_revoked() {
    let app = start_with_keys().await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    let mut conversations = ConversationServiceClient::new(channel.clone());
    let made = conversations
        .create_conversation(pb::CreateConversationRequest::default())
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let ask = pb::WatchConversationRequest {
        conversation_id,
        ..Default::default()
    };
    let mut watch = MessageServiceClient::new(channel)
        .watch_conversation(ask)
        .await
        .expect("watches")
        .into_inner();
    watch.message().await.expect("begins").expect("`started`");
    let mut owner = OwnerConnection::connect(&StoreSettings::at(&app.url))
        .await
        .expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    let ended = tokio::time::timeout(Duration::from_mins(1), watch.message())
        .await
        .expect("ends by itself");
    assert_refused(ended, Code::Unauthenticated, "UNAUTHENTICATED", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_do_not_block_a_known_key_when_lookups_hang() {
    let app = start_with_keys().await;
    let known = app.authorized_channel(&format!(
        "Bearer {}",
        app.key("anna", &[Verb::Read]).await.text
    ));
    list(&known).await.expect("is accepted");
    // From now on no lookup of a key ends.
    let mut db = app.db().await;
    sqlx::raw_sql("begin; lock table api_key in access exclusive mode")
        .execute(&mut db)
        .await
        .expect("locks");
    let mut flood = JoinSet::new();
    for _ in 0..64 {
        let made_up = GeneratedKey::make(None).expect("random bytes").text;
        let unknown = app.authorized_channel(&format!("Bearer {made_up}"));
        flood.spawn(async move { while list(&unknown).await.is_err() {} });
    }
    // A cached key is looked up again after CACHE_TTL (10 s). While the database does not answer,
    // the key stays valid for STALE_TTL (20 s) more. Both are in `server/src/auth/cache.rs`. After
    // 16 s the key is due for a lookup and still valid.
    let (began, mut interval) = (
        Instant::now(),
        tokio::time::interval(Duration::from_millis(200)),
    );
    while began.elapsed() < Duration::from_secs(16) {
        interval.tick().await;
        list(&known).await.expect("the known key is answered");
    }
    flood.shutdown().await;
}

#[tokio::test]
async fn queue_stats_need_the_verb_operator() {
    let app = start_with_keys().await;
    let admin = app.authorized_channel(&format!(
        "Bearer {}",
        app.key("anna", &[Verb::Admin]).await.text
    ));
    let refused = OperatorServiceClient::new(admin)
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await;
    let refused = refused.expect_err("is refused");
    assert!(refused.message().contains("operator"), "{refused:?}");
    assert_refused::<()>(Err(refused), Code::PermissionDenied, "VERB_MISSING", "");
    let operator = app.authorized_channel(&format!(
        "Bearer {}",
        app.key("ops", &[Verb::Operator]).await.text
    ));
    OperatorServiceClient::new(operator)
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await
        .expect("answers");
}

/// An identity provider that signs tokens with one key.
pub(crate) struct Provider {
    key: KeyPair,
    algorithm: Algorithm,
    key_id: &'static str,
}

impl Provider {
    pub(crate) fn new(algorithm: Algorithm, key_id: &'static str) -> Self {
        let kind = if algorithm == Algorithm::EdDSA {
            &PKCS_ED25519
        } else {
            &PKCS_ECDSA_P256_SHA256
        };
        Self {
            key: KeyPair::generate_for(kind).expect("a key"),
            algorithm,
            key_id,
        }
    }

    /// The public key as a JSON web key.
    fn jwk(&self) -> Value {
        // For P-256: the byte 4, then x and y of 32 bytes each.
        let raw = self.key.der_bytes();
        match self.algorithm {
            Algorithm::EdDSA => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(raw), "kid": self.key_id, "use": "sig"})
            }
            _ => json!({"kty": "EC", "crv": "P-256", "kid": self.key_id,
                "x": URL_SAFE_NO_PAD.encode(&raw[1..33]), "y": URL_SAFE_NO_PAD.encode(&raw[33..65])}),
        }
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with_key_id(self.key_id, claims)
    }

    /// A token whose header names the key with this id.
    fn token_with_key_id(&self, key_id: &str, claims: &Value) -> String {
        self.token_with_header(
            &Header {
                kid: Some(key_id.into()),
                ..Header::new(self.algorithm)
            },
            claims,
        )
    }

    /// A token with this header.
    fn token_with_header(&self, header: &Header, claims: &Value) -> String {
        let der = self.key.serialize_der();
        let key = match self.algorithm {
            Algorithm::EdDSA => EncodingKey::from_ed_der(&der),
            _ => EncodingKey::from_ec_der(&der),
        };
        jsonwebtoken::encode(header, claims, &key).expect("signs")
    }
}

pub(crate) fn seconds_from_now(seconds: i64) -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    now.as_secs() as i64 + seconds
}

/// Valid claims for the tenant anna, with these changes. A null removes a claim.
pub(crate) fn claims(change: &Value) -> Value {
    let mut claims = json!({"aud": AUDIENCE, "iss": "https://idp.example", "exp": seconds_from_now(300),
        "tenant": "anna", "scope": "openid anneal.read profile anneal.append"});
    for (name, value) in change.as_object().expect("an object") {
        claims[name] = value.clone();
        if value.is_null() {
            claims.as_object_mut().expect("an object").remove(name);
        }
    }
    claims
}

pub(crate) fn jwks(providers: &[&Provider]) -> String {
    json!({"keys": providers.iter().map(|provider| provider.jwk()).collect::<Vec<_>>()}).to_string()
}

#[tokio::test]
async fn a_token_is_accepted_only_if_every_claim_is_valid() {
    let (ed, ec) = (
        Provider::new(Algorithm::EdDSA, "ed"),
        Provider::new(Algorithm::ES256, "ec"),
    );
    let untrusted = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed, &ec]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        issuer: "https://idp.example".into(),
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    app.tenant("anna").await;
    let channel_with = |token: &str| app.authorized_channel(&format!("Bearer {token}"));
    for provider in [&ed, &ec] {
        list(&channel_with(&provider.token(&claims(&json!({})))))
            .await
            .expect("is accepted");
        let two_audiences = provider.token(&claims(&json!({"aud": ["other", AUDIENCE]})));
        list(&channel_with(&two_audiences))
            .await
            .expect("is accepted");
    }
    for (change, problem) in [
        (json!({"exp": seconds_from_now(-60)}), "expired"),
        (json!({"exp": null}), "missing or malformed"),
        (json!({"nbf": seconds_from_now(600)}), "not valid yet"),
        (json!({"aud": "other"}), "audience"),
        (json!({"aud": null}), "missing or malformed"),
        (json!({"iss": "https://evil.example"}), "issuer"),
        (json!({"iss": null}), "missing or malformed"),
        (json!({"tenant": null}), "names no tenant"),
        (json!({"tenant": ""}), "names no tenant"),
        (json!({"tenant": 7}), "names no tenant"),
        (json!({"tenant": "nobody"}), "tenant is not known"),
        (json!({"exp": "soon"}), "missing or malformed"),
    ] {
        let refused = list(&channel_with(&ed.token(&claims(&change))))
            .await
            .expect_err(problem);
        assert!(refused.message().contains(problem), "{change}: {refused:?}");
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    let valid = ed.token(&claims(&json!({})));
    let (signed, signature) = valid.rsplit_once('.').expect("three parts");
    let unsigned_header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"ed"}"#);
    let payload = valid.split('.').nth(1).expect("three parts");
    // The public key, used as the secret of an HMAC.
    let hmac_token = jsonwebtoken::encode(
        &Header {
            kid: Some("ed".into()),
            ..Header::new(Algorithm::HS256)
        },
        &claims(&json!({})),
        &EncodingKey::from_secret(ed.key.der_bytes()),
    );
    for forged in [
        format!("{unsigned_header}.{payload}."),
        format!("{unsigned_header}.{payload}.{signature}"),
        format!("{signed}.{}", signature.chars().rev().collect::<String>()),
        hmac_token.expect("signs"),
        untrusted.token(&claims(&json!({}))),
        ed.token_with_key_id("ec", &claims(&json!({}))),
        ed.token_with_key_id("nobody", &claims(&json!({}))),
        valid[..valid.len() / 2].to_owned(),
        format!("{valid}.{valid}"),
    ] {
        let refused = list(&channel_with(&forged)).await.expect_err("is forged");
        assert_eq!(refused.code(), Code::Unauthenticated, "{forged}");
    }
    // `read` without the prefix `anneal.` is no verb.
    let appender = ed.token(&claims(&json!({"scope": "anneal.append read"})));
    assert_refused(
        list(&channel_with(&appender)).await,
        Code::PermissionDenied,
        "VERB_MISSING",
        "",
    );
}

#[tokio::test]
async fn a_token_with_a_critical_header_extension_is_refused() {
    let ed = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    app.tenant("anna").await;
    let plain = Header {
        kid: Some("ed".into()),
        ..Header::new(Algorithm::EdDSA)
    };
    let critical = Header {
        crit: Some(vec!["https://idp.example/bound".into()]),
        ..plain.clone()
    };
    let channel_with = |header: &Header| {
        app.authorized_channel(&format!(
            "Bearer {}",
            ed.token_with_header(header, &claims(&json!({})))
        ))
    };
    list(&channel_with(&plain)).await.expect("is accepted");
    let refused = list(&channel_with(&critical))
        .await
        .expect_err("the extension is not supported");
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("crit"), "{refused:?}");
}

#[tokio::test]
async fn keys_of_a_provider_are_replaced_without_a_restart() {
    let (old, new) = (
        Provider::new(Algorithm::EdDSA, "old"),
        Provider::new(Algorithm::ES256, "new"),
    );
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&old]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    app.tenant("anna").await;
    let channel_with = |provider: &Provider| {
        app.authorized_channel(&format!("Bearer {}", provider.token(&claims(&json!({})))))
    };
    // The server remembers a token that it has verified.
    let remembered = channel_with(&old);
    list(&remembered).await.expect("is accepted");
    assert!(list(&channel_with(&new)).await.is_err());
    folder.file("jwks.json", "{ half written");
    folder.file("jwks.json", &jwks(&[&old, &new]));
    eventually("the new key is accepted", async || {
        list(&channel_with(&new)).await.is_ok()
    })
    .await;
    list(&channel_with(&old))
        .await
        .expect("the old key is still accepted");
    folder.file("jwks.json", &jwks(&[&new]));
    eventually("the old key is refused", async || {
        list(&remembered).await.is_err()
    })
    .await;
    assert!(list(&channel_with(&old)).await.is_err());
    list(&channel_with(&new)).await.expect("is accepted");
    // A malformed key in the file does not stop the removal of another.
    let broken = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "no x"}, old.jwk()]});
    folder.file("jwks.json", &broken.to_string());
    eventually("the new key is refused", async || {
        list(&channel_with(&new)).await.is_err()
    })
    .await;
    list(&channel_with(&old)).await.expect("is accepted");
    folder.file("jwks.json", r#"{"keys": []}"#);
    eventually("no key is accepted", async || {
        list(&channel_with(&old)).await.is_err()
    })
    .await;
}
