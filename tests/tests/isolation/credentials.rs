//! API keys, tokens and verbs.

use std::time::{Duration, Instant};

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_store::{Owner, StoreSettings};
use anneal_tests::{Folder, Guest, House, assert_refused, call_raw, eventually, every_rpc, pb, refusal};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use pb::{
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::{Code, Status};

pub(crate) const AUDIENCE: &str = "anneal.example";

async fn with_keys() -> House {
    House::guarded(ServerSettings::default(), AuthSettings { api_keys: true, ..Default::default() }).await
}

pub(crate) async fn list(guest: &Guest) -> Result<usize, Status> {
    let ask = pb::ListConversationsRequest::default();
    let page = ConversationServiceClient::new(guest.clone()).list_conversations(ask).await;
    page.map(|page| page.into_inner().conversations.len())
}

#[tokio::test]
async fn only_who_shows_a_key_gets_in_and_what_is_wrong_is_said() {
    let house = with_keys().await;
    let key = house.key("anna", &[Verb::Read]).await;
    let wrong = format!("{}x", key.text);
    let unknown = anneal_server::NewSecret::make().expect("random bytes").text;
    for (authorization, said) in [
        ("", "no credential"),
        ("Bearer", "not `Bearer`"),
        ("Basic YTpi", "not `Bearer`"),
        ("Bearer a b", "not `Bearer`"),
        (&format!("Bearer {wrong}"), "not known here"),
        (&format!("Bearer {unknown}"), "not known here"),
        ("Bearer anneal_", "not known here"),
        ("Bearer eyJhbGciOiJub25lIn0.e30.", "not known here"),
    ] {
        let refused = list(&house.showing(authorization)).await.expect_err(authorization);
        assert!(refused.message().contains(said), "{authorization}: {refused:?}");
        assert_refused::<()>(Err(refused), Code::Unauthenticated, "UNAUTHENTICATED", "");
    }
    assert_eq!(list(&house.showing(&format!("Bearer {}", key.text))).await.expect("is let in"), 0);
    assert_eq!(list(&house.showing(&format!("bearer  {}", key.text))).await.expect("is let in"), 0);
    // Over HTTP the same, with what HTTP says of it.
    let web = house.web();
    let refused = web.get("/api/agents/a/sessions").await;
    refused.assert_problem(401, "UNAUTHENTICATED", "");
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    let let_in = web.request("GET", "/api/agents/a/sessions").header("authorization", format!("Bearer {}", key.text));
    assert_eq!(anneal_tests::Answered::to(let_in).await.status, 200);
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/openapi.json", 200), ("/metrics", 401)] {
        let answered = eventually_ready(&web, path, status).await;
        assert_eq!(answered, status, "{path}");
    }
    let asked = web.request("GET", "/metrics").header("authorization", format!("Bearer {}", key.text));
    anneal_tests::Answered::to(asked).await.assert_problem(403, "VERB_MISSING", "");
}

/// Readiness follows the first check of the database.
async fn eventually_ready(web: &anneal_tests::Web, path: &str, status: u16) -> u16 {
    if path == "/readyz" {
        eventually("is ready", async || web.get(path).await.status == status).await;
    }
    web.get(path).await.status
}

#[tokio::test]
async fn every_call_needs_a_credential_and_its_verb_and_no_other() {
    let house = with_keys().await;
    let mut of_verb = Vec::new();
    for verb in Verb::ALL {
        of_verb.push((verb, house.showing(&format!("Bearer {}", house.key("anna", &[verb]).await.text))));
    }
    let mut calls = [0; 4];
    for rpc in every_rpc() {
        let refused = call_raw(house.showing(""), &rpc.path, Vec::new()).await.expect_err(&rpc.name);
        assert_eq!(refused.code(), Code::Unauthenticated, "{}", rpc.name);
        let mut allowed = Vec::new();
        for (verb, guest) in &of_verb {
            match call_raw(guest.clone(), &rpc.path, Vec::new()).await {
                Err(status) if refusal(&status).reason == "VERB_MISSING" => {
                    assert_eq!(status.code(), Code::PermissionDenied, "{}", rpc.name);
                }
                Ok(_) | Err(_) => allowed.push(*verb),
            }
        }
        if rpc.name == "Chat" {
            assert!(allowed.is_empty(), "it takes two verbs, as verbs.rs shows");
            continue;
        }
        assert_eq!(allowed.len(), 1, "{} is for one verb: {allowed:?}", rpc.name);
        calls[allowed[0] as usize] += 1;
        let looks =
            ["Get", "List", "Build", "Stream", "Watch", "Classify"].iter().any(|word| rpc.name.starts_with(word));
        assert!(allowed[0] != Verb::Read || looks, "{} changes something", rpc.name);
    }
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
}

