//! Every real conversation, under every profile, at five budgets, in every format: no provider refuses any context, none is
//! empty, none is over its budget, and each says what it must.

use std::collections::BTreeMap;

use anneal_tests::{Built, Chat, Data, House, Imported, Recount, Rendered, pb, refusal, user};
use futures::StreamExt as _;
use pb::{Format, part::Part};

use crate::FORMATS;

const BUDGETS: [Option<u64>; 5] = [None, Some(128_000), Some(16_000), Some(4_000), Some(2_048)];
const PROFILES: [&str; 6] = ["default", "agents", "zeroclaw", "claw0", "ai-panel", "openclaw"];

/// What is asked in addition to what is stored.
const ASKED: &str = "And what would you do next?";
/// Tokens around a text: the framing of a message, the mark of a clip, a checkpoint's mark.
const LEAST_BESIDE_PROMPT: u64 = 4 + 64;
/// Conversations looked at at the same time.
const AT_ONCE: usize = 4;
/// Faults told of before the rest is only counted.
const MOST_TOLD: usize = 12;

/// What was looked at, and what was wrong.
#[derive(Default)]
struct Tally {
    checked: BTreeMap<&'static str, usize>,
    too_small: usize,
    clipped: usize,
    summarised: usize,
    checkpointed: usize,
    faults: Vec<String>,
    recount: Recount,
}

impl Tally {
    fn tell(&self, family: &str) {
        let all: usize = self.checked.values().sum();
        println!(
            "{family}: {all} contexts ({:?}), of them {} after a checkpoint, {} with summaries, {} with clips; \
             {} refused because the system prompt alone is too large; {} faults",
            self.checked,
            self.checkpointed,
            self.summarised,
            self.clipped,
            self.too_small,
            self.faults.len()
        );
        let told = self.faults.iter().take(MOST_TOLD).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.faults.is_empty(), "{} faults in {family}:\n{told}", self.faults.len());
        assert!(all > 0, "nothing was checked");
    }
}

/// One context to build.
#[derive(Clone)]
struct Wanted {
    profile: &'static str,
    /// Whether the profile is only looked through, over the conversation's own.
    looks: bool,
    format: Format,
    budget: Option<u64>,
    input: Option<&'static str>,
    /// Whether it is built a second time, for comparison.
    twice: bool,
}

