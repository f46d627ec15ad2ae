//! `anneal list`, `anneal health`, ids that are given by their beginnings, and `--json` of commands
//! that list or show.

use anneal_testkit::{AnnealBinary, CommandOutput, Folder, Terminal, TestApp, pb};
use serde_json::{Value, json};

use crate::commands::{BINARY, command_line::stdout_of};

/// Runs a command that calls this app's server.
async fn run(app: &TestApp, arguments: &[&str]) -> CommandOutput {
    let (folder, address) = (Folder::new(), format!("http://{}", app.addresses.grpc));
    let (name, rest) = arguments.split_first().expect("a command");
    AnnealBinary::new(BINARY, &folder, "")
        .run(&[&[*name, "--address", &address], rest].concat())
        .await
}

/// The JSON object on each line of a command's output.
fn json_lines(output: &str) -> Vec<Value> {
    output
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Lists with these arguments. Returns the titles.
async fn list_titles(app: &TestApp, arguments: &[&str]) -> Vec<String> {
    let listed = stdout_of(run(app, &[&["list", "--json"], arguments].concat()).await);
    json_lines(&listed)
        .iter()
        .map(|line| line["title"].as_str().expect("a title").to_owned())
        .collect()
}

/// Stores two empty conversations whose ids begin with `abcdef01` and `abcdef02`.
async fn store_conversations_with_known_ids(app: &TestApp) {
    let ask = pb::CreateConversationRequest {
        title: "The harbor".into(),
        ..Default::default()
    };
    app.conversation_with(ask).await;
    sqlx::raw_sql(
        "insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
            'conversation_id', 'abcdef0' || n || '-0000-7000-8000-000000000000', 'title', 'Copy ' || n
         ))).*
         from ai_conversation as c, generate_series(1, 2) as n where c.title = 'The harbor'",
    )
    .execute(&mut app.db().await)
    .await
    .expect("inserts");
}

#[tokio::test]
async fn list_shows_the_newest_conversations_first_and_filters_them() {
    let app = TestApp::start().await;
    assert_eq!(stdout_of(run(&app, &["list"]).await), "no conversations\n");
    let create = async |title: &str, agent: &str, user: &str| {
        let ask = pb::CreateConversationRequest {
            agent_id: agent.into(),
            user_id: user.into(),
            title: title.into(),
            ..Default::default()
        };
        app.conversation_with(ask).await
    };
    let ferry = create("The ferry", "terminal", "ann").await;
    create("The harbor", "terminal", "bob").await;
    create("Trains", "planner", "ann").await;
    ferry.append("When does it leave?").await;
    assert_eq!(
        list_titles(&app, &[]).await,
        ["The ferry", "Trains", "The harbor"]
    );
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--agent", "terminal"], &["The ferry", "The harbor"]),
        (&["--user", "ann"], &["The ferry", "Trains"]),
        (&["--title", "The h"], &["The harbor"]),
        (&["--status", "archived"], &[]),
        (&["--limit", "2"], &["The ferry", "Trains"]),
    ];
    for (filter, titles) in cases {
        assert_eq!(list_titles(&app, filter).await, titles, "{filter:?}");
    }
    let limited = run(&app, &["list", "--limit", "2"]).await;
    assert!(
        limited.out.lines().count() == 2 && limited.err.contains("there are older conversations"),
        "{limited:?}"
    );
    let rows = stdout_of(run(&app, &["list"]).await);
    let first = rows.lines().next().expect("a row");
    assert!(
        first.contains("The ferry") && first.contains("terminal/ann") && first.contains("1 msgs"),
        "{rows}"
    );
    let listed = stdout_of(run(&app, &["list", "--json", "--limit", "1"]).await);
    let [line] = json_lines(&listed).try_into().expect("one line");
    assert_eq!(line["conversation_id"], ferry.id);
    assert_eq!(line["user_id"], "ann");
    assert_eq!(line["message_count"], 1);
    assert_eq!(line["status"], "active");
    for limit in ["0", "10001"] {
        let refused = run(&app, &["list", "--limit", limit]).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
}

