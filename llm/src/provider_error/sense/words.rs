//! The words by which a message is read. All are in lower case and compared as a whole.

/// Words of errors about something else than the length of a context: rates, quotas, money, time,
/// credentials, and quotations without marks.
#[rustfmt::skip]
pub(super) const UNRELATED: &[&str] = &[
    // Rates and money.
    "minute", "minutes", "second", "seconds", "hour", "hours", "day", "days", "daily", "week",
    "weekly", "month", "monthly", "rate", "rates", "ratelimit", "rate-limit", "rate_limit",
    "throttled", "throttling", "quota", "quotas", "tpm", "rpm", "tpd", "rpd", "credit", "credits",
    "balance", "billing", "payment", "plan", "subscription", "tier", "trial", "organization",
    "organisation", "account", "afford", "budget", "cost", "spend", "concurrent", "concurrency",
    "queue", "overloaded", "flight",
    // Time and credentials.
    "deadline", "timeout", "timed", "ms", "expired", "expires", "expire", "key", "keys", "api_key",
    "apikey", "bearer", "jwt", "csrf", "oauth", "authentication", "authorization", "unauthorized",
    "permission", "forbidden", "credential", "credentials",
    "today", "wait", "throughput", "license", "bucket",
    // Policies.
    "policy", "policies", "moderation", "safety", "guardrail", "guardrails", "jailbreak",
    "filtered", "blocked", "flagged", "violation", "violations",
    // Reports of what somebody wrote.
    "said", "says", "wrote", "replied", "answered",
    // Limits of an account.
    "wallet", "included", "project", "upgrade",
    // Too little of something.
    "minimum", "min",
];

/// Words of errors about other limits than that of tokens. They count in the first sentence: the
/// second one may advise to send fewer images.
#[rustfmt::skip]
pub(super) const OTHER_LIMITS: &[&str] = &[
    "byte", "bytes", "kb", "mb", "gb", "kib", "mib", "gib", "kilobytes", "megabytes", "character",
    "characters", "chars", "pixel", "pixels", "file", "files", "image", "images", "audio", "video",
    "attachment", "attachments", "upload", "memory", "gpu", "vram", "cuda", "batch",
    "storage", "disk", "percent", "array", "integer", "parameter", "parameters", "json", "schema",
    "regex", "parse", "parsing", "syntax", "decode", "url", "dimension", "dimensions",
    "temperature", "top_p", "top_k", "logprobs", "n_ctx_train", "n_ctx_per_seq", "config",
    "cached", "caching", "field", "fields", "unknown", "unsupported", "unrecognized",
    "string", "strings", "device", "embedding", "embeddings", "rope", "checkpoint", "weights",
    "vocab", "vocabulary", "speculative", "json_schema", "response_format",
    "logit_bias", "grammar", "best_of", "free", "beta",
    // Words before or within what a user wrote.
    "near", "how", "why", "explain", "my",
];

/// Pairs of words of errors about something else.
pub(super) const UNRELATED_PAIRS: &[(&str, &str)] = &[
    ("invalid", "token"),
    ("access", "token"),
    ("api", "token"),
    ("auth", "token"),
    ("refresh", "token"),
    ("security", "token"),
    ("session", "token"),
    ("special", "token"),
    ("special", "tokens"),
    ("unexpected", "token"),
    ("stop", "sequence"),
    ("stop", "sequences"),
    ("usage", "limit"),
    ("draft", "model"),
    ("prompt", "template"),
    ("than", "expected"),
    ("model", "generated"),
    ("model", "returned"),
    ("too", "short"),
    ("this", "api"),
    ("left", "on"),
    ("assistant", "prefill"),
    ("message", "prefill"),
];

/// Words for how a server or a model is set up. With a word for what was sent, they may only name
/// the limit: "the prompt is longer than the slot of the cache".
pub(super) const SETUP: &[&str] = &["trained", "training", "cache", "template"];

/// Words of a message without a sent text that show another cause: use over time, tools, files.
pub(super) const USES: &[&str] = &[
    "used",
    "usage",
    "consumed",
    "remaining",
    "tool",
    "tools",
    "function",
    "functions",
    "items",
];