impl Wanted {
    fn ask(&self) -> pb::BuildContextRequest {
        let policy = self.looks.then(|| under(self.profile));
        pb::BuildContextRequest {
            current_input: self.input.map(user).into_iter().collect(),
            budget_tokens: self.budget,
            format: self.format.into(),
            dry_run: self.looks,
            policy,
            ..Default::default()
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { profile, format, budget, input, .. } = self;
        write!(f, "under {profile}, as {}, within {budget:?}", format.as_str_name())?;
        if input.is_some() { f.write_str(", with input") } else { Ok(()) }
    }
}

fn under(profile: &str) -> pb::Policy {
    pb::Policy { profile: profile.into(), ..Default::default() }
}

/// Every context of a conversation that is to be built under a profile: each budget in each format, one format of each
/// budget twice.
fn all_wanted(profile: &'static str, with_input: bool) -> Vec<Wanted> {
    let inputs: &[Option<&'static str>] = if with_input { &[None, Some(ASKED)] } else { &[None] };
    let mut wanted = Vec::new();
    for (b, budget) in BUDGETS.into_iter().enumerate() {
        for (f, format) in FORMATS.into_iter().enumerate() {
            let twice = f == b % FORMATS.len();
            wanted.extend(inputs.iter().map(|&input| Wanted { profile, looks: false, format, budget, input, twice }));
        }
    }
    wanted
}

/// Which of many small conversations see everything: every 50th, or what `ANNEAL_TEST_EVERY` says; 1 takes ten minutes.
fn nth() -> usize {
    std::env::var("ANNEAL_TEST_EVERY").map_or(50, |nth| nth.parse().expect("ANNEAL_TEST_EVERY is a number above 0"))
}

/// The contexts of the nth of many small conversations, through every profile: each profile in each format. Under each
/// profile it sees another budget than its neighbour, so that five neighbours have seen everything; every [`nth`] sees
/// everything itself, and with input.
fn some_wanted(n: usize, nth: usize) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (p, profile) in PROFILES.into_iter().enumerate() {
        if n.is_multiple_of(nth) {
            wanted.extend(all_wanted(profile, true));
            continue;
        }
        for (f, format) in FORMATS.into_iter().enumerate() {
            let budget = BUDGETS[(n + p + f) % BUDGETS.len()];
            let twice = f == (n + p) % FORMATS.len();
            wanted.push(Wanted { profile, looks: true, format, budget, input: None, twice });
        }
    }
    wanted.into_iter().map(|wanted| Wanted { looks: true, ..wanted }).collect()
}

/// Says each conversation anew under every profile. Every `nth` one is also built with input.
async fn under_every_profile(family: &str, chats: &[Chat], nth: usize) {
    let house = House::start().await;
    let mut tally = Tally::default();
    for profile in PROFILES {
        let said = house.import(chats, &under(profile)).await;
        let asks = said.iter().enumerate().map(|(n, talk)| (talk, all_wanted(profile, n % nth == 0)));
        look(asks.collect(), &mut tally).await;
    }
    tally.tell(family);
}

/// Says each conversation once, and looks at it through every profile.
async fn through_every_profile(family: &str, chats: &[Chat]) {
    if chats.is_empty() {
        return;
    }
    let house = House::start().await;
    let mut tally = Tally::default();
    let said = house.import(chats, &under("default")).await;
    let nth = nth();
    look(said.iter().enumerate().map(|(n, talk)| (talk, some_wanted(n, nth))).collect(), &mut tally).await;
    tally.tell(family);
}

async fn look(asks: Vec<(&Imported<'_>, Vec<Wanted>)>, tally: &mut Tally) {
    let building = asks.into_iter().map(async |(said, wanted)| {
        let mut built = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let first = said.talk.build(wanted.ask()).await;
            let again = if wanted.twice { Some(said.talk.build(wanted.ask()).await) } else { None };
            built.push((wanted, first, again));
        }
        (said, built)
    });
    let mut building = futures::stream::iter(building).buffer_unordered(AT_ONCE);
    while let Some((said, built)) = building.next().await {
        for (wanted, first, again) in built {
            check(said, &wanted, first, again, tally);
        }
    }
}

fn check(
    said: &Imported<'_>,
    wanted: &Wanted,
    first: Result<Built, tonic::Status>,
    again: Option<Result<Built, tonic::Status>>,
    tally: &mut Tally,
) {
    let same = again.is_none_or(|again| match (&first, again) {
        (Ok(built), Ok(again)) => built.0.rendered == again.0.rendered && built.0.messages == again.0.messages,
        (Err(first), Err(again)) => first.message() == again.message(),
        _ => false,
    });
    let mut faults = match first {
        Ok(built) => {
            tally.count(&built, wanted.format);
            faults_of(said, wanted, &built, &mut tally.recount)
        }
        Err(status) => tally.refused(said, wanted, &status),
    };
    if !same {
        faults.push("a second context differs".into());
    }
    tally.faults.extend(faults.into_iter().map(|fault| format!("{} {wanted}: {fault}", said.name)));
}

impl Tally {
    fn count(&mut self, built: &Built, format: Format) {
        *self.checked.entry(format.as_str_name().trim_start_matches("FORMAT_")).or_default() += 1;
        let shows = |representation| built.0.manifest.iter().any(|entry| entry.representation() == representation);
        self.checkpointed += usize::from(shows(pb::Representation::Checkpoint));
        self.summarised += usize::from(shows(pb::Representation::Summary));
        self.clipped += usize::from(shows(pb::Representation::Clipped));
    }

