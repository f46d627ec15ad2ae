//! Limits on the lifetime of tokens.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{Folder, TestApp};
use jsonwebtoken::Algorithm;
use serde_json::json;
use tonic::Code;

use crate::isolation::credentials::{AUDIENCE, Provider, claims, jwks, list, seconds_from_now};

const DAY: i64 = 86_400;

#[tokio::test]
async fn a_token_that_is_valid_for_longer_than_a_day_is_refused() {
    let ed = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    app.tenant("anna").await;
    let now = seconds_from_now(0);
    for (what, change, is_accepted) in [
        ("an hour", json!({"iat": now, "exp": now + 3_600}), true),
        ("a day", json!({"iat": now, "exp": now + DAY}), true),
        ("a day, no iat", json!({"exp": now + DAY}), true),
        (
            "ten years",
            json!({"iat": now, "exp": now + 3_650 * DAY}),
            false,
        ),
        (
            "ten years, no iat",
            json!({"exp": now + 3_650 * DAY}),
            false,
        ),
        (
            "issued long ago, ends soon",
            json!({"iat": now - 30 * DAY, "exp": now + 60}),
            false,
        ),
        (
            "to be issued in ten years",
            json!({"iat": now + 3_650 * DAY - 60, "exp": now + 3_650 * DAY}),
            false,
        ),
        (
            "ten years, an iat that is not a number",
            json!({"iat": "now", "exp": now + 3_650 * DAY}),
            false,
        ),
        ("an exp that overflows", json!({"exp": 1e300}), false),
    ] {
        let answered =
            list(&app.authorized_channel(&format!("Bearer {}", ed.token(&claims(&change))))).await;
        assert_eq!(answered.is_ok(), is_accepted, "{what}: {answered:?}");
        if let Err(refused) = answered {
            assert_eq!(refused.code(), Code::Unauthenticated, "{what}");
        }
    }
}
