//! What a provider refuses in a part, mended in its place: thoughts of others, media it does not read, input that is no
//! object, odd names, blank texts. Done before the budget, so that what is sent is what was counted.

use super::{Draft, Entry, RepairKind, entry::Origin, names};
use crate::{
    media_access::MediaAccess,
    message::{Media, PART_JOIN, Part, Role},
    render::{
        Format, json,
        media::{self, Place},
    },
    tokens::{Encoding, Tokens, count_parts},
};

/// What a failed result says that came without a text.
const NO_TEXT: &str = "[failed without a text]";
/// Stands before what the application said in the middle of a conversation, where only users and models may speak.
const INSTRUCTION: &str = "[Instruction of the application]";

/// Mends every part that the draft's format cannot take as it is.
pub(super) fn shape(draft: &mut Draft) {
    let (encoding, format) = (draft.encoding, draft.format);
    let access = draft.media.clone();
    for index in 0..draft.entries.len() {
        let entry = &mut draft.entries[index];
        let rules = Rules::of(entry, format, &access);
        let mut change = Change::default();
        if !(0..entry.parts.len()).all(|part| rules.fits(&entry.parts, part)) {
            rules.mend(entry, encoding, &mut change);
        }
        if rules.speaks_for_application && !entry.parts.is_empty() {
            entry.note_origins();
            entry.parts.insert(0, Part::Text { text: INSTRUCTION.into() });
            entry.origins.insert(0, Origin::default());
            change.more += encoding.counter().count(INSTRUCTION);
            change.kinds.push((RepairKind::RoleChanged, String::new()));
        }
        entry.tokens = entry.tokens.less(change.less) + change.more;
        let message = entry.message();
        if let Some(line) = message.and_then(|id| draft.fate(id)) {
            line.tokens = line.tokens.less(change.less) + change.more;
        }
        for (kind, call) in change.kinds {
            draft.repair(kind, message, call);
        }
    }
}

/// What was changed in one entry: tokens that went and came, and what is to be reported.
#[derive(Default)]
struct Change {
    less: Tokens,
    more: Tokens,
    kinds: Vec<(RepairKind, String)>,
}

impl Change {
    fn report_once(&mut self, kind: RepairKind) {
        if !self.kinds.iter().any(|(known, _)| *known == kind) {
            self.kinds.push((kind, String::new()));
        }
    }
}

/// What a format takes in one message.
#[derive(Clone, Copy)]
struct Rules<'a> {
    format: Format,
    access: &'a MediaAccess,
    place: Place,
    /// Thoughts alone are no answer: they may be sent back only before something said.
    only_thoughts: bool,
    /// An application's message in a format that knows only users and models.
    speaks_for_application: bool,
}

