//! A budget is kept, whatever it is, and what gives way is said.

use anneal_tests::{Built, House, Talk, assistant, call, pb, prose, refusal, result, sentence, user};
use pb::{Representation, Role, Segment, part::Part};
use tonic::Code;

const PROMPT: &str = "Answer in one sentence.";
const NEWEST: &str = "The newest question: which team filed report 48?";

/// A JSON result of some thousand bytes.
fn json(n: usize) -> String {
    let rows: Vec<String> =
        (0..40).map(|row| format!("{{\"day\": {row}, \"said\": \"{}\"}}", sentence(n + row))).collect();
    format!("{{\"rows\": [{}]}}", rows.join(", "))
}

/// Eight turns with tool results (prose and JSON), a checkpoint before them, and a question at the end.
async fn talk_with_tools(house: &House) -> Talk<'_> {
    let policy = pb::Policy { max_message_count: Some(60), keep_recent_turns: Some(1), ..Default::default() };
    let ask =
        pb::CreateConversationRequest { system_prompt: PROMPT.into(), policy: Some(policy), ..Default::default() };
    let talk = house.conversation_with(ask).await;
    for n in 0..30 {
        talk.turn(&sentence(2 * n), &sentence(2 * n + 1)).await;
    }
    house.run_jobs_until_idle().await;
    for n in 0..8 {
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        let said = vec![
            user(&sentence(n)),
            call(&a, "{}"),
            result(&a, &json(n)),
            call(&b, "{}"),
            result(&b, &prose(n, 60)),
            assistant("Found."),
        ];
        talk.append_all(said).await;
    }
    talk.append(NEWEST).await;
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1);
    talk
}

fn results(built: &Built) -> impl Iterator<Item = &str> {
    built.0.messages.iter().flat_map(|sent| &sent.parts).filter_map(|part| match part.part.as_ref()? {
        Part::ToolResult(result) => Some(result.text.as_str()),
        _ => None,
    })
}

#[tokio::test]
async fn every_budget_is_kept_and_the_newest_user_message_and_the_system_prompt_stay() {
    let house = House::start().await;
    let talk = talk_with_tools(&house).await;
    let last = talk.conversation().await.message_count;
    let whole = talk.context().await;
    let mut budget = whole.0.total_tokens + 1;
    let (mut refused_below, mut steps) = (0, Vec::new());
    while budget > 1 {
        match talk.context_within(budget).await {
            Ok(built) => {
                assert_eq!(refused_below, 0, "a smaller budget of {budget} fits and {refused_below} did not");
                check(&built, budget, last);
                steps.extend(built.0.manifest.iter().map(pb::ManifestEntry::representation));
                if budget >= whole.0.total_tokens {
                    assert_eq!(built, whole, "what fits is not touched");
                }
            }
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                refused_below = refused_below.max(budget);
            }
        }
        budget = if budget == whole.0.total_tokens + 1 { budget - 1 } else { budget * 92 / 100 };
    }
    assert!(refused_below < 250, "a budget of {refused_below} is enough for prompt, question and a short summary");
    for step in [Representation::Original, Representation::Clipped, Representation::Dropped] {
        assert!(steps.contains(&step), "{step:?} was needed at some budget");
    }
}

fn check(built: &Built, budget: u64, last: i64) {
    assert!(built.0.total_tokens <= budget, "{} tokens for a budget of {budget}", built.0.total_tokens);
    assert_eq!(built.0.total_tokens, built.0.messages.iter().map(|sent| sent.tokens).sum::<u64>());
    built.assert_covers(last);
    built.assert_tools_paired();
    let said = built.said();
    assert_eq!(said[0], (Role::System, PROMPT.into()), "at {budget}");
    assert!(said.iter().any(|(role, text)| *role == Role::User && text.contains(NEWEST)), "at {budget}");
    assert_eq!(built.tokens_of(Segment::CheckpointSummary) > 0, said[1].1.starts_with("[Summary of the conversation"));
    for text in results(built).filter(|text| text.starts_with('{')) {
        serde_json::from_str::<serde_json::Value>(text).expect("whole JSON or none");
    }
    for entry in built.0.manifest.iter().filter(|entry| entry.representation() == Representation::Clipped) {
        assert!(!entry.clipped.is_empty() && entry.tokens < entry.original_tokens, "{entry:?}");
    }
}

