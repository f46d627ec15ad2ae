//! Real conversations with low thresholds: messages are stored unchanged, checkpoints and summaries
//! are valid, and contexts are complete and within their budgets. The tests are skipped if the
//! transcripts are missing.

use anneal_testkit::{Chat, TestApp, TestConversation, TranscriptFolder, assistant, pb, user};
use pb::{Reason, Representation};

/// Thresholds that real conversations exceed.
fn low_thresholds() -> pb::Policy {
    pb::Policy {
        token_threshold: Some(8_000),
        max_message_count: Some(50),
        large_message_threshold: Some(4_000),
        hot_zone_radius: Some(5),
        ..Default::default()
    }
}

/// Appends a conversation in batches of ten messages and runs the jobs after each batch.
async fn append_in_batches<'a>(
    app: &'a TestApp,
    chat: &Chat,
    policy: pb::Policy,
) -> TestConversation<'a> {
    let ask = pb::CreateConversationRequest {
        system_prompt: chat.system_prompt.clone(),
        policy: Some(policy),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for batch in chat.messages.chunks(10) {
        conversation.append_all(batch.to_vec()).await;
        app.run_jobs_until_idle().await;
    }
    conversation
}

/// Asserts what must hold for every conversation when its jobs are done.
async fn assert_complete_and_within_budgets(
    conversation: &TestConversation<'_>,
    appended: &[pb::NewMessage],
) {
    let stored = conversation.messages().await;
    assert_eq!(stored.len(), appended.len());
    for (stored, appended) in stored.iter().zip(appended) {
        assert_eq!(
            (stored.role, &stored.parts),
            (appended.role, &appended.parts),
            "message {}",
            stored.message_id
        );
        assert!(!stored.tokens.expect("counted").estimated);
    }
    assert!(conversation.jobs().await.is_empty());
    conversation.verify().await;
    let whole = conversation.context().await;
    whole.assert_covers(appended.len() as i64);
    whole.assert_tools_paired();
    for divisor in [1, 2, 4, 8] {
        // 2,500 tokens are enough for the longest system prompt and question.
        let budget = (whole.0.total_tokens / divisor).max(2_500);
        let built = conversation.context_within(budget).await.expect("fits");
        assert!(
            built.0.total_tokens <= budget,
            "{} tokens for {budget}",
            built.0.total_tokens
        );
        built.assert_covers(appended.len() as i64);
        built.assert_tools_paired();
    }
}

#[tokio::test]
async fn a_long_dialogue_of_locomo_is_checkpointed_and_complete() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let app = TestApp::start().await;
    let chat = folder.locomo_26();
    assert_eq!(chat.messages.len(), 419);
    let conversation = append_in_batches(&app, &chat, low_thresholds()).await;
    assert_complete_and_within_budgets(&conversation, &chat.messages).await;
    let checkpoints = conversation.checkpoints().await;
    assert!(checkpoints.len() >= 5, "{}", checkpoints.len());
    let generations: Vec<i32> = checkpoints
        .iter()
        .rev()
        .map(|checkpoint| checkpoint.generation)
        .collect();
    let expected: Vec<i32> = (0..checkpoints.len() as i32)
        .map(|index| index % 5 + 1)
        .collect();
    assert_eq!(
        generations, expected,
        "after five generations a summary is written from the messages again"
    );
    let whole = conversation.context().await;
    let stored = conversation
        .conversation()
        .await
        .token_total
        .expect("a total")
        .tokens;
    assert!(
        whole.0.total_tokens * 2 < stored,
        "{} of {stored} tokens are sent",
        whole.0.total_tokens
    );
}

#[tokio::test]
async fn runs_of_tau_bench_with_tools_are_checkpointed_and_complete() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let app = TestApp::start().await;
    let runs = folder.json("tau-bench/airline-tasks-0-24.json");
    let mut checkpointed = 0;
    for run in runs.as_array().expect("a list").iter().take(20) {
        let chat = TranscriptFolder::openai(&run["traj"]);
        let conversation = append_in_batches(&app, &chat, low_thresholds()).await;
        assert_complete_and_within_budgets(&conversation, &chat.messages).await;
        let built = conversation.context().await;
        assert_eq!(built.texts_by_role()[0].1, chat.system_prompt);
        let is_dropped = |repair: &pb::Repair| repair.kind() == pb::RepairKind::ResultDropped;
        assert!(
            !built.0.repairs.iter().any(is_dropped),
            "no checkpoint ends between a call and its result"
        );
        checkpointed += usize::from(!conversation.checkpoints().await.is_empty());
    }
    assert!(checkpointed > 0, "at least one run is long enough");
}

#[tokio::test]
async fn chinese_dialogues_of_crosswoz_are_complete_and_have_chinese_summaries() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    check_chinese_dialogues(folder.crosswoz(20)).await;
}

#[tokio::test]
async fn chinese_dialogues_of_kdconv_are_complete_and_have_chinese_summaries() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    check_chinese_dialogues(folder.kdconv(20)).await;
}

