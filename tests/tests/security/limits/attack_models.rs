//! Turns of one tenant that fail, hang or are cancelled, while another tenant's turns use the same
//! model.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anneal_testkit::{
    AuthorizedChannel, MODEL, ModelRequest, Say, Script, ScriptedModel, TurnOutcome,
    gate_or_nightly, pb, status_details, user,
};
use pb::{
    chat_service_client::ChatServiceClient, conversation_service_client::ConversationServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;

use crate::limits::attacked_server::AttackedServer;

/// Duration of each attack.
const ATTACK_DURATION: Duration = Duration::from_secs(4);
/// Limit on the 99th percentile of the neighbor's turns.
const MAX_P99: Duration = Duration::from_secs(1);
/// Interval between the neighbor's turns.
const PACE: Duration = Duration::from_millis(100);
/// Text of the attacker's messages, by which the scripted provider recognizes them.
const EVE: &str = "This is Eve.";

/// Starts a model with eight concurrent calls, of which a tenant gets half. It answers the attacker
/// with this script and others with "Yes.". Returns the model, and the text of a settings file for
/// it.
async fn model_answering_eve(
    eve: impl Fn() -> Script + Send + Sync + 'static,
) -> (ScriptedModel, String) {
    let respond = move |asked: &ModelRequest| {
        if asked.raw.contains(EVE) {
            eve()
        } else {
            Script::says(asked, [Say::text("Yes.")])
        }
    };
    let model = ScriptedModel::start(respond).await;
    let file = format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.{MODEL}]\nprovider = \"scripted\"\nwindow_tokens = 8192\nconcurrent_calls = 8\n[chat]\nmodel = \"{MODEL}\"\n",
        model.url()
    );
    (model, file)
}

/// Waits for a request of the attacker after the first `calls` requests.
async fn wait_for_eve(model: &ScriptedModel, calls: usize) {
    let mut arrived = calls;
    while !model
        .requests()
        .iter()
        .skip(calls)
        .any(|asked| asked.raw.contains(EVE))
    {
        arrived += 1;
        model.wait_for_calls(arrived).await;
    }
}

/// Runs one turn of a new conversation to its end.
async fn run_turn(channel: &AuthorizedChannel, text: &str) -> Result<TurnOutcome, Status> {
    let create = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(create)
        .await?
        .into_inner();
    let messages = vec![user(text)];
    let ask = pb::ChatRequest {
        conversation_id: made.conversation_id,
        messages,
        ..Default::default()
    };
    let outcome = TurnOutcome::read(
        ChatServiceClient::new(channel.clone())
            .chat(ask)
            .await?
            .into_inner(),
    )
    .await;
    outcome.end.clone().map(|_| outcome)
}

/// Outcomes of the neighbor's turns.
#[derive(Debug, Default)]
struct Turns {
    /// Latencies of the answered turns.
    answered: Vec<Duration>,
    /// Reasons of the refusals.
    refused: Vec<String>,
}

impl Turns {
    /// Runs turns until the future is dropped.
    async fn run(turns: &RefCell<Self>, channel: &AuthorizedChannel) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let begun = Instant::now();
            let outcome = run_turn(channel, "Anybody?").await;
            let mut turns = turns.borrow_mut();
            match outcome {
                Ok(_) => turns.answered.push(begun.elapsed()),
                Err(status) => turns.refused.push(status_details(&status).reason),
            }
        }
    }

    /// Asserts that every turn was answered and that the 99th percentile is within [`MAX_P99`].
    fn assert_answered(mut self, what: &str) {
        self.answered.sort_unstable();
        let p99 = self
            .answered
            .get((self.answered.len() * 99).div_ceil(100).saturating_sub(1))
            .copied();
        let (answered, refused) = (self.answered.len(), self.refused.len());
        println!(
            "{what}: {answered} turns of the neighbor answered, p99 {p99:?}, {refused} refused: {:?}",
            self.refused.first()
        );
        assert_eq!(refused, 0, "{what}: {:?}", self.refused);
        assert!(
            answered >= 10 && p99.is_some_and(|p99| p99 <= MAX_P99),
            "{what}: {answered} answered, p99 {p99:?}"
        );
    }
}

