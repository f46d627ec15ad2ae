//! `anneal chat` at a terminal: the commands that begin with `/`, and what they print.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{Folder, MODEL, ScriptedModel, Terminal, TestApp, assistant, pb, prose, user};
use tokio_util::sync::CancellationToken;

use crate::commands::BINARY;

/// Starts `anneal chat` against this app at a terminal.
pub(crate) fn start_chat(app: &TestApp, folder: &Folder, arguments: &[&str]) -> Terminal {
    start_chat_with_environment(app, folder, arguments, &[])
}

/// Starts `anneal chat` with additional environment variables.
pub(crate) fn start_chat_with_environment(
    app: &TestApp,
    folder: &Folder,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Terminal {
    let address = format!("http://{}", app.addresses.grpc);
    Terminal::start(
        BINARY,
        folder,
        &[&["chat", "--address", &address], arguments].concat(),
        environment,
    )
}

/// Lists the titles of an agent's conversations, newest first. An empty `agent` means all agents.
async fn list_titles(app: &TestApp, agent: &str) -> Vec<String> {
    let ask = pb::ListConversationsRequest {
        agent_id: agent.into(),
        ..Default::default()
    };
    let listed = app
        .conversations()
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner();
    listed
        .conversations
        .into_iter()
        .map(|conversation| conversation.title)
        .collect()
}

#[tokio::test]
async fn row_C5_conversations_are_started_switched_listed_and_renamed() {
    let model = ScriptedModel::saying("Understood.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let mut terminal = start_chat(&app, &folder, &[]);
    terminal.wait_for_prompt("new>").await;
    terminal.enter("/new my-project");
    terminal.wait_for_prompt("my-project>").await;
    assert_eq!(
        list_titles(&app, "").await,
        [""; 0],
        "a conversation is created with its first message"
    );
    terminal.enter("Tell me of generators");
    terminal.wait_for_text("Understood.").await;
    terminal.wait_for_prompt("my-project>").await;
    terminal.enter("/new 港口的渡轮");
    terminal.wait_for_prompt("港口的渡轮>").await;
    terminal.enter("What is two and two?");
    terminal.wait_for_text("What is two and two?").await;
    terminal.wait_for_prompt("港口的渡轮>").await;
    assert_eq!(
        list_titles(&app, "terminal").await,
        ["港口的渡轮", "my-project"]
    );
    terminal.enter("/list");
    terminal.wait_for_text("tok  ").await;
    let screen = terminal.wait_for_prompt("港口的渡轮>").await;
    let rows: Vec<&str> = screen
        .lines()
        .filter(|line| line.contains(" msgs "))
        .collect();
    assert!(
        rows[0].starts_with("* ") && rows[0].contains("港口的渡轮") && rows[0].contains("just now"),
        "{screen}"
    );
    assert!(
        rows[1].starts_with("  ") && rows[1].contains("my-project") && rows[1].contains("2 msgs"),
        "{screen}"
    );
    terminal.enter("/switch MY-P");
    let screen = terminal.wait_for_prompt("my-project>").await;
    assert!(
        screen.contains("you   | Tell me of generators\nmodel | Understood."),
        "/switch shows the last messages: {screen}"
    );
    terminal.enter("/switch nothing");
    terminal
        .wait_for_text("no title and no id begins with \"nothing\"")
        .await;
    terminal.wait_for_prompt("my-project>").await;
    terminal.enter("/rename The harbor");
    terminal.wait_for_prompt("The harbor>").await;
    assert_eq!(
        list_titles(&app, "terminal").await,
        ["港口的渡轮", "The harbor"]
    );
    terminal.enter("/quit");
    assert_eq!(terminal.wait_for_exit().await, 0);
}

#[tokio::test]
async fn row_C5_an_ambiguous_prefix_lists_its_conversations_and_an_id_is_accepted_too() {
    let app = TestApp::start().await;
    let folder = Folder::new();
    let mut ids = Vec::new();
    for title in ["my-project", "My plan", "Experiments"] {
        let ask = pb::CreateConversationRequest {
            agent_id: "terminal".into(),
            user_id: "tester".into(),
            title: title.into(),
            ..Default::default()
        };
        let conversation = app.conversation_with(ask).await;
        conversation.turn(&format!("About {title}"), "Yes.").await;
        ids.push(conversation.id);
    }
    let terminal = start_chat(&app, &folder, &["exp"]);
    let screen = terminal.wait_for_prompt("Experiments>").await;
    assert!(screen.contains("you   | About Experiments"), "{screen}");
    terminal.enter("/switch my");
    let screen = terminal
        .wait_for_text("2 conversations begin with \"my\"")
        .await;
    assert!(
        screen.contains("My plan") && screen.contains("my-project"),
        "{screen}"
    );
    terminal.wait_for_prompt("Experiments>").await;
    terminal.enter(&format!("/switch {}", ids[0]));
    terminal.wait_for_prompt("my-project>").await;
    terminal.type_text("/switch my p\t");
    terminal.wait_for_text("/switch My plan").await;
    terminal.type_text("\r");
    terminal.wait_for_prompt("My plan>").await;
    let mut ambiguous = start_chat(&app, &folder, &["my"]);
    ambiguous.wait_for_text("2 conversations begin with").await;
    assert_eq!(ambiguous.wait_for_exit().await, 1);
}

/// The two conversations with the searched titles are older than 10,100 others.
#[tokio::test]
async fn an_old_conversation_is_found_by_its_title_and_an_incomplete_search_is_reported() {
    let app = TestApp::start().await;
    for title in ["The harbor", "the ferry"] {
        let (agent_id, user_id) = ("terminal".into(), "tester".into());
        let ask = pb::CreateConversationRequest {
            agent_id,
            user_id,
            title: title.into(),
            ..Default::default()
        };
        app.conversation_with(ask).await;
    }
    sqlx::raw_sql(
        "insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
            'conversation_id', gen_random_uuid(), 'title', 'The filler ' || n, 'last_activity_ts', now() + n * interval '1 second'
         ))).*
         from ai_conversation as c, generate_series(1, 10100) as n where c.title = 'The harbor'",
    )
    .execute(&mut app.db().await)
    .await
    .expect("inserts");
    let terminal = start_chat(&app, &Folder::new(), &["The har"]);
    terminal.wait_for_prompt("The harbor>").await;
    terminal.enter("/switch THE FERRY");
    terminal
        .wait_for_text(
            "of the newest 10,000 conversations, no title begins with it in other case, and no id",
        )
        .await;
    terminal.wait_for_prompt("The harbor>").await;
    terminal.enter("/switch THE FILLER 77");
    terminal
        // 770 to 779 and 7700 to 7799. Number 77 is not among the newest 10,000.
        .wait_for_text("110 conversations begin with \"THE FILLER 77\"")
        .await;
    terminal.enter("/switch the fer");
    terminal.wait_for_prompt("the ferry>").await;
}

