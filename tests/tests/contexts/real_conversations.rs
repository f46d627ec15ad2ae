//! Real conversations through the API, with thresholds low enough to trip: what is promised holds on them.

use anneal_tests::{Chat, Data, House, Talk, assistant, pb, user};
use pb::{Reason, Representation};

/// The thresholds that the issue names.
fn low() -> pb::Policy {
    pb::Policy {
        token_threshold: Some(8_000),
        max_message_count: Some(50),
        large_message_threshold: Some(4_000),
        hot_zone_radius: Some(5),
        ..Default::default()
    }
}

/// Says a conversation ten messages at a time, the jobs run in between.
async fn import<'a>(house: &'a House, chat: &Chat, policy: pb::Policy) -> Talk<'a> {
    let ask = pb::CreateConversationRequest {
        system_prompt: chat.system_prompt.clone(),
        policy: Some(policy),
        ..Default::default()
    };
    let talk = house.conversation_with(ask).await;
    for some in chat.messages.chunks(10) {
        talk.append_all(some.to_vec()).await;
        house.run_jobs_until_idle().await;
    }
    talk
}

/// Asserts everything that holds on any conversation, once its jobs are done.
async fn assert_sound(talk: &Talk<'_>, said: &[pb::NewMessage]) {
    let stored = talk.messages().await;
    assert_eq!(stored.len(), said.len());
    for (stored, said) in stored.iter().zip(said) {
        assert_eq!((stored.role, &stored.parts), (said.role, &said.parts), "message {}", stored.message_id);
        assert!(!stored.tokens.expect("counted").estimated);
    }
    assert!(talk.jobs().await.is_empty());
    talk.verify().await;
    let whole = talk.context().await;
    whole.assert_covers(said.len() as i64);
    whole.assert_tools_paired();
    for share in [1, 2, 4, 8] {
        let budget = (whole.0.total_tokens / share).max(2_500);
        let built = talk.context_within(budget).await.expect("fits");
        assert!(built.0.total_tokens <= budget, "{} tokens for {budget}", built.0.total_tokens);
        built.assert_covers(said.len() as i64);
        built.assert_tools_paired();
    }
}

#[tokio::test]
async fn two_people_over_many_sessions_locomo() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let chat = data.locomo_26();
    assert_eq!(chat.messages.len(), 419);
    let talk = import(&house, &chat, low()).await;
    assert_sound(&talk, &chat.messages).await;
    let checkpoints = talk.checkpoints().await;
    assert!(checkpoints.len() >= 5, "{}", checkpoints.len());
    let generations: Vec<i32> = checkpoints.iter().rev().map(|checkpoint| checkpoint.generation).collect();
    let expected: Vec<i32> = (0..checkpoints.len() as i32).map(|place| place % 5 + 1).collect();
    assert_eq!(generations, expected, "one chain, made from the messages again after five");
    let whole = talk.context().await;
    let stored = talk.conversation().await.token_total.expect("a total").tokens;
    assert!(whole.0.total_tokens * 2 < stored, "{} of {stored} tokens are sent", whole.0.total_tokens);
}

#[tokio::test]
async fn agents_with_tools_tau_bench() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let runs = data.json("tau-bench/airline-tasks-0-24.json");
    let mut checkpointed = 0;
    for run in runs.as_array().expect("a list").iter().take(20) {
        let chat = Data::openai(&run["traj"]);
        let talk = import(&house, &chat, low()).await;
        assert_sound(&talk, &chat.messages).await;
        let built = talk.context().await;
        assert_eq!(built.said()[0].1, chat.system_prompt);
        let lost = |repair: &pb::Repair| repair.kind() == pb::RepairKind::ResultDropped;
        assert!(!built.0.repairs.iter().any(lost), "no checkpoint parts a call from its result");
        checkpointed += usize::from(!talk.checkpoints().await.is_empty());
    }
    assert!(checkpointed > 0, "some run is long enough");
}

#[tokio::test]
async fn chinese_dialogues_crosswoz() {
    let Some(data) = Data::find() else { return };
    chinese(data.crosswoz(20)).await;
}

#[tokio::test]
async fn chinese_dialogues_kdconv() {
    let Some(data) = Data::find() else { return };
    chinese(data.kdconv(20)).await;
}

