//! The known wordings of overflows. A wording counts only at the start of a message.

use super::{
    OverflowKind,
    pattern::{self, Numbers},
};

/// The meaning of a wording.
#[derive(Clone, Copy)]
enum Meaning {
    /// This kind of overflow.
    Kind(OverflowKind),
    /// Input, or input plus output, depending on the numbers.
    InputOrSum,
    /// A quota that is too small, if the numbers show that the request exceeds it.
    Quota,
}

use Meaning::{InputOrSum, Kind, Quota};
use OverflowKind::{Bytes, Input, InputPlusOutput, MessageTooLong, OutputTruncated, QuotaTooSmall};

/// A wording: the name of its rule, its meaning, and its pattern (see `pattern.rs`).
type Wording = (&'static str, Meaning, &'static str);

/// OpenAI's wordings, which vLLM, DeepSeek, OpenRouter, llama-cpp-python and many others use, too.
#[rustfmt::skip]
const MAXIMUM_CONTEXT_LENGTH: &[Wording] = &[
    ("maximum-context-length", InputOrSum, "This {word} maximum context length is {limit} tokens{,} However{,} you requested {n} tokens ({parts})"),
    ("maximum-context-length", InputOrSum, "This {word} maximum context length is {limit} tokens{,} However{,} you requested {output} output tokens and your prompt contains {prompt} input tokens"),
    ("maximum-context-length", InputOrSum, "This {word} maximum context length is {limit} tokens{,} However{,} your request has {prompt} input tokens plus {output} `max_tokens`"),
    ("maximum-context-length", Kind(Input), "This {word} maximum context length is {limit} tokens{,} However{,} your request has {prompt} input tokens"),
    ("maximum-context-length", Kind(Input), "This {word} maximum context length is {limit} tokens{,} However{,} your messages resulted in {prompt} tokens"),
    ("maximum-context-length", Kind(Input), "This {word} maximum context length is {limit} tokens{,} However{,} your prompt contains {prompt} tokens"),
    ("maximum-context-length", InputOrSum, "`max_tokens` or `max_completion_tokens` is too large: {output}. This {word} maximum context length is {limit} tokens and your request has {prompt} input tokens"),
    ("maximum-context-length", InputOrSum, "`max_tokens` is too large: {output}. This {word} maximum context length is {limit} tokens and your request has {prompt} input tokens"),
    ("maximum-context-length", Kind(Input), "This {word} maximum context length is {limit} tokens"),
    ("maximum-context-length-of-input", Kind(Input), "Invalid `{word}`: maximum context length is {limit} tokens"),
    ("configured-input-limit", Kind(Input), "Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in {prompt} tokens"),
    ("configured-input-limit", Kind(Input), "Input tokens exceed the configured limit of {limit} tokens"),
    ("exceeds-context-window", Kind(Input), "Your input exceeds the context window of this model"),
    ("reduce-messages", Kind(Input), "Please reduce the length of the messages or completion"),
];