#[tokio::test]
async fn a_revoked_or_expired_key_is_refused_within_seconds() {
    let house = with_keys().await;
    let (revoked, expired) = (house.key("anna", &[Verb::Read]).await, house.key("anna", &[Verb::Read]).await);
    let mut owner = Owner::connect(&StoreSettings::at(&house.url)).await.expect("connects");
    for key in [&revoked, &expired] {
        list(&house.showing(&format!("Bearer {}", key.text))).await.expect("is let in");
    }
    assert!(owner.revoke_key(revoked.id).await.expect("revokes"));
    assert!(!owner.revoke_key(revoked.id).await.expect("asks"), "it is revoked already");
    let late = "update api_key set expires_ts = now() - interval '1 second' where key_id = $1";
    sqlx::query(late).bind(expired.id).execute(&mut house.db().await).await.expect("expires");
    for key in [&revoked, &expired] {
        let guest = house.showing(&format!("Bearer {}", key.text));
        eventually("the key is refused", async || {
            list(&guest).await.is_err_and(|status| status.code() == Code::Unauthenticated)
        })
        .await;
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_key_is_revoked() {
    let house = with_keys().await;
    let key = house.key("anna", &[Verb::Read, Verb::Append]).await;
    let guest = house.showing(&format!("Bearer {}", key.text));
    let mut conversations = ConversationServiceClient::new(guest.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default()).await.expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let ask = pb::WatchConversationRequest { conversation_id, ..Default::default() };
    let mut watch = MessageServiceClient::new(guest).watch_conversation(ask).await.expect("watches").into_inner();
    watch.message().await.expect("begins").expect("`started`");
    let mut owner = Owner::connect(&StoreSettings::at(&house.url)).await.expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    let ended = tokio::time::timeout(Duration::from_mins(1), watch.message()).await.expect("ends by itself");
    assert_refused(ended, Code::Unauthenticated, "UNAUTHENTICATED", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_keep_nobody_out_who_is_known_however_busy_the_database_is() {
    let house = with_keys().await;
    let known = house.showing(&format!("Bearer {}", house.key("anna", &[Verb::Read]).await.text));
    list(&known).await.expect("is let in");
    // From now on no lookup of a key comes to its end.
    let mut db = house.db().await;
    sqlx::raw_sql("begin; lock table api_key in access exclusive mode").execute(&mut db).await.expect("locks");
    let mut flood = JoinSet::new();
    for _ in 0..64 {
        let made_up = anneal_server::NewSecret::make().expect("random bytes").text;
        let stranger = house.showing(&format!("Bearer {made_up}"));
        flood.spawn(async move { while list(&stranger).await.is_err() {} });
    }
    // Longer than what the database says is believed, and shorter than what it cannot be asked about.
    let (began, mut looks) = (Instant::now(), tokio::time::interval(Duration::from_millis(200)));
    while began.elapsed() < Duration::from_secs(16) {
        looks.tick().await;
        list(&known).await.expect("is answered, whoever else asks");
    }
    flood.shutdown().await;
}

#[tokio::test]
async fn figures_of_all_tenants_are_for_operators_alone() {
    let house = with_keys().await;
    let admin = house.showing(&format!("Bearer {}", house.key("anna", &[Verb::Admin]).await.text));
    let refused = OperatorServiceClient::new(admin).get_queue_stats(pb::GetQueueStatsRequest {}).await;
    let refused = refused.expect_err("is refused");
    assert!(refused.message().contains("operator"), "{refused:?}");
    assert_refused::<()>(Err(refused), Code::PermissionDenied, "VERB_MISSING", "");
    let operator = house.showing(&format!("Bearer {}", house.key("ops", &[Verb::Operator]).await.text));
    OperatorServiceClient::new(operator).get_queue_stats(pb::GetQueueStatsRequest {}).await.expect("answers");
}

/// An identity provider of the test's own.
pub(crate) struct Provider {
    key: KeyPair,
    algorithm: Algorithm,
    id: &'static str,
}

impl Provider {
    pub(crate) fn new(algorithm: Algorithm, id: &'static str) -> Self {
        let kind = if algorithm == Algorithm::EdDSA { &PKCS_ED25519 } else { &PKCS_ECDSA_P256_SHA256 };
        Self { key: KeyPair::generate_for(kind).expect("a key"), algorithm, id }
    }

    fn jwk(&self) -> Value {
        let raw = self.key.der_bytes();
        match self.algorithm {
            Algorithm::EdDSA => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(raw), "kid": self.id, "use": "sig"})
            }
            _ => json!({"kty": "EC", "crv": "P-256", "kid": self.id,
                "x": URL_SAFE_NO_PAD.encode(&raw[1..33]), "y": URL_SAFE_NO_PAD.encode(&raw[33..65])}),
        }
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_by(self.id, claims)
    }

    fn token_by(&self, id: &str, claims: &Value) -> String {
        self.token_under(&Header { kid: Some(id.into()), ..Header::new(self.algorithm) }, claims)
    }

    fn token_under(&self, header: &Header, claims: &Value) -> String {
        let der = self.key.serialize_der();
        let key = match self.algorithm {
            Algorithm::EdDSA => EncodingKey::from_ed_der(&der),
            _ => EncodingKey::from_ec_der(&der),
        };
        jsonwebtoken::encode(header, claims, &key).expect("signs")
    }
}

pub(crate) fn seconds_from_now(seconds: i64) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    now.as_secs() as i64 + seconds
}

