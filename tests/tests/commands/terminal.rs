//! `anneal chat` at a terminal: the commands, as a person types them and sees what they do.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use anneal_tests::{Folder, House, MODEL, ScriptedModel, Terminal, assistant, pb, prose, user};
use tokio_util::sync::CancellationToken;

use crate::BINARY;

/// `anneal chat` with this house, at a terminal.
pub(crate) fn chat(house: &House, folder: &Folder, more: &[&str]) -> Terminal {
    chat_within(house, folder, more, &[])
}

/// The same with these variables in its environment.
pub(crate) fn chat_within(house: &House, folder: &Folder, more: &[&str], environment: &[(&str, &str)]) -> Terminal {
    let address = format!("http://{}", house.addresses.grpc);
    Terminal::start(BINARY, folder, &[&["chat", "--address", &address], more].concat(), environment)
}

/// Titles of the conversations of an agent, newest first.
async fn titles(house: &House, agent: &str) -> Vec<String> {
    let ask = pb::ListConversationsRequest { agent_id: agent.into(), ..Default::default() };
    let listed = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
    listed.conversations.into_iter().map(|conversation| conversation.title).collect()
}

#[tokio::test]
async fn row_C5_conversations_are_started_switched_listed_and_renamed() {
    let model = ScriptedModel::saying("Understood.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let mut terminal = chat(&house, &folder, &[]);
    terminal.prompts("new>").await;
    terminal.enters("/new my-project");
    terminal.prompts("my-project>").await;
    assert_eq!(titles(&house, "").await, [""; 0], "a conversation begins with its first words");
    terminal.enters("Tell me of generators");
    terminal.shows("Understood.").await;
    terminal.prompts("my-project>").await;
    terminal.enters("/new 港口的渡轮");
    terminal.prompts("港口的渡轮>").await;
    terminal.enters("What is two and two?");
    terminal.shows("What is two and two?").await;
    terminal.prompts("港口的渡轮>").await;
    assert_eq!(titles(&house, "terminal").await, ["港口的渡轮", "my-project"]);
    terminal.enters("/list");
    terminal.shows("tok  ").await;
    let screen = terminal.prompts("港口的渡轮>").await;
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains(" msgs ")).collect();
    assert!(rows[0].starts_with("* ") && rows[0].contains("港口的渡轮") && rows[0].contains("just now"), "{screen}");
    assert!(rows[1].starts_with("  ") && rows[1].contains("my-project") && rows[1].contains("2 msgs"), "{screen}");
    terminal.enters("/switch MY-P");
    let screen = terminal.prompts("my-project>").await;
    assert!(screen.contains("you   | Tell me of generators\nmodel | Understood."), "what was said last: {screen}");
    terminal.enters("/switch nothing");
    terminal.shows("no title and no id begins with \"nothing\"").await;
    terminal.prompts("my-project>").await;
    terminal.enters("/rename The harbour");
    terminal.prompts("The harbour>").await;
    assert_eq!(titles(&house, "terminal").await, ["港口的渡轮", "The harbour"]);
    terminal.enters("/quit");
    assert_eq!(terminal.ended().await, 0);
}

#[tokio::test]
async fn row_C5_a_prefix_that_means_several_lists_them_and_an_id_is_a_name_too() {
    let house = House::start().await;
    let folder = Folder::new();
    let mut ids = Vec::new();
    for title in ["my-project", "My plan", "Experiments"] {
        let ask = pb::CreateConversationRequest {
            agent_id: "terminal".into(),
            user_id: "tester".into(),
            title: title.into(),
            ..Default::default()
        };
        let talk = house.conversation_with(ask).await;
        talk.turn(&format!("About {title}"), "Yes.").await;
        ids.push(talk.id);
    }
    let terminal = chat(&house, &folder, &["exp"]);
    let screen = terminal.prompts("Experiments>").await;
    assert!(screen.contains("you   | About Experiments"), "{screen}");
    terminal.enters("/switch my");
    let screen = terminal.shows("2 conversations begin with \"my\"").await;
    assert!(screen.contains("My plan") && screen.contains("my-project"), "{screen}");
    terminal.prompts("Experiments>").await;
    terminal.enters(&format!("/switch {}", ids[0]));
    terminal.prompts("my-project>").await;
    terminal.types("/switch my p\t");
    terminal.shows("/switch My plan").await;
    terminal.types("\r");
    terminal.prompts("My plan>").await;
    let mut ambiguous = chat(&house, &folder, &["my"]);
    ambiguous.shows("2 conversations begin with").await;
    assert_eq!(ambiguous.ended().await, 1);
}

