//! Agents with settings: how their conversations begin, and which settings are refused.

use anneal_core::policy::Profile;
use anneal_server::{AgentSettings, Agents};
use anneal_tests::{Anneal, Folder, House, assert_refused, direct, empty_database, pb};
use tonic::Code;

use crate::BINARY;

fn agents(profile: Profile, system_prompt: &str, model: &str) -> Agents {
    let settings = AgentSettings { profile: Some(profile), system_prompt: system_prompt.into(), model: model.into() };
    Agents::from([("main".to_owned(), settings)])
}

fn new() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest { agent_id: "main".into(), ..Default::default() }
}

/// Profile, model, system prompt and encoding.
fn began(conversation: Option<pb::Conversation>) -> (String, String, String, String) {
    let conversation = conversation.expect("a conversation");
    let policy = conversation.policy.unwrap_or_default();
    (policy.profile, policy.model, conversation.system_prompt, conversation.encoding)
}

fn settled(parts: [&str; 4]) -> (String, String, String, String) {
    let [profile, model, prompt, encoding] = parts.map(str::to_owned);
    (profile, model, prompt, encoding)
}

#[tokio::test]
async fn conversations_of_an_agent_begin_as_its_settings_say() {
    let house = House::with_agents(agents(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let by_settings = settled(["zeroclaw", "gpt-4", "You cook.", "cl100k_base"]);
    let talk = house.conversation_with(new()).await;
    assert_eq!(began(Some(talk.conversation().await)), by_settings);
    assert_eq!(talk.append_all(vec![anneal_tests::call("c", "{}")]).await.messages.len(), 0, "zeroclaw keeps no tools");
    let session = house.resolve(&direct("anna")).await.expect("resolves");
    assert_eq!(began(session.conversation), by_settings);
    let ask = pb::RotateSessionRequest { scope: Some(direct("anna")), defaults: Some(new()), ..Default::default() };
    let rotated = house.conversations().rotate_session(ask).await.expect("rotates").into_inner();
    assert_eq!(began(rotated.conversation), by_settings);
    let other = house.conversation_with(pb::CreateConversationRequest { agent_id: "guide".into(), ..new() }).await;
    assert_eq!(began(Some(other.conversation().await)), settled(["", "", "", "o200k_base"]));
}

#[tokio::test]
async fn what_the_caller_says_itself_wins() {
    let house = House::with_agents(agents(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let said = pb::CreateConversationRequest {
        system_prompt: "You guide.".into(),
        policy: Some(pb::Policy { profile: "claw0".into(), hot_zone_radius: Some(9), ..Default::default() }),
        model: "gpt-4o".into(),
        ..new()
    };
    let talk = house.conversation_with(said).await;
    assert_eq!(began(Some(talk.conversation().await)), settled(["claw0", "gpt-4o", "You guide.", "o200k_base"]));
    let policy = pb::Policy { hot_zone_radius: Some(9), ..Default::default() };
    let part = house.conversation_with(pb::CreateConversationRequest { policy: Some(policy), ..new() }).await;
    let part = part.conversation().await;
    assert_eq!(part.policy.as_ref().and_then(|policy| policy.hot_zone_radius), Some(9));
    assert_eq!(began(Some(part)), settled(["zeroclaw", "gpt-4", "You cook.", "cl100k_base"]));
    // A rotation without defaults goes on as the conversation before, not as the settings.
    let own = pb::ResolveSessionRequest {
        scope: Some(direct("anna")),
        defaults: Some(pb::CreateConversationRequest { system_prompt: "Mine.".into(), ..new() }),
        ..Default::default()
    };
    house.conversations().resolve_session(own).await.expect("resolves");
    let rotated = house.rotate(&direct("anna"), "").await.expect("rotates");
    assert_eq!(rotated.conversation.expect("a conversation").system_prompt, "Mine.");
}

#[tokio::test]
async fn a_changed_setting_does_not_turn_a_repeated_call_into_another() {
    let house = House::with_agents(agents(Profile::Zeroclaw, "You cook.", "gpt-4")).await;
    let later = house.beside_with_agents(agents(Profile::Claw0, "You bake.", "gpt-4o")).await;
    let ask = || pb::CreateConversationRequest { request_id: "c1".into(), ..new() };
    let made = house.conversations().create_conversation(ask()).await.expect("creates").into_inner();
    let again = later.conversations().create_conversation(ask()).await.expect("repeats").into_inner();
    assert_eq!(again, made);
    let other = pb::CreateConversationRequest { system_prompt: "You cook.".into(), ..ask() };
    let refused = house.conversations().create_conversation(other).await;
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let rotate = || pb::RotateSessionRequest {
        scope: Some(direct("anna")),
        defaults: Some(pb::CreateConversationRequest { title: "t".into(), ..new() }),
        request_id: "r1".into(),
    };
    let made = house.conversations().rotate_session(rotate()).await.expect("rotates").into_inner();
    assert_eq!(later.conversations().rotate_session(rotate()).await.expect("repeats").into_inner(), made);
    let fresh = later.resolve(&direct("bert")).await.expect("resolves");
    assert_eq!(began(fresh.conversation), settled(["claw0", "gpt-4o", "You bake.", "o200k_base"]));
}

#[tokio::test]
async fn a_policy_is_checked_together_with_the_agents_settings() {
    let house = House::with_agents(agents(Profile::Agents, "", "")).await;
    // The profile keeps 20,000 tokens: a threshold just above that would make checkpoints again and again.
    let tight = pb::Policy { token_threshold: Some(21_000), ..Default::default() };
    let ask = pb::CreateConversationRequest { policy: Some(tight), ..new() };
    let refused = house.conversations().create_conversation(ask.clone()).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "policy.token_threshold");
    house.conversation_with(pb::CreateConversationRequest { agent_id: String::new(), ..ask }).await;
}

#[tokio::test]
async fn settings_of_agents_that_cannot_work_are_refused_at_the_start() {
    let (folder, url) = (Folder::new(), empty_database().await);
    let anneal = Anneal::new(BINARY, &folder, &url);
    let long = "a".repeat(129);
    let refused = [
        ("[agents.main]\nprofile = \"reckless\"".to_owned(), ["reckless", "zeroclaw"]),
        ("[agents.main]\nprompt = \"Be brief.\"".to_owned(), ["prompt", "system_prompt"]),
        (format!("[agents.main]\nmodel = \"{long}\""), ["agents.\"main\"", "model has 129 bytes"]),
        (format!("[agents.\"{long}\"]\nmodel = \"m\""), ["name has 129 bytes", "at most 128"]),
        ("[agents.\"\"]\nmodel = \"m\"".to_owned(), ["agents.\"\"", "must not be empty"]),
        ("[agents.main]\nsystem_prompt = \"a\\u0000\"".to_owned(), ["agents.\"main\"", "NUL"]),
    ];
    for (settings, says) in refused {
        folder.file("anneal.toml", &settings);
        for process in ["server", "worker", "config"] {
            let ran = anneal.run(&[process]).await;
            assert_eq!(ran.code, Some(1), "{process} with {settings}: {ran:?}");
            for word in says {
                assert!(ran.err.contains(word), "{settings}: {} lacks {word}", ran.err);
            }
        }
    }
    folder.file("anneal.toml", "[agents.\"my cook\"]\nprofile = \"zeroclaw\"\nsystem_prompt = \"You cook.\"");
    let shown = anneal.run(&["config"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("[agents.\"my cook\"]") && shown.out.contains("zeroclaw"), "{}", shown.out);
}