/// Units of a number of tokens. Any other word that ends with `_tokens` is one, too, if it is not
/// among [`OUTPUTS`].
pub(super) const TOKENS: &[&str] = &[
    "token",
    "tokens",
    "tok",
    "toks",
    "positions",
    "n_tokens",
    "num_tokens",
    "total_tokens",
    "prompt_tokens",
    "n_prompt_tokens",
    "input_tokens",
];

/// Words for what is sent, and for its evaluation by the model.
#[rustfmt::skip]
pub(super) const INPUTS: &[&str] = &[
    "prompt", "prompts", "input", "inputs", "message", "messages", "conversation", "conversations",
    "chat", "history", "query", "dialog", "dialogue", "document", "text", "transcript", "context",
    "ctx", "sequence", "request", "thread", "session", "content", "contents", "instruction",
    "instructions", "payload", "question", "decoding", "prefill", "prompt_tokens",
    "n_prompt_tokens", "input_tokens", "input_ids", "token_ids", "n_prompt", "prompt_len",
    "prompt_length", "input_len", "input_length", "input_ids_len", "num_prompt_tokens",
    "num_input_tokens", "prompt_token_count", "input_token_count", "n_past",
];

/// Inputs of which "too long" or "too large" says without any measure that the model does not take
/// them.
pub(super) const WHOLE_INPUTS: &[&str] = &[
    "prompt",
    "prompts",
    "conversation",
    "history",
    "dialog",
    "dialogue",
    "chat",
    "thread",
];

/// Inputs of which only "too long" says so.
pub(super) const LONG_INPUTS: &[&str] = &["input", "inputs", "context"];

/// Inputs of which "too long" says so in a message that speaks of tokens: their limit may be one
/// of characters.
pub(super) const LONG_INPUTS_OF_TOKENS: &[&str] = &["message", "messages", "text", "query"];

/// Words that may stand between an input and "too long".
#[rustfmt::skip]
pub(super) const FILLERS: &[&str] = &[
    "is", "are", "was", "were", "became", "has", "have", "become", "grown", "got", "length",
    "size", "token", "tokens", "count", "text", "far", "much", "way", "now",
];

/// Words that may stand before an input in a message that says no more than that it is too long.
#[rustfmt::skip]
pub(super) const DETERMINERS: &[&str] = &[
    "the", "a", "your", "this", "that", "its", "our", "user", "user's", "system", "total", "whole",
    "entire", "full", "current", "chat", "input", "combined", "provided", "supplied", "submitted",
    "given", "assembled", "rendered", "resulting", "final", "error", "sorry", "oops", "length",
    "size", "of", "and", "conversation", "message", "messages", "prompt",
];

/// Words for what the model writes, and parameters that limit it.
pub(super) const OUTPUTS: &[&str] = &[
    "output",
    "outputs",
    "completion",
    "completions",
    "generated",
    "generation",
    "response",
    "answer",
    "reply",
    "max_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "maxoutputtokens",
    "max_gen_toks",
    "num_predict",
    "n_predict",
    "output_tokens",
    "completion_tokens",
    "budget_tokens",
    "thinking.budget_tokens",
    "min_new_tokens",
    "min_tokens",
    "reasoning",
    "thinking",
    "stream",
];

/// Words before a number's unit that say that it counts output.
pub(super) const OUTPUT_UNITS: &[&str] =
    &["output", "completion", "completions", "generated", "new"];

/// Units of numbers that count no tokens.
pub(super) const OTHER_UNITS: &[&str] = &[
    "message",
    "messages",
    "item",
    "items",
    "tool",
    "tools",
    "function",
    "functions",
    "request",
    "requests",
    "element",
    "elements",
    "word",
    "words",
    "entries",
    "pages",
    "lines",
    "blocks",
    "layers",
    "turns",
    "choices",
    "sequences",
    "times",
    "samples",
    "documents",
    "inputs",
    "prompts",
    "bytes",
    "kb",
    "mb",
    "gb",
    "kib",
    "mib",
    "gib",
    "characters",
    "chars",
    "pixels",
    "files",
    "images",
    "percent",
];