/// Sound claims of anna's, changed so.
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
async fn tokens_are_taken_when_everything_in_them_holds() {
    let (ed, ec) = (Provider::new(Algorithm::EdDSA, "ed"), Provider::new(Algorithm::ES256, "ec"));
    let stranger = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed, &ec]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        issuer: "https://idp.example".into(),
        ..Default::default()
    };
    let house = House::guarded(ServerSettings::default(), auth).await;
    house.tenant("anna").await;
    let by = |token: &str| house.showing(&format!("Bearer {token}"));
    for provider in [&ed, &ec] {
        list(&by(&provider.token(&claims(&json!({}))))).await.expect("is let in");
        let many = provider.token(&claims(&json!({"aud": ["other", AUDIENCE]})));
        list(&by(&many)).await.expect("is let in");
    }
    for (change, said) in [
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
        let refused = list(&by(&ed.token(&claims(&change)))).await.expect_err(said);
        assert!(refused.message().contains(said), "{change}: {refused:?}");
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    let sound = ed.token(&claims(&json!({})));
    let (signed, signature) = sound.rsplit_once('.').expect("three parts");
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"ed"}"#);
    let payload = sound.split('.').nth(1).expect("three parts");
    let hs = jsonwebtoken::encode(
        &Header { kid: Some("ed".into()), ..Header::new(Algorithm::HS256) },
        &claims(&json!({})),
        &EncodingKey::from_secret(ed.key.der_bytes()),
    );
    for forged in [
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        format!("{signed}.{}", signature.chars().rev().collect::<String>()),
        hs.expect("signs"),
        stranger.token(&claims(&json!({}))),
        ed.token_by("ec", &claims(&json!({}))),
        ed.token_by("nobody", &claims(&json!({}))),
        sound[..sound.len() / 2].to_owned(),
        format!("{sound}.{sound}"),
    ] {
        let refused = list(&by(&forged)).await.expect_err("is forged");
        assert_eq!(refused.code(), Code::Unauthenticated, "{forged}");
    }
    let reader = ed.token(&claims(&json!({"scope": "anneal.append read"})));
    assert_refused(list(&by(&reader)).await, Code::PermissionDenied, "VERB_MISSING", "");
}

#[tokio::test]
async fn a_token_whose_header_demands_what_nobody_here_understands_is_refused() {
    let ed = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed]));
    let auth =
        AuthSettings { jwks_file: file.display().to_string(), audience: AUDIENCE.into(), ..AuthSettings::default() };
    let house = House::guarded(ServerSettings::default(), auth).await;
    house.tenant("anna").await;
    let plain = Header { kid: Some("ed".into()), ..Header::new(Algorithm::EdDSA) };
    let demanding = Header { crit: Some(vec!["https://idp.example/bound".into()]), ..plain.clone() };
    let by = |header: &Header| house.showing(&format!("Bearer {}", ed.token_under(header, &claims(&json!({})))));
    list(&by(&plain)).await.expect("is let in");
    let refused = list(&by(&demanding)).await.expect_err("its owner wants it refused");
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("crit"), "{refused:?}");
}

#[tokio::test]
async fn keys_of_a_provider_are_replaced_without_a_restart() {
    let (old, new) = (Provider::new(Algorithm::EdDSA, "old"), Provider::new(Algorithm::ES256, "new"));
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&old]));
    let auth = AuthSettings { jwks_file: file.display().to_string(), audience: AUDIENCE.into(), ..Default::default() };
    let house = House::guarded(ServerSettings::default(), auth).await;
    house.tenant("anna").await;
    let by = |provider: &Provider| house.showing(&format!("Bearer {}", provider.token(&claims(&json!({})))));
    list(&by(&old)).await.expect("is let in");
    assert!(list(&by(&new)).await.is_err());
    folder.file("jwks.json", "{ not yet written who");
    folder.file("jwks.json", &jwks(&[&old, &new]));
    eventually("the new key is taken", async || list(&by(&new)).await.is_ok()).await;
    list(&by(&old)).await.expect("the old one is, too");
    folder.file("jwks.json", &jwks(&[&new]));
    eventually("the old key is refused", async || list(&by(&old)).await.is_err()).await;
    list(&by(&new)).await.expect("is let in");
    // A key that makes no sense keeps none from being withdrawn.
    let broken = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "no x"}, old.jwk()]});
    folder.file("jwks.json", &broken.to_string());
    eventually("the new key is refused", async || list(&by(&new)).await.is_err()).await;
    list(&by(&old)).await.expect("is let in");
    folder.file("jwks.json", r#"{"keys": []}"#);
    eventually("no key is taken", async || list(&by(&old)).await.is_err()).await;
}
