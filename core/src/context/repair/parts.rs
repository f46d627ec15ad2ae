//! Repairs each part that its format does not accept: reasoning of other providers, media, input
//! that is no JSON object, tool names, blank texts. Runs before the budget, so that the tokens
//! counted are those sent.

use super::tool_identifiers;
use crate::{
    context::{Draft, Entry, RepairKind, entry::Origin},
    media_access::MediaAccess,
    message::{Media, PART_JOIN, Part, Role},
    provider_format::{
        Format, json,
        media::{self, MediaPosition},
    },
    tokens::{Encoding, Tokens, count_parts},
};

/// Text of a failed result that came without text.
const NO_TEXT: &str = "[failed without a text]";
/// Text before an application's instruction in the middle of a conversation, for formats without a
/// system role there.
const INSTRUCTION: &str = "[Instruction of the application]";

/// Repairs every part that the draft's format does not accept as it is.
pub(super) fn repair_parts(draft: &mut Draft) {
    let (encoding, format) = (draft.encoding, draft.format);
    let access = draft.media.clone();
    for index in 0..draft.entries.len() {
        let entry = &mut draft.entries[index];
        let rules = PartRules::of(entry, format, &access);
        let mut change = EntryChange::default();
        if !(0..entry.parts.len()).all(|part| rules.accepts(&entry.parts, part)) {
            rules.repair_entry(entry, encoding, &mut change);
        }
        if rules.is_instruction && !entry.parts.is_empty() {
            entry.note_origins();
            entry.parts.insert(
                0,
                Part::Text {
                    text: INSTRUCTION.into(),
                },
            );
            entry.origins.insert(0, Origin::default());
            change.added += encoding.counter().count(INSTRUCTION);
            change
                .repairs
                .push((RepairKind::RoleChanged, String::new()));
        }
        entry.tokens = entry.tokens.less(change.removed) + change.added;
        let message = entry.message_id();
        if let Some(manifest_entry) = message.and_then(|id| draft.manifest_entry_mut(id)) {
            manifest_entry.tokens = manifest_entry.tokens.less(change.removed) + change.added;
        }
        for (kind, call) in change.repairs {
            draft.report_repair(kind, message, call);
        }
    }
}

/// The changes of one entry: tokens removed and added, and the repairs to report.
#[derive(Default)]
struct EntryChange {
    removed: Tokens,
    added: Tokens,
    repairs: Vec<(RepairKind, String)>,
}

impl EntryChange {
    fn report_once(&mut self, kind: RepairKind) {
        if !self.repairs.iter().any(|(known, _)| *known == kind) {
            self.repairs.push((kind, String::new()));
        }
    }
}

/// The rules of a format for the parts of one message.
#[derive(Clone, Copy)]
struct PartRules<'a> {
    format: Format,
    access: &'a MediaAccess,
    position: MediaPosition,
    /// Whether a message of the model holds nothing but reasoning and blank texts. Anthropic
    /// accepts reasoning only before content.
    only_reasoning: bool,
    /// Whether the message is an application's instruction, and the format accepts only the roles
    /// user and model in the middle of a conversation.
    is_instruction: bool,
}

