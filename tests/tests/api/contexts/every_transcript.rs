//! Builds contexts of real conversations with every profile, budget and format. Most small
//! dialogues (CrossWOZ, KdConv, XPersona) get only some of these combinations. The gate takes every
//! sixteenth of these dialogues, and two of six profiles for each longer conversation. The tests are skipped if the transcripts are missing. Each context must
//! obey the provider's rules (`dev/shapes/` checks them), have content, fit its budget and have a
//! complete manifest.

use std::collections::BTreeMap;

use anneal_testkit::{
    AppendedChat, Built, Chat, Recount, Rendered, TestApp, TranscriptFolder, gate_or_nightly, pb,
    status_details, user,
};
use futures::StreamExt as _;
use pb::{Format, part::Part};

use crate::contexts::FORMATS;

/// Budgets in tokens. `None` is no budget.
const BUDGETS: [Option<u64>; 5] = [None, Some(128_000), Some(16_000), Some(4_000), Some(2_048)];
const PROFILES: [&str; 6] = [
    "default", "agents", "zeroclaw", "claw0", "ai-panel", "openclaw",
];

/// The current input of contexts that have one.
const CURRENT_INPUT: &str = "And what would you do next?";
/// Tokens that a context counts for each message beside its content.
const FRAMING_TOKENS: u64 = 4;
/// Tokens that a context needs beside the system prompt: the framing of a message, and 64 for the
/// mark of a clip or of a checkpoint.
const MIN_TOKENS_BESIDE_PROMPT: u64 = FRAMING_TOKENS + 64;
/// Conversations whose contexts are built at the same time.
const CONCURRENT_CONVERSATIONS: usize = 4;
/// Violations that are printed. Further ones are only counted.
const MAX_PRINTED_VIOLATIONS: usize = 12;

/// How many contexts were checked, and which rules they violate.
#[derive(Default)]
struct Tally {
    /// Number of contexts, by format.
    checked: BTreeMap<&'static str, usize>,
    /// Contexts refused because the system prompt alone needs the budget.
    too_small: usize,
    /// Contexts with a clipped message.
    clipped: usize,
    /// Contexts with a message that is sent as its summary.
    summarized: usize,
    /// Contexts that start with the summary of a checkpoint.
    checkpointed: usize,
    violations: Vec<String>,
    /// Counts the tokens of rendered contexts independently of the server.
    recount: Recount,
}

impl Tally {
    /// Prints the counts. Asserts that contexts were checked and violate no rule.
    fn print_and_assert(&self, family: &str) {
        let all: usize = self.checked.values().sum();
        println!(
            "{family}: {all} contexts ({:?}), of them {} after a checkpoint, {} with summaries, {} with clips; \
             {} refused because the system prompt alone is too large; {} violations",
            self.checked,
            self.checkpointed,
            self.summarized,
            self.clipped,
            self.too_small,
            self.violations.len()
        );
        let printed = self
            .violations
            .iter()
            .take(MAX_PRINTED_VIOLATIONS)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            self.violations.is_empty(),
            "{} violations in {family}:\n{printed}",
            self.violations.len()
        );
        assert!(all > 0, "nothing was checked");
    }
}

/// One context to build.
#[derive(Clone)]
struct ContextCase {
    profile: &'static str,
    /// Whether the profile is applied as a dry run over the conversation's own profile.
    dry_run: bool,
    format: Format,
    budget: Option<u64>,
    input: Option<&'static str>,
    /// Whether the context is built twice and compared.
    twice: bool,
}

impl ContextCase {
    fn ask(&self) -> pb::BuildContextRequest {
        let policy = self.dry_run.then(|| policy_with_profile(self.profile));
        pb::BuildContextRequest {
            current_input: self.input.map(user).into_iter().collect(),
            budget_tokens: self.budget,
            format: self.format.into(),
            dry_run: self.dry_run,
            policy,
            ..Default::default()
        }
    }
}