#[tokio::test]
async fn row_C5_context_shows_how_full_the_context_is_and_compact_writes_a_checkpoint() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            title: "long".into(),
            ..Default::default()
        })
        .await;
    for n in 0..9 {
        conversation
            .turn(&prose(n * 40, 12), &prose(n * 40 + 20, 12))
            .await;
    }
    app.run_jobs_until_idle().await;
    let (stop, worker) = (CancellationToken::new(), app.worker());
    tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let terminal = start_chat(&app, &Folder::new(), &["--agent", "", "--user", "", "long"]);
    terminal.wait_for_prompt("long>").await;
    terminal.enter("/context");
    let screen = terminal
        .wait_for_text("next: a checkpoint at 50 messages (now 18)")
        .await;
    assert!(
        screen.contains("[#-----------------------------] 0."),
        "{screen}"
    );
    for row in [
        "system prompt",
        "checkpoint summary",
        "tail",
        "hot",
        "cool",
        "summarized",
    ] {
        assert!(
            screen
                .lines()
                .any(|line| line.trim_start().starts_with(row) && line.contains('[')),
            "{row}: {screen}"
        );
    }
    terminal.enter("/compact the turbine");
    terminal.wait_for_text("a checkpoint at message ").await;
    terminal.wait_for_prompt("long>").await;
    let [checkpoint] = conversation
        .checkpoints()
        .await
        .try_into()
        .expect("one checkpoint");
    assert_eq!(checkpoint.focus, "the turbine");
    terminal.enter("/sep");
    terminal.wait_for_text("a separator after message 18").await;
    terminal.wait_for_prompt("long>").await;
    terminal.enter("/compact");
    terminal.wait_for_text("nothing to summarize").await;
    terminal.wait_for_prompt("long>").await;
    assert_eq!(
        conversation.context().await.0.messages.len(),
        0,
        "the context starts after the separator"
    );
    stop.cancel();
}