/// Every dialogue by itself, and all as one long conversation, whose summaries are Chinese too.
async fn chinese(chats: Vec<Chat>) {
    if chats.is_empty() {
        return;
    }
    let house = House::start().await;
    for chat in &chats {
        let talk = import(&house, chat, low()).await;
        assert_sound(&talk, &chat.messages).await;
    }
    let messages = chats.into_iter().flat_map(|chat| chat.messages).collect();
    let all = Chat { messages, ..Default::default() };
    let talk = import(&house, &all, low()).await;
    assert_sound(&talk, &all.messages).await;
    let checkpoints = talk.checkpoints().await;
    assert!(checkpoints.len() >= 4, "{}", checkpoints.len());
    for checkpoint in checkpoints {
        // Lines are labelled with who said them: "[12 user] …".
        let said = checkpoint.summary.lines().map(|line| line.split_once("] ").map_or(line, |(_, said)| said));
        let letters = said.flat_map(str::chars).filter(|c| c.is_alphabetic());
        let (han, other): (Vec<char>, Vec<char>) = letters.partition(|c| ('\u{4e00}'..='\u{9fff}').contains(c));
        assert!(han.len() > 3 * other.len(), "{} Han, {} other letters", han.len(), other.len());
    }
}

/// The one huge message of the agent's run.
fn text_of(message: &pb::NewMessage) -> &str {
    match message.parts.first().and_then(|part| part.part.as_ref()) {
        Some(pb::part::Part::Text(part)) => &part.text,
        other => panic!("a text: {other:?}"),
    }
}

fn requests_1142(data: &Data) -> Chat {
    let run = data.json("mini-swe-agent/psf__requests-1142.traj.json");
    let chat = Data::openai(&run["messages"]);
    assert_eq!(text_of(chat.messages.last().expect("messages")).chars().count(), 868_167);
    chat
}

#[tokio::test]
async fn an_agent_whose_last_message_is_huge_is_checkpointed_and_goes_on() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let mut chat = requests_1142(&data);
    let huge = chat.messages.pop().expect("messages");
    let talk = import(&house, &chat, low()).await;
    let before = talk.checkpoints().await.len();
    assert!(before >= 3, "{before} checkpoints");
    let id = talk.stream(pb::Role::User, text_of(&huge)).await;
    house.run_jobs_until_idle().await;
    chat.messages.push(huge.clone());
    assert_sound(&talk, &chat.messages).await;
    let stored = talk.message(id).await;
    assert!(stored.summary.is_some_and(|summary| summary.tokens < 4_000), "it is summarised though it is hot");
    let hot = talk.context().await;
    assert_eq!(hot.fate(id), (Representation::Original, Reason::Hot));
    assert_eq!(hot.0.messages.last().expect("a message").parts, huge.parts);
    assert!(talk.context_within(8_000).await.expect("fits").0.total_tokens <= 8_000);

    let more =
        vec![assistant("The diff touches the header code only."), user("Then submit it."), assistant("Submitted.")];
    talk.append_all(more.clone()).await;
    house.run_jobs_until_idle().await;
    chat.messages.extend(more);
    assert_sound(&talk, &chat.messages).await;
    let built = talk.context().await;
    assert_eq!(
        built.fate(id).0,
        Representation::Checkpoint,
        "it is far above the threshold: the next checkpoint takes it"
    );
    assert!(built.0.total_tokens < 8_000, "{}", built.0.total_tokens);
}

#[tokio::test]
async fn the_huge_message_is_swapped_in_exactly_the_turn_after_it_cools() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let mut chat = requests_1142(&data);
    let huge = chat.messages.pop().expect("messages");
    // The token trigger is left at its default: at 8,000 a checkpoint would take the message before it cools.
    let talk = import(&house, &chat, pb::Policy { token_threshold: None, ..low() }).await;
    let id = talk.stream(pb::Role::User, text_of(&huge)).await;
    chat.messages.push(huge);
    let turn = talk.message(id).await.turn;
    let mut fates = Vec::new();
    for _ in 0..=7 {
        let more = vec![assistant("I have looked at it."), user("Look again.")];
        chat.messages.extend(more.clone());
        talk.append_all(more).await;
        house.run_jobs_until_idle().await;
        let built = talk.context().await;
        fates.push((built.0.current_turn - turn, built.fate(id)));
    }
    for (age, fate) in fates {
        let wanted =
            if age > 5 { (Representation::Summary, Reason::Cool) } else { (Representation::Original, Reason::Hot) };
        assert_eq!(fate, wanted, "{age} turns old");
    }
    let usage = talk.usage().await;
    assert_eq!(usage.swapped_messages, 1);
    assert!(usage.saved_tokens > 100_000 && talk.context().await.0.total_tokens < 20_000, "{usage:?}");
    assert_sound(&talk, &chat.messages).await;
}