impl std::fmt::Display for ContextCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            profile,
            format,
            budget,
            input,
            ..
        } = self;
        write!(
            f,
            "under {profile}, as {}, within {budget:?}",
            format.as_str_name()
        )?;
        if input.is_some() {
            f.write_str(", with input")
        } else {
            Ok(())
        }
    }
}

fn policy_with_profile(profile: &str) -> pb::Policy {
    pb::Policy {
        profile: profile.into(),
        ..Default::default()
    }
}

/// All cases of a conversation with this profile: each budget in each format. With each budget, the
/// context of one format is built twice.
fn all_cases(profile: &'static str, with_input: bool) -> Vec<ContextCase> {
    let inputs: &[Option<&'static str>] = if with_input {
        &[None, Some(CURRENT_INPUT)]
    } else {
        &[None]
    };
    let mut cases = Vec::new();
    for (b, budget) in BUDGETS.into_iter().enumerate() {
        for (f, format) in FORMATS.into_iter().enumerate() {
            let twice = f == b % FORMATS.len();
            cases.extend(inputs.iter().map(|&input| ContextCase {
                profile,
                dry_run: false,
                format,
                budget,
                input,
                twice,
            }));
        }
    }
    cases
}

/// The interval at which small conversations get all cases: every 50th, or the value of
/// `ANNEAL_TEST_EVERY`. With 1 the test takes ten minutes.
fn sampling_interval() -> usize {
    std::env::var("ANNEAL_TEST_EVERY").map_or(50, |nth| {
        nth.parse().expect("ANNEAL_TEST_EVERY is a number above 0")
    })
}

/// Cases of the small conversation with number `n`: every profile in every format, each with one
/// budget. Budgets rotate, so that five conversations in a row cover all of them. Each conversation
/// whose number is a multiple of `nth` gets all cases, with and without input. All cases are dry
/// runs.
fn sampled_cases(n: usize, nth: usize) -> Vec<ContextCase> {
    let mut cases = Vec::new();
    for (p, profile) in PROFILES.into_iter().enumerate() {
        if n.is_multiple_of(nth) {
            cases.extend(all_cases(profile, true));
            continue;
        }
        for (f, format) in FORMATS.into_iter().enumerate() {
            let budget = BUDGETS[(n + p + f) % BUDGETS.len()];
            let twice = f == (n + p) % FORMATS.len();
            cases.push(ContextCase {
                profile,
                dry_run: true,
                format,
                budget,
                input: None,
                twice,
            });
        }
    }
    cases
        .into_iter()
        .map(|case| ContextCase {
            dry_run: true,
            ..case
        })
        .collect()
}

/// Appends each conversation once per profile and checks its contexts. Those of every `nth`
/// conversation are also built with current input. The gate takes two of the six profiles for each
/// conversation, so that three conversations in a row cover all of them.
async fn append_and_check_every_profile(family: &str, chats: &[Chat], nth: usize) {
    let app = TestApp::start().await;
    let mut tally = Tally::default();
    let interval = gate_or_nightly(3, 1);
    for (p, profile) in PROFILES.into_iter().enumerate() {
        let taken: Vec<Chat> = chats
            .iter()
            .skip(p % interval)
            .step_by(interval)
            .cloned()
            .collect();
        let appended = app
            .append_chats(&taken, &policy_with_profile(profile))
            .await;
        let chats_and_cases = appended
            .iter()
            .enumerate()
            .map(|(n, conversation)| (conversation, all_cases(profile, n % nth == 0)));
        check_contexts(chats_and_cases.collect(), &mut tally).await;
    }
    tally.print_and_assert(family);
}

