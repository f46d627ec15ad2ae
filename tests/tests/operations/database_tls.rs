//! A database on another machine is reached over TLS with a verified certificate, unless
//! `database.insecure` is set.

use anneal_testkit::{AnnealBinary, Folder, TestApp};

use crate::BINARY;

/// Commands that reach the database.
const COMMANDS: [&[&str]; 6] = [
    &["server"],
    &["worker"],
    &["migrate"],
    &["migrate", "--check"],
    &["keys", "list"],
    &["tenants", "list"],
];

#[tokio::test]
async fn a_database_beyond_this_machine_is_refused_without_a_verified_certificate() {
    let folder = Folder::new();
    let anneal_with = |url: &str| AnnealBinary::new(BINARY, &folder, url);
    for url in [
        "postgres://anneal:hunter2@db.elsewhere.example/anneal",
        "postgres://anneal:hunter2@db.elsewhere.example/anneal?sslmode=require",
        "postgres://anneal:hunter2@db.elsewhere.example/anneal?sslmode=verify-ca",
        "postgres://anneal:hunter2@10.1.2.3/anneal?sslmode=prefer",
        "postgres://anneal:hunter2@localhost/anneal?host=db.elsewhere.example",
        "postgres://anneal:hunter2@localhost/anneal?hostaddr=10.1.2.3",
        "postgres://anneal:hunter2@[2001:db8::1]/anneal",
        "postgres://anneal:hunter2@127.0.0.1.elsewhere.example/anneal",
    ] {
        let refused = anneal_with(url).run(&["migrate"]).await;
        assert_eq!(refused.code, Some(1), "{url}: {refused:?}");
        assert!(
            refused.err.contains("sslmode=verify-full"),
            "{url}: {refused:?}"
        );
        assert!(
            refused.err.contains("database.insecure"),
            "{url}: {refused:?}"
        );
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
    }
    let elsewhere = anneal_with("postgres://anneal:hunter2@db.elsewhere.example/anneal");
    for command in COMMANDS {
        let refused = elsewhere.run(command).await;
        assert!(
            refused.code == Some(1) && refused.err.contains("sslmode=verify-full"),
            "{command:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_host_in_environment_variables_is_checked_like_one_in_the_url() {
    let (folder, without_host) = (Folder::new(), "postgres:///anneal");
    let anneal_with = |variables: &[(&'static str, &str)]| {
        let anneal = AnnealBinary::new(BINARY, &folder, without_host);
        variables.iter().fold(anneal, |anneal, (name, value)| {
            anneal.with_variable(name, value)
        })
    };
    let elsewhere = ("PGHOST", "db.elsewhere.example");
    for refused in [
        &[elsewhere][..],
        &[("PGHOSTADDR", "10.1.2.3")],
        &[elsewhere, ("PGSSLMODE", "require")],
    ] {
        let ran = anneal_with(refused).run(&["migrate"]).await;
        assert!(
            ran.err.contains("sslmode=verify-full"),
            "{refused:?}: {ran:?}"
        );
    }
    for accepted in [
        &[elsewhere, ("PGSSLMODE", "verify-full")][..],
        &[("PGHOST", "/nowhere")],
    ] {
        let ran = anneal_with(accepted).run(&["migrate"]).await;
        assert!(
            ran.err.contains("cannot reach") && !ran.err.contains("database.insecure"),
            "{accepted:?}: {ran:?}"
        );
    }
}

#[tokio::test]
async fn verified_certificates_local_addresses_and_insecure_are_accepted() {
    let folder = Folder::new();
    for (url, options) in [
        (
            "postgres://anneal@db.elsewhere.example/anneal?sslmode=verify-full",
            &[][..],
        ),
        (
            "postgres://anneal@db.elsewhere.example/anneal",
            &["--set", "database.insecure=true"],
        ),
        ("postgres://anneal@127.0.0.1:1/anneal", &[]),
        ("postgres://anneal@localhost:1/anneal", &[]),
        ("postgres://anneal@[::1]:1/anneal", &[]),
        ("postgres://anneal@%2Fnowhere/anneal", &[]),
        (
            "postgres://anneal@db.elsewhere.example/anneal?host=/nowhere",
            &[],
        ),
    ] {
        for command in COMMANDS {
            let ran = AnnealBinary::new(BINARY, &folder, url)
                .run(&[command, options].concat())
                .await;
            // The error for an unknown `sslmode` begins with `cannot reach` too, but it quotes the
            // mode, and the process has not tried to connect.
            let tried_to_connect =
                ran.err.contains("cannot reach") && !ran.err.contains("verify-full\"");
            assert!(
                tried_to_connect && !ran.err.contains("database.insecure"),
                "{url} {command:?}: {ran:?}"
            );
        }
    }
    let app = TestApp::start().await;
    let (server, _) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    server.terminate().await;
}