impl<'a> PartRules<'a> {
    fn of(entry: &Entry, format: Format, access: &'a MediaAccess) -> Self {
        let is_content = |part: &Part| match part {
            Part::Reasoning { .. } => false,
            Part::Text { text } => !is_blank(text, format),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_) => true,
        };
        Self {
            format,
            access,
            position: MediaPosition::of(entry.role),
            only_reasoning: entry.role == Role::Assistant && !entry.parts.iter().any(is_content),
            is_instruction: format.alternates()
                && entry.role == Role::System
                && entry.is_conversation()
                && entry.parts.iter().any(is_content),
        }
    }

    /// Whether the format accepts the part at `index` unchanged.
    fn accepts(self, parts: &[Part], index: usize) -> bool {
        let neutral = self.format == Format::Neutral;
        match &parts[index] {
            Part::Text { text } => !is_blank(text, self.format),
            Part::Reasoning {
                text,
                signature,
                provider,
                ..
            } => match self.format {
                Format::Neutral => !text.is_empty() || !signature.is_empty(),
                Format::OpenAiChat => false,
                Format::AnthropicMessages => {
                    !self.only_reasoning
                        && !signature.is_empty()
                        && matches!(provider.as_str(), "anthropic" | "")
                }
                Format::GeminiContents => text.is_empty() && self.is_call_signature(parts, index),
            },
            Part::ToolUse { name, input, .. } => {
                neutral
                    || (tool_identifiers::is_valid_name(name, self.format)
                        && json::is_object(input))
            }
            Part::ToolResult {
                text,
                is_error,
                media,
                ..
            } => {
                neutral
                    || (self.accepts_all(media, *is_error)
                        && !self.lacks_text(text, *is_error, media))
            }
            Part::Media(media) => {
                media::is_accepted(media, self.format, self.position, self.access)
            }
        }
    }

    /// Whether the part is a Gemini signature that stands directly before its call, where Gemini
    /// accepts it.
    fn is_call_signature(self, parts: &[Part], index: usize) -> bool {
        let Part::Reasoning {
            signature,
            provider,
            ..
        } = &parts[index]
        else {
            return false;
        };
        self.format == Format::GeminiContents
            && matches!(provider.as_str(), "gemini" | "")
            && matches!(parts.get(index + 1), Some(Part::ToolUse { .. }))
            && json::is_base64(signature)
    }

    fn accepts_all(self, media: &[Media], is_error: bool) -> bool {
        media.iter().all(|media| {
            media::is_accepted(
                media,
                self.format,
                MediaPosition::of_result(is_error),
                self.access,
            )
        })
    }

    /// Whether a result has no text although the provider requires one.
    fn lacks_text(self, text: &str, is_error: bool, media: &[Media]) -> bool {
        let needs_text = is_error && self.format == Format::AnthropicMessages;
        // Media that are not accepted are replaced by their description, which is a text.
        needs_text && text.trim().is_empty() && media.is_empty()
    }

    /// Drops or replaces the parts that the format does not accept.
    fn repair_entry(self, entry: &mut Entry, encoding: Encoding, change: &mut EntryChange) {
        entry.note_origins();
        let accepted: Vec<bool> = (0..entry.parts.len())
            .map(|index| self.accepts(&entry.parts, index))
            .collect();
        let call_signatures: Vec<bool> = (0..entry.parts.len())
            .map(|index| self.is_call_signature(&entry.parts, index))
            .collect();
        let parts = std::mem::take(&mut entry.parts)
            .into_iter()
            .zip(std::mem::take(&mut entry.origins));
        for (index, (part, origin)) in parts.enumerate() {
            let (part, origin) = if accepted[index] {
                (Some(part), origin)
            } else {
                self.repaired_part(part, origin, call_signatures[index], encoding, change)
            };
            if let Some(part) = part {
                entry.parts.push(part);
                entry.origins.push(origin);
            }
        }
    }

    /// The part as the format accepts it; None if it is dropped. `is_call_signature`: the answer of
    /// [`Self::is_call_signature`] for this part.
    fn repaired_part(
        self,
        part: Part,
        origin: Origin,
        is_call_signature: bool,
        encoding: Encoding,
        change: &mut EntryChange,
    ) -> (Option<Part>, Origin) {
        let tokens = |part: &Part| count_parts(encoding, std::slice::from_ref(part));
        match part {
            Part::Text { .. } => {
                change.removed += tokens(&part);
                (None, origin)
            }
            Part::Reasoning {
                text,
                signature,
                provider,
                redacted,
            } if is_call_signature => {
                change.removed += encoding.counter().count(&text);
                (
                    Some(Part::Reasoning {
                        text: String::new(),
                        signature,
                        provider,
                        redacted,
                    }),
                    Origin::default(),
                )
            }
            Part::Reasoning { .. } => {
                change.removed += tokens(&part);
                if self.format != Format::Neutral {
                    change.report_once(RepairKind::ReasoningDropped);
                }
                (None, origin)
            }
            Part::ToolUse { .. } => {
                change.removed += tokens(&part);
                let part = self.valid_call(part, change);
                change.added += tokens(&part);
                (Some(part), Origin::default())
            }
            Part::ToolResult {
                id,
                text,
                is_error,
                media,
            } => (
                Some(self.valid_result(id, text, is_error, media, encoding, change)),
                origin,
            ),
            Part::Media(ref media) => {
                change.removed += tokens(&part);
                let text = media::description(media);
                change.added += encoding.counter().count(&text);
                change.report_once(RepairKind::MediaDescribed);
                (Some(Part::Text { text }), Origin::default())
            }
        }
    }

    /// The call with a name and an input that the provider accepts.
    fn valid_call(self, part: Part, change: &mut EntryChange) -> Part {
        let Part::ToolUse {
            id,
            mut name,
            mut input,
        } = part
        else {
            return part;
        };
        if !tool_identifiers::is_valid_name(&name, self.format) {
            name = tool_identifiers::valid_name(&name, self.format);
            change.repairs.push((RepairKind::NameChanged, id.clone()));
        }
        if !json::is_object(&input) {
            input = json::wrapped_in_object(&input);
            change.repairs.push((RepairKind::InputWrapped, id.clone()));
        }
        Part::ToolUse { id, name, input }
    }

    /// The result with a description of media that the provider does not accept, and with a text
    /// where the provider requires one.
    fn valid_result(
        self,
        id: String,
        mut text: String,
        is_error: bool,
        media: Vec<Media>,
        encoding: Encoding,
        change: &mut EntryChange,
    ) -> Part {
        let (kept, described): (Vec<_>, Vec<_>) = media.into_iter().partition(|media| {
            media::is_accepted(
                media,
                self.format,
                MediaPosition::of_result(is_error),
                self.access,
            )
        });
        for media in &described {
            let join = if text.is_empty() { "" } else { PART_JOIN };
            let addition = [join, &media::description(media)].concat();
            text.push_str(&addition);
            // The text and its addition may count one token more together than apart.
            change.added += encoding.counter().count(&addition) + Tokens::new(1);
        }
        if !described.is_empty() {
            change.removed += count_parts(
                encoding,
                &described.into_iter().map(Part::Media).collect::<Vec<_>>(),
            );
            change.report_once(RepairKind::MediaDescribed);
        }
        if self.lacks_text(&text, is_error, &kept) {
            change.added += encoding.counter().count(NO_TEXT);
            NO_TEXT.clone_into(&mut text);
            change.repairs.push((RepairKind::TextAdded, id.clone()));
        }
        Part::ToolResult {
            id,
            text,
            is_error,
            media: kept,
        }
    }
}

/// Whether the text counts as empty. Anthropic refuses texts of white space only, and to Gemini
/// they are useless.
fn is_blank(text: &str, format: Format) -> bool {
    if format.alternates() {
        text.trim().is_empty()
    } else {
        text.is_empty()
    }
}