/// Wordings of hosted services.
#[rustfmt::skip]
const HOSTED: &[Wording] = &[
    ("prompt-is-too-long", Kind(Input), "prompt is too long: {prompt} tokens > {limit} maximum"),
    ("prompt-is-too-long", Kind(Input), "prompt is too long"),
    ("prompt-is-too-long", Kind(Input), "prompt too long"),
    ("exceed-context-limit", InputOrSum, "input length and `max_tokens` exceed context limit: {prompt} + {output} > {limit}"),
    ("gemini-input-token-count", Kind(Input), "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit})"),
    ("gemini-input-token-count", Kind(Input), "The input token count exceeds the maximum number of tokens allowed {limit}"),
    ("vertex-input-token-count", Kind(Input), "Unable to submit request because the input token count is {prompt} but the model only supports up to {limit}"),
    ("vertex-input-token-count", Kind(Input), "Unable to submit request because the input token count is {prompt} but model only supports up to {limit}"),
    ("bedrock-input-too-long", Kind(Input), "Input is too long for requested model"),
    ("bedrock-input-too-long", Kind(Input), "Input is too long"),
    ("context-exceeded", Kind(Input), "Maximum context length exceeded"),
    ("context-exceeded", Kind(Input), "Context length exceeded"),
    ("context-exceeded", Kind(Input), "Context window exceeded"),
    ("total-length", Kind(Input), "The total length of all messages is too long"),
    ("bedrock-nova", Kind(Input), "Input Tokens Exceeded: Number of input tokens exceeds maximum length"),
    ("bedrock-titan", Kind(Input), "Too many input tokens. Max input tokens: {limit}, request input token count: {prompt}"),
    ("cohere-prompt", Kind(Input), "too many tokens: total number of tokens in the prompt cannot exceed {limit} - received {prompt}"),
    ("cohere-size-limit", Kind(Input), "too many tokens: size limit exceeded by {n} tokens. {any}The limit for this model is {limit} tokens"),
    ("cohere-size-limit", Kind(Input), "too many tokens: size limit exceeded by {n} tokens"),
    ("xai-prompt-length", Kind(Input), "This model's maximum prompt length is {limit} but the request contains {prompt} tokens"),
    ("mistral-too-large", Kind(Input), "Prompt contains {prompt} tokens{any}too large for model with {limit} maximum context length"),
    ("fireworks-prompt", Kind(Input), "The prompt is too long: {prompt}, model maximum context length: {limit}"),
    ("copilot-prompt", Kind(Input), "prompt token count of {prompt} exceeds the limit of {limit}"),
    ("cloudflare-window", InputOrSum, "The estimated number of input and maximum output tokens ({output}) exceeded this model context window limit ({limit})"),
    ("watsonx-limit", Kind(Input), "Invalid input argument for Model `{word}`: the number of input tokens {prompt} cannot exceed the total tokens limit {limit} for this model"),
    ("watsonx-limit", Kind(Input), "the number of input tokens {prompt} cannot exceed the total tokens limit {limit} for this model"),
    ("deepinfra-input", Kind(Input), "Requested input length {prompt} exceeds maximum input length {limit}"),
    ("moonshot-limit", Kind(Input), "Your request exceeded model token limit: {limit} (requested: {prompt})"),
    ("moonshot-limit", Kind(Input), "Your request exceeded model token limit: {limit}"),
    ("moonshot-max-length", Kind(Input), "model max length exceeded, max length: {limit}"),
    ("qwen-input-range", Kind(Input), "Range of input length should be [1,{_}{limit}]"),
    ("zhipu-max-length", Kind(Input), "Prompt exceeds max length"),
    ("zhipu-max-length", Kind(Input), "Prompt \u{8d85}\u{957f}"),
    ("volcengine-length", Kind(Input), "Input length {prompt} exceeds the maximum length {limit}"),
    ("volcengine-total", Kind(Input), "Total tokens of image and text exceed max message tokens"),
    ("minimax-window", Kind(Input), "invalid params, context window exceeds limit"),
    ("minimax-window", Kind(Input), "invalid params, context window exceeds limit ({n})"),
];

