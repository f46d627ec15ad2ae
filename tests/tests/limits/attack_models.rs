//! A tenant whose turns fail, hang or are given up, and a neighbour whose turns go to the same model meanwhile.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anneal_tests::{Asked, Guest, MODEL, Say, Script, ScriptedModel, ToldTurn, pb, refusal, user};
use pb::{chat_service_client::ChatServiceClient, conversation_service_client::ConversationServiceClient};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;

use crate::besieged::Besieged;

/// How long each attack lasts.
const LASTS: Duration = Duration::from_secs(4);
/// The slowest turn of a hundred.
const P99: Duration = Duration::from_secs(1);
/// From one turn of the neighbour to the next.
const PACE: Duration = Duration::from_millis(100);
/// What the attacker says: the provider knows it by that.
const EVE: &str = "This is Eve.";

/// A model with eight calls in all, whose provider answers the attacker so and everybody else well.
async fn model_answering_eve(eve: impl Fn() -> Script + Send + Sync + 'static) -> (ScriptedModel, String) {
    let respond =
        move |asked: &Asked| if asked.raw.contains(EVE) { eve() } else { Script::says(asked, [Say::text("Yes.")]) };
    let model = ScriptedModel::start(respond).await;
    let file = format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.{MODEL}]\nprovider = \"scripted\"\nwindow_tokens = 8192\nconcurrent_calls = 8\n[chat]\nmodel = \"{MODEL}\"\n",
        model.url()
    );
    (model, file)
}

/// Returns once the attacker's request has come after so many others.
async fn eve_has_asked(model: &ScriptedModel, calls: usize) {
    let mut arrived = calls;
    while !model.asked().iter().skip(calls).any(|asked| asked.raw.contains(EVE)) {
        arrived += 1;
        model.arrived(arrived).await;
    }
}

/// One turn of a new conversation, told to its end.
async fn turn(guest: &Guest, said: &str) -> Result<ToldTurn, Status> {
    let create = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(guest.clone()).create_conversation(create).await?.into_inner();
    let messages = vec![user(said)];
    let ask = pb::ChatRequest { conversation_id: made.conversation_id, messages, ..Default::default() };
    let told = ToldTurn::of(ChatServiceClient::new(guest.clone()).chat(ask).await?.into_inner()).await;
    told.end.clone().map(|_| told)
}

/// What became of the neighbour's turns.
#[derive(Debug, Default)]
struct Turns {
    answered: Vec<Duration>,
    refused: Vec<String>,
}

impl Turns {
    /// Takes turns until dropped.
    async fn take(turns: &RefCell<Self>, guest: &Guest) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let begun = Instant::now();
            let told = turn(guest, "Anybody?").await;
            let mut turns = turns.borrow_mut();
            match told {
                Ok(_) => turns.answered.push(begun.elapsed()),
                Err(status) => turns.refused.push(refusal(&status).reason),
            }
        }
    }

    /// Asserts that all of them were answered in time.
    fn assert_answered(mut self, what: &str) {
        self.answered.sort_unstable();
        let p99 = self.answered.get((self.answered.len() * 99).div_ceil(100).saturating_sub(1)).copied();
        let (answered, refused) = (self.answered.len(), self.refused.len());
        println!(
            "{what}: {answered} turns of the neighbour answered, p99 {p99:?}, {refused} refused: {:?}",
            self.refused.first()
        );
        assert_eq!(refused, 0, "{what}: {:?}", self.refused);
        assert!(answered >= 10 && p99.is_some_and(|p99| p99 <= P99), "{what}: {answered} answered, p99 {p99:?}");
    }
}

/// Lets the attacker take turns, four at a time, while the neighbour takes its own and must be answered.
async fn endures_turns(what: &str, besieged: &Besieged) {
    let (eve, anna) = (besieged.guest(&besieged.eve), besieged.guest(&besieged.anna));
    let turns = RefCell::default();
    let failing = async || {
        loop {
            // Refused or failed: whatever comes of it.
            let _ = turn(&eve, EVE).await;
        }
    };
    let attack = async {
        tokio::select! {
            _ = futures::future::join_all((0..4).map(|_| failing())) => {}
            () = Turns::take(&turns, &anna) => {}
        }
    };
    besieged.endures(what, LASTS, Box::pin(attack)).await;
    turns.into_inner().assert_answered(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_of_failing_turns_closes_the_model_for_nobody_else() {
    for status in [500, 429, 403, 404] {
        let (model, file) = model_answering_eve(move || Script::status(status, &[], "{}")).await;
        let besieged = Besieged::start_with_file(&[], &file).await;
        endures_turns(&format!("turns that the provider answers with {status}"), &besieged).await;
        let eves = model.asked().iter().filter(|asked| asked.raw.contains(EVE)).count();
        assert!((20..=30).contains(&eves), "{eves} calls of the attacker with status {status}: its own breaker opens");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_of_slow_turns_leaves_calls_of_the_model_to_others() {
    let (model, file) = model_answering_eve(Script::hang).await;
    let besieged = Besieged::start_with_file(&[], &file).await;
    let (eve, anna) = (besieged.guest(&besieged.eve), besieged.guest(&besieged.anna));
    let turns = RefCell::default();
    let attack = async {
        let slow = futures::future::join_all((0..16).map(|_| turn(&eve, EVE)));
        let neighbour = async {
            // The attacker is first.
            model.arrived(1).await;
            Turns::take(&turns, &anna).await;
        };
        tokio::join!(slow, neighbour);
    };
    besieged.endures("sixteen turns that never end", LASTS, Box::pin(attack)).await;
    turns.into_inner().assert_answered("sixteen turns that never end");
    let eves = model.asked().iter().filter(|asked| asked.raw.contains(EVE)).count();
    assert_eq!(eves, 4, "half of the model's calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_of_turns_that_are_given_up_ends_with_the_tenants_budget() {
    let (model, file) = model_answering_eve(Script::hang).await;
    let file = format!("{file}[budget]\ntokens_per_day = 20000\n");
    let besieged = Besieged::start_with_file(&[], &file).await;
    let (eve, anna) = (besieged.guest(&besieged.eve), besieged.guest(&besieged.anna));
    let (turns, refused) = (RefCell::default(), RefCell::<Vec<String>>::default());
    let said = format!("{EVE} {}", anneal_tests::prose(1, 120));
    let attack = async {
        let giving_up = async {
            loop {
                let calls = model.asked().len();
                tokio::select! {
                    told = turn(&eve, &said) => {
                        let status = told.expect_err("it never ends well");
                        refused.borrow_mut().push(refusal(&status).reason);
                    }
                    () = eve_has_asked(&model, calls) => {}
                }
            }
        };
        tokio::select! {
            () = giving_up => {}
            () = Turns::take(&turns, &anna) => {}
        }
    };
    besieged.endures("turns that are given up before their first piece", LASTS, Box::pin(attack)).await;
    let eves = model.asked().iter().filter(|asked| asked.raw.contains(EVE)).count();
    let refused = refused.into_inner();
    println!("{eves} calls of the attacker, then {:?}", refused.first());
    turns.into_inner().assert_answered("turns that are given up before their first piece");
    assert!(refused.iter().any(|reason| reason == "TENANT_BUDGET_SPENT"), "{eves} calls: {refused:?}");
    assert!(eves <= 20, "{eves} calls of about 2,000 tokens out of 20,000");
}