/// The prefix is looked for among 10,100 newer ones, each a second newer than the one before.
#[tokio::test]
async fn a_title_is_found_however_old_and_a_search_that_ends_early_says_so() {
    let house = House::start().await;
    for title in ["The harbour", "the ferry"] {
        let (agent_id, user_id) = ("terminal".into(), "tester".into());
        let ask = pb::CreateConversationRequest { agent_id, user_id, title: title.into(), ..Default::default() };
        house.conversation_with(ask).await;
    }
    sqlx::raw_sql(
        "insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
            'conversation_id', gen_random_uuid(), 'title', 'The filler ' || n, 'last_activity_ts', now() + n * interval '1 second'
         ))).*
         from ai_conversation as c, generate_series(1, 10100) as n where c.title = 'The harbour'",
    )
    .execute(&mut house.db().await)
    .await
    .expect("inserts");
    let terminal = chat(&house, &Folder::new(), &["The har"]);
    terminal.prompts("The harbour>").await;
    terminal.enters("/switch THE FERRY");
    terminal.shows("and none of the newest 10,000 in other letters or by its id").await;
    terminal.prompts("The harbour>").await;
    terminal.enters("/switch THE FILLER 77");
    terminal.shows("110 conversations begin with \"THE FILLER 77\"").await;
    terminal.enters("/switch the fer");
    terminal.prompts("the ferry>").await;
}

#[tokio::test]
async fn row_C5_the_context_is_a_bar_and_is_compacted_by_hand() {
    let house = House::start().await;
    let talk =
        house.conversation_with(pb::CreateConversationRequest { title: "long".into(), ..Default::default() }).await;
    for n in 0..9 {
        talk.turn(&prose(n * 40, 12), &prose(n * 40 + 20, 12)).await;
    }
    house.run_jobs_until_idle().await;
    let (stop, worker) = (CancellationToken::new(), house.worker());
    tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let terminal = chat(&house, &Folder::new(), &["--agent", "", "--user", "", "long"]);
    terminal.prompts("long>").await;
    terminal.enters("/context");
    let screen = terminal.shows("next: a checkpoint at 50 messages (now 18)").await;
    assert!(screen.contains("[#-----------------------------] 0."), "{screen}");
    for row in ["system prompt", "checkpoint summary", "tail", "hot", "cool", "summarised"] {
        assert!(screen.lines().any(|line| line.trim_start().starts_with(row) && line.contains('[')), "{row}: {screen}");
    }
    terminal.enters("/compact the turbine");
    terminal.shows("a checkpoint at message ").await;
    terminal.prompts("long>").await;
    let [checkpoint] = talk.checkpoints().await.try_into().expect("one checkpoint");
    assert_eq!(checkpoint.focus, "the turbine");
    terminal.enters("/sep");
    terminal.shows("a separator after message 18").await;
    terminal.prompts("long>").await;
    terminal.enters("/compact");
    terminal.shows("nothing to summarise").await;
    terminal.prompts("long>").await;
    assert_eq!(talk.context().await.0.messages.len(), 0, "the context starts after the separator");
    stop.cancel();
}