/// Wordings of servers that people run themselves.
#[rustfmt::skip]
const SERVERS: &[Wording] = &[
    ("llamacpp-context-size", Kind(Input), "request ({prompt} tokens) exceeds the available context size ({limit} tokens)"),
    ("llamacpp-context-size", Kind(Input), "the request exceeds the available context size"),
    ("llamacpp-context-size", Kind(Input), "Context size has been exceeded"),
    ("llamacpp-python-window", Kind(Input), "Requested tokens ({prompt}) exceed context window of {limit}"),
    ("vllm-prompt-length", Kind(Input), "The decoder prompt (length {prompt}) is longer than the maximum model length of {limit}"),
    ("vllm-prompt-length", Kind(Input), "The prompt (length {prompt}) is longer than the maximum model length of {limit}"),
    ("sglang-input", Kind(Input), "The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)"),
    ("sglang-input", Kind(Input), "The input is longer than the model's context length"),
    ("sglang-allowed", Kind(Input), "Input length ({prompt} tokens) exceeds the maximum allowed length ({limit} tokens)"),
    ("sglang-requested", InputOrSum, "Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of {n} tokens: {prompt} tokens from the input messages and {output} tokens for the completion"),
    ("sglang-requested", Kind(Input), "Requested token count exceeds the model's maximum context length of {limit} tokens"),
    ("tgi-total", InputOrSum, "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {prompt} `inputs` tokens and {output} `max_new_tokens`"),
    ("tgi-total", InputOrSum, "`inputs` tokens + `max_new_tokens` must be <= {limit}"),
    ("tgi-inputs", Kind(Input), "`inputs` must have less than {limit} tokens. Given: {prompt}"),
    ("ollama-context", Kind(Input), "prompt too long; exceeded max context length by {n} tokens"),
    ("ollama-context", Kind(Input), "the input length exceeds the context length"),
    ("ollama-context", Kind(Input), "input length exceeds maximum context length"),
    ("lmstudio-keep", Kind(Input), "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: {n}{_}>={_}n_ctx: {limit})"),
    ("lmstudio-keep", Kind(Input), "The number of tokens to keep from the initial prompt is greater than the context length"),
    ("lmstudio-keep", Kind(Input), "Cannot truncate prompt with n_keep ({n}) >= n_ctx ({limit})"),
    ("lmstudio-keep", Kind(Input), "Trying to keep the first {prompt} tokens when context the overflows. However, the model is loaded with context length of only {limit} tokens"),
    ("lmstudio-keep", Kind(Input), "Trying to keep the first {prompt} tokens when the context overflows. However, the model is loaded with context length of only {limit} tokens"),
    ("lmstudio-reached", Kind(OutputTruncated), "Reached context length of {limit} tokens with model"),
    ("context-length-of-model", Kind(Input), "Input length ({prompt}) exceeds model's maximum context length ({limit})"),
    ("context-length-of-model", Kind(Input), "Input length ({prompt}) exceeds the model's maximum context length ({limit})"),
    ("allowed-input-length", Kind(Input), "Input length {prompt} exceeds the maximum allowed input length of {limit} tokens"),
    ("configured-context-size", Kind(Input), "prompt has {prompt} tokens, but the configured context size is {limit} tokens"),
    ("tensorrt-prompt", Kind(Input), "Prompt length ({prompt}) exceeds maximum input length ({limit})"),
    ("tabby-sequence", Kind(Input), "Context length {prompt} is greater than max_seq_len {limit}"),
];

/// Wordings about limits other than the window: bytes of a request, characters of one text, tokens
/// of a quota.
#[rustfmt::skip]
const OTHER_LIMITS: &[Wording] = &[
    ("openai-string-length", Kind(MessageTooLong), "Invalid `{word}`: string too long. Expected a string with maximum length {n}, but got a string with length {n} instead"),
    ("jackson-string-length", Kind(MessageTooLong), "String value length ({n}) exceeds the maximum allowed ({n}, from `StreamReadConstraints.getMaxStringLength()`)"),
    ("jackson-string-length", Kind(MessageTooLong), "String length ({n}) exceeds the maximum length ({n})"),
    ("bedrock-titan-length", Kind(MessageTooLong), "Malformed input request: {any}expected maxLength: {n}, actual: {n}, please reformat your input and try again"),
    ("request-bytes", Kind(Bytes), "Request exceeds the maximum size"),
    ("request-bytes", Kind(Bytes), "Request exceeds the maximum allowed number of bytes"),
    ("request-bytes", Kind(Bytes), "Request payload size exceeds the limit: {n} bytes"),
    ("request-bytes", Kind(Bytes), "Request body too large"),
    ("request-bytes", Kind(Bytes), "http: request body too large"),
    ("request-bytes", Kind(Bytes), "Request entity too large"),
    ("request-bytes", Kind(Bytes), "Payload too large"),
    ("request-bytes", Kind(Bytes), "Failed to buffer the request body: length limit exceeded"),
    ("request-bytes", Kind(Bytes), "messages: too many total text bytes: {n} > {n}"),
    ("request-bytes", Kind(Bytes), "Sent message larger than max ({n} vs. {n})"),
    ("github-models-tokens", Kind(QuotaTooSmall), "Request body too large for {word} model. Max size: {n} tokens"),
    ("tokens-per-time", Quota, "Request too large for {any}: Limit {limit}, Requested {prompt}"),
    ("tokens-per-time", Quota, "Request too large for {any}: Limit {limit}, Used {n}, Requested {prompt}"),
    ("tokens-per-time", Quota, "Rate limit reached for {any}: Limit {limit}, Requested {prompt}"),
    ("tokens-per-time", Quota, "Rate limit reached for {any}: Limit {limit}, Used {n}, Requested {prompt}"),
    ("openrouter-prompt-credits", Kind(QuotaTooSmall), "Prompt tokens limit exceeded: {prompt} > {limit}"),
];