/// Checks each dialogue by itself and all of them as one long conversation, whose summaries must be
/// Chinese.
async fn check_chinese_dialogues(chats: Vec<Chat>) {
    if chats.is_empty() {
        return;
    }
    let app = TestApp::start().await;
    for chat in &chats {
        let conversation = append_in_batches(&app, chat, low_thresholds()).await;
        assert_complete_and_within_budgets(&conversation, &chat.messages).await;
    }
    let messages = chats.into_iter().flat_map(|chat| chat.messages).collect();
    let all = Chat {
        messages,
        ..Default::default()
    };
    let conversation = append_in_batches(&app, &all, low_thresholds()).await;
    assert_complete_and_within_budgets(&conversation, &all.messages).await;
    let checkpoints = conversation.checkpoints().await;
    assert!(checkpoints.len() >= 4, "{}", checkpoints.len());
    for checkpoint in checkpoints {
        // Each line starts with its message id and role: "[12 user] …".
        let texts = checkpoint
            .summary
            .lines()
            .map(|line| line.split_once("] ").map_or(line, |(_, text)| text));
        let letters = texts.flat_map(str::chars).filter(|c| c.is_alphabetic());
        let (han, other): (Vec<char>, Vec<char>) =
            letters.partition(|c| ('\u{4e00}'..='\u{9fff}').contains(c));
        assert!(
            han.len() > 3 * other.len(),
            "{} Han, {} other letters",
            han.len(),
            other.len()
        );
    }
}

/// The text of a message that is one text part.
fn text_of(message: &pb::NewMessage) -> &str {
    match message.parts.first().and_then(|part| part.part.as_ref()) {
        Some(pb::part::Part::Text(part)) => &part.text,
        other => panic!("a text: {other:?}"),
    }
}

/// The agent run `psf__requests-1142`. Its last message has 868,167 characters.
fn read_requests_1142(folder: &TranscriptFolder) -> Chat {
    let run = folder.json("mini-swe-agent/psf__requests-1142.traj.json");
    let chat = TranscriptFolder::openai(&run["messages"]);
    assert_eq!(
        text_of(chat.messages.last().expect("messages"))
            .chars()
            .count(),
        868_167
    );
    chat
}

#[tokio::test]
async fn a_conversation_whose_last_message_is_huge_is_checkpointed_and_continues() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let app = TestApp::start().await;
    let mut chat = read_requests_1142(&folder);
    let huge = chat.messages.pop().expect("messages");
    let conversation = append_in_batches(&app, &chat, low_thresholds()).await;
    let before = conversation.checkpoints().await.len();
    assert!(before >= 3, "{before} checkpoints");
    let id = conversation.stream(pb::Role::User, text_of(&huge)).await;
    app.run_jobs_until_idle().await;
    chat.messages.push(huge.clone());
    assert_complete_and_within_budgets(&conversation, &chat.messages).await;
    let stored = conversation.message(id).await;
    assert!(
        stored.summary.is_some_and(|summary| summary.tokens < 4_000),
        "a large message is summarized while it is hot"
    );
    let hot = conversation.context().await;
    assert_eq!(
        hot.representation(id),
        (Representation::Original, Reason::Hot)
    );
    assert_eq!(hot.0.messages.last().expect("a message").parts, huge.parts);
    assert!(
        conversation
            .context_within(8_000)
            .await
            .expect("fits")
            .0
            .total_tokens
            <= 8_000
    );

    let more = vec![
        assistant("The diff touches the header code only."),
        user("Then submit it."),
        assistant("Submitted."),
    ];
    conversation.append_all(more.clone()).await;
    app.run_jobs_until_idle().await;
    chat.messages.extend(more);
    assert_complete_and_within_budgets(&conversation, &chat.messages).await;
    let built = conversation.context().await;
    assert_eq!(
        built.representation(id).0,
        Representation::Checkpoint,
        "the message is far above the threshold, so the next checkpoint covers it"
    );
    assert!(built.0.total_tokens < 8_000, "{}", built.0.total_tokens);
}

#[tokio::test]
async fn the_huge_message_is_swapped_from_the_first_turn_in_which_it_is_cool() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let app = TestApp::start().await;
    let mut chat = read_requests_1142(&folder);
    let huge = chat.messages.pop().expect("messages");
    // This uses the default token threshold. At 8,000 tokens a checkpoint would cover the message
    // before it is cool.
    let conversation = append_in_batches(
        &app,
        &chat,
        pb::Policy {
            token_threshold: None,
            ..low_thresholds()
        },
    )
    .await;
    let id = conversation.stream(pb::Role::User, text_of(&huge)).await;
    chat.messages.push(huge);
    let turn = conversation.message(id).await.turn;
    let mut representations = Vec::new();
    for _ in 0..=7 {
        let more = vec![assistant("I have looked at it."), user("Look again.")];
        chat.messages.extend(more.clone());
        conversation.append_all(more).await;
        app.run_jobs_until_idle().await;
        let built = conversation.context().await;
        representations.push((built.0.current_turn - turn, built.representation(id)));
    }
    for (age, representation) in representations {
        let expected = if age > 5 {
            (Representation::Summary, Reason::Cool)
        } else {
            (Representation::Original, Reason::Hot)
        };
        assert_eq!(representation, expected, "{age} turns old");
    }
    let usage = conversation.usage().await;
    assert_eq!(usage.swapped_messages, 1);
    assert!(
        usage.saved_tokens > 100_000 && conversation.context().await.0.total_tokens < 20_000,
        "{usage:?}"
    );
    assert_complete_and_within_budgets(&conversation, &chat.messages).await;
}