#[tokio::test]
async fn row_C5_a_summarised_message_is_shown_as_it_was_said_page_by_page() {
    let house = House::start().await;
    let policy = pb::Policy { large_message_threshold: Some(200), hot_zone_radius: Some(1), ..Default::default() };
    let talk = house
        .conversation_with(pb::CreateConversationRequest {
            title: "large".into(),
            policy: Some(policy),
            ..Default::default()
        })
        .await;
    talk.append_all(vec![user(&format!("{}\nthe very end", prose(0, 80))), assistant("Read.")]).await;
    talk.turns(3).await;
    house.run_jobs_until_idle().await;
    let terminal = chat(&house, &Folder::new(), &["--agent", "", "--user", "", "large"]);
    terminal.prompts("large>").await;
    terminal.enters("/context");
    terminal.shows("sent as their summaries: message 1 (").await;
    terminal.prompts("large>").await;
    terminal.enters("/show 1");
    let screen = terminal.shows("bytes more: Enter goes on, q ends --").await;
    assert!(screen.contains(&prose(0, 1)) && !screen.contains("the very end"), "{screen}");
    terminal.types(" ");
    terminal.shows("the very end").await;
    terminal.prompts("large>").await;
    terminal.enters("/show 1");
    terminal.shows("message 1 is the user's, of turn 1").await;
    terminal.shows("bytes more: Enter goes on, q ends --").await;
    terminal.types("q");
    terminal.prompts("large>").await;
    terminal.enters("/show 99");
    terminal.shows("MESSAGE_NOT_FOUND").await;
}

#[tokio::test]
async fn row_C5_help_lists_the_commands_and_wrong_ones_are_told_what_was_meant() {
    let model = ScriptedModel::saying("A file.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let mut terminal = chat(&house, &folder, &["--new", "hosts"]);
    terminal.prompts("hosts>").await;
    terminal.enters("/help");
    let screen = terminal.shows("/quit").await;
    for command in ["/new [NAME]", "/switch PREFIX", "/list", "/context", "/compact [FOCUS]", "/sep", "/show ID"] {
        assert!(screen.contains(command), "{command}: {screen}");
    }
    terminal.prompts("hosts>").await;
    terminal.enters("/lits");
    terminal.shows("did you mean /list?").await;
    terminal.prompts("hosts>").await;
    terminal.enters("/context");
    terminal.shows("nothing was said here yet").await;
    terminal.prompts("hosts>").await;
    terminal.enters("//etc/hosts is what?");
    terminal.shows("A file.").await;
    assert!(model.asked()[0].texts().contains(&"/etc/hosts is what?".to_owned()), "{:?}", model.asked());
    terminal.prompts("hosts>").await;
    terminal.types("never said");
    terminal.shows("hosts> never said").await;
    terminal.types("\u{3}");
    terminal.prompts("hosts>").await;
    terminal.types("\u{4}");
    assert_eq!(terminal.ended().await, 0);
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn row_C6_every_agent_and_user_has_an_index_of_sessions_and_goes_on_with_the_newest() {
    let model = ScriptedModel::saying("Noted.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let sessions = [
        ("reader", "ann", "first"),
        ("reader", "ann", "second"),
        ("reader", "bob", "third"),
        ("writer", "ann", "fourth"),
    ];
    for (agent, user, title) in sessions {
        let terminal = chat(&house, &folder, &["--agent", agent, "--user", user, "--new", title]);
        terminal.prompts(&format!("{title}>")).await;
        terminal.enters(&format!("This is the {title}"));
        terminal.shows("Noted.").await;
        terminal.prompts(&format!("{title}>")).await;
    }
    assert_eq!(titles(&house, "reader").await, ["third", "second", "first"]);
    let terminal = chat(&house, &folder, &["--agent", "reader", "--user", "ann"]);
    terminal.prompts("second>").await;
    terminal.enters("/list");
    terminal.shows("* ").await;
    let screen = terminal.prompts("second>").await;
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains(" msgs ")).collect();
    assert!(rows.len() == 2 && rows[0].contains("second") && rows[1].contains("first"), "{screen}");
    terminal.enters("/switch third");
    terminal.shows("no title and no id begins with").await;
    terminal.prompts("second>").await;
    terminal.enters("And again");
    model.arrived(5).await;
    let asked = model.asked();
    let last = asked.last().expect("five calls");
    assert!(last.texts().contains(&"This is the second".to_owned()), "the conversation went on: {:?}", last.texts());
    assert_eq!(last.body["model"], MODEL);
}
