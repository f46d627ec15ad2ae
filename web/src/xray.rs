//! The X-ray of a context: its window, tokens, summaries, cache eras and costs.

use askama::Template;

use crate::{
    conversations::Row,
    costs::UsageTable,
    format::{self, Time, number},
    layout::Page,
    message::Message,
    render::renders,
};

renders!(
    XrayPage,
    FragmentPage,
    WindowBar,
    Strip,
    Timeline,
    PointInTime,
    Original,
    Provenance,
);

/// The X-ray of a conversation's context.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/page.html")]
pub struct XrayPage {
    /// The frame.
    pub page: Page,
    /// The conversation.
    pub row: Row,
    /// The model's window.
    pub window: WindowBar,
    /// All messages as one strip.
    pub strip: Strip,
    /// What was repaired for the model.
    pub repairs: Vec<String>,
    /// Cache eras; empty: none.
    pub eras_url: String,
    /// The newest checkpoints.
    pub timeline: Timeline,
    /// Tokens that were sent and billed.
    pub usage: UsageTable,
    /// Jobs of the conversation. None: the credential may not see them.
    pub jobs: Option<Jobs>,
    /// Labels of settings, and their values.
    pub policy: Vec<(&'static str, String)>,
}

/// A fragment of the X-ray as a page of its own, for those who open it without the script.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/fragment.html")]
pub struct FragmentPage {
    /// The frame.
    pub page: Page,
    /// The id of the conversation.
    pub conversation: String,
    /// The heading.
    pub heading: String,
    /// The fragment, as HTML.
    pub html: String,
}

/// How full the model's window is.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/window.html")]
pub struct WindowBar {
    /// Segments from left to right.
    pub segments: Vec<BarSegment>,
    /// Tokens of all segments.
    pub total: u64,
    /// Tokens of the context that was built, if a budget may have shortened it.
    pub built: Option<u64>,
    /// The window; 0: unknown.
    pub window: u64,
    /// Marks on the bar.
    pub thresholds: Vec<Threshold>,
    /// Messages after the boundary.
    pub tail_messages: i64,
    /// Number of them at which a checkpoint is made; 0: none.
    pub max_messages: u32,
    /// Some tokens are estimated.
    pub estimated: bool,
    /// Tokens that cooling and summaries save.
    pub saved: u64,
    /// Tokens that would be saved once the cache is rewritten.
    pub pending_saved: u64,
}

/// A segment of the bar. `x` and `width` are of 1,000.
#[derive(Debug, Clone)]
pub struct BarSegment {
    /// Its name.
    pub name: String,
    /// Its style class.
    pub class: &'static str,
    /// Its tokens.
    pub tokens: u64,
    /// Its messages.
    pub messages: i64,
    /// Its left edge.
    pub x: f32,
    /// Its width.
    pub width: f32,
}

/// A mark on the bar.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// Its name.
    pub name: String,
    /// Its tokens.
    pub at: u64,
    /// Its place, of 1,000.
    pub x: f32,
}

/// The messages of a conversation as runs of equal state.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/strip.html")]
pub struct Strip {
    /// Runs in the order of the messages.
    pub runs: Vec<Run>,
    /// Tokens as they are sent.
    pub tokens: u64,
    /// Tokens as they are stored.
    pub original_tokens: u64,
    /// The path of the whole strip, which takes `first` and `last`.
    pub url: String,
    /// The messages that the strip shows. None: all.
    pub range: Option<(i64, i64)>,
    /// The strip by tokens; empty: it is shown already.
    pub detail_url: String,
}

