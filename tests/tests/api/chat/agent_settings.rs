//! The settings of an agent: they are the defaults of its new conversations. A process whose
//! settings file has invalid settings of an agent does not start.

use anneal_core::policy::Profile;
use anneal_server::{AgentSettings, Agents};
use anneal_testkit::{
    AnnealBinary, Folder, ScriptedModel, TestApp, TestConversation, TurnOutcome, assert_refused,
    direct_scope, empty_database, pb, user,
};
use pb::chat_service_client::ChatServiceClient;
use serde_json::{Value, json};
use tonic::{Code, transport::Channel};

use crate::chat::BINARY;

fn main_agent(profile: Profile, system_prompt: &str, model: &str) -> Agents {
    let settings = AgentSettings {
        profile: Some(profile),
        system_prompt: system_prompt.into(),
        model: model.into(),
        ..AgentSettings::default()
    };
    Agents::from([("main".to_owned(), settings)])
}

fn create_request() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        agent_id: "main".into(),
        ..Default::default()
    }
}

/// The profile, model, system prompt and encoding of a new conversation.
fn starting_settings(conversation: Option<pb::Conversation>) -> (String, String, String, String) {
    let conversation = conversation.expect("a conversation");
    let policy = conversation.policy.unwrap_or_default();
    (
        policy.profile,
        policy.model,
        conversation.system_prompt,
        conversation.encoding,
    )
}

/// The same four settings, from texts.
fn owned_settings(parts: [&str; 4]) -> (String, String, String, String) {
    let [profile, model, prompt, encoding] = parts.map(str::to_owned);
    (profile, model, prompt, encoding)
}

#[tokio::test]
async fn new_conversations_take_the_settings_of_their_agent() {
    let app = TestApp::with_agents(main_agent(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let expected = owned_settings(["zeroclaw", "gpt-4", "You cook.", "cl100k_base"]);
    let conversation = app.conversation_with(create_request()).await;
    assert_eq!(
        starting_settings(Some(conversation.conversation().await)),
        expected
    );
    assert_eq!(
        conversation
            .append_all(vec![anneal_testkit::call("c", "{}")])
            .await
            .messages
            .len(),
        0,
        "the profile zeroclaw keeps no tool messages"
    );
    let session = app.resolve(&direct_scope("anna")).await.expect("resolves");
    assert_eq!(starting_settings(session.conversation), expected);
    let ask = pb::RotateSessionRequest {
        scope: Some(direct_scope("anna")),
        defaults: Some(create_request()),
        ..Default::default()
    };
    let rotated = app
        .conversations()
        .rotate_session(ask)
        .await
        .expect("rotates")
        .into_inner();
    assert_eq!(starting_settings(rotated.conversation), expected);
    let other = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "guide".into(),
            ..create_request()
        })
        .await;
    assert_eq!(
        starting_settings(Some(other.conversation().await)),
        owned_settings(["", "", "", "o200k_base"])
    );
}

