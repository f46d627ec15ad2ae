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
    "queue",
    // Time and credentials.
    "deadline", "timeout", "timed", "ms", "expired", "expires", "expire", "key", "keys", "api_key",
    "apikey", "bearer", "jwt", "csrf", "oauth", "authentication", "authorization", "unauthorized",
    "permission", "forbidden", "credential", "credentials",
    // Reports of what somebody wrote.
    "said", "says", "wrote",
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
    "cache", "cached", "caching", "field", "fields", "unknown", "unsupported", "unrecognized",
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
    ("kv", "cache"),
    ("too", "short"),
];

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
    "n_tokens",
    "num_tokens",
    "total_tokens",
    "prompt_tokens",
    "n_prompt_tokens",
    "input_tokens",
];

/// Words for what is sent.
pub(super) const INPUTS: &[&str] = &[
    "prompt",
    "prompts",
    "input",
    "inputs",
    "message",
    "messages",
    "conversation",
    "chat",
    "history",
    "query",
    "dialog",
    "dialogue",
    "document",
    "text",
    "transcript",
    "prompt_tokens",
    "n_prompt_tokens",
    "input_tokens",
    "context",
    "sequence",
    "request",
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
];

/// Parameters that name a window.
pub(super) const WINDOW_NAMES: &[&str] = &[
    "n_ctx",
    "num_ctx",
    "ctx_size",
    "max_model_len",
    "max_seq_len",
    "max_position_embeddings",
    "context_length",
    "context_size",
    "context_window",
    "max_context_length",
];

/// Words that name a window together with the word before them.
pub(super) const WINDOW_NOUNS: &[&str] = &[
    "window", "windows", "length", "lengths", "len", "size", "sizes", "limit", "limits", "capacity",
];

/// Words that make a limit of a number after them, wherever they stand in its clause.
pub(super) const STRONG_LIMITS: &[&str] = &["max", "maximum", "limit", "allowed", "most"];

/// Words that make a limit of a number after them, if nothing nearer says that it was sent.
pub(super) const LIMITS: &[&str] = &[
    "limits",
    "limited",
    "only",
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
    "requires",
    "required",
    "sent",
    "provided",
    "with",
    "was",
    "were",
    "you",
    "your",
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
];

/// Words that ask for a shorter text.
pub(super) const SHORTEN: &[&str] = &["shorten", "shorter", "reduce", "trim", "truncate"];

/// Whether a word is a unit of tokens.
pub(super) fn is_token_unit(word: &str) -> bool {
    let is_parameter =
        || word.ends_with("_tokens") && !word.contains("budget") && !OUTPUTS.contains(&word);
    TOKENS.contains(&word) || is_parameter()
}