/// Consecutive messages of one state. `x` and `width` are of 1,000.
#[derive(Debug, Clone)]
pub struct Run {
    /// The first message.
    pub first: i64,
    /// The last message.
    pub last: i64,
    /// The state, which is also the style class.
    pub state: &'static str,
    /// Why they are in this state.
    pub reason: String,
    /// Tokens as they are sent.
    pub tokens: u64,
    /// Tokens as they are stored.
    pub original_tokens: u64,
    /// They may be replaced once the cache is rewritten.
    pub cool: bool,
    /// Left edge.
    pub x: f32,
    /// Width.
    pub width: f32,
    /// The message; of a run that has its own strip: this strip.
    pub url: String,
    /// `url` shows its messages as a strip.
    pub has_strip: bool,
}

/// Checkpoints, oldest first.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/timeline.html")]
pub struct Timeline {
    /// The checkpoints.
    pub marks: Vec<Mark>,
    /// Earlier ones; empty: none.
    pub earlier_url: String,
}

/// A checkpoint on the timeline.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The last message that it covers.
    pub last: i64,
    /// Its kind.
    pub kind: String,
    /// It is in force.
    pub valid: bool,
    /// A change of messages has voided it.
    pub void: bool,
    /// When it was made.
    pub time: Time,
    /// Its provenance.
    pub url: String,
}

/// The context as it was at a message.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/point.html")]
pub struct PointInTime {
    /// The message.
    pub at: i64,
    /// The last message that a summary replaced.
    pub boundary: i64,
    /// Kind of that boundary.
    pub boundary_kind: String,
    /// The summary.
    pub summary: Option<Provenance>,
    /// Large messages that their summaries stood for.
    pub swapped: u64,
    /// Of these: messages whose summaries are gone, so that they count in full.
    pub unknown_summaries: u64,
    /// Messages that are withdrawn now, and count nothing.
    pub withdrawn: i64,
    /// A budget or pressure had left something out, which counts all the same.
    pub cut: bool,
    /// What was sent.
    pub shown: Vec<Run>,
    /// Its tokens.
    pub tokens: u64,
    /// All that is needed is still recorded.
    pub complete: bool,
}

/// A message as it is stored beside its summary.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/original.html")]
pub struct Original {
    /// The message.
    pub message: Message,
    /// Where its summary comes from.
    pub summary: Option<Provenance>,
    /// The lines of the message, and whether its extracted summary keeps them. Empty: nothing is
    /// compared.
    pub lines: Vec<Line>,
    /// Lines are cut or missing.
    pub lines_are_cut: bool,
    /// Bytes of these lines that the summary leaves out.
    pub left_out_bytes: u64,
    /// The checkpoint that stands for the message.
    pub checkpoint: Option<Provenance>,
    /// Byte ranges that were clipped.
    pub clipped: Vec<(i64, i64)>,
}

/// A line of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line.
    pub text: String,
    /// The summary has it literally.
    pub kept: bool,
}

/// Where a summary comes from.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/provenance.html")]
pub struct Provenance {
    /// Its kind.
    pub kind: String,
    /// The model that wrote it; empty: none did.
    pub model: String,
    /// Version of the prompt.
    pub prompt_version: i32,
    /// Digest of its source.
    pub digest: String,
    /// Its tokens.
    pub tokens: u64,
    /// Tokens that it stands for.
    pub source_tokens: u64,
    /// Tokens that were read for it.
    pub input_tokens: u64,
    /// Tokens that were generated for it.
    pub output_tokens: u64,
    /// Calls of the model.
    pub calls: i32,
    /// Time in milliseconds.
    pub duration_ms: i64,
    /// When it was made.
    pub time: Time,
    /// First and last message.
    pub range: (i64, i64),
    /// How often it was summarized again.
    pub generation: i32,
    /// Why it was made.
    pub trigger: String,
    /// The focus that was asked for.
    pub focus: String,
    /// The summary.
    pub text: String,
}

/// Jobs of a conversation.
#[derive(Debug, Clone)]
pub struct Jobs {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The credential may requeue and discard.
    pub can_requeue: bool,
}

/// A job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its kind.
    pub kind: String,
    /// Its state.
    pub state: String,
    /// Attempts so far.
    pub attempts: i32,
    /// When it is due.
    pub due: Time,
    /// The last error; empty: none.
    pub error: String,
    /// The worker that runs it; empty: none.
    pub worker: String,
}