#[tokio::test]
async fn what_a_clip_left_out_can_be_fetched() {
    let house = House::start().await;
    let talk = talk_with_tools(&house).await;
    let whole = talk.context().await;
    let built = talk.context_within(whole.0.total_tokens - 3_000).await.expect("fits");
    let clipped: Vec<_> =
        built.0.manifest.iter().filter(|entry| entry.representation() == Representation::Clipped).collect();
    assert!(!clipped.is_empty());
    for entry in clipped {
        let id = entry.first_message_id;
        let original = whole.said()[place(&whole, id)].1.clone();
        let shown = built.said()[place(&built, id)].1.clone();
        let range = entry.clipped[0];
        let (left_out, got) = talk.range(id, range.offset, range.length).await;
        assert_eq!((got.offset, got.length), (range.offset, range.length), "cut at whole characters");
        let mark = format!(
            "[{0} bytes left out: bytes {1} to {2} of message {id}]",
            range.length,
            range.offset,
            range.offset + range.length
        );
        assert!(shown.contains(&mark), "{shown}");
        if shown.starts_with('{') {
            serde_json::from_str::<serde_json::Value>(&shown).expect("JSON still, the mark among its values");
        } else {
            let kept: Vec<&str> = shown.split(&mark).map(str::trim).collect();
            assert!(original.starts_with(kept[0]) && original.ends_with(kept[1]));
        }
        assert!(original.contains(&left_out) && original.len() >= left_out.len());
    }
}

fn place(built: &Built, id: i64) -> usize {
    built.0.messages.iter().position(|sent| sent.message_ids.contains(&id)).expect("is sent")
}

#[tokio::test]
async fn a_newest_message_above_the_budget_is_clipped_in_the_middle() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("Hello", "Hello!").await;
    let long = format!("START {} END", prose(0, 400));
    talk.append(&long).await;
    house.run_jobs_until_idle().await;
    for budget in [120, 500, 2_000] {
        let built = talk.context_within(budget).await.expect("fits");
        assert!(built.0.total_tokens <= budget);
        assert_eq!(built.fate(3).0, Representation::Clipped);
        let (role, text) = built.said().pop().expect("a message");
        assert_eq!(role, Role::User);
        assert!(text.starts_with("START ") && text.ends_with(" END"), "{text}");
        let input = talk.build(pb::BuildContextRequest {
            current_input: vec![user(&long)],
            budget_tokens: Some(budget),
            ..Default::default()
        });
        let built = input.await.expect("fits");
        assert!(built.0.total_tokens <= budget && built.text().ends_with(" END"));
        built.assert_covers(3);
    }
}

#[tokio::test]
async fn a_budget_below_the_system_prompt_is_refused_with_the_sizes() {
    let house = House::start().await;
    let prompt = prose(0, 40);
    let ask = pb::CreateConversationRequest { system_prompt: prompt, ..Default::default() };
    let talk = house.conversation_with(ask).await;
    talk.append("Hello").await;
    house.run_jobs_until_idle().await;
    let system = talk.context().await.tokens_of(Segment::SystemPrompt);
    let status = talk.context_within(system - 1).await.expect_err("too small");
    let refused = refusal(&status);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "BUDGET_TOO_SMALL"));
    assert!(status.message().contains(&system.to_string()), "{}", status.message());
    assert!(status.message().contains(&(system - 1).to_string()), "{}", status.message());
    let zero = refusal(&talk.context_within(0).await.expect_err("no budget"));
    assert_eq!((zero.code, zero.field.as_str()), (Code::InvalidArgument, "budget_tokens"));
}

/// One turn of 62 messages, its last call still waiting.
async fn long_turn(house: &House, max_message_count: u32) -> Talk<'_> {
    let policy = pb::Policy { max_message_count: Some(max_message_count), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    let exchanges = (0..30).flat_map(|n| {
        let id = format!("c{n}");
        [call(&id, "{\"page\": 1}"), result(&id, &if n % 2 == 0 { json(n) } else { prose(n, 30) })]
    });
    talk.append_all(std::iter::once(user(NEWEST)).chain(exchanges).collect()).await;
    talk.append_all(vec![call("open-1", "{}")]).await;
    house.run_jobs_until_idle().await;
    talk
}

#[tokio::test]
async fn a_turn_longer_than_the_budget_keeps_its_question_and_whole_exchanges() {
    let house = House::start().await;
    let talk = long_turn(&house, 0).await;
    let whole = talk.context().await.0.total_tokens;
    for divisor in 1..=40 {
        let budget = (whole / divisor).max(100);
        let built = talk.context_within(budget).await.expect("fits");
        assert!(built.0.total_tokens <= budget, "{} tokens for {budget}", built.0.total_tokens);
        assert!(built.said().iter().any(|(role, text)| *role == Role::User && text == NEWEST), "at {budget}");
        built.assert_tools_paired();
        built.assert_covers(62);
    }
}

#[tokio::test]
async fn a_question_that_only_the_checkpoint_quotes_survives_every_budget() {
    let house = House::start().await;
    let talk = long_turn(&house, 50).await;
    assert!(talk.checkpoints().await[0].summary.contains(NEWEST), "the checkpoint splits the turn");
    let whole = talk.context().await.0.total_tokens;
    for divisor in 1..=60 {
        let budget = (whole / divisor).max(200);
        let built = talk.context_within(budget).await.expect("fits");
        assert!(built.0.total_tokens <= budget, "{} tokens for {budget}", built.0.total_tokens);
        assert!(built.text().contains(NEWEST), "at {budget} of {whole}: {:#?}", built.said());
        built.assert_tools_paired();
        built.assert_covers(62);
    }
}
