//! `anneal keys` and `anneal tenants`: a key is shown once, works, and is kept nowhere.

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_tests::{Anneal, Folder, House, eventually};
use uuid::Uuid;

use crate::{BINARY, commands::ok};

#[tokio::test]
async fn a_key_is_shown_once_works_until_it_is_revoked_and_cannot_be_read_from_the_database() {
    let (house, folder) = (House::limited(LimitSettings::default()).await, Folder::new());
    let owner = Anneal::new(BINARY, &folder, &house.url);
    assert_eq!(ok(owner.run(&["tenants", "create", "acme"]).await), "made tenant acme\n");
    let create = ["keys", "create", "--tenant", "acme", "--name", "billing bot", "--verbs", "read,admin"];
    let made = owner.run(&create).await;
    let key = made.out.trim().to_owned();
    assert!(key.starts_with("anneal_") && key.lines().count() == 1, "the key alone, for a pipe: {made:?}");
    let id = made.err.split_whitespace().nth(1).expect("its id").to_owned();
    let secret = key.rsplit('_').next().expect("the secret part");
    assert!(made.err.contains("for billing bot: read,admin") && !made.err.contains(secret), "{made:?}");

    let address = format!("http://{}", house.addresses.grpc);
    let bot = Anneal::new(BINARY, &folder, "").with_variable("ANNEAL_TOKEN", &key);
    assert_eq!(ok(bot.run(&["jobs", "--address", &address]).await), "no jobs\n");

    let listed = ok(owner.run(&["keys", "list", "--tenant", "acme"]).await);
    assert!(listed.starts_with(&id) && listed.contains("billing bot") && listed.contains("no end"), "{listed}");
    assert!(!listed.contains(secret), "{listed}");
    let rows: Vec<String> =
        sqlx::query_scalar("select k::text from api_key as k").fetch_all(&mut house.db().await).await.expect("rows");
    let hex = secret.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    assert!(rows.len() == 1 && !rows[0].contains(secret) && !rows[0].contains(&hex), "{rows:?}");

    ok(owner.run(&["keys", "revoke", &id]).await);
    assert!(ok(owner.run(&["keys", "list"]).await).contains("revoked 2"), "it stays in the list");
    eventually("the server does not take it any more", async || {
        let refused = bot.run(&["jobs", "--address", &address]).await;
        refused.code == Some(1) && refused.err.contains("UNAUTHENTICATED")
    })
    .await;
    let again = owner.run(&["keys", "revoke", &id]).await;
    assert!(again.code == Some(1) && again.err.contains("no key"), "{again:?}");
}

#[tokio::test]
async fn keys_of_nobody_and_for_nothing_are_refused() {
    let (house, folder) = (House::start().await, Folder::new());
    let owner = Anneal::new(BINARY, &folder, &house.url);
    for (arguments, said) in [
        (["--tenant", "nobody", "--name", "bot"], "no tenant \"nobody\""),
        (["--name", "bot", "--verbs", "write"], "no verb \"write\""),
        (["--name", " ", "--verbs", "read"], "--name"),
    ] {
        let refused = owner.run(&[&["keys", "create"][..], &arguments].concat()).await;
        assert!(refused.code == Some(1) && refused.err.contains(said) && refused.out.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn the_list_says_when_a_key_was_last_used_and_which_have_expired() {
    let (house, folder) = (House::limited(LimitSettings::default()).await, Folder::new());
    let owner = Anneal::new(BINARY, &folder, &house.url);
    let used = house.key("acme", &[Verb::Admin]).await;
    let unused = house.key("acme", &[Verb::Admin]).await;
    let expire = "update api_key set expires_ts = now() - interval '1 day' where key_id = $1";
    sqlx::query(expire).bind(unused.id).execute(&mut house.db().await).await.expect("expires");
    let listed = async |key: Uuid| {
        let listed = ok(owner.run(&["keys", "list"]).await);
        listed.lines().find(|line| line.starts_with(&key.to_string())).expect("is listed").to_owned()
    };
    assert!(listed(used.id).await.ends_with("no end, never used"));
    let address = format!("http://{}", house.addresses.grpc);
    let bot = Anneal::new(BINARY, &folder, "").with_variable("ANNEAL_TOKEN", &used.text);
    ok(bot.run(&["jobs", "--address", &address]).await);
    let expired = bot.with_variable("ANNEAL_TOKEN", &unused.text).run(&["jobs", "--address", &address]).await;
    assert!(expired.err.contains("has expired"), "{expired:?}");
    eventually("its use is noted", async || listed(used.id).await.contains("last used in the hour of 2")).await;
    let line = listed(unused.id).await;
    assert!(line.contains(", expired 2") && line.ends_with("never used"), "{line}");
}