/// Words that may stand between a number and its unit.
pub(super) const BEFORE_UNITS: &[&str] = &[
    "input",
    "prompt",
    "total",
    "text",
    "context",
    "more",
    "model",
    "tokenized",
    "of",
    "the",
    "message",
    "messages",
    "request",
];

/// Parameters that name a window.
pub(super) const WINDOW_NAMES: &[&str] = &[
    "max_model_len",
    "max_seq_len",
    "max_position_embeddings",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "max_input_length",
    "max_input_len",
    "max_input_tokens",
    "max_prompt_length",
    "max_prompt_len",
    "max_prompt_tokens",
    "max_total_tokens",
    "n_positions",
];

/// Words that name a window together with the word before them.
pub(super) const WINDOW_NOUNS: &[&str] = &[
    "window", "windows", "length", "lengths", "len", "size", "sizes", "limit", "limits",
    "capacity", "maximum", "max",
];

/// Words that make a limit of a number after them, wherever they stand in its clause.
pub(super) const STRONG_LIMITS: &[&str] = &[
    "max", "maximum", "limit", "allowed", "most", "only", "largest", "longest", "biggest",
    "highest", "greatest", "widest", "roomiest",
];

/// Words that make a limit of a number after them, if nothing nearer says that it was sent.
pub(super) const LIMITS: &[&str] = &[
    "limits",
    "limited",
    "supported",
    "stops",
    "window",
    "windows",
    "than",
    "capacity",
    "capped",
    "supports",
    "support",
    "allows",
    "accepts",
    "exceed",
    "exceeds",
    "exceeded",
    "exceeding",
    "over",
    "above",
    "beyond",
    "ceiling",
    "cap",
    "handles",
    "handle",
    "below",
    "under",
    "within",
    "surpasses",
    "permitted",
    "available",
    "up",
    "accept",
    "take",
    "takes",
    "read",
    "reads",
    "hold",
    "holds",
    "vs",
    "versus",
    "fits",
    "fit",
    "provides",
    "offers",
    "budget",
    "bound",
    "threshold",
    "configured",
    "room",
    "sees",
    "processes",
    "covers",
    "tops",
    "maxes",
    "ends",
    "trained",
    "sized",
    "built",
    "compiled",
    "attend",
    "attends",
];

/// Words that make a limit of a number before them.
pub(super) const LIMITS_AFTER: &[&str] = &[
    "max",
    "maximum",
    "limit",
    "window",
    "allowed",
    "permitted",
    "supported",
    "available",
    "ceiling",
    "cap",
];

/// Words that say of a number before them that it was sent.
pub(super) const SENT_AFTER: &[&str] = &[
    "given",
    "sent",
    "submitted",
    "requested",
    "received",
    "provided",
    "supplied",
    "passed",
    "found",
    "needed",
    "required",
    "got",
    "counted",
    "estimated",
];

/// Words that may stand between a word for tokens and their number.
#[rustfmt::skip]
pub(super) const BEFORE_NUMBERS: &[&str] = &[
    "count", "counts", "length", "total", "number", "estimate", "is", "was", "are", "were", "of",
    "in", "the", "your", "prompt", "input", "request", "messages", "conversation", "required",
    "requested", "needed", "sent", "at",
];

/// Words with which a sentence begins that gives advice.
#[rustfmt::skip]
pub(super) const ADVICE: &[&str] = &[
    "please", "try", "reduce", "use", "send", "shorten", "consider", "remove", "you", "see", "to",
    "either", "make", "truncate", "trim", "split", "decrease", "increase", "lower", "compact",
    "start", "set", "drop", "enable", "learn", "for",
];

/// Words that may stand between a number or a window and what is said of it.
pub(super) const AUXILIARIES: &[&str] = &[
    "is",
    "are",
    "was",
    "were",
    "be",
    "been",
    "being",
    "has",
    "have",
    "had",
    "got",
    "already",
    "fully",
    "completely",
    "now",
    "would",
    "will",
    "of",
    "for",
    "the",
    "this",
    "model",
];