impl<'a> Rules<'a> {
    fn of(entry: &Entry, format: Format, access: &'a MediaAccess) -> Self {
        let said = |part: &Part| match part {
            Part::Reasoning { .. } => false,
            Part::Text { text } => !is_blank(text, format),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_) => true,
        };
        Self {
            format,
            access,
            place: Place::of(entry.role),
            only_thoughts: entry.role == Role::Assistant && !entry.parts.iter().any(said),
            speaks_for_application: format.alternates()
                && entry.role == Role::System
                && entry.is_spoken()
                && entry.parts.iter().any(said),
        }
    }

    /// Whether the part at `index` can be sent as it is.
    fn fits(self, parts: &[Part], index: usize) -> bool {
        let neutral = self.format == Format::Neutral;
        match &parts[index] {
            Part::Text { text } => !is_blank(text, self.format),
            Part::Reasoning { text, signature, provider, .. } => match self.format {
                Format::Neutral => !text.is_empty() || !signature.is_empty(),
                Format::OpenAiChat => false,
                Format::AnthropicMessages => {
                    !self.only_thoughts && !signature.is_empty() && matches!(provider.as_str(), "anthropic" | "")
                }
                Format::GeminiContents => text.is_empty() && self.is_call_signature(parts, index),
            },
            Part::ToolUse { name, input, .. } => {
                neutral || (names::is_name(name, self.format) && json::is_object(input))
            }
            Part::ToolResult { text, is_error, media, .. } => {
                neutral || (self.takes_all(media, *is_error) && !self.lacks_text(text, *is_error, media))
            }
            Part::Media(media) => media::is_taken(media, self.format, self.place, self.access),
        }
    }

    /// Gemini gets its signatures back with the call that they stand before.
    fn is_call_signature(self, parts: &[Part], index: usize) -> bool {
        let Part::Reasoning { signature, provider, .. } = &parts[index] else { return false };
        self.format == Format::GeminiContents
            && matches!(provider.as_str(), "gemini" | "")
            && matches!(parts.get(index + 1), Some(Part::ToolUse { .. }))
            && json::is_base64(signature)
    }

    fn takes_all(self, media: &[Media], is_error: bool) -> bool {
        media.iter().all(|media| media::is_taken(media, self.format, Place::of_result(is_error), self.access))
    }

    fn lacks_text(self, text: &str, is_error: bool, media: &[Media]) -> bool {
        let blank = is_error && self.format == Format::AnthropicMessages && text.trim().is_empty();
        // Media are described there, and then it has a text.
        blank && media.is_empty()
    }

    /// Drops or replaces the parts that do not fit.
    fn mend(self, entry: &mut Entry, encoding: Encoding, change: &mut Change) {
        entry.note_origins();
        let fits: Vec<bool> = (0..entry.parts.len()).map(|index| self.fits(&entry.parts, index)).collect();
        let signs: Vec<bool> =
            (0..entry.parts.len()).map(|index| self.is_call_signature(&entry.parts, index)).collect();
        let parts = std::mem::take(&mut entry.parts).into_iter().zip(std::mem::take(&mut entry.origins));
        for (index, (part, origin)) in parts.enumerate() {
            let (part, origin) = if fits[index] {
                (Some(part), origin)
            } else {
                self.mended(part, origin, signs[index], encoding, change)
            };
            if let Some(part) = part {
                entry.parts.push(part);
                entry.origins.push(origin);
            }
        }
    }

    fn mended(
        self,
        part: Part,
        origin: Origin,
        signs: bool,
        encoding: Encoding,
        change: &mut Change,
    ) -> (Option<Part>, Origin) {
        let tokens = |part: &Part| count_parts(encoding, std::slice::from_ref(part));
        match part {
            Part::Text { .. } => {
                change.less += tokens(&part);
                (None, origin)
            }
            Part::Reasoning { text, signature, provider, redacted } if signs => {
                change.less += encoding.counter().count(&text);
                (Some(Part::Reasoning { text: String::new(), signature, provider, redacted }), Origin::default())
            }
            Part::Reasoning { .. } => {
                change.less += tokens(&part);
                if self.format != Format::Neutral {
                    change.report_once(RepairKind::ReasoningDropped);
                }
                (None, origin)
            }
            Part::ToolUse { .. } => {
                change.less += tokens(&part);
                let part = self.callable(part, change);
                change.more += tokens(&part);
                (Some(part), Origin::default())
            }
            Part::ToolResult { id, text, is_error, media } => {
                (Some(self.readable(id, text, is_error, media, encoding, change)), origin)
            }
            Part::Media(ref media) => {
                change.less += tokens(&part);
                let text = media::description(media);
                change.more += encoding.counter().count(&text);
                change.report_once(RepairKind::MediaDescribed);
                (Some(Part::Text { text }), Origin::default())
            }
        }
    }

    /// The call with a name and an input that the provider takes.
    fn callable(self, part: Part, change: &mut Change) -> Part {
        let Part::ToolUse { id, mut name, mut input } = part else { return part };
        if !names::is_name(&name, self.format) {
            name = names::name(&name, self.format);
            change.kinds.push((RepairKind::NameChanged, id.clone()));
        }
        if !json::is_object(&input) {
            input = json::wrapped(&input);
            change.kinds.push((RepairKind::InputWrapped, id.clone()));
        }
        Part::ToolUse { id, name, input }
    }

    /// The result with its media described where the provider takes none, and with a text where it must have one.
    fn readable(
        self,
        id: String,
        mut text: String,
        is_error: bool,
        media: Vec<Media>,
        encoding: Encoding,
        change: &mut Change,
    ) -> Part {
        let (kept, described): (Vec<_>, Vec<_>) = media
            .into_iter()
            .partition(|media| media::is_taken(media, self.format, Place::of_result(is_error), self.access));
        for media in &described {
            let join = if text.is_empty() { "" } else { PART_JOIN };
            let line = [join, &media::description(media)].concat();
            text.push_str(&line);
            change.more += encoding.counter().count(&line) + Tokens::new(1);
        }
        if !described.is_empty() {
            change.less += count_parts(encoding, &described.into_iter().map(Part::Media).collect::<Vec<_>>());
            change.report_once(RepairKind::MediaDescribed);
        }
        if self.lacks_text(&text, is_error, &kept) {
            change.more += encoding.counter().count(NO_TEXT);
            NO_TEXT.clone_into(&mut text);
            change.kinds.push((RepairKind::TextAdded, id.clone()));
        }
        Part::ToolResult { id, text, is_error, media: kept }
    }
}

/// Whether nothing of the text can be sent. Anthropic refuses white space alone, and Gemini has nothing to read in it.
fn is_blank(text: &str, format: Format) -> bool {
    if format.alternates() { text.trim().is_empty() } else { text.is_empty() }
}
