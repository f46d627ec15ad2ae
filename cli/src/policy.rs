//! Policy overrides on the command line.

use anneal_core::{
    policy::{Cooling, KeepRecent, LargeSummaries, PolicyOverrides, Profile, TokenThreshold},
    tokens::Tokens,
};
use anneal_proto::v1 as pb;
use clap::{Args, ValueEnum};

/// Overrides of the server's `[session]` settings.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArguments {
    /// A preset: default, agents, zeroclaw, claw0, ai-panel or openclaw
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile)]
    profile: Option<Profile>,
    /// A checkpoint is made when the tail (the messages since the last checkpoint or separator) has
    /// this many tokens; or `auto`; or for example `window - 16384`
    #[arg(long, value_name = "TOKENS")]
    token_threshold: Option<TokenThreshold>,
    /// A checkpoint is made when the tail has this many messages; 0: their number does not matter
    #[arg(long, value_name = "MESSAGES")]
    max_message_count: Option<u32>,
    /// The newest messages that a checkpoint does not summarize, for example:
    /// `5 turns`, `20000 tokens`, `50 %` or `last user message`
    #[arg(long, value_name = "AMOUNT")]
    keep_recent: Option<KeepRecent>,
    /// Messages with more tokens are large: they are summarized, and replaced by their summaries
    /// once they are cool
    #[arg(long, value_name = "TOKENS")]
    large_message_threshold: Option<u64>,
    /// A message is cool when it is more than this many turns old
    #[arg(long, value_name = "TURNS")]
    hot_zone_radius: Option<u32>,
    /// With stepped cooling, a message is also cool when more than this many model calls have
    /// followed it; 0: never
    #[arg(long, value_name = "CALLS")]
    hot_zone_calls: Option<u32>,
    /// When cool large messages are replaced by their summaries: each at once (strict), or all
    /// together when it pays (stepped)
    #[arg(long, value_enum)]
    cooling: Option<CoolingArgument>,
    /// When large messages are summarized: once they are counted (eager), or shortly before they
    /// are needed (lazy)
    #[arg(long, value_enum)]
    large_summaries: Option<LargeSummariesArgument>,
    /// The model of the conversation, which determines window and prices
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CoolingArgument {
    Strict,
    Stepped,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LargeSummariesArgument {
    Eager,
    Lazy,
}

fn parse_profile(name: &str) -> Result<Profile, String> {
    Profile::from_name(name).ok_or_else(|| {
        format!(
            "the profiles are {}",
            Profile::ALL.map(Profile::name).join(", ")
        )
    })
}

impl PolicyArguments {
    /// The policy for a request; None if nothing is overridden.
    pub(crate) fn policy(&self) -> Option<pb::Policy> {
        let overrides = PolicyOverrides {
            profile: self.profile,
            token_threshold: self.token_threshold,
            max_message_count: self.max_message_count,
            keep_recent: self.keep_recent,
            large_message_threshold: self.large_message_threshold.map(Tokens::new),
            hot_zone_radius: self.hot_zone_radius,
            hot_zone_calls: self.hot_zone_calls,
            cooling: self.cooling.map(|cooling| match cooling {
                CoolingArgument::Strict => Cooling::Strict,
                CoolingArgument::Stepped => Cooling::Stepped,
            }),
            large_summaries: self.large_summaries.map(|when| match when {
                LargeSummariesArgument::Eager => LargeSummaries::Eager,
                LargeSummariesArgument::Lazy => LargeSummaries::Lazy,
            }),
            model: self.model.clone(),
            ..PolicyOverrides::default()
        };
        (overrides != PolicyOverrides::default()).then(|| overrides.into())
    }
}