/// Words that say of a number after them that it was sent.
pub(super) const SENT: &[&str] = &[
    "requested",
    "request",
    "got",
    "given",
    "received",
    "has",
    "have",
    "had",
    "contains",
    "contain",
    "resulted",
    "produced",
    "uses",
    "needs",
    "need",
    "takes",
    "be",
    "occupy",
    "occupies",
    "count",
    "counted",
    "comes",
    "come",
    "amounts",
    "amount",
    "measures",
    "encodes",
    "actual",
    "current",
    "currently",
    "measured",
    "totals",
    "totaling",
    "totalling",
    "submitted",
    "supplied",
    "passed",
    "requires",
    "required",
    "sent",
    "provided",
    "with",
    "was",
    "were",
    "you",
    "your",
    "yours",
    "prompt",
    "input",
    "messages",
    "conversation",
];

/// Words before "fit" that deny it.
pub(super) const NOT: &[&str] = &[
    "not",
    "cannot",
    "doesn't",
    "don't",
    "didn't",
    "won't",
    "can't",
    "doesn\u{2019}t",
    "won\u{2019}t",
    "can\u{2019}t",
    "failed",
    "unable",
    "never",
    "no",
    "too",
];

/// Words of other limits that may stand beside tokens of a text and their limit.
#[rustfmt::skip]
pub(super) const BESIDE: &[&str] = &[
    "attachment", "attachments", "memory", "gpu", "device", "config",
];

/// Words that say that a limit before them is exceeded.
pub(super) const EXCEEDED: &[&str] = &["exceeded", "surpassed", "overrun", "breached", "overshot"];

/// Words with which a sentence begins whose subject denies its verb.
pub(super) const NO_SUBJECTS: &[&str] = &["no", "none", "neither", "nothing"];

/// Verbs of a model that takes a text. Denied, they say of a number after them that it was sent.
pub(super) const TAKES: &[&str] = &[
    "process",
    "handle",
    "accept",
    "read",
    "take",
    "hold",
    "fit",
    "accommodate",
];

/// Words that say that there is none of the room after them, or too little.
pub(super) const LACKS: &[&str] = &["no", "not", "insufficient", "little", "without", "lacks"];

/// Words that may stand between a comparison and the context or the model that is its smaller side.
#[rustfmt::skip]
pub(super) const BEFORE_OBJECTS: &[&str] = &[
    "in", "into", "within", "for", "than", "to", "of", "what", "the", "this", "that", "a", "an",
    "your", "our", "its", "any", "long", "large", "big", "many", "much", "lengthy", "token",
    "tokens", "model", "model's", "requested", "selected", "chosen", "target", "current", "used",
    "available", "maximum", "max", "supported", "allowed", "configured", "total", "whole",
    "loaded", "remaining", "full", "slot", "slot's", "server's", "deployment's",
];

/// Words of a text that fills something.
#[rustfmt::skip]
pub(super) const FILLS: &[&str] = &[
    "use", "uses", "used", "using", "fill", "fills", "filled", "filling", "occupy", "occupies",
    "occupied", "consume", "consumes", "consumed", "take", "takes", "took", "taken",
];

/// Words that ask for a shorter text.
pub(super) const SHORTEN: &[&str] = &[
    "shorten",
    "shorter",
    "reduce",
    "trim",
    "truncate",
    "compact",
    "summarize",
    "remove",
];

/// Whether a word is a unit of tokens.
pub(super) fn is_token_unit(word: &str) -> bool {
    let is_parameter =
        || word.ends_with("_tokens") && !word.contains("budget") && !OUTPUTS.contains(&word);
    TOKENS.contains(&word) || is_parameter()
}

/// Whether a word is a parameter that names a window: one of [`WINDOW_NAMES`], or a name with
/// "context" in it that no other limit has.
pub(super) fn is_window_name(word: &str) -> bool {
    let is_of_context = || {
        let mut parts = word.split('_');
        word.contains('_') && parts.any(|part| matches!(part, "context" | "ctx"))
    };
    let is_of_name = || {
        let mut parts = word.split('_');
        parts.any(|part| {
            matches!(
                part,
                "id" | "ids" | "name" | "type" | "key" | "uuid" | "hash"
            )
        })
    };
    WINDOW_NAMES.contains(&word)
        || (is_of_context() && !is_of_name() && !OTHER_LIMITS.contains(&word))
}