#[tokio::test]
async fn row_C5_show_prints_the_original_of_a_summarized_message_page_by_page() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        hot_zone_radius: Some(1),
        ..Default::default()
    };
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            title: "large".into(),
            policy: Some(policy),
            ..Default::default()
        })
        .await;
    conversation
        .append_all(vec![
            user(&format!("{}\nthe very end", prose(0, 80))),
            assistant("Read."),
        ])
        .await;
    conversation.turns(3).await;
    app.run_jobs_until_idle().await;
    let terminal = start_chat(
        &app,
        &Folder::new(),
        &["--agent", "", "--user", "", "large"],
    );
    terminal.wait_for_prompt("large>").await;
    terminal.enter("/context");
    terminal
        .wait_for_text("sent as their summaries: message 1 (")
        .await;
    terminal.wait_for_prompt("large>").await;
    terminal.enter("/show 1");
    let screen = terminal
        .wait_for_text("more bytes: Enter continues, q stops --")
        .await;
    assert!(
        screen.contains(&prose(0, 1)) && !screen.contains("the very end"),
        "{screen}"
    );
    terminal.type_text(" ");
    terminal.wait_for_text("the very end").await;
    terminal.wait_for_prompt("large>").await;
    terminal.enter("/show 1");
    terminal
        .wait_for_text("message 1 is the user's, of turn 1")
        .await;
    terminal
        .wait_for_text("more bytes: Enter continues, q stops --")
        .await;
    terminal.type_text("q");
    terminal.wait_for_prompt("large>").await;
    terminal.enter("/show 99");
    terminal.wait_for_text("MESSAGE_NOT_FOUND").await;
}

#[tokio::test]
async fn row_C5_help_lists_the_commands_and_a_mistyped_command_gets_a_suggestion() {
    let model = ScriptedModel::saying("A file.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let mut terminal = start_chat(&app, &folder, &["--new", "hosts"]);
    terminal.wait_for_prompt("hosts>").await;
    terminal.enter("/help");
    let screen = terminal.wait_for_text("/quit").await;
    for command in [
        "/new [TITLE]",
        "/switch PREFIX",
        "/list",
        "/context",
        "/compact [FOCUS]",
        "/sep",
        "/show ID",
        "/undo",
        "/redo",
        "/edit TEXT",
        "/retry",
        "/alternatives",
        "/choose N",
        "/fork [ID] [TITLE]",
    ] {
        assert!(screen.contains(command), "{command}: {screen}");
    }
    terminal.wait_for_prompt("hosts>").await;
    terminal.enter("/lits");
    terminal.wait_for_text("did you mean /list?").await;
    terminal.wait_for_prompt("hosts>").await;
    terminal.enter("/context");
    terminal
        .wait_for_text("this conversation does not exist yet")
        .await;
    terminal.wait_for_prompt("hosts>").await;
    terminal.enter("//etc/hosts is what?");
    terminal.wait_for_text("A file.").await;
    assert!(
        model.requests()[0]
            .texts()
            .contains(&"/etc/hosts is what?".to_owned()),
        "{:?}",
        model.requests()
    );
    terminal.wait_for_prompt("hosts>").await;
    terminal.type_text("never said");
    terminal.wait_for_text("hosts> never said").await;
    terminal.type_text("\u{3}"); // Ctrl+C
    terminal.wait_for_prompt("hosts>").await;
    terminal.type_text("\u{4}"); // Ctrl+D
    assert_eq!(terminal.wait_for_exit().await, 0);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn row_C6_each_agent_and_user_has_its_own_list_of_sessions_and_continues_the_newest() {
    let model = ScriptedModel::saying("Noted.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let sessions = [
        ("reader", "ann", "first"),
        ("reader", "ann", "second"),
        ("reader", "bob", "third"),
        ("writer", "ann", "fourth"),
    ];
    for (agent, user, title) in sessions {
        let terminal = start_chat(
            &app,
            &folder,
            &["--agent", agent, "--user", user, "--new", title],
        );
        terminal.wait_for_prompt(&format!("{title}>")).await;
        terminal.enter(&format!("This is the {title}"));
        terminal.wait_for_text("Noted.").await;
        terminal.wait_for_prompt(&format!("{title}>")).await;
    }
    assert_eq!(
        list_titles(&app, "reader").await,
        ["third", "second", "first"]
    );
    let terminal = start_chat(&app, &folder, &["--agent", "reader", "--user", "ann"]);
    terminal.wait_for_prompt("second>").await;
    terminal.enter("/list");
    terminal.wait_for_text("* ").await;
    let screen = terminal.wait_for_prompt("second>").await;
    let rows: Vec<&str> = screen
        .lines()
        .filter(|line| line.contains(" msgs "))
        .collect();
    assert!(
        rows.len() == 2 && rows[0].contains("second") && rows[1].contains("first"),
        "{screen}"
    );
    terminal.enter("/switch third");
    terminal
        .wait_for_text("no title and no id begins with")
        .await;
    terminal.wait_for_prompt("second>").await;
    terminal.enter("And again");
    model.wait_for_calls(5).await;
    let requests = model.requests();
    let last = requests.last().expect("five calls");
    assert!(
        last.texts().contains(&"This is the second".to_owned()),
        "the newest conversation of the user is continued: {:?}",
        last.texts()
    );
    assert_eq!(last.body["model"], MODEL);
}
