//! A database beyond this machine is reached over TLS with a certificate that was verified, or because an operator wants it
//! otherwise.

use anneal_tests::{Anneal, Folder, House};

use crate::BINARY;

/// Commands that reach the database.
const COMMANDS: [&[&str]; 6] =
    [&["server"], &["worker"], &["migrate"], &["migrate", "--check"], &["keys", "list"], &["tenants", "list"]];

#[tokio::test]
async fn a_database_beyond_this_machine_is_refused_without_a_verified_certificate() {
    let (folder, at) = (Folder::new(), |url: &str, folder: &Folder| Anneal::new(BINARY, folder, url));
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
        let refused = at(url, &folder).run(&["migrate"]).await;
        assert_eq!(refused.code, Some(1), "{url}: {refused:?}");
        assert!(refused.err.contains("sslmode=verify-full"), "{url}: {refused:?}");
        assert!(refused.err.contains("database.insecure"), "{url}: {refused:?}");
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
    }
    let elsewhere = at("postgres://anneal:hunter2@db.elsewhere.example/anneal", &folder);
    for command in COMMANDS {
        let refused = elsewhere.run(command).await;
        assert!(refused.code == Some(1) && refused.err.contains("sslmode=verify-full"), "{command:?}: {refused:?}");
    }
}

#[tokio::test]
async fn what_the_environment_says_of_the_database_counts_as_the_url_does() {
    let (folder, without_host) = (Folder::new(), "postgres:///anneal");
    let at = |variables: &[(&'static str, &str)]| {
        let anneal = Anneal::new(BINARY, &folder, without_host);
        variables.iter().fold(anneal, |anneal, (name, value)| anneal.with_variable(name, value))
    };
    let elsewhere = ("PGHOST", "db.elsewhere.example");
    for refused in [&[elsewhere][..], &[("PGHOSTADDR", "10.1.2.3")], &[elsewhere, ("PGSSLMODE", "require")]] {
        let ran = at(refused).run(&["migrate"]).await;
        assert!(ran.err.contains("sslmode=verify-full"), "{refused:?}: {ran:?}");
    }
    for taken in [&[elsewhere, ("PGSSLMODE", "verify-full")][..], &[("PGHOST", "/nowhere")]] {
        let ran = at(taken).run(&["migrate"]).await;
        assert!(ran.err.contains("cannot reach") && !ran.err.contains("database.insecure"), "{taken:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_verified_certificate_this_machine_and_an_operators_wish_are_taken() {
    let folder = Folder::new();
    for (url, more) in [
        ("postgres://anneal@db.elsewhere.example/anneal?sslmode=verify-full", &[][..]),
        ("postgres://anneal@db.elsewhere.example/anneal", &["--set", "database.insecure=true"]),
        ("postgres://anneal@127.0.0.1:1/anneal", &[]),
        ("postgres://anneal@localhost:1/anneal", &[]),
        ("postgres://anneal@[::1]:1/anneal", &[]),
        ("postgres://anneal@%2Fnowhere/anneal", &[]),
        ("postgres://anneal@db.elsewhere.example/anneal?host=/nowhere", &[]),
    ] {
        for command in COMMANDS {
            let ran = Anneal::new(BINARY, &folder, url).run(&[command, more].concat()).await;
            let came_so_far = ran.err.contains("cannot reach") && !ran.err.contains("verify-full\"");
            assert!(came_so_far && !ran.err.contains("database.insecure"), "{url} {command:?}: {ran:?}");
        }
    }
    let house = House::start().await;
    let (server, _) = Anneal::new(BINARY, &folder, &house.url).server().await;
    server.terminate().await;
}
