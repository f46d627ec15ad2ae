//! `anneal keys` and `anneal tenants`. A key is printed once, when it is created; only its digest
//! is stored.

use anneal_core::caller::{Bound, BoundId, Verb};
use anneal_server::LimitSettings;
use anneal_testkit::{AnnealBinary, Folder, HttpResponse, TestApp, eventually};
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

#[tokio::test]
async fn a_bound_key_is_listed_with_its_binding_and_sees_only_its_own() {
    let (app, folder) = (
        TestApp::with_keys_and_limits(LimitSettings::default()).await,
        Folder::new(),
    );
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    stdout_of(operator.run(&["tenants", "create", "acme"]).await);
    let conversation = Uuid::now_v7().to_string();
    let create = async |more: &[&str]| {
        let create = ["keys", "create", "--tenant", "acme", "--name", "a phone"];
        operator.run(&[&create[..], more].concat()).await
    };
    let mut keys = Vec::new();
    for (option, id) in [
        ("--user", "anna"),
        ("--agent", "support"),
        ("--conversation", conversation.as_str()),
    ] {
        let made = create(&["--verbs", "read,append", option, id]).await;
        let bound = format!("bound to {} {id}", option.trim_start_matches("--"));
        assert!(made.err.contains(&bound), "{made:?}");
        let key = made.err.split_whitespace().nth(1).expect("an id");
        let listed = stdout_of(operator.run(&["keys", "list", "--tenant", "acme"]).await);
        let line = listed.lines().find(|line| line.starts_with(key));
        assert!(line.expect("is listed").contains(&bound), "{listed}");
        let listed = stdout_of(operator.run(&["keys", "list", "--json"]).await);
        let listed: serde_json::Value = serde_json::from_str(
            listed
                .lines()
                .find(|line| line.contains(key))
                .expect("is listed"),
        )
        .expect("is JSON");
        let kind = option.trim_start_matches("--");
        assert_eq!(listed["bound"], serde_json::json!({ kind: id }));
        keys.push(stdout_of(made).trim().to_owned());
    }
    let unbound = app.key("acme", &[Verb::Read]).await;
    let listed = stdout_of(operator.run(&["keys", "list", "--json"]).await);
    let line = listed
        .lines()
        .find(|line| line.contains(&unbound.id.to_string()));
    assert!(line.expect("is listed").contains("\"bound\":null"));

    // The key works at a server: its conversations are Anna's.
    let body = serde_json::json!({"items": []});
    let request = app.http_client();
    let request = request.json("POST", "/v1/conversations", &body);
    let authorization = format!("Bearer {}", keys[0]);
    let made = HttpResponse::send(request.header("authorization", authorization)).await;
    assert_eq!(made.status, 200, "{made:?}");
    let users: Vec<String> = sqlx::query_scalar("select user_id from ai_conversation")
        .fetch_all(&mut app.db().await)
        .await
        .expect("rows");
    assert_eq!(users, ["anna"]);

    for (more, message) in [
        (&["--user", ""][..], "--user must have 1 to 128 bytes"),
        (
            &["--agent", "a", "--verbs", "read,operator"],
            "cannot have the verb operator",
        ),
        (&["--conversation", "anna"], "--conversation"),
        (
            &["--user", "anna", "--agent", "support"],
            "cannot be used with",
        ),
    ] {
        let refused = create(more).await;
        assert!(
            refused.code != Some(0) && refused.err.contains(message) && refused.out.is_empty(),
            "{more:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_policies_do_not_restrict_refuses_bound_keys() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let server = AnnealBinary::new(BINARY, &folder, &app.url);
    let bound = Bound::User(BoundId::new("anna").expect("an id"));
    let bound = app.bound_key("acme", &[Verb::Read], bound).await.text;
    let unbound = app.key("acme", &[Verb::Read]).await.text;
    for (role, status) in [("anneal_app", 200), ("", 401)] {
        let role = format!("database.role={role}");
        let started = server.try_server(&["auth.api_keys=true", &role]).await;
        let (process, _) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        let web = process.http_client().await;
        for (key, expected) in [(&bound, status), (&unbound, 200)] {
            let request = web.request("GET", "/api/agents/a/sessions");
            let request = request.header("authorization", format!("Bearer {key}"));
            let answer = HttpResponse::send(request).await;
            assert_eq!(answer.status, expected, "{role}: {answer:?}");
        }
        if status == 401 {
            process.wait_for_line("set database.role").await;
        }
        process.terminate().await;
        assert_eq!(process.wait_for_exit().await, Some(0));
    }
}