    /// A budget may only be refused when the system prompt leaves no room for the least of anything else.
    fn refused(&mut self, said: &Imported<'_>, wanted: &Wanted, status: &tonic::Status) -> Vec<String> {
        let prompt = self.recount.text(&said.system_prompt) + 4;
        let budget = wanted.budget.unwrap_or(u64::MAX);
        if refusal(status).reason == "BUDGET_TOO_SMALL" && prompt + LEAST_BESIDE_PROMPT > budget {
            self.too_small += 1;
            return Vec::new();
        }
        vec![format!("refused, with a system prompt of {prompt} tokens: {}", status.message())]
    }
}

/// Everything that is wrong with a context.
fn faults_of(said: &Imported<'_>, wanted: &Wanted, built: &Built, recount: &mut Recount) -> Vec<String> {
    let rendered = match Rendered::read(built, wanted.format) {
        Ok(rendered) => rendered,
        Err(fault) => return vec![fault],
    };
    let mut faults = rendered.refusals();
    let mut must = |holds: bool, fault: String| {
        if !holds {
            faults.push(fault);
        }
    };
    let total = built.0.total_tokens;
    must(wanted.budget.is_none_or(|budget| total <= budget), format!("{total} tokens are over the budget"));
    let counted = recount.tokens(&rendered);
    must(counted <= total, format!("{counted} tokens where {total} are told of"));
    must(rendered.messages > 0 && !rendered.texts.iter().all(String::is_empty), "it is empty".into());
    must(rendered.format != Format::Unspecified || is_well_formed(built), "a message without a part or a role".into());
    must(!built.0.estimated, "a count is an estimate".into());
    let newest = wanted.input.map_or_else(|| newest_asked(&said.kept), |input| Some(input.to_owned()));
    let beginning: String = newest.unwrap_or_default().trim().chars().take(20).collect();
    must(rendered.says(&beginning), format!("the newest user message is missing: {beginning:?}"));
    must(said.system_prompt.is_empty() || rendered.says(&said.system_prompt), "the system prompt is missing".into());
    built.assert_covers(said.kept.len() as i64);
    built.assert_tools_paired();
    faults
}

fn is_well_formed(built: &Built) -> bool {
    let messages = &built.0.messages;
    messages.iter().all(|message| !message.parts.is_empty() && message.role() != pb::Role::Unspecified)
        && built.0.total_tokens == messages.iter().map(|message| message.tokens).sum::<u64>()
}

/// The newest text of a user.
fn newest_asked(kept: &[pb::NewMessage]) -> Option<String> {
    let asked = kept.iter().rev().filter(|message| message.role() == pb::Role::User);
    asked.flat_map(|message| message.parts.iter().rev()).find_map(|part| match part.part.as_ref()? {
        Part::Text(part) if !part.text.trim().is_empty() => Some(part.text.clone()),
        _ => None,
    })
}

#[tokio::test]
async fn no_provider_refuses_a_session_of_pi() {
    let Some(data) = Data::find() else { return };
    under_every_profile("pi", &data.pi_sessions(), 2).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_mini_swe_agent() {
    let Some(data) = Data::find() else { return };
    under_every_profile("mini-swe-agent", &data.mini_swe_agent(), 5).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_swe_agent() {
    let Some(data) = Data::find() else { return };
    under_every_profile("SWE-agent", &data.swe_agent(), 4).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_tau_bench() {
    let Some(data) = Data::find() else { return };
    under_every_profile("tau-bench", &data.tau_bench(), 10).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_locomo() {
    let Some(data) = Data::find() else { return };
    under_every_profile("LoCoMo", &data.locomo(), 4).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_crosswoz() {
    let Some(data) = Data::find() else { return };
    through_every_profile("CrossWOZ", &data.crosswoz(usize::MAX)).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_kdconv() {
    let Some(data) = Data::find() else { return };
    through_every_profile("KdConv", &data.kdconv(usize::MAX)).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_xpersona() {
    let Some(data) = Data::find() else { return };
    through_every_profile("XPersona", &data.xpersona()).await;
}

#[tokio::test]
async fn no_provider_refuses_small_dialogues_said_as_one() {
    let Some(data) = Data::find() else { return };
    let families = [("CrossWOZ", data.crosswoz(60)), ("KdConv", data.kdconv(60)), ("XPersona", data.xpersona())];
    let long = families.map(|(name, chats)| {
        // Of every language some.
        let some: Vec<Chat> = chats.iter().step_by(chats.len().div_ceil(60).max(1)).cloned().collect();
        Chat::joined(name, &some)
    });
    under_every_profile("small dialogues as one", &long, 3).await;
}