#[tokio::test]
async fn commands_accept_the_unique_beginning_of_an_id() {
    let app = TestApp::start().await;
    store_conversations_with_known_ids(&app).await;
    let commands: [&[&str]; 6] = [
        &["context"],
        &["context", "--explain"],
        &["usage"],
        &["compact", "--dry-run"],
        &["verify"],
        &["export", "--format", "openai"],
    ];
    for command in commands {
        let run_with = async |id: &str| run(&app, &[command, &[id]].concat()).await;
        for unique in [
            "abcdef01",
            "ABCDEF01",
            "abcdef01-0000-7000-8000-000000000000",
            "abcdef01000070008000000000000000",
        ] {
            let found = run_with(unique).await;
            assert_eq!(found.code, Some(0), "{command:?} {unique}: {found:?}");
        }
        let ambiguous = run_with("abcdef0").await;
        assert!(
            ambiguous.code == Some(1)
                && ambiguous
                    .err
                    .contains("the ids of 2 conversations begin with \"abcdef0\"")
                && ambiguous.err.contains("abcdef01  Copy 1")
                && ambiguous.err.contains("abcdef02  Copy 2"),
            "{command:?}: {ambiguous:?}"
        );
        let unknown = run_with("abcdef03").await;
        assert!(
            unknown.code == Some(1) && unknown.err.contains("no id begins with \"abcdef03\""),
            "{command:?}: {unknown:?}"
        );
        let title = run_with("The harbor").await;
        assert!(
            title.code == Some(1) && title.err.contains("neither an id of a conversation"),
            "{command:?}: {title:?}"
        );
    }
    for action in ["requeue", "discard"] {
        let refused = run(&app, &["jobs", action, "checkpoint", "abcdef0"]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains("the ids of 2 conversations"),
            "{action}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn the_beginning_of_an_id_changes_nothing_if_older_conversations_were_not_examined() {
    let app = TestApp::start().await;
    let newest = app.conversation().await;
    let copied = sqlx::raw_sql(
        "insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
            'conversation_id', gen_random_uuid(), 'last_activity_ts', now() - n * interval '1 second',
            'listed_ts', now() - n * interval '1 second'
         ))).*
         from ai_conversation as c, generate_series(1, 10000) as n",
    )
    .execute(&mut app.db().await)
    .await
    .expect("inserts");
    assert_eq!(copied.rows_affected(), 10_000);
    let beginning = &newest.id[..newest.id.len() - 1];
    let commands: [&[&str]; 6] = [
        &["jobs", "requeue", "checkpoint", beginning],
        &["jobs", "discard", "checkpoint", beginning],
        &["compact", "--wait", "0", beginning],
        &["withdraw", beginning, "1"],
        &["rewind", beginning, "0"],
        &["restore", beginning, "1"],
    ];
    for command in commands {
        let refused = run(&app, command).await;
        assert!(
            refused.code == Some(1) && refused.err.contains("give the complete id"),
            "{command:?}: {refused:?}"
        );
    }
    stdout_of(run(&app, &["compact", "--dry-run", beginning]).await);
    stdout_of(run(&app, &["compact", "--wait", "0", &newest.id]).await);
}

#[tokio::test]
async fn commands_that_list_or_show_print_json() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    conversation.append("When does the ferry leave?").await;
    let print = async |arguments: &[&str]| json_lines(&stdout_of(run(&app, arguments).await));
    let jobs = print(&["jobs", "--json"]).await;
    let job = jobs
        .iter()
        .find(|line| line["record"] == "job")
        .expect("a job");
    assert_eq!(job["kind"], "count_tokens");
    assert_eq!(job["conversation_id"], conversation.id);
    assert!(
        jobs.iter().any(|line| line["record"] == "queue"),
        "{jobs:?}"
    );
    assert_eq!(print(&["jobs", "list", "--json"]).await.len(), jobs.len());
    app.run_jobs_until_idle().await;
    let usage = print(&["usage", "--json", "--economics", &conversation.id]).await;
    assert_eq!(usage[0]["tail_messages"], 1);
    assert!(usage[0]["economics"]["strict"].is_object(), "{usage:?}");
    let verified = print(&["verify", "--json", "--all"]).await;
    assert_eq!(verified[0]["conversation_id"], conversation.id);
    assert_eq!(verified[0]["messages_checked"], 1);
    assert!(print(&["models", "--json"]).await.is_empty());

    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    stdout_of(operator.run(&["tenants", "create", "acme"]).await);
    stdout_of(
        operator
            .run(&["keys", "create", "--tenant", "acme", "--name", "bot"])
            .await,
    );
    let keys = json_lines(&stdout_of(operator.run(&["keys", "list", "--json"]).await));
    let key = keys.iter().find(|key| key["name"] == "bot").expect("a key");
    assert_eq!(key["verbs"], json!(["read", "append"]));
    assert_eq!(key["expire_time"], Value::Null);
    let tenants = operator
        .run(&["tenants", "list", "--json", "--usage"])
        .await;
    assert!(
        json_lines(&stdout_of(tenants))
            .iter()
            .any(|tenant| tenant["tenant"] == "acme" && tenant["messages"] == 0)
    );
    let config = operator
        .run(&["config", "--json", "--set", "session.max_message_count=40"])
        .await;
    assert_eq!(
        json_lines(&stdout_of(config))[0]["session"]["max_message_count"],
        40
    );
}