#[tokio::test]
async fn fields_of_a_create_request_override_the_agents_settings() {
    let app = TestApp::with_agents(main_agent(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let explicit = pb::CreateConversationRequest {
        system_prompt: "You guide.".into(),
        policy: Some(pb::Policy {
            profile: "claw0".into(),
            hot_zone_radius: Some(9),
            ..Default::default()
        }),
        model: "gpt-4o".into(),
        ..create_request()
    };
    let conversation = app.conversation_with(explicit).await;
    assert_eq!(
        starting_settings(Some(conversation.conversation().await)),
        owned_settings(["claw0", "gpt-4o", "You guide.", "o200k_base"])
    );
    let policy = pb::Policy {
        hot_zone_radius: Some(9),
        ..Default::default()
    };
    let partial = app
        .conversation_with(pb::CreateConversationRequest {
            policy: Some(policy),
            ..create_request()
        })
        .await;
    let partial = partial.conversation().await;
    assert_eq!(
        partial
            .policy
            .as_ref()
            .and_then(|policy| policy.hot_zone_radius),
        Some(9)
    );
    assert_eq!(
        starting_settings(Some(partial)),
        owned_settings(["zeroclaw", "gpt-4", "You cook.", "cl100k_base"])
    );
    // A rotation without defaults takes the settings of the previous conversation, not those of the
    // agent.
    let resolve_with_prompt = pb::ResolveSessionRequest {
        scope: Some(direct_scope("anna")),
        defaults: Some(pb::CreateConversationRequest {
            system_prompt: "Mine.".into(),
            ..create_request()
        }),
        ..Default::default()
    };
    app.conversations()
        .resolve_session(resolve_with_prompt)
        .await
        .expect("resolves");
    let rotated = app
        .rotate(&direct_scope("anna"), "")
        .await
        .expect("rotates");
    assert_eq!(
        rotated.conversation.expect("a conversation").system_prompt,
        "Mine."
    );
}

#[tokio::test]
async fn a_repeated_create_request_gets_its_first_answer_although_the_settings_have_changed() {
    let app = TestApp::with_agents(main_agent(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let changed_server = app
        .second_server_with_agents(main_agent(Profile::Claw0, "You bake.", "gpt-4o"))
        .await;
    let ask = || pb::CreateConversationRequest {
        request_id: "c1".into(),
        ..create_request()
    };
    let created = app
        .conversations()
        .create_conversation(ask())
        .await
        .expect("creates")
        .into_inner();
    let again = changed_server
        .conversations()
        .create_conversation(ask())
        .await
        .expect("repeats")
        .into_inner();
    assert_eq!(again, created);
    // This request would create the same conversation, but its fields differ from the first one's.
    let other = pb::CreateConversationRequest {
        system_prompt: "You cook.".into(),
        ..ask()
    };
    let refused = app.conversations().create_conversation(other).await;
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let rotate = || pb::RotateSessionRequest {
        scope: Some(direct_scope("anna")),
        defaults: Some(pb::CreateConversationRequest {
            title: "t".into(),
            ..create_request()
        }),
        request_id: "r1".into(),
    };
    let created = app
        .conversations()
        .rotate_session(rotate())
        .await
        .expect("rotates")
        .into_inner();
    assert_eq!(
        changed_server
            .conversations()
            .rotate_session(rotate())
            .await
            .expect("repeats")
            .into_inner(),
        created
    );
    let fresh = changed_server
        .resolve(&direct_scope("bert"))
        .await
        .expect("resolves");
    assert_eq!(
        starting_settings(fresh.conversation),
        owned_settings(["claw0", "gpt-4o", "You bake.", "o200k_base"])
    );
}

#[tokio::test]
async fn a_policy_is_checked_together_with_the_agents_settings() {
    let app = TestApp::with_agents(main_agent(Profile::Agents, "", "")).await;
    // The profile keeps 20,000 tokens. A threshold just above that would trigger a checkpoint after
    // every few messages.
    let tight = pb::Policy {
        token_threshold: Some(21_000),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        policy: Some(tight),
        ..create_request()
    };
    let refused = app.conversations().create_conversation(ask.clone()).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "policy.token_threshold",
    );
    app.conversation_with(pb::CreateConversationRequest {
        agent_id: String::new(),
        ..ask
    })
    .await;
}

#[tokio::test]
async fn invalid_agent_settings_stop_the_start() {
    let (folder, url) = (Folder::new(), empty_database().await);
    let anneal = AnnealBinary::new(BINARY, &folder, &url);
    let long = "a".repeat(129);
    let refused = [
        (
            "[agents.main]\nprofile = \"reckless\"".to_owned(),
            ["reckless", "zeroclaw"],
        ),
        (
            "[agents.main]\nprompt = \"Be brief.\"".to_owned(),
            ["prompt", "system_prompt"],
        ),
        (
            format!("[agents.main]\nmodel = \"{long}\""),
            ["agents.\"main\"", "model has 129 bytes"],
        ),
        (
            format!("[agents.\"{long}\"]\nmodel = \"m\""),
            ["name has 129 bytes", "at most 128"],
        ),
        (
            "[agents.\"\"]\nmodel = \"m\"".to_owned(),
            ["agents.\"\"", "must not be empty"],
        ),
        (
            "[agents.main]\nsystem_prompt = \"a\\u0000\"".to_owned(),
            ["agents.\"main\"", "NUL"],
        ),
    ];
    for (settings, says) in refused {
        folder.file("anneal.toml", &settings);
        for process in ["server", "worker", "config"] {
            let ran = anneal.run(&[process]).await;
            assert_eq!(ran.code, Some(1), "{process} with {settings}: {ran:?}");
            for word in says {
                assert!(
                    ran.err.contains(word),
                    "{settings}: {} lacks {word}",
                    ran.err
                );
            }
        }
    }
    folder.file(
        "anneal.toml",
        "[agents.\"my cook\"]\nprofile = \"zeroclaw\"\nsystem_prompt = \"You cook.\"",
    );
    let shown = anneal.run(&["config"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(
        shown.out.contains("[agents.\"my cook\"]") && shown.out.contains("zeroclaw"),
        "{}",
        shown.out
    );
}

/// Runs a turn in this conversation at the server on this port.
async fn run_turn(conversation: &TestConversation<'_>, port: u16, options: pb::ChatOptions) {
    let ask = pb::ChatRequest {
        conversation_id: conversation.id.clone(),
        messages: vec![user("What is there?")],
        options: Some(options),
        ..Default::default()
    };
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    let stream = ChatServiceClient::new(channel).chat(ask).await;
    let stream = stream.expect("begins").into_inner();
    TurnOutcome::read(stream).await.done();
}

#[tokio::test]
async fn turns_take_the_options_and_the_tools_file_of_their_agent_where_nothing_else_names_them() {
    let schema = r#"{ "type":"object", "properties":{"z":{"minimum":1.50},"a":{}} }"#;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let model = ScriptedModel::saying("Salt.").await;
    let tools = folder.file(
        "tools.json",
        &format!(r#"[{{"name": "look_up", "description": "Looks.", "input_schema": {schema}}}]"#),
    );
    let settings = format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.small]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
         [chat]\nmodel = \"small\"\n\
         [agents.main.chat]\ntemperature = 0.25\nstop = [\"END\"]\ntools_file = \"{}\"\n",
        model.url(),
        tools.display()
    );
    folder.file("anneal.toml", &settings);
    let (_server, port) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    let main = app.conversation_with(create_request()).await;
    let other = app.conversation().await;
    let warm = pb::ChatOptions {
        temperature: Some(0.5),
        ..Default::default()
    };
    run_turn(&main, port, pb::ChatOptions::default()).await;
    run_turn(&main, port, warm).await;
    run_turn(&other, port, pb::ChatOptions::default()).await;
    let requests = model.requests();
    let sent: Vec<(&Value, &Value, &Value)> = requests
        .iter()
        .map(|request| &request.body)
        .map(|body| {
            (
                &body["tools"][0]["function"]["name"],
                &body["temperature"],
                &body["stop"],
            )
        })
        .collect();
    let (name, stop) = (json!("look_up"), json!(["END"]));
    assert_eq!(
        sent,
        [
            (&name, &json!(0.25), &stop),
            (&name, &json!(0.5), &stop),
            (&Value::Null, &Value::Null, &Value::Null),
        ]
    );
    assert!(
        requests[0].raw.contains(schema),
        "the schema is sent unchanged: {}",
        requests[0].raw
    );
}