/// Appends each conversation once and checks dry-run contexts with every profile. The gate takes
/// every sixteenth conversation and numbers those that it takes, so the budgets still rotate through
/// all five.
async fn preview_every_profile(family: &str, chats: &[Chat]) {
    let chats: Vec<Chat> = chats
        .iter()
        .step_by(gate_or_nightly(16, 1))
        .cloned()
        .collect();
    if chats.is_empty() {
        return;
    }
    let app = TestApp::start().await;
    let mut tally = Tally::default();
    let appended = app
        .append_chats(&chats, &policy_with_profile("default"))
        .await;
    let nth = sampling_interval();
    check_contexts(
        appended
            .iter()
            .enumerate()
            .map(|(n, conversation)| (conversation, sampled_cases(n, nth)))
            .collect(),
        &mut tally,
    )
    .await;
    tally.print_and_assert(family);
}

/// Builds the context of each case and checks it.
async fn check_contexts(chats: Vec<(&AppendedChat<'_>, Vec<ContextCase>)>, tally: &mut Tally) {
    let building = chats.into_iter().map(async |(chat, cases)| {
        let mut built = Vec::with_capacity(cases.len());
        for case in cases {
            let first = chat.conversation.build(case.ask()).await;
            let again = if case.twice {
                Some(chat.conversation.build(case.ask()).await)
            } else {
                None
            };
            built.push((case, first, again));
        }
        (chat, built)
    });
    let mut building = futures::stream::iter(building).buffer_unordered(CONCURRENT_CONVERSATIONS);
    while let Some((chat, built)) = building.next().await {
        for (case, first, again) in built {
            check_context(chat, &case, first, again, tally);
        }
    }
}

fn check_context(
    chat: &AppendedChat<'_>,
    case: &ContextCase,
    first: Result<Built, tonic::Status>,
    again: Option<Result<Built, tonic::Status>>,
    tally: &mut Tally,
) {
    let same = again.is_none_or(|again| match (&first, again) {
        (Ok(built), Ok(again)) => {
            built.0.rendered == again.0.rendered && built.0.messages == again.0.messages
        }
        (Err(first), Err(again)) => first.message() == again.message(),
        _ => false,
    });
    let mut violations = match first {
        Ok(built) => {
            tally.count(&built, case.format);
            find_violations(chat, case, &built, &mut tally.recount)
        }
        Err(status) => tally.check_refusal(chat, case, &status),
    };
    if !same {
        violations.push("a second context differs".into());
    }
    tally.violations.extend(
        violations
            .into_iter()
            .map(|violation| format!("{} {case}: {violation}", chat.name)),
    );
}

impl Tally {
    fn count(&mut self, built: &Built, format: Format) {
        *self
            .checked
            .entry(format.as_str_name().trim_start_matches("FORMAT_"))
            .or_default() += 1;
        let shows = |representation| {
            built
                .0
                .manifest
                .iter()
                .any(|entry| entry.representation() == representation)
        };
        self.checkpointed += usize::from(shows(pb::Representation::Checkpoint));
        self.summarized += usize::from(shows(pb::Representation::Summary));
        self.clipped += usize::from(shows(pb::Representation::Clipped));
    }

    /// A budget may be refused only if the system prompt leaves fewer than
    /// [`MIN_TOKENS_BESIDE_PROMPT`] tokens. Returns a violation otherwise.
    fn check_refusal(
        &mut self,
        chat: &AppendedChat<'_>,
        case: &ContextCase,
        status: &tonic::Status,
    ) -> Vec<String> {
        let prompt = self.recount.text(&chat.system_prompt) + FRAMING_TOKENS;
        let budget = case.budget.unwrap_or(u64::MAX);
        if status_details(status).reason == "BUDGET_TOO_SMALL"
            && prompt + MIN_TOKENS_BESIDE_PROMPT > budget
        {
            self.too_small += 1;
            return Vec::new();
        }
        vec![format!(
            "refused, with a system prompt of {prompt} tokens: {}",
            status.message()
        )]
    }
}

/// The rules that a context violates.
fn find_violations(
    chat: &AppendedChat<'_>,
    case: &ContextCase,
    built: &Built,
    recount: &mut Recount,
) -> Vec<String> {
    let rendered = match Rendered::read(built, case.format) {
        Ok(rendered) => rendered,
        Err(violation) => return vec![violation],
    };
    let mut violations = rendered.refusals();
    let mut must = |holds: bool, violation: String| {
        if !holds {
            violations.push(violation);
        }
    };
    let total = built.0.total_tokens;
    must(
        case.budget.is_none_or(|budget| total <= budget),
        format!("{total} tokens are over the budget"),
    );
    let counted = recount.tokens(&rendered);
    must(
        counted <= total,
        format!("the context has {counted} tokens and reports {total}"),
    );
    must(
        rendered.messages > 0 && !rendered.texts.iter().all(String::is_empty),
        "the context has no text".into(),
    );
    must(
        rendered.format != Format::Unspecified || is_well_formed(built),
        "a message has no part or no role, or the total is not the sum".into(),
    );
    must(!built.0.estimated, "a count is an estimate".into());
    let newest = case.input.map_or_else(
        || newest_user_text(&chat.stored_messages),
        |input| Some(input.to_owned()),
    );
    let beginning: String = newest.unwrap_or_default().trim().chars().take(20).collect();
    must(
        rendered.says(&beginning),
        format!("the newest user message is missing: {beginning:?}"),
    );
    must(
        chat.system_prompt.is_empty() || rendered.says(&chat.system_prompt),
        "the system prompt is missing".into(),
    );
    built.assert_covers(chat.stored_messages.len() as i64);
    built.assert_tools_paired();
    violations
}

fn is_well_formed(built: &Built) -> bool {
    let messages = &built.0.messages;
    messages
        .iter()
        .all(|message| !message.parts.is_empty() && message.role() != pb::Role::Unspecified)
        && built.0.total_tokens == messages.iter().map(|message| message.tokens).sum::<u64>()
}

/// The newest text of a user message.
fn newest_user_text(messages: &[pb::NewMessage]) -> Option<String> {
    let user_messages = messages
        .iter()
        .rev()
        .filter(|message| message.role() == pb::Role::User);
    user_messages
        .flat_map(|message| message.parts.iter().rev())
        .find_map(|part| match part.part.as_ref()? {
            Part::Text(part) if !part.text.trim().is_empty() => Some(part.text.clone()),
            _ => None,
        })
}

#[tokio::test]
async fn no_provider_refuses_a_session_of_pi() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    append_and_check_every_profile("pi", &folder.pi_sessions(), 2).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_mini_swe_agent() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    append_and_check_every_profile("mini-swe-agent", &folder.mini_swe_agent(), 5).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_swe_agent() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    append_and_check_every_profile("SWE-agent", &folder.swe_agent(), 4).await;
}

#[tokio::test]
async fn no_provider_refuses_a_run_of_tau_bench() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    append_and_check_every_profile("tau-bench", &folder.tau_bench(), 10).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_locomo() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    append_and_check_every_profile("LoCoMo", &folder.locomo(), 4).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_crosswoz() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    preview_every_profile("CrossWOZ", &folder.crosswoz(usize::MAX)).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_kdconv() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    preview_every_profile("KdConv", &folder.kdconv(usize::MAX)).await;
}

#[tokio::test]
async fn no_provider_refuses_a_dialogue_of_xpersona() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    preview_every_profile("XPersona", &folder.xpersona()).await;
}

#[tokio::test]
async fn no_provider_refuses_small_dialogues_joined_into_one() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let families = [
        ("CrossWOZ", folder.crosswoz(60)),
        ("KdConv", folder.kdconv(60)),
        ("XPersona", folder.xpersona()),
    ];
    let long = families.map(|(name, chats)| {
        // At most 60 dialogues, spread over all languages.
        let some: Vec<Chat> = chats
            .iter()
            .step_by(chats.len().div_ceil(60).max(1))
            .cloned()
            .collect();
        Chat::joined(name, &some)
    });
    append_and_check_every_profile("small dialogues as one", &long, 3).await;
}
