//! Messages that are overflows, and messages that differ little from them and are none.

use super::*;

/// Texts that are overflows, and texts that differ little from them and are none.
fn check(overflows: &[&str], others: &[&str]) {
    for text in overflows {
        assert!(judge(text, RequestSize::default()).is_some(), "{text}");
    }
    for text in others {
        assert_eq!(judge(text, RequestSize::default()), None, "{text}");
    }
}

#[test]
fn a_sum_exceeds_what_its_parts_do_not() {
    check(
        &["Request too many tokens: 1999 + 50 > 2048"],
        &[
            "Request too many tokens: 1999 + 40 > 2048",
            "too many images: 1999 + 50 > 2048",
        ],
    );
}

#[test]
fn a_demand_is_a_comparison() {
    check(
        &[
            "The prompt must be less than the context length of the model.",
            "tokenized length of messages (70122) must not exceed the context length (65536)",
            "input token count + max_tokens parameter must be less than the context length",
            "The number of tokens in the prompt, 9000, should be at most 8192",
        ],
        &[
            "max_tokens must be less than the context length of the model.",
            "The prompt must be greater than the context length.",
            "context_length must be less than 8192",
            "The prompt should be stored in the context length table.",
        ],
    );
}

#[test]
fn a_context_without_room_is_one_that_overflows() {
    check(
        &[
            "Not enough room in the context: need 18944 tokens, have 16384.",
            "The prompt leaves no room for an answer in the context window.",
            "the prompt already uses all 8192 tokens of the context",
            "Context of 8k exhausted before the start: 8611 prompt tokens.",
            "Ran out of context while the prompt was read.",
        ],
        &[
            "No space left on the volume.",
            "No room for another request.",
            "The prompt uses all features of the model.",
            "The context was canceled.",
            "Ran out of retries for the context.",
        ],
    );
}

#[test]
fn a_number_gets_its_role_from_the_words_on_both_sides() {
    check(
        &[
            "Max context is 4096 tokens but 4733 were given.",
            "The maximum context length of x-1 is 32768. However, answering your request will take 39732 tokens.",
            "Request contains 2.1M input tokens; x-1 supports 1M.",
            "Too many prompt tokens for this model: 131,500 of 128,000.",
            "140k tokens submitted, model window is 128k tokens.",
            "input_ids of shape [1, 9001] longer than max_position_embeddings=8192",
            "token count 9000 is over the 8192 token limit for this model",
        ],
        &[
            "Max context is 4096 tokens but 4033 were given.",
            "Request contains 0.9M input tokens; x-1 supports 1M.",
            "Too many messages for this model: 131,500 of 128,000.",
            "The model failed at token 9001 of 8192.",
            "The prompt exceeded a threshold by 9001 after 8192.",
            "input_ids hold 9001, which is larger than the vocabulary of 8192",
        ],
    );
}

#[test]
fn a_message_may_name_several_limits() {
    check(
        &[
            "You passed 98305 input tokens and requested 32768 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 98304 tokens.",
            "Request 181915 input tokens exceeds the model's maximum context length 202750",
            "tokens in request more than max tokens allowed",
        ],
        &[
            "You passed 98303 input tokens and requested 32768 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 98304 tokens.",
            "Requested 98305 output tokens; the context has 131072 tokens, of which 98304 may be output.",
            "max_tokens 181915 exceeds the model's maximum context length 202750",
            "Reduce 181915 input tokens, not to exceed the context length 202750",
            "tools in request more than max tokens allowed",
        ],
    );
}

#[test]
fn a_count_of_something_else_is_no_length() {
    check(
        &[
            "This conversation is too long. Start a new one.",
            "your messages add up to 131,973 tokens and x-1 only sees 128,000 at once.",
            "Too much text: this model reads at most 8k tokens and your prompt is about 11k tokens.",
        ],
        &[
            "This conversation is too long (24 messages at most).",
            "This conversation is too long (24 exchanges at most).",
            "This chat is too long: 24 turns, at most 20.",
            "your messages add up to 121,973 tokens and x-1 only sees 128,000 at once.",
        ],
    );
}

#[test]
fn a_limit_may_be_a_number_of_tokens() {
    check(
        &[
            "Your input exceeds the maximum number of tokens of this model.",
            "Cannot process 9000 tokens of input with a context window of 8192 tokens.",
            "9000 prompt tokens do not fit into 8192.",
            "The model's context window has 8192 tokens, 700 fewer than your prompt needs.",
        ],
        &[
            "Your output exceeds the maximum number of tokens of this model.",
            "Your input exceeds the maximum number of tools of this model.",
            "Cannot process 8000 tokens of input with a context window of 8192 tokens.",
            "The model's context window has 8192 tokens, 700 more than your prompt needs.",
        ],
    );
}

#[test]
fn the_owner_of_a_number_gives_its_role() {
    check(
        &[
            "9000/8192 prompt tokens",
            "The model has 8,192 tokens of context, and the messages come to 9,000.",
            "Only 8192 tokens of context are available; the prompt takes 9000.",
            "You have reached the context limit of this conversation.",
            "Could not fit the prompt into the context window",
        ],
        &[
            "8000/8192 prompt tokens",
            "The model has 8,192 tokens of context, and the messages come to 8,000.",
            "Deployment capacity of 9000 tokens exceeds 8192 available.",
            "You have reached the limit of this conversation.",
            "Could not fit the widget into the context window",
        ],
    );
}