/// A message that matches a wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatchedWording {
    /// The name of the wording's rule.
    pub(super) rule: &'static str,
    pub(super) kind: OverflowKind,
    /// Tokens of the window; None if the message does not name them, and for other limits.
    pub(super) limit: Option<u64>,
    /// Tokens of the prompt; None in the same cases.
    pub(super) prompt: Option<u64>,
}

/// The first wording that matches the start of the message.
pub(super) fn match_message(message: &str) -> Option<MatchedWording> {
    negative_max_tokens(message).or_else(|| {
        let all = [MAXIMUM_CONTEXT_LENGTH, HOSTED, SERVERS, OTHER_LIMITS];
        all.into_iter()
            .flatten()
            .find_map(|(rule, meaning, wording)| {
                let numbers = pattern::match_start(wording, message)?;
                let kind = kind(*meaning, numbers)?;
                let is_about_window = kind.is_overflow() || kind == OutputTruncated;
                // No model has a window of 0: such a limit is an error of the server.
                let limit = numbers.limit.filter(|limit| is_about_window && *limit > 0);
                Some(MatchedWording {
                    rule,
                    kind,
                    limit,
                    prompt: numbers.prompt.filter(|_| is_about_window),
                })
            })
    })
}

fn kind(meaning: Meaning, numbers: Numbers) -> Option<OverflowKind> {
    match meaning {
        Kind(kind) => Some(kind),
        // If the prompt alone is too long, the output limit is not the cause. Without numbers, a
        // wording that names input and output is about their sum.
        InputOrSum => match (numbers.input, numbers.limit) {
            (Some(_), _) if !numbers.with_output => Some(Input),
            (Some(input), Some(limit)) if input >= limit => Some(Input),
            _ => Some(InputPlusOutput),
        },
        Quota => numbers
            .limit
            .zip(numbers.prompt)
            .is_some_and(|(limit, asked)| asked > limit)
            .then_some(QuotaTooSmall),
    }
}

/// vLLM's message for a prompt that is longer than the window: it subtracts the prompt from the
/// window, and the negative result becomes `max_tokens`. 0 and -1 prove nothing: callers send them
/// by mistake, or for "no limit".
fn negative_max_tokens(message: &str) -> Option<MatchedWording> {
    let missing =
        pattern::match_start("max_tokens must be at least 1, got -{limit}", message)?.limit?;
    let matched = MatchedWording {
        rule: "vllm-negative-room",
        kind: Input,
        limit: None,
        prompt: None,
    };
    (missing > 1).then_some(matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_matches_at_the_start_of_a_message_and_nowhere_else() {
        for (rule, _, wording) in [MAXIMUM_CONTEXT_LENGTH, HOSTED, SERVERS, OTHER_LIMITS]
            .into_iter()
            .flatten()
        {
            let mut text = (*wording).to_owned();
            let fill = [
                ("{parts}", "90 in the messages, 20 in the completion"),
                ("{any}", ""),
                ("{word}", "x"),
                ("{_}", ""),
                ("{,}", "."),
                ("{limit}", "100"),
                ("{prompt}", "120"),
                ("{output}", "30"),
                ("{n}", "7"),
            ];
            for (placeholder, filled) in fill {
                text = text.replace(placeholder, filled);
            }
            assert_eq!(
                match_message(&text).map(|matched| matched.rule),
                Some(*rule),
                "{text}"
            );
            assert_eq!(
                match_message(&format!("The user wrote: {text}")),
                None,
                "{text}"
            );
            // A backtick at the start of a pattern matches the quotation mark as well.
            assert_eq!(
                match_message(&format!("'{text}'")).filter(|_| !wording.starts_with('`')),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn a_negative_max_tokens_is_an_overflow_and_a_wrong_number_is_not() {
        let kind = |text| match_message(text).map(|matched| matched.kind);
        assert_eq!(
            kind("max_tokens must be at least 1, got -186."),
            Some(Input)
        );
        for wrong in [
            "max_tokens must be at least 1",
            "max_tokens must be at least 1, got 0.",
            "max_tokens must be at least 1, got -1.",
        ] {
            assert_eq!(kind(wrong), None, "{wrong}");
        }
    }
}