/// A place or a size in a drawing, short: a hundredth of a unit is less than a pixel.
fn short(value: f32) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}

/// The states of messages, in the order of the legend, and their names.
const STATES: [(&str, &str); 8] = [
    ("original", "as stored"),
    ("summary", "as its summary"),
    ("checkpoint", "in the checkpoint"),
    ("separated", "before the separator"),
    ("clipped", "clipped"),
    ("dropped", "left out"),
    ("repaired", "repaired"),
    ("withdrawn", "withdrawn"),
];

impl XrayPage {
    /// The newest message; 0: there is none.
    fn last_message(&self) -> i64 {
        self.strip.runs.last().map_or(0, |run| run.last)
    }

    /// What a job does.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    fn job_name(&self, job: &Job) -> String {
        match job.kind.as_str() {
            "count_tokens" => "Count tokens".to_owned(),
            "checkpoint" => "Make a checkpoint".to_owned(),
            "summarize_messages" => "Summarize messages".to_owned(),
            other => other.to_owned(),
        }
    }
}

impl WindowBar {
    /// How much of the window is used.
    fn share(&self) -> String {
        let share = self.total as f64 * 100.0 / self.window.max(1) as f64;
        if share < 10.0 {
            format!("{share:.1} %")
        } else {
            format!("{share:.0} %")
        }
    }

    /// The bar as a sentence, for those who do not see it.
    fn words(&self) -> String {
        let segments = self
            .segments
            .iter()
            .map(|it| format!("{}: {} tokens", it.name, number(it.tokens)));
        let marks = self
            .thresholds
            .iter()
            .map(|it| format!("{} at {}", it.name, number(it.at)));
        segments.chain(marks).collect::<Vec<_>>().join(", ")
    }
}

impl BarSegment {
    fn place(&self) -> String {
        short(self.x)
    }

    fn extent(&self) -> String {
        short(self.width)
    }
}

impl Threshold {
    /// Whether its place is on the bar.
    fn is_drawn(&self) -> bool {
        self.x <= 1_000.0
    }

    fn place(&self) -> String {
        short(self.x)
    }
}

impl Strip {
    /// The states that occur, for the legend.
    fn states(&self) -> Vec<(&'static str, &'static str)> {
        let occurs = |state: &str| self.runs.iter().any(|run| run.state == state);
        STATES.into_iter().filter(|it| occurs(it.0)).collect()
    }
}

impl Run {
    fn place(&self) -> String {
        short(self.x)
    }

    fn extent(&self) -> String {
        short(self.width)
    }

    /// The state in words.
    fn state_name(&self) -> &'static str {
        let named = STATES.into_iter().find(|it| it.0 == self.state);
        named.map_or(self.state, |(_, name)| name)
    }

    /// Its messages.
    fn range(&self) -> String {
        if self.first == self.last {
            self.first.to_string()
        } else {
            format!("{} to {}", self.first, self.last)
        }
    }

    /// The run as a sentence.
    fn words(&self) -> String {
        let tokens = if self.tokens == self.original_tokens {
            format!("{} tokens", number(self.tokens))
        } else {
            let stored = number(self.original_tokens);
            format!("{} tokens of {stored}", number(self.tokens))
        };
        let (range, state) = (self.range(), self.state_name());
        if self.reason.is_empty() {
            format!("{range}: {state}, {tokens}")
        } else {
            format!("{range}: {state} ({}), {tokens}", self.reason)
        }
    }
}

impl Original {
    /// Bytes that the summary leaves out.
    fn left_out(&self) -> String {
        format::bytes(self.left_out_bytes)
    }
}

impl Provenance {
    /// How long it took.
    fn took(&self) -> String {
        format::duration_ms(self.duration_ms.unsigned_abs())
    }
}