#[test]
fn a_setup_may_name_the_limit_of_a_prompt() {
    check(
        &[
            "KV cache slot has room for 16384 tokens; the prompt alone is 16900 tokens long",
            "after applying the chat template the messages occupy 40,993 positions, 33 more than the 40,960 the model was trained for.",
            "Invalid API parameter, please check the documentation.Prompt is longer than the context window",
        ],
        &[
            "KV cache has room for 16384 tokens; the model needs 16900 tokens",
            "The context of 40,993 positions is more than the 40,960 the model was trained for.",
            "Invalid parameter temperature, the prompt is longer than the context window",
        ],
    );
}

#[test]
fn terms_of_other_languages_are_understood() {
    check(
        &[
            "Der Prompt ist mit 9.114 Token zu lang: das Kontextfenster des Modells fasst 8.192 Token.",
            "Le contexte du mod\u{e8}le est limit\u{e9} \u{e0} 32 768 tokens ; votre conversation en compte 40 112.",
            "El prompt supera la ventana de contexto del modelo.",
            "De prompt bevat 9000 tokens, maar het model accepteert er maximaal 8192.",
            "Rozmowa nie mie\u{15b}ci si\u{119} w oknie kontekstu modelu.",
            "A conversa ultrapassa a janela de contexto do modelo.",
        ],
        &[
            "Der Prompt ist mit 9.114 Zeichen zu lang: das Limit ist 8.192 Zeichen.",
            "Le contexte du mod\u{e8}le est limit\u{e9} \u{e0} 32 768 tokens ; votre conversation en compte 20 112.",
            "La clave supera la ventana de contexto del modelo.",
        ],
    );
}

#[test]
fn a_limit_of_requests_is_none_of_a_prompt() {
    check(
        &["Your messages have 40000 tokens, max 30000 tokens per request"],
        &[
            "Requested 453357 tokens, max 300000 tokens per request",
            "The max tokens per batch is 120000. Your batch has 121138 tokens.",
        ],
    );
}

#[test]
fn the_window_may_be_named_in_many_ways() {
    check(
        &[
            "The conversation is longer than the model can handle.",
            "prompt is longer than n_ctx",
            "The input is larger than the maximum supported context.",
            "The conversation no longer fits in the model's context.",
            "The context window cannot hold or fit the prompt.",
            "Total tokens exceed the model's context window.",
            "The context window of this model (8192 tokens) has been exceeded.",
            "Exceeds the context window.",
            "input prompt is too big compared to KV size",
        ],
        &[
            "The image is larger than the model can handle.",
            "The request is too large for the model.",
            "The system prompt is longer than usual in this context.",
            "The maximum tokens exceed the model's context window.",
            "The answer exceeds the context window.",
            "The token limit has been exceeded.",
            "The description exceeds the maximum length.",
        ],
    );
}

#[test]
fn a_text_that_is_too_long_must_be_the_whole_message() {
    check(
        &[
            "Prompt tokens too long",
            "Your conversation is too long, start a new one.",
            "The user message is too long. Decrease min_new_tokens.",
            "too many tokens: multi-hop prompt is too long even after truncation",
        ],
        &[
            "The user message is too long.",
            "Prompt template is too long",
            "[1] prompt is too long",
            "- prompt is too long",
            "ValueErrors are common: prompt is too long",
            "The prompt is too long ago",
            "Prompt is too long: 9000 units",
            "too many tokens",
        ],
    );
}

#[test]
fn a_lead_in_and_advice_do_not_name_what_is_too_long() {
    check(
        &[
            "Batch generation failed: Total prompt tokens (11573) exceeds safe limit (2048)",
            "The prompt has 9000 tokens, the limit is 8192. Please send fewer images.",
        ],
        &[
            "Batch total: prompt tokens (11573) exceeds safe limit (2048)",
            "The prompt has 9000 tokens, the limit is 8192. Images were counted.",
            "Image upload failed: prompt tokens (11573) exceed the daily limit (2048)",
        ],
    );
}

#[test]
fn the_models_window_confirms_or_refutes_a_message() {
    let rule = |text: &str, sent: Option<u64>, window: Option<u64>| {
        judge(text, RequestSize { sent, window }).map(|found| found.rule)
    };
    let text = "The conversation does not fit into the context window of this deployment.";
    for (sent, window, expected) in [
        (None, None, Some("sense")),
        (Some(100), None, Some("sense")),
        (None, Some(8_192), Some("sense")),
        (Some(4_095), Some(8_192), None),
        (Some(4_900), Some(8_192), Some("sense")),
        (Some(5_000), Some(8_192), Some("sense-measured")),
        (Some(20_000), Some(8_192), Some("sense-measured")),
    ] {
        assert_eq!(rule(text, sent, window), expected, "{sent:?} {window:?}");
    }
    let counts = "Sorry, 9100 tokens were sent, and this deployment reads 8192 tokens at most.";
    for (window, expected) in [(8_192, Some("sense-measured")), (200_000, None)] {
        assert_eq!(
            rule(counts, Some(9_000), Some(window)),
            expected,
            "{window}"
        );
    }
}

#[test]
fn a_code_is_read_as_words() {
    for code in [
        "ContextWindowOverflow.prompt",
        "prompt_too_long",
        "context-limit-exceeded",
    ] {
        assert!(judge_code(code, RequestSize::default()).is_some(), "{code}");
    }
    for code in [
        "TOO_MANY_TOKENS",
        "token_limit_exceeded",
        "invalid_context_window",
    ] {
        assert_eq!(judge_code(code, RequestSize::default()), None, "{code}");
    }
    assert_eq!(
        judge_code(&"prompt_too_long_".repeat(10), RequestSize::default()),
        None
    );
}
