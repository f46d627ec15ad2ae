//! `anneal keys` and `anneal tenants`. A key is printed once, when it is created; only its digest
//! is stored.

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{AnnealBinary, Folder, TestApp, eventually};
use uuid::Uuid;

use crate::commands::{BINARY, command_line::stdout_of};

#[tokio::test]
async fn a_key_is_printed_once_works_until_revoked_and_is_not_in_the_database() {
    let (app, folder) = (
        TestApp::with_keys_and_limits(LimitSettings::default()).await,
        Folder::new(),
    );
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    assert_eq!(
        stdout_of(operator.run(&["tenants", "create", "acme"]).await),
        "made tenant acme\n"
    );
    let create = [
        "keys",
        "create",
        "--tenant",
        "acme",
        "--name",
        "billing bot",
        "--verbs",
        "read,admin",
    ];
    let made = operator.run(&create).await;
    let key = made.out.trim().to_owned();
    assert!(
        key.starts_with("anneal_") && key.lines().count() == 1,
        "standard output has only the key: {made:?}"
    );
    let id = made
        .err
        .split_whitespace()
        .nth(1)
        .expect("an id")
        .to_owned();
    let secret = key.rsplit('_').next().expect("the secret part");
    assert!(
        made.err.contains("for billing bot: read,admin") && !made.err.contains(secret),
        "{made:?}"
    );

    let address = format!("http://{}", app.addresses.grpc);
    let bot = AnnealBinary::new(BINARY, &folder, "").with_variable("ANNEAL_TOKEN", &key);
    assert_eq!(
        stdout_of(bot.run(&["jobs", "--address", &address]).await),
        "no jobs\n"
    );

    let listed = stdout_of(operator.run(&["keys", "list", "--tenant", "acme"]).await);
    assert!(
        listed.starts_with(&id)
            && listed.contains("billing bot")
            && listed.contains("never expires"),
        "{listed}"
    );
    assert!(!listed.contains(secret), "{listed}");
    let rows: Vec<String> = sqlx::query_scalar("select k::text from api_key as k")
        .fetch_all(&mut app.db().await)
        .await
        .expect("rows");
    let secret_in_hex = hex::encode(secret);
    assert!(
        rows.len() == 1 && !rows[0].contains(secret) && !rows[0].contains(&secret_in_hex),
        "{rows:?}"
    );

    stdout_of(operator.run(&["keys", "revoke", &id]).await);
    assert!(
        // A printed time begins with the year, so with 2.
        stdout_of(operator.run(&["keys", "list"]).await).contains("revoked 2"),
        "the list still shows the revoked key"
    );
    eventually("the server refuses the key", async || {
        let refused = bot.run(&["jobs", "--address", &address]).await;
        refused.code == Some(1) && refused.err.contains("UNAUTHENTICATED")
    })
    .await;
    let again = operator.run(&["keys", "revoke", &id]).await;
    assert!(
        again.code == Some(1) && again.err.contains("no key"),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_key_is_revoked_by_the_unique_beginning_of_its_id() {
    let (app, folder) = (
        TestApp::with_keys_and_limits(LimitSettings::default()).await,
        Folder::new(),
    );
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    for n in 1..=2 {
        let key = app.key("acme", &[Verb::Read]).await;
        sqlx::query("update api_key set key_id = $2 where key_id = $1")
            .bind(key.id)
            .bind(Uuid::from_u128(
                0xabcd_ef00_0000_7000_8000_0000_0000_0000 + (n << 96),
            ))
            .execute(&mut app.db().await)
            .await
            .expect("the id is changed");
    }
    for (text, message) in [
        ("abcdef0", "the ids of 2 keys begin with \"abcdef0\""),
        ("abcdef03", "no key whose id begins with"),
        ("bot", "neither an id of a key"),
    ] {
        let refused = operator.run(&["keys", "revoke", text]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains(message),
            "{text}: {refused:?}"
        );
    }
    let revoked = stdout_of(operator.run(&["keys", "revoke", "ABCDEF01"]).await);
    assert!(
        revoked.starts_with("revoked abcdef01-0000-7000-8000-000000000000"),
        "{revoked}"
    );
}

#[tokio::test]
async fn a_key_needs_an_existing_tenant_a_known_verb_and_a_name() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    for (arguments, message) in [
        (
            ["--tenant", "nobody", "--name", "bot"],
            "no tenant \"nobody\"",
        ),
        (["--name", "bot", "--verbs", "write"], "no verb \"write\""),
        (["--name", " ", "--verbs", "read"], "--name"),
    ] {
        let refused = operator
            .run(&[&["keys", "create"][..], &arguments].concat())
            .await;
        assert!(
            refused.code == Some(1) && refused.err.contains(message) && refused.out.is_empty(),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn the_list_shows_when_a_key_was_last_used_and_which_have_expired() {
    let (app, folder) = (
        TestApp::with_keys_and_limits(LimitSettings::default()).await,
        Folder::new(),
    );
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    let used = app.key("acme", &[Verb::Admin]).await;
    let unused = app.key("acme", &[Verb::Admin]).await;
    let expire = "update api_key set expires_ts = now() - interval '1 day' where key_id = $1";
    sqlx::query(expire)
        .bind(unused.id)
        .execute(&mut app.db().await)
        .await
        .expect("expires");
    let list_key = async |key: Uuid| {
        let listed = stdout_of(operator.run(&["keys", "list"]).await);
        listed
            .lines()
            .find(|line| line.starts_with(&key.to_string()))
            .expect("is listed")
            .to_owned()
    };
    assert!(
        list_key(used.id)
            .await
            .ends_with("never expires, never used")
    );
    let address = format!("http://{}", app.addresses.grpc);
    let bot = AnnealBinary::new(BINARY, &folder, "").with_variable("ANNEAL_TOKEN", &used.text);
    stdout_of(bot.run(&["jobs", "--address", &address]).await);
    let expired = bot
        .with_variable("ANNEAL_TOKEN", &unused.text)
        .run(&["jobs", "--address", &address])
        .await;
    assert!(expired.err.contains("has expired"), "{expired:?}");
    eventually("the use of the key is recorded", async || {
        list_key(used.id)
            .await
            // A printed time begins with the year, so with 2.
            .contains("last used in the hour of 2")
    })
    .await;
    let line = list_key(unused.id).await;
    assert!(
        line.contains(", expired 2") && line.ends_with("never used"),
        "{line}"
    );
}