/// Runs four concurrent turns of the attacker over and over. Meanwhile the neighbor's turns must
/// be answered.
async fn run_turn_attack(what: &str, server: &AttackedServer) {
    let (eve, anna) = (server.channel(&server.eve), server.channel(&server.anna));
    let turns = RefCell::default();
    let failing = async || {
        loop {
            // The outcome of the attacker's turn does not matter here.
            let _ = run_turn(&eve, EVE).await;
        }
    };
    let attack = async {
        tokio::select! {
            _ = futures::future::join_all((0..4).map(|_| failing())) => {}
            () = Turns::run(&turns, &anna) => {}
        }
    };
    server
        .run_attack(what, ATTACK_DURATION, Box::pin(attack))
        .await;
    turns.into_inner().assert_answered(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_turns_open_the_attackers_circuit_breaker_only() {
    // An outage and a refusal; at night also a rate limit and an unknown model.
    for &status in gate_or_nightly(&[500, 403][..], &[500, 429, 403, 404]) {
        let (model, file) = model_answering_eve(move || Script::status(status, &[], "{}")).await;
        let server = AttackedServer::start_with_file(&[], &file).await;
        run_turn_attack(
            &format!("turns that the provider answers with {status}"),
            &server,
        )
        .await;
        let attacker_calls = model
            .requests()
            .iter()
            .filter(|asked| asked.raw.contains(EVE))
            .count();
        assert!(
            (20..=30).contains(&attacker_calls),
            "{attacker_calls} calls of the attacker with status {status}: the attacker's own breaker must open after about 20"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_turns_leave_half_of_the_models_calls_to_others() {
    let (model, file) = model_answering_eve(Script::hang).await;
    let server = AttackedServer::start_with_file(&[], &file).await;
    let (eve, anna) = (server.channel(&server.eve), server.channel(&server.anna));
    let turns = RefCell::default();
    let attack = async {
        let slow = futures::future::join_all((0..16).map(|_| run_turn(&eve, EVE)));
        let neighbor = async {
            // The attacker's turns start first.
            model.wait_for_calls(1).await;
            Turns::run(&turns, &anna).await;
        };
        tokio::join!(slow, neighbor);
    };
    server
        .run_attack(
            "sixteen turns that never end",
            ATTACK_DURATION,
            Box::pin(attack),
        )
        .await;
    turns
        .into_inner()
        .assert_answered("sixteen turns that never end");
    let attacker_calls = model
        .requests()
        .iter()
        .filter(|asked| asked.raw.contains(EVE))
        .count();
    assert_eq!(attacker_calls, 4, "half of the model's concurrent calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_turns_are_charged_to_the_tenants_budget() {
    let (model, file) = model_answering_eve(Script::hang).await;
    let file = format!("{file}[budget]\ntokens_per_day = 20000\n");
    let server = AttackedServer::start_with_file(&[], &file).await;
    let (eve, anna) = (server.channel(&server.eve), server.channel(&server.anna));
    let (turns, refused) = (RefCell::default(), RefCell::<Vec<String>>::default());
    let text = format!("{EVE} {}", anneal_testkit::prose(1, 120));
    let attack = async {
        let cancelling = async {
            loop {
                let calls = model.requests().len();
                tokio::select! {
                    outcome = run_turn(&eve, &text) => {
                        let status = outcome.expect_err("the model never answers");
                        refused.borrow_mut().push(status_details(&status).reason);
                    }
                    () = wait_for_eve(&model, calls) => {}
                }
            }
        };
        tokio::select! {
            () = cancelling => {}
            () = Turns::run(&turns, &anna) => {}
        }
    };
    server
        .run_attack(
            "turns that are cancelled before their first event",
            ATTACK_DURATION,
            Box::pin(attack),
        )
        .await;
    let attacker_calls = model
        .requests()
        .iter()
        .filter(|asked| asked.raw.contains(EVE))
        .count();
    let refused = refused.into_inner();
    println!(
        "{attacker_calls} calls of the attacker, then {:?}",
        refused.first()
    );
    turns
        .into_inner()
        .assert_answered("turns that are cancelled before their first event");
    assert!(
        refused.iter().any(|reason| reason == "TENANT_BUDGET_SPENT"),
        "{attacker_calls} calls: {refused:?}"
    );
    assert!(
        attacker_calls <= 20,
        "{attacker_calls} calls of about 2,000 tokens: more than twice what 20,000 tokens pay for"
    );
}