#[tokio::test]
async fn health_says_whether_a_process_answers_in_text_and_in_json() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let ask = async |address: &str, more: &[&str]| {
        let setting = format!("server.http_address={address}");
        let arguments = [&["health", "--set", &setting], more].concat();
        anneal.run(&arguments).await
    };
    let alive = app.addresses.http.to_string();
    assert_eq!(stdout_of(ask(&alive, &[]).await), "ok\n");
    assert_eq!(
        json_lines(&stdout_of(ask(&alive, &["--json"]).await)),
        [json!({
            "process": "server",
            "address": alive,
            "healthy": true,
            "answer": "HTTP/1.1 200 OK",
            "error": null,
        })]
    );

    let nobody = "127.0.0.1:1";
    let problem = format!("no process answers on {nobody}: ");
    let silent = ask(nobody, &[]).await;
    assert!(
        silent.code == Some(1) && silent.out.is_empty() && silent.err.contains(&problem),
        "{silent:?}"
    );
    let silent = ask(nobody, &["--json"]).await;
    assert_eq!((silent.code, silent.err.as_str()), (Some(1), ""));
    let [line] = json_lines(&silent.out).try_into().expect("one line");
    assert_eq!(
        (&line["healthy"], &line["answer"]),
        (&json!(false), &Value::Null)
    );
    let error = line["error"].as_str().expect("a text");
    assert!(error.starts_with(&problem), "{error}");
}

#[tokio::test]
async fn completions_and_man_pages_name_the_commands() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout_of(anneal.run(&["completions", shell]).await);
        assert!(
            script.contains("anneal") && script.contains("requeue"),
            "{shell}: {script}"
        );
    }
    let page = stdout_of(anneal.run(&["man"]).await);
    assert!(
        page.contains(".TH anneal 1") && page.contains(".SH SUBCOMMANDS"),
        "{page}"
    );
    let page = stdout_of(anneal.run(&["man", "jobs", "requeue"]).await);
    assert!(
        page.contains("Makes a dead job wait for a worker again")
            && page.contains("The kind of the job"),
        "{page}"
    );
    let unknown = anneal.run(&["man", "cool"]).await;
    assert!(
        unknown.code == Some(1) && unknown.err.contains("there is no command \"cool\""),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn help_and_tables_break_lines_between_words_at_a_terminal() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    stdout_of(operator.run(&["tenants", "create", "acme"]).await);
    let name = "the program that sends the bills of the ferries and the trains";
    stdout_of(
        operator
            .run(&["keys", "create", "--tenant", "acme", "--name", name])
            .await,
    );
    let database = [("ANNEAL_DATABASE_URL", app.url.as_str())];
    for arguments in [
        &["verify", "--help"][..],
        &["keys", "list", "--tenant", "acme"],
    ] {
        let mut terminal = Terminal::start(BINARY, &folder, arguments, &database);
        assert_eq!(terminal.wait_for_exit().await, 0, "{arguments:?}");
        let last_words = if arguments[0] == "keys" {
            "used"
        } else {
            "Print help"
        };
        let screen = terminal.wait_for_text(last_words).await;
        // The screen joins rows that the terminal, not the command, has broken.
        assert!(
            screen.lines().all(|line| line.chars().count() <= 100),
            "{arguments:?}:\n{screen}"
        );
    }
}
